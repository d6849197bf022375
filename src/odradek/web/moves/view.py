"""What moves now, and what the saved plan still needs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from odradek.model.command import Command, command, flag
from odradek.plan.commands import some
from odradek.plan.quantities import bytes_text
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview
from odradek.web.facts.copies import CopyFacts
from odradek.web.facts.poller import FactKey, Facts
from odradek.web.facts.topic import PartitionFacts
from odradek.web.lanes.drawing import SvgText, lanes_svg
from odradek.web.lanes.values import PartitionLanes
from odradek.web.moves.collect import MovesFacts, MovingPartition
from odradek.web.moves.mover import MoveRunStatus
from odradek.web.moves.request import reassign
from odradek.web.now.view import CLUSTER
from odradek.web.topics.view import lanes_of

MOVES: Final = FactKey("moves")
KEYS: Final = (CLUSTER, MOVES)
SHOWN: Final = 100  # running reassignments
DRAWN: Final = 4
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class MoveState(StrEnum):
    """What happens with the saved plan."""

    NONE = "none"
    RUNNING = "running"
    PAUSING = "pausing"
    INTERRUPTED = "interrupted"  # its reassignments run, and no process waits for them
    PAUSED = "paused"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingView:
    """A reassignment in progress."""

    name: str
    leader: int | None
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copies: tuple["CopyView", ...]
    svg: SvgText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyView:
    """A new replica that is being copied; `note` says why there is no time left."""

    broker: int
    held_bytes: int | None
    whole_bytes: int | None
    left_bytes: int | None
    bytes_per_s: float | None
    seconds_left: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """The plan that was begun last."""

    title: str
    begun_ms: int
    path: str
    partitions: int
    done: int
    throttle: int | None
    batch: int
    command: Command  # which rolls back by Kafka's tool


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesView:
    """The page of moves."""

    at_ms: int | None
    problem: str | None
    problems: Mapping[str, str]
    state: MoveState
    sentence: str
    run_problem: str | None
    moving: tuple[MovingView, ...]
    more: int
    left_bytes: int | None
    saved: SavedView | None
    throttled_brokers: Mapping[int, int | None]  # to bytes a second
    throttled_topics: tuple[str, ...]
    throttles: str  # both in words
    is_throttle_left: bool
    can_pause: bool
    can_continue: bool
    can_cancel: bool
    can_change_throttle: bool
    cancel_command: Command | None
    clear_commands: tuple[Command, ...]
    throttle_commands: tuple[Command, ...]  # RATE stands for bytes a second
    can_roll_back: bool
    folder: str
    brokers: tuple[BrokerOverview, ...]
    topics: tuple[str, ...]


def moves_view(facts: Facts, status: MoveRunStatus, server: Sequence[str] = ()) -> MovesView:
    """The view of the cluster's moves, and of what this process does."""
    seen, overview = facts.get(MOVES), facts.get(CLUSTER)
    cluster: ClusterOverview | None = overview.value if overview else None
    moves: MovesFacts = seen.value if seen and seen.value else MovesFacts(at_ms=0)
    state = _state(moves, status)
    is_moving = bool(moves.moving)
    throttled = {broker: _rate(options) for broker, options in moves.broker_throttles.items()}
    lefts = [copy.left_bytes for each in moves.moving for copy in each.copies]
    return MovesView(
        at_ms=seen.at_ms if seen else None,
        problem=seen.problem if seen else None,
        problems=moves.problems,
        state=state,
        sentence=_sentence(state, moves, status),
        run_problem=status.problem,
        moving=tuple(
            _moving(each, moves.drawn.get(each.partition), throttled)
            for each in moves.moving[:SHOWN]
        ),
        more=max(0, len(moves.moving) - SHOWN),
        left_bytes=None if None in lefts else sum(left for left in lefts if left is not None),
        saved=_saved(moves, server),
        throttled_brokers=throttled,
        throttled_topics=tuple(sorted(moves.topic_throttles)),
        throttles=_throttles(throttled, sorted(moves.topic_throttles)),
        is_throttle_left=bool(throttled or moves.topic_throttles)
        and not is_moving
        and not status.is_running,
        can_pause=state is MoveState.RUNNING,
        can_continue=state in (MoveState.PAUSING, MoveState.PAUSED, MoveState.INTERRUPTED),
        can_cancel=is_moving or status.is_running,
        can_change_throttle=bool(throttled) and (is_moving or status.is_running),
        cancel_command=_cancel(moves, server),
        clear_commands=tuple(_clear(moves, server)),
        throttle_commands=tuple(
            _alter(
                server,
                "brokers",
                str(broker),
                "--add-config",
                ",".join(f"{option}=RATE" for option in sorted(options)),
            )
            for broker, options in sorted(moves.broker_throttles.items())
        ),
        can_roll_back=moves.saved is not None and not is_moving and not status.is_running,
        folder=moves.folder,
        brokers=cluster.brokers if cluster else (),
        topics=tuple(topic.name for topic in cluster.topics) if cluster else (),
    )


def _state(moves: MovesFacts, status: MoveRunStatus) -> MoveState:
    if status.is_running:
        return MoveState.PAUSING if status.pauses else MoveState.RUNNING
    if moves.saved is None:
        return MoveState.NONE
    if moves.saved.is_done:
        return MoveState.DONE
    planned = moves.saved.after.keys()
    if any(each.partition in planned for each in moves.moving):
        return MoveState.INTERRUPTED
    return MoveState.PAUSED


