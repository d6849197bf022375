"""A plan as the forms of the page name it: the kind, its arguments and the pace. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from odradek.model.command import Command, command, flag
from odradek.model.partition import TopicPartition
from odradek.placement.expand import expand
from odradek.plan import movement
from odradek.plan.cluster import ClusterPicture
from odradek.plan.execute import MovePace
from odradek.plan.movement import Assignment, MissingTopicError, MovementPlan, PlanError
from odradek.plan.quantities import parse_bytes
from odradek.plan.reassignment import plan_to

BATCH_MAX: Final = 10_000
PARTITIONS_MAX: Final = 10_000
PLACED_MAX: Final = 200  # partitions whose replicas a command names


class PlanKind(StrEnum):
    """What a plan is for."""

    REBALANCE = "rebalance"
    DRAIN = "drain"
    REPLICATION_FACTOR = "replication-factor"
    PARTITIONS = "partitions"
    PLACE = "place"  # replicas put elsewhere one by one
    ROLL_BACK = "roll-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A plan that somebody asks for."""

    kind: PlanKind
    pace: MovePace = field(default_factory=MovePace)
    brokers: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    count: int = 0  # the replication factor, or the number of partitions
    by_bytes: bool = False
    ignores_racks: bool = False
    puts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # partition: its replicas
    step: tuple[int, int, int] | None = None  # partition, from broker, to broker

    @property
    def topic(self) -> str:
        """The topic, of kinds that have one.

        Raises:
            PlanError: none is named.
        """
        if not self.topics:
            raise PlanError("name a topic")
        return self.topics[0]


Values = Callable[[str], Sequence[str]]


def parse_request(values: Values) -> PlanRequest:
    """The request of a form; `values` returns all values of a field.

    Raises:
        PlanError: a field is missing or invalid.
    """

    def one(name: str) -> str:
        found = [value.strip() for value in values(name)]
        return found[-1] if found else ""

    try:
        kind = PlanKind(one("kind"))
    except ValueError:
        names = ", ".join(kind.value for kind in PlanKind)
        raise PlanError(f"kind={one('kind')!r}: must be one of {names}") from None
    throttle = _bytes("throttle", one("throttle"))
    counted = {PlanKind.REPLICATION_FACTOR: "factor", PlanKind.PARTITIONS: "count"}.get(kind)
    return PlanRequest(
        kind=kind,
        pace=MovePace(
            None if throttle is None else int(throttle),
            _number("batch", one("batch") or "20", 1, BATCH_MAX),
            _bytes("batch_bytes", one("batch_bytes")),
        ),
        brokers=tuple(_number("broker", word, 0) for word in _words(values("broker"))),
        topics=tuple(_words(values("topic"))),
        count=_number(counted, one(counted), 1, PARTITIONS_MAX) if counted else 0,
        by_bytes=one("by") == "bytes",
        ignores_racks=bool(one("ignore_racks")),
        puts=dict(_put(text) for text in values("put")),
        step=_step(one("partition"), one("from"), one("to")),
    )


def _words(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word for text in values for word in text.replace(",", " ").split()))


def _number(name: str, text: str, least: int, most: int = 1 << 31) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11 and least <= int(text) <= most):
        raise PlanError(f"{name}={text!r}: must be a number from {least} on")
    return int(text)


