"""`odradek plan ...`: plans changes to any Kafka cluster, and gives the reasons.

A plan is printed as tables and as Kafka's reassignment JSON, which `kafka-reassign-partitions`
reads; `--json` prints one JSON object. `--execute` carries the plan out. `odradek.plan` makes the
plans.
"""

import asyncio
import json
import pathlib
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from odradek.cli.connect import properties_of, with_cluster
from odradek.cli.near_names import suggestion
from odradek.cli.odradek.plan_tables import (
    cost_rows,
    loads_table,
    print_table,
    replicas_table,
)
from odradek.cli.odradek.where import cluster_options
from odradek.cli.output import bare
from odradek.cli.suggesting import SuggestingGroup
from odradek.client.cluster import Cluster
from odradek.model.command import command, flag
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable
from odradek.placement.sizing import (
    BATCH_BYTES,
    CostRules,
    Throughput,
    cost_of,
    needed_partitions,
)
from odradek.placement.walk import RoundStart
from odradek.plan import movement
from odradek.plan.assignment import as_picture, losses, propose
from odradek.plan.cluster import ClusterPicture
from odradek.plan.collect import inflow_of, picture_of
from odradek.plan.duration import duration_text, predict
from odradek.plan.execute import (
    MovePace,
    MoveProgress,
    cancel,
    clear_all_throttles,
    execute,
    settle,
)
from odradek.plan.keys import count_keys, spreads
from odradek.plan.measure import Elections, MeasureError, measure, measure_elections, sample_keys
from odradek.plan.move_risks import move_risks
from odradek.plan.movement import MissingTopicError, MovementPlan, PlanError
from odradek.plan.quantities import bytes_text, parse_bytes
from odradek.plan.reassignment import reassignment

_INTERRUPTED: Final = 130
_NAMED: Final = 5  # partitions that a message names at most
# Elections are measured on so many partitions: enough to compute the time for each, few enough
# for any cluster.
_ELECTED: Final = 50
_IGNORE_RACKS: Final = "Place replicas as if no broker had a rack."


def to_bytes(text: str) -> float:
    """A number of bytes: 4096, 50MB, 1.5GiB, 100MB/s.

    Raises:
        click.BadParameter: it is not a number of bytes.
    """
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


Command = Callable[..., Any]