def _sentence(state: MoveState, moves: MovesFacts, status: MoveRunStatus) -> str:
    saved, others = moves.saved, len(moves.moving)
    if state is MoveState.NONE or saved is None:
        return (
            f"{others} partitions are being moved, by another program."
            if others
            else "No replica is being moved."
        )
    total, left = len(saved.after), len(moves.unfinished)
    done = f"{total - left} of {total} partitions are as planned"
    match state:
        case MoveState.RUNNING:
            if status.progress is not None and status.progress.total_bytes:
                copied, whole = status.progress.copied_bytes, status.progress.total_bytes
                done += f", {bytes_text(copied)} of {bytes_text(whole)} are copied"
            return f"{saved.title} is being executed: {done}."
        case MoveState.PAUSING:
            return f"{saved.title} pauses after the current batch: {done}."
        case MoveState.INTERRUPTED:
            return (
                f"{saved.title} was interrupted: {done}. The replicas below are still being moved, "
                "under their throttles; no further batch begins, and nothing clears the throttles "
                "until it is continued or cancelled."
            )
        case MoveState.PAUSED:
            rest = "the rest is unchanged."
            if not left:
                rest = "its execution ended early. Continue elects the preferred leaders."
            return f"{saved.title} is not executed at the moment: {done}; {rest}"
    elsewhere = f" {others} partitions are being moved, by another program." if others else ""
    return f"{saved.title} is done.{elsewhere}"


def _saved(moves: MovesFacts, server: Sequence[str]) -> SavedView | None:
    saved = moves.saved
    if saved is None:
        return None
    return SavedView(
        title=saved.title,
        begun_ms=saved.begun_ms,
        path=saved.path,
        partitions=len(saved.after),
        done=len(saved.after) - len(moves.unfinished),
        throttle=saved.pace.throttle,
        batch=saved.pace.batch,
        command=reassign(server, saved.path, "--execute"),
    )


def _cancel(moves: MovesFacts, server: Sequence[str]) -> Command | None:
    """How Kafka's tool cancels what the saved plan moves; None if another program moves it."""
    if moves.saved is None:
        return None
    return reassign(server, moves.saved.path, "--cancel")


def _clear(moves: MovesFacts, server: Sequence[str]) -> Iterator[Command]:
    """How Kafka's tool removes the throttles that are set now."""
    throttled = [
        *(("brokers", str(id_), each) for id_, each in sorted(moves.broker_throttles.items())),
        *(("topics", name, each) for name, each in sorted(moves.topic_throttles.items())),
    ]
    for kind, name, options in throttled:
        yield _alter(server, kind, name, "--delete-config", ",".join(sorted(options)))


def _alter(server: Sequence[str], kind: str, name: str, how: str, options: str) -> Command:
    entity = ("--entity-type", kind, *flag("--entity-name", name))
    return command("kafka-configs", *server, "--alter", *entity, *flag(how, options))


def _throttles(brokers: Mapping[int, int | None], topics: Sequence[str]) -> str:
    rates = [
        f"broker {broker}" + ("" if rate is None else f" to {bytes_text(rate)}/s")
        for broker, rate in sorted(brokers.items())
    ]
    named = f"replicas of {some(topics)}" if topics else ""
    return "; ".join(filter(None, (", ".join(rates), named)))


def _rate(options: Mapping[str, str]) -> int | None:
    rates = [int(options[name]) for name in _RATES if options.get(name, "").isdecimal()]
    return min(rates, default=None)


def _moving(
    moving: MovingPartition, facts: PartitionFacts | None, throttled: Mapping[int, int | None]
) -> MovingView:
    copies = tuple(
        CopyView(
            broker=copy.broker,
            held_bytes=copy.held_bytes,
            whole_bytes=moving.leader_bytes,
            left_bytes=copy.left_bytes,
            bytes_per_s=copy.bytes_per_s,
            seconds_left=copy.seconds_left,
            note=_note(copy, throttled.get(copy.broker)),
        )
        for copy in moving.copies
    )
    return MovingView(
        name=str(moving.partition),
        leader=moving.leader,
        replicas=moving.replicas,
        adding=moving.adding,
        removing=moving.removing,
        copies=copies,
        svg=None if facts is None else lanes_svg(moving_lanes(moving, facts)),
    )


def _note(copy: CopyFacts, throttle: int | None) -> str:
    if copy.held_bytes is None:
        return "its broker does not report its size"
    if copy.left_per_s is None:
        return "the rate is not known yet"
    if copy.left_bytes and copy.left_per_s <= 0 and copy.bytes_per_s is not None:
        written = bytes_text(max(0.0, copy.bytes_per_s - copy.left_per_s))
        limit = "" if throttle is None else f", under a throttle of {bytes_text(throttle)}/s"
        return (
            f"what is left does not shrink: {written}/s are written meanwhile, and "
            f"{bytes_text(copy.bytes_per_s)}/s are copied{limit}"
        )
    return ""


def moving_lanes(moving: MovingPartition, facts: PartitionFacts) -> PartitionLanes:
    """The lanes of a partition with what is left of its copies."""
    lanes = lanes_of(moving.partition.topic, facts)
    copies = {copy.broker: copy for copy in moving.copies}
    return replace(
        lanes,
        lanes=tuple(
            replace(
                lane,
                bytes_left=copies[lane.broker].left_bytes,
                bytes_per_s=copies[lane.broker].bytes_per_s,
                seconds_left=copies[lane.broker].seconds_left,
            )
            if lane.broker in copies
            else lane
            for lane in lanes.lanes
        ),
    )