def _bytes(name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        found = parse_bytes(text)
    except ValueError as error:
        raise PlanError(f"{name}: {error}") from None
    if found < 1:
        raise PlanError(f"{name}={text}: must be 1 byte or more")
    return found


def _put(text: str) -> tuple[int, tuple[int, ...]]:
    """`3:1,2` puts partition 3 on brokers 1 and 2."""
    partition, _, brokers = text.partition(":")
    return _number("put", partition, 0), tuple(_number("put", b, 0) for b in brokers.split(","))


def _step(partition: str, source: str, target: str) -> tuple[int, int, int] | None:
    if not partition:
        return None
    return (
        _number("partition", partition, 0),
        _number("from", source, 0),
        _number("to", target, 0),
    )


# ----------------------------------------------------------------------------------- the plan


def make_plan(
    request: PlanRequest, picture: ClusterPicture, former: Assignment | None = None
) -> MovementPlan:
    """The plan of a request; `former` is the assignment that a roll back restores.

    Raises:
        PlanError: there is no such plan, or no solver is installed.
        ApiError: the number of partitions is not possible.
    """
    used = picture.without_racks() if request.ignores_racks else picture
    match request.kind:
        case PlanKind.REBALANCE:
            return movement.rebalance(used, by_bytes=request.by_bytes)
        case PlanKind.DRAIN:
            if not request.brokers:
                raise PlanError("name a broker to drain")
            return movement.drain(used, request.brokers)
        case PlanKind.REPLICATION_FACTOR:
            if not request.topics:
                raise PlanError("name a topic")
            return movement.change_replication_factor(used, request.topics, request.count)
        case PlanKind.PARTITIONS:
            return _added(request, used)
        case PlanKind.PLACE:
            return plan_to(picture, targets_of(request, picture))
        case PlanKind.ROLL_BACK:
            if former is None:
                raise PlanError("no plan was executed from this page: there is no file of one")
            # Partitions that were deleted since are left out.
            return plan_to(
                picture, {p: held for p, held in former.items() if p in picture.partitions}
            )


def existing_of(picture: ClusterPicture, topic: str) -> dict[int, tuple[int, ...]]:
    """The replicas of each partition of a topic.

    Raises:
        MissingTopicError: there is no such topic.
    """
    found = {p.partition: r.brokers for p, r in picture.partitions.items() if p.topic == topic}
    if not found:
        raise MissingTopicError([topic])
    return dict(sorted(found.items()))


def targets_of(request: PlanRequest, picture: ClusterPicture) -> Assignment:
    """Where the replicas of a topic are put: a replica keeps its place in the order.

    Raises:
        PlanError: a partition has no replica on the broker from which it is moved, or one on the
        broker to which it is.
    """
    existing = existing_of(picture, request.topic)
    found = dict(request.puts)
    if request.step is not None:
        number, source, target = request.step
        held = found.get(number, existing.get(number, ()))
        name = f"{request.topic}-{number}"
        if source not in held:
            raise PlanError(f"{name} has no replica on broker {source}")
        if target in held:
            raise PlanError(f"{name} has a replica on broker {target} already")
        found[number] = tuple(target if broker == source else broker for broker in held)
    return {TopicPartition(request.topic, number): held for number, held in found.items()}


def _added(request: PlanRequest, picture: ClusterPicture) -> MovementPlan:
    existing = existing_of(picture, request.topic)
    new = expand(existing, picture.racks, partitions=request.count)
    before = {partition: held.brokers for partition, held in picture.partitions.items()}
    added = {TopicPartition(request.topic, number): held for number, held in new.items()}
    sizes = {partition: held.size_bytes for partition, held in picture.partitions.items()}
    return MovementPlan(before | dict.fromkeys(added, ()), before | added, sizes, 0, 0.0, 0.0, 0.0)


# ----------------------------------------------------------------------------------- commands


def title_of(request: PlanRequest) -> str:
    """What the plan is for, in a few words."""
    names = ", ".join(request.topics)
    match request.kind:
        case PlanKind.REBALANCE:
            return f"Rebalance by {'bytes' if request.by_bytes else 'replicas'}"
        case PlanKind.DRAIN:
            ids = ", ".join(map(str, request.brokers))
            return f"Drain broker{'s' if len(request.brokers) > 1 else ''} {ids}"
        case PlanKind.REPLICATION_FACTOR:
            return f"Replication factor {request.count} for {names}"
        case PlanKind.PARTITIONS:
            return f"{request.count} partitions for {names}"
        case PlanKind.PLACE:
            return f"Single replicas of {names}"
        case PlanKind.ROLL_BACK:
            return "Roll back"


def own_command(request: PlanRequest, server: Sequence[str]) -> Command | None:
    """The same plan as `odradek plan`; None if the command line has no such plan."""
    match request.kind:
        case PlanKind.REBALANCE:
            words = ["rebalance", *(["--by", "bytes"] if request.by_bytes else [])]
        case PlanKind.DRAIN:
            words = ["drain", *map(str, request.brokers)]
        case PlanKind.REPLICATION_FACTOR:
            topics = [word for topic in request.topics for word in flag("--topic", topic)]
            words = ["replication-factor", *topics, "--replication-factor", str(request.count)]
        case _:
            return None
    pace = request.pace
    if request.ignores_racks:
        words.append("--ignore-racks")
    if pace.throttle is not None:
        words += ["--throttle", str(pace.throttle)]
    words += ["--batch", str(pace.batch)]
    if pace.batch_bytes is not None:
        words += ["--batch-bytes", f"{pace.batch_bytes:.0f}"]
    return command("odradek", "plan", *words, *server, "--execute")


def kafka_command(request: PlanRequest, plan: MovementPlan, server: Sequence[str]) -> Command:
    """The same plan for Kafka's tools; the reassignment JSON is saved as `plan.json`."""
    if request.kind is PlanKind.PARTITIONS:
        topic = request.topic
        numbers = sorted(p for p in plan.after if p.topic == topic)
        placed = ",".join(":".join(map(str, plan.after[p])) for p in numbers)
        words = (*flag("--topic", topic), *flag("--partitions", request.count))
        placing = flag("--replica-assignment", placed) if len(numbers) <= PLACED_MAX else ()
        return command("kafka-topics", *server, "--alter", *words, *placing)
    throttle = request.pace.throttle
    pace = () if throttle is None else flag("--throttle", throttle)
    return reassign(server, "plan.json", *pace, "--execute")


def reassign(server: Sequence[str], file: str, *words: str) -> Command:
    """The call of kafka-reassign-partitions on a JSON file."""
    given = flag("--reassignment-json-file", file)
    return command("kafka-reassign-partitions", *server, *given, *words)