def movement_options(command: Command) -> Command:
    """Options for a plan that moves replicas: the cluster, the output, and its execution."""
    for option in (
        click.option("--cancel", "cancels", is_flag=True,
                     help="Cancel the reassignments under way, and clear throttles."),
        click.option("--batch", default=20, show_default=True, type=click.IntRange(min=1),
                     help="With --execute: partitions moved at a time."),
        click.option("--batch-bytes", type=to_bytes, metavar="BYTES",
                     help="With --execute: bytes copied at a time."),
        click.option("--ignore-racks", is_flag=True, help=_IGNORE_RACKS),
        click.option("--throttle", type=to_bytes, metavar="BYTES",
                     help="Bytes per second that copies may use on each broker."),
        click.option("--execute", "executes", is_flag=True, help="Execute the plan."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ):  # fmt: skip
        command = option(command)
    return cluster_options()(command)


@click.group(cls=SuggestingGroup)
def plan() -> None:
    """Plan partitions, assignments and moves, for any Kafka cluster."""


# ------------------------------------------------------------------------------------- partitions


@plan.command
@click.option(
    "--target",
    required=True,
    type=to_bytes,
    metavar="BYTES",
    help="Bytes per second that the topic must handle.",
)
@click.option(
    "--producer-rate",
    type=to_bytes,
    metavar="BYTES",
    help="Bytes/s written to one partition; else measured.",
)
@click.option(
    "--consumer-rate",
    type=to_bytes,
    metavar="BYTES",
    help="Bytes/s read from one partition; else measured.",
)
@cluster_options(optional=True)
@click.option("--replication-factor", default=3, show_default=True, type=click.IntRange(min=1),
              help="Replicas of each partition.")  # fmt: skip
@click.option(
    "--brokers", type=click.IntRange(min=1), help="The number of brokers; else the cluster's."
)
@click.option("--seconds", default=5.0, show_default=True, help="How long to measure.")
@click.option("--record-bytes", default=1000, show_default=True, type=click.IntRange(min=1),
              help="The size of a record.")  # fmt: skip
@click.option(
    "--batch-bytes", default=BATCH_BYTES, show_default=True, help="The producer's batch.size."
)
@click.option("--present", type=click.IntRange(min=1), help="The present number of partitions.")
@click.option("--keys", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="A file with a sample of keys, one per line.")  # fmt: skip
@click.option("--keys-topic", metavar="TOPIC", help="A topic to read keys from instead.")
@click.option(
    "--sample", default=100_000, show_default=True, help="The number of its records to read."
)
@click.option("--candidates", metavar="N,N,...", help="Other counts to compare.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def partitions(
    target: float,
    servers: str | None,
    command_config: str | None,
    *,
    as_json: bool,
    **given: Any,
) -> None:
    """Calculate how many partitions a topic needs, and what they cost."""
    throughput, brokers, elections = _figures(servers, command_config, given)
    if target <= 0:
        raise PlanError(f"--target {target:g}: must be above 0")
    needed = needed_partitions(target, throughput)
    counts = sorted({needed.partitions, needed.lower_bound, *_numbers(given["candidates"])})
    rules = CostRules(batch_bytes=given["batch_bytes"])
    if elections is not None:
        rules = rules._replace(election_ms=elections.seconds * 1000 / elections.partitions)
    factor = min(given["replication_factor"], brokers)
    costs = {n: cost_of(n, replication_factor=factor, brokers=brokers, rules=rules) for n in counts}
    keys, present = _keys(servers, command_config, given)
    found = spreads(keys, sorted({*counts, *present}), present=min(present, default=None))
    if as_json:
        _print_json(
            {
                "target": target,
                "producer_bytes_s": throughput.producer,
                "consumer_bytes_s": throughput.consumer,
                "partitions": needed.partitions,
                "for_producers": needed.for_producers,
                "for_consumers": needed.for_consumers,
                "lower_bound": needed.lower_bound,
                "costs": {str(n): cost._asdict() for n, cost in costs.items()},
                "election_ms": rules.election_ms,
                "elections_measured": elections.partitions if elections is not None else 0,
                "spreads": [spread._asdict() for spread in found if keys],
            }
        )
        return
    tp, tc = bytes_text(throughput.producer), bytes_text(throughput.consumer)
    print(f"One partition takes {tp}/s (Tp) and gives {tc}/s (Tc); required are "
          f"{bytes_text(target)}/s.")  # fmt: skip
    print(_conditions(given, measured=elections is not None or None in _rates(given)))
    print(f"  for producers  target / Tp = {needed.for_producers}")
    print(f"  for consumers  target / Tc = {needed.for_consumers}")
    print(f"Partitions: {needed.partitions}, the larger of the two.")
    print(
        f"The formula target / max(Tp, Tc) gives {needed.lower_bound}. It is a lower bound: it "
        f"is what the faster side needs; with so few the slower side reaches "
        f"{bytes_text(needed.lower_bound * min(throughput))}/s."
    )
    print()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    print(
        f"What they cost, with {factor} replicas on {brokers} brokers (ulimit -n is {limit} here):"
    )
    print_table(*cost_rows(costs))
    print(
        f"Consumers: with {needed.partitions} partitions a group has work for at most "
        f"{needed.partitions} members, each of which reads {tc}/s of each partition it has; one "
        "member alone buffers up to max.partition.fetch.bytes (1 MiB) for each partition, and "
        "fetch.max.bytes (50 MiB) for each broker."
    )
    print(
        f"Elections: {rules.election_ms:.2g} ms for each partition that the failed broker led, "
        + ("modelled" if elections is None else
           f"measured on {elections.partitions} partitions in one go ("
           f"{elections.seconds * 1000:.0f} ms by preferred election, until all brokers had "
           "the new metadata)")
        + "; the time until its session expires comes on top."
    )  # fmt: skip
    if keys:
        print()
        print("How the keys of the sample spread:")
        print_table(
            ("partitions", "largest has", "even share", "times", "empty", "keys that move"),
            [
                (s.partitions, f"{s.largest_share:.2%}", f"{s.even_share:.2%}", f"{s.skew:.1f}",
                 s.empty, f"{s.moved:.1%}" if present else "-")
                for s in found
            ],
        )  # fmt: skip


def _rates(given: Mapping[str, Any]) -> tuple[Any, Any]:
    return given["producer_rate"], given["consumer_rate"]


def _conditions(given: Mapping[str, Any], *, measured: bool) -> str:
    """The conditions under which the two throughputs are valid."""
    if not measured:
        return (
            "  (as given; they are valid for the record size, acks and client of their measurement)"
        )
    own = [name for name, rate in zip(("Tp", "Tc"), _rates(given), strict=True) if rate is not None]
    but = f"; {' and '.join(own)} as given" if own else ""
    return (
        f"  (measured with odradek's own client in Python: one producer, then one consumer, on one "
        f"connection each; records of {given['record_bytes']} bytes in batches of "
        f"{given['batch_bytes']}, not compressed, acks=all, five requests under way, "
        f"{given['seconds']:g} s{but}; other clients differ)"
    )


def _figures(
    servers: str | None, command_config: str | None, given: Mapping[str, Any]
) -> tuple[Throughput, int, Elections | None]:
    """The throughput of one partition, the number of brokers, and the time of elections."""
    rates = _rates(given)
    if all(rate is not None for rate in rates):
        if min(rates) <= 0:
            raise PlanError("--producer-rate and --consumer-rate must be above 0")
        brokers = given["brokers"] or given["replication_factor"]
        return Throughput(*rates), brokers, None
    if servers is None:
        raise PlanError(
            "give --producer-rate and --consumer-rate, or --bootstrap-server of a cluster on which "
            "they can be measured"
        )
    found: list[tuple[Throughput, int, Elections | None]] = []

    async def work(cluster: Cluster) -> int:
        await cluster.refresh()
        count = len(await cluster.nodes())
        factor = min(given["replication_factor"], count)
        print(f"measuring one partition for {given['seconds']:g} s ...", file=sys.stderr)
        measured = await measure(
            cluster,
            replication_factor=factor,
            seconds=given["seconds"],
            record_bytes=given["record_bytes"],
            batch_bytes=given["batch_bytes"],
        )
        elections = await _elections(cluster, factor)
        found.append((measured, given["brokers"] or count, elections))
        return 0

    with_cluster(servers, properties_of(command_config), work)
    measured, brokers, elections = found[0]
    throughput = Throughput(rates[0] or measured.producer, rates[1] or measured.consumer)
    return throughput, brokers, elections


async def _elections(cluster: Cluster, replication_factor: int) -> Elections | None:
    """The time of elections; None, with the reason on stderr, if they cannot be measured."""
    print(f"measuring the elections of {_ELECTED} partitions ...", file=sys.stderr)
    try:
        return await measure_elections(
            cluster, partitions=_ELECTED, replication_factor=replication_factor
        )
    except (MeasureError, ApiError) as error:
        print(f"elections are modelled, not measured: {error}", file=sys.stderr)
        return None


def _keys(
    servers: str | None, command_config: str | None, given: Mapping[str, Any]
) -> tuple[Counter[bytes], set[int]]:
    """A sample of keys, and the present number of partitions or None."""
    present = {given["present"]} - {None}
    if given["keys"] is not None:
        with pathlib.Path(given["keys"]).open("rb") as file:
            return count_keys(line.rstrip(b"\r\n") for line in file), present
    topic = given["keys_topic"]
    if topic is None:
        return Counter(), present
    if servers is None:
        raise PlanError("--keys-topic needs --bootstrap-server")
    sampled: list[bytes | None] = []

    async def work(cluster: Cluster) -> int:
        sampled.extend(await sample_keys(cluster, topic, given["sample"]))
        present.add(given["present"] or len(cluster.metadata.partitions(topic)))
        return 0

    with_cluster(servers, properties_of(command_config), work)
    return count_keys(sampled), present


def _numbers(text: str | None) -> list[int]:
    if not text:
        return []
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(f"{text!r} is not a list of numbers such as 6,12,24") from None
    if min(found) < 1:
        raise PlanError(f"{text!r}: numbers of partitions begin with 1")
    return found


# ------------------------------------------------------------------------------------- assignment


@plan.command
@click.option("--topic", default="new-topic", show_default=True, help="The name of the topic.")
@click.option("--partitions", "count", required=True, type=click.IntRange(min=1),
              help="The number of partitions.")  # fmt: skip
@click.option("--replication-factor", default=3, show_default=True, type=click.IntRange(min=1),
              help="Replicas of each partition.")  # fmt: skip
@click.option("--min-insync-replicas", "isr_min", default=1, show_default=True,
              help="The topic's min.insync.replicas.")  # fmt: skip
@click.option(
    "--start", type=click.IntRange(min=0), help="The index of the first broker; else random."
)
@click.option(
    "--shift", type=click.IntRange(min=0), help="The first shift of followers; else random."
)
@click.option("--ignore-racks", is_flag=True, help=_IGNORE_RACKS)
@click.option("--brokers", "listed", metavar="N|ID,ID,...",
              help="Without a cluster: the number of brokers, or their ids.")  # fmt: skip
@click.option("--racks", metavar="A,A,B,...",
              help="Without a cluster: the brokers' racks, in order.")  # fmt: skip
@cluster_options(optional=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def assignment(
    servers: str | None,
    command_config: str | None,
    listed: str | None,
    racks: str | None,
    *,
    as_json: bool,
    **given: Any,
) -> None:
    """Show where a new topic's replicas would go, why, and what remains after a failure."""
    if servers is None:
        picture = ClusterPicture(imagined(listed, racks), {}, {})
        _show_assignment(picture, given, as_json=as_json)
        return
    if listed is not None or racks is not None:
        raise PlanError("--bootstrap-server names a cluster; --brokers and --racks do without one")

    async def work(cluster: Cluster) -> int:
        picture = await picture_of(cluster, sizes=False, topics=[])
        _show_assignment(picture, given, as_json=as_json)
        return 0

    with_cluster(servers, properties_of(command_config), work)


def imagined(listed: str | None, racks: str | None) -> dict[int, str | None]:
    """Brokers that need not exist: id to rack or None.

    Raises:
        PlanError: neither is given, an id is invalid, or the numbers of racks and brokers differ.
    """
    names: list[str | None] = [rack.strip() for rack in racks.split(",")] if racks else []
    if listed is None and not names:
        raise PlanError(
            "give --brokers (5, or ids as 1,2,7) or --racks (A,A,B,B), or --bootstrap-server of a "
            "cluster"
        )
    text = str(len(names)) if listed is None else listed
    try:
        ids = [int(word) for word in text.split(",")]
    except ValueError:
        raise PlanError(
            f"--brokers {text}: must be a number such as 5, or ids such as 1,2,7"
        ) from None
    if "," not in text:
        ids = list(range(ids[0]))
    if not ids or min(ids) < 0 or len(set(ids)) < len(ids):
        raise PlanError(f"--brokers {text}: must be at least one, each id once and not below 0")
    if names and len(names) != len(ids):
        raise PlanError(f"--racks has {len(names)} racks for {len(ids)} brokers")
    return dict(zip(ids, names or [None] * len(ids), strict=True))


def _show_assignment(picture: ClusterPicture, given: Mapping[str, Any], *, as_json: bool) -> None:
    racks = dict.fromkeys(picture.racks) if given["ignore_racks"] else dict(picture.racks)
    drawn = random.randrange(len(racks))
    start = RoundStart(
        drawn if given["start"] is None else given["start"] % len(racks),
        drawn if given["shift"] is None else given["shift"],
    )
    proposal = propose(
        racks,
        partitions=given["count"],
        replication_factor=given["replication_factor"],
        start=start,
    )
    alone = as_picture(racks, given["topic"], proposal, isr_min=given["isr_min"])
    placed = {partition: held.brokers for partition, held in alone.partitions.items()}
    lost = losses(alone, placed)
    argument = ",".join(":".join(map(str, r)) for _, r in sorted(proposal.assignment.items()))
    if as_json:
        _print_json(
            {
                "start": start.index,
                "shift": start.shift,
                "assignment": {str(p): list(r) for p, r in proposal.assignment.items()},
                "reasons": {str(p): list(r) for p, r in proposal.reasons.items()},
                "losses": [loss._asdict() for loss in lost],
            }
        )
        return
    print(
        f"start index {start.index}, replica shift {start.shift}, n = {len(racks)} brokers: "
        "leader (p + start) % n, follower j (leader + 1 + (shift + j) % (n - 1)) % n;"
    )
    print("these are indexes into the list of brokers; the shift grows by 1 every n partitions.")
    print()
    for number, replicas in sorted(proposal.assignment.items()):
        print(f"{given['topic']}-{number}: {','.join(map(str, replicas))}")
        for reason in proposal.reasons[number]:
            print(f"    {reason}")
    print()
    replicas_table(racks, proposal.assignment)
    print()
    print("What each loss leaves:")
    print_table(
        ("without", "offline", "under min.insync", "leaders moved"),
        [(loss.name, loss.offline, loss.under_min_isr, loss.leaders_moved) for loss in lost],
    )
    print()
    placing = (*flag("--topic", given["topic"]), *flag("--replica-assignment", argument))
    print(command("kafka-topics", "--create", *placing))


# ----------------------------------------------------------------------------------- what is moved


@plan.command
@click.option("--by", type=click.Choice(["replicas", "bytes"]), default="replicas",
              show_default=True, help="What is balanced over brokers.")  # fmt: skip
@movement_options
def rebalance(by: str, servers: str, command_config: str | None, **given: Any) -> int:
    """Balance replicas over brokers, with as few moves as possible."""
    return _move(
        servers,
        command_config,
        given,
        lambda picture: movement.rebalance(picture, by_bytes=by == "bytes"),
    )


@plan.command
@click.argument("brokers", nargs=-1, required=True, type=click.IntRange(min=0))
@movement_options
def drain(brokers: Sequence[int], servers: str, command_config: str | None, **given: Any) -> int:
    """Move all replicas away from BROKERS."""
    return _move(servers, command_config, given, lambda picture: movement.drain(picture, brokers))


@plan.command("replication-factor")
@click.option("--topic", "topics", multiple=True, required=True, help="The topic; may be repeated.")
@click.option("--replication-factor", "factor", required=True, type=int,
              help="The number of replicas to have.")  # fmt: skip
@movement_options
def replication_factor(
    topics: Sequence[str],
    factor: int,
    servers: str,
    command_config: str | None,
    **given: Any,
) -> int:
    """Change the number of replicas of a topic's partitions."""

    def make(picture: ClusterPicture) -> MovementPlan:
        try:
            return movement.change_replication_factor(picture, topics, factor)
        except MissingTopicError as error:
            existing = {partition.topic for partition in picture.partitions}
            raise PlanError(f"{error}{suggestion(error.topics[0], existing)}") from None

    return _move(servers, command_config, given, make)


def _move(
    servers: str,
    command_config: str | None,
    given: Mapping[str, Any],
    make: Callable[[ClusterPicture], MovementPlan],
) -> int:
    throttle = given["throttle"]
    if throttle is not None and throttle < 1:
        raise PlanError(f"--throttle {throttle:g}: must be 1 byte a second or more")

    async def work(cluster: Cluster) -> int:
        if given["cancels"]:
            await cluster.refresh()
            taken = await cancel(cluster, sorted(cluster.metadata.nodes))
            print(f"{len(taken)} reassignments cancelled; throttles cleared")
            return 0
        if given["executes"]:
            waited = await settle(cluster, _tell)
            if waited:
                print(f"{waited} reassignments were under way; they are complete", file=sys.stderr)
        picture = await picture_of(cluster)
        inflow = await inflow_of(cluster, picture) if throttle else {}
        began_s = time.monotonic()
        made = make(picture.without_racks() if given["ignore_racks"] else picture)
        took_s = time.monotonic() - began_s
        _show_plan(picture, made, took_s, throttle, inflow, as_json=given["as_json"])
        if not given["executes"]:
            return 0
        if made.changed:
            execution = _Execution(cluster, made, throttle, given)
            code = await execution.run()
            if code:
                return code
        # Throttles that a killed run has left on topics and brokers outside this plan.
        await clear_all_throttles(cluster)
        print(f"{len(made.changed)} partitions are as planned; throttles cleared", file=sys.stderr)
        return 0

    return with_cluster(servers, properties_of(command_config), work)


class _Execution:
    """The execution of a plan, which Ctrl-C stops in two steps.

    After the first Ctrl-C no further batch begins, and the current one is awaited under the
    throttle. The second ends the command at once; the copies continue, and the throttle stays.
    """

    def __init__(
        self,
        cluster: Cluster,
        made: MovementPlan,
        throttle: float | None,
        given: Mapping[str, Any],
    ) -> None:
        self._cluster = cluster
        self._made = made
        self._throttle = None if throttle is None else int(throttle)
        self._given = given
        self._stops = False
        self._progress = MoveProgress(0, len(made.changed), 0, 0, ())
        # The command line that makes this plan again: without --execute and --cancel.
        typed = click.get_current_context().obj or []
        self._words = ("odradek", *(word for word in typed if word != "--execute"))

    async def run(self) -> int:
        """Execute the plan. Returns the exit code: 0, or 130 if it was interrupted."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted, task)
        try:
            done = await execute(
                self._cluster,
                self._made,
                MovePace(self._throttle, self._given["batch"], self._given["batch_bytes"]),
                tell=self._tell,
                goes_on=lambda: not self._stops,
            )
        except asyncio.CancelledError:
            task.uncancel()
            self._say("ended; the moves under way continue" + self._throttle_text("stays set"))
            return _INTERRUPTED
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if done == len(self._made.changed):
            return 0
        self._say(
            f"interrupted: {done} of {len(self._made.changed)} partitions are as planned, the rest "
            "is unchanged, and no replica moves any more" + self._throttle_text("is cleared")
        )
        self._say(f"  to continue:   {self._again('--execute')}")
        return _INTERRUPTED

    def _tell(self, progress: MoveProgress) -> None:
        self._progress = progress
        _tell(progress)

    def _interrupted(self, task: asyncio.Task[int]) -> None:
        if self._stops:
            task.cancel()
            return
        self._stops = True
        progress = self._progress
        moving = [str(partition) for partition in progress.under_way]
        some = ", ".join(moving[:_NAMED]) or "the current batch"
        more = f" and {len(moving) - _NAMED} more" if len(moving) > _NAMED else ""
        stays = self._throttle_text("stays until they are done")
        self._say(
            f"\ninterrupted: {progress.done} of {progress.total} partitions are as planned; "
            f"still moving: {some}{more}{stays}"
        )
        self._say(
            "no further batch begins; waiting for the current one (Ctrl-C again: end at once)"
        )
        self._say(f"  to cancel:     {self._again('--cancel')}")
        self._say(f"  to continue:   {self._again('--execute')}")

    def _throttle_text(self, becomes: str) -> str:
        if self._throttle is None:
            return ""
        return f"; the throttle of {bytes_text(self._throttle)}/s {becomes}"

    def _again(self, how: str) -> str:
        return str(command(*self._words, how))

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _show_plan(
    picture: ClusterPicture,
    made: MovementPlan,
    took_s: float,
    throttle: float | None,
    inflow: Mapping[TopicPartition, float],
    *,
    as_json: bool,
) -> None:
    duration = predict(made, throttle, inflow) if throttle else None
    if as_json:
        _print_json(
            {
                "reassignment": reassignment(made.after, made.changed),
                "rollback": reassignment(made.before, made.changed),
                "changed": len(made.changed),
                "copied": len(made.moved),
                "moved_bytes": made.moved_bytes,
                "bound_bytes": made.bound_bytes,
                "gap": made.gap,
                "imbalance": made.imbalance,
                "imbalance_bound": made.imbalance_bound,
                "seconds": None if duration is None else duration.seconds,
                "planned_in_s": took_s,
                "cautions": [
                    {"kind": c.kind, "partitions": list(map(str, c.partitions)), "text": c.text}
                    for c in move_risks(picture, made)
                ],
            }
        )
        return
    if not made.changed:
        print("No change is needed.")
        return
    loads_table(picture, made.before, made.after)
    print()
    print(
        f"{len(made.changed)} partitions change, {len(made.moved)} of them are copied: "
        f"{bytes_text(made.moved_bytes)}. No plan of the best balance copies less than "
        f"{bytes_text(made.bound_bytes)} (gap {made.gap:.2%}; planned in {took_s:.1f} s)."
    )
    if made.imbalance > made.imbalance_bound + 1e-6:
        print(
            f"The brokers are {made.imbalance:.0f} off their shares in all; "
            f"{made.imbalance_bound:.0f} is proven to be the least."
        )
    if duration is not None and duration.broker >= 0:
        print(duration_text(duration, throttle or 0.0))
    for risk in move_risks(picture, made):
        print(f"Caution: {risk}.")
    print()
    print("Current partition replica assignment")
    print()
    print(json.dumps(reassignment(made.before, made.changed), separators=(",", ":")))
    print()
    print("Proposed partition reassignment configuration")
    print()
    print(json.dumps(reassignment(made.after, made.changed), separators=(",", ":")))


def _tell(progress: MoveProgress) -> None:
    share = f", {bytes_text(progress.copied_bytes)} of {bytes_text(progress.total_bytes)}" if (
        progress.total_bytes
    ) else ""  # fmt: skip
    waiting = f"; under way: {', '.join(map(str, progress.under_way[:3]))}" if (
        progress.under_way
    ) else ""  # fmt: skip
    line = f"{progress.done} of {progress.total} partitions{share}{waiting}"
    if sys.stderr.isatty():
        end = "" if progress.under_way else "\n"
        print(f"\r\033[K{printable(line)}", end=end, file=bare(sys.stderr))
    else:
        print(line, file=sys.stderr)


def _print_json(tree: object) -> None:
    print(json.dumps(tree, indent=2))
