"""Executes a plan: in batches, under a throttle, with progress reports.

    for each batch
        throttle the brokers and replicas concerned
        AlterPartitionReassignments
        wait until every reassignment of the batch is complete
    clear every throttle, unless a reassignment of the batch still runs
    elect preferred leaders of what was changed

What an interrupted or killed run leaves: reassignments continue by themselves, and throttles stay,
because without them the copies would use all of the network. The next run waits for the former
(`settle`), makes a new plan, and clears the latter at its end; `cancel` cancels every running
reassignment.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import odradek.client.admin.partitions as admin_partitions
import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, OdradekError
from odradek.model.partition import TopicPartition
from odradek.plan.collect import BROKER_THROTTLES, TOPIC_THROTTLES, throttled_topics, throttles_of
from odradek.plan.movement import MovementPlan
from odradek.plan.reassignment import batches, copied_bytes

_LEADER_RATE, _FOLLOWER_RATE, _ = BROKER_THROTTLES
_LEADER_REPLICAS, _FOLLOWER_REPLICAS = TOPIC_THROTTLES
_LOOK_S: Final = 0.5


class PlanExecutionError(OdradekError):
    """A plan was not completed; the text has what was done before."""


class MoveProgress(NamedTuple):
    """How far a plan is executed."""

    done: int  # partitions
    total: int
    copied_bytes: int
    total_bytes: int
    under_way: tuple[TopicPartition, ...]


class MovePace(NamedTuple):
    """How much of a plan is executed at a time, and how fast."""

    throttle: int | None = None  # bytes a second of copies on each broker
    batch: int = 20  # partitions at a time
    batch_bytes: float | None = None  # bytes copied at a time; a larger partition is moved alone


Tell = Callable[[MoveProgress], None]


async def execute(
    cluster: Cluster,
    plan: MovementPlan,
    pace: MovePace,
    *,
    tell: Tell,
    goes_on: Callable[[], bool] = lambda: True,
    rate: Callable[[int | None], int | None] = lambda throttle: throttle,
) -> int:
    """Execute a plan. Returns the number of partitions that are as planned.

    `goes_on` is called before each batch after the first; if it is False, the rest stays as it is.
    `rate` returns the throttle of a batch from that of `pace`.
    If this is cancelled or the cluster cannot be reached, the running batch keeps its throttles.

    Raises:
        PlanExecutionError: a broker refused; the rest of the batch is done, and throttles are
        cleared. ConnectionError: the cluster cannot be reached.
    """
    changed = sorted(plan.changed, key=lambda p: (plan.sizes.get(p, 0), p))
    run = _Run(cluster, plan, len(changed), tell)
    done = 0
    try:
        for each in batches(plan, changed, pace.batch, pace.batch_bytes):
            if done and not goes_on():
                break
            await run.do(each, rate(pace.throttle))
            done += len(each)
    finally:
        if pace.throttle is not None and not run.is_under_way:
            brokers = {b for p in changed for b in (*plan.before[p], *plan.after[p])}
            await asyncio.shield(clear_throttles(cluster, brokers, {p.topic for p in changed}))
    await _elect(cluster, changed[:done])
    return done


class _Run:
    """One execution of a plan."""

    def __init__(self, cluster: Cluster, plan: MovementPlan, total: int, tell: Tell) -> None:
        self._cluster = cluster
        self._plan = plan
        self._total = total
        self._tell = tell
        self._done = 0
        self._copied = 0
        self.is_under_way = False

    async def do(self, partitions: Sequence[TopicPartition], throttle: int | None) -> None:
        """Execute one batch, from setting its throttles to its completion."""
        plan = self._plan
        if throttle is not None:
            await _set_throttles(self._cluster, plan, partitions, throttle)
        self.is_under_way = True  # even if the response is lost
        outcomes = await admin_partitions.alter_reassignments(
            self._cluster, {partition: plan.after[partition] for partition in partitions}
        )
        refused = {p: error for p, error in outcomes.items() if error is not None}
        begun = [partition for partition in partitions if partition not in refused]
        await self._wait(begun)
        self.is_under_way = False
        if refused:
            first, error = min(refused.items())
            raise PlanExecutionError(
                f"{len(refused)} of {len(partitions)} partitions were refused, {first}: {error}. "
                f"{self._done} of {self._total} partitions are as planned; the rest is as it was"
            )

    async def _wait(self, begun: Sequence[TopicPartition]) -> None:
        left = set(begun)
        while left:
            under_way = await admin_partitions.list_reassignments(self._cluster, sorted(left))
            for partition in left - set(under_way):
                self._done += 1
                self._copied += copied_bytes(self._plan, partition)
            left &= set(under_way)
            self._report(left, await self._so_far(left))
            if left:
                await asyncio.sleep(_LOOK_S)

    async def _so_far(self, left: Iterable[TopicPartition]) -> int:
        """The bytes of the running copies that are copied already."""
        wanted: dict[int, list[TopicPartition]] = {}
        for partition in sorted(left):
            for broker in set(self._plan.after[partition]) - set(self._plan.before[partition]):
                wanted.setdefault(broker, []).append(partition)
        copied = 0
        for broker, partitions in sorted(wanted.items()):
            try:
                directories = await admin_partitions.describe_log_dirs(
                    self._cluster, broker, partitions
                )
            except (ApiError, ConnectionError):
                continue  # only the progress report needs it
            copied += sum(r.size_bytes for d in directories for r in d.replicas.values())
        return copied

    def _report(self, left: Iterable[TopicPartition], under_way_bytes: int) -> None:
        total = self._plan.moved_bytes
        copied = min(total, self._copied + under_way_bytes)
        self._tell(MoveProgress(self._done, self._total, copied, total, tuple(sorted(left))))


async def settle(cluster: Cluster, tell: Tell) -> int:
    """Wait for the reassignments that already run. Returns their number."""
    begun = await admin_partitions.list_reassignments(cluster)
    left = dict(begun)
    while left:
        tell(MoveProgress(len(begun) - len(left), len(begun), 0, 0, tuple(sorted(left))))
        await asyncio.sleep(_LOOK_S)
        left = await admin_partitions.list_reassignments(cluster, sorted(left))
    return len(begun)


async def cancel(cluster: Cluster, brokers: Iterable[int]) -> list[TopicPartition]:
    """Cancel every running reassignment, and clear the throttles. Returns their partitions.

    Raises:
        PlanExecutionError: one could not be cancelled; the others are, and throttles are cleared.
    """
    under_way = await admin_partitions.list_reassignments(cluster)
    outcomes = await admin_partitions.alter_reassignments(cluster, dict.fromkeys(under_way))
    topics = {partition.topic for partition in under_way} | set(await throttled_topics(cluster))
    await clear_throttles(cluster, brokers, topics)
    failed = {p: error for p, error in outcomes.items() if error is not None}
    if failed:
        first, error = min(failed.items())
        raise PlanExecutionError(f"{len(failed)} cannot be cancelled, {first}: {error}")
    return sorted(under_way)


# -------------------------------------------------------------------------------------- throttles


async def _set_throttles(
    cluster: Cluster, plan: MovementPlan, partitions: Sequence[TopicPartition], throttle: int
) -> None:
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition in partitions:
        before, after = plan.before[partition], plan.after[partition]
        arriving = set(after) - set(before)
        if not arriving:
            continue
        brokers |= {*before, *arriving}
        leaders.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in before
        )
        followers.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in sorted(arriving)
        )
    changes: dict[admin.Resource, list[admin.Alteration]] = {
        (admin.BROKER, str(broker)): _rates(throttle) for broker in sorted(brokers)
    }
    for topic in sorted(leaders):
        changes[admin.TOPIC, topic] = [
            admin.Alteration(_LEADER_REPLICAS, ",".join(leaders[topic])),
            admin.Alteration(_FOLLOWER_REPLICAS, ",".join(followers[topic])),
        ]
    _check(await admin.alter_configs(cluster, changes), "cannot be throttled")


async def change_throttles(cluster: Cluster, throttle: int) -> list[int]:
    """Set another rate on the brokers that are throttled now. Returns these brokers.

    Raises:
        PlanExecutionError: one of them refused. ApiError, ConnectionError: the cluster does not
        answer.
    """
    await cluster.refresh()
    rates, _ = await throttles_of(cluster, sorted(cluster.metadata.nodes), ())
    throttled = [broker for broker, options in sorted(rates.items()) if options]
    changes = {(admin.BROKER, str(broker)): _rates(throttle) for broker in throttled}
    if changes:
        _check(await admin.alter_configs(cluster, changes), "keeps its throttle")
    return throttled


async def clear_all_throttles(cluster: Cluster) -> None:
    """Remove every throttle, also what a killed run has left outside of the present plan.

    Raises:
        PlanExecutionError: a broker or topic refused; the others are cleared all the same.
        ApiError, ConnectionError: the cluster does not answer.
    """
    await cluster.refresh()
    await clear_throttles(cluster, sorted(cluster.metadata.nodes), await throttled_topics(cluster))


async def clear_throttles(cluster: Cluster, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Remove every throttle from these brokers and topics.

    Raises:
        PlanExecutionError: one of them refused; the others are cleared all the same.
    """
    changes: dict[admin.Resource, list[admin.Alteration]] = {
        (admin.BROKER, str(broker)): _deletions(BROKER_THROTTLES) for broker in sorted(brokers)
    }
    for topic in sorted(topics):
        changes[admin.TOPIC, topic] = _deletions(TOPIC_THROTTLES)
    outcomes: dict[admin.Resource, ApiError | None] = {}
    for resource, alterations in changes.items():
        # One by one: a broker that does not run does not prevent the others.
        try:
            outcomes |= await admin.alter_configs(cluster, {resource: alterations})
        except (ApiError, ConnectionError) as error:
            outcomes[resource] = error if isinstance(error, ApiError) else None
    _check(outcomes, "keeps its throttle")


def _rates(throttle: int) -> list[admin.Alteration]:
    return [admin.Alteration(name, str(throttle)) for name in (_LEADER_RATE, _FOLLOWER_RATE)]


def _deletions(names: Iterable[str]) -> list[admin.Alteration]:
    return [admin.Alteration(name, None, admin.DELETE) for name in names]


def _check(outcomes: Mapping[admin.Resource, ApiError | None], what: str) -> None:
    for (kind, name), error in outcomes.items():
        if error is not None:
            noun = "topic" if kind == admin.TOPIC else "broker"
            raise PlanExecutionError(f"{noun} {name} {what}: {error}")


async def _elect(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Elect the preferred replicas, where that is needed and possible."""
    if partitions:
        await admin_partitions.elect_leaders(cluster, admin_partitions.PREFERRED, partitions)
