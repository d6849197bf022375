"""Carries out a plan: in batches, under a throttle, with progress reported.

    for each batch
        throttle the brokers and replicas concerned
        AlterPartitionReassignments
        wait until none of the batch is under way any more
    clear every throttle, unless something of the batch is still under way
    elect preferred leaders of what was changed

What an interrupted or killed run leaves behind: reassignments go on by themselves, and throttles
stay, for without them the copies would take all of the network. The next run waits for the former
(`settle`), plans on what then stands, and clears the latter at its end; `cancel` takes everything
back that is under way.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import odradek.client.admin.partitions as admin_partitions
import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, OdradekError
from odradek.model.partition import TopicPartition
from odradek.plan.collect import BROKER_THROTTLES, TOPIC_THROTTLES, throttled_topics
from odradek.plan.movement import Plan

_LEADER_RATE, _FOLLOWER_RATE, _ = BROKER_THROTTLES
_LEADER_REPLICAS, _FOLLOWER_REPLICAS = TOPIC_THROTTLES
_LOOK_S: Final = 0.5


class ExecutionError(OdradekError):
    """A plan was not carried out to its end: says what was done before."""


class Progress(NamedTuple):
    """How far it is."""

    done: int  # partitions
    total: int
    copied_bytes: int
    total_bytes: int
    under_way: tuple[TopicPartition, ...]


Tell = Callable[[Progress], None]


async def execute(
    cluster: Cluster,
    plan: Plan,
    *,
    throttle: int | None,
    batch: int,
    tell: Tell,
    goes_on: Callable[[], bool] = lambda: True,
) -> int:
    """Carry out a plan. Returns how many partitions are as planned.

    Before each batch after the first `goes_on` is asked; if it says no, the rest stays as it is.
    Where this is cancelled or the cluster is lost, the batch under way keeps its throttles.

    Raises:
        ExecutionError: a broker refused; the rest of the batch is done, and throttles are gone.
        ConnectionError: the cluster is not there any more.
    """
    changed = sorted(plan.changed, key=lambda p: (plan.sizes.get(p, 0), p))
    run = _Run(cluster, plan, len(changed), tell)
    done = 0
    try:
        while done < len(changed) and (not done or goes_on()):
            await run.do(changed[done : done + batch], throttle)
            done = min(done + batch, len(changed))
    finally:
        if throttle is not None and not run.is_under_way:
            brokers = {b for p in changed for b in (*plan.before[p], *plan.after[p])}
            await asyncio.shield(clear_throttles(cluster, brokers, {p.topic for p in changed}))
    await _elect(cluster, changed[:done])
    return done


class _Run:
    """One execution under way."""

    def __init__(self, cluster: Cluster, plan: Plan, total: int, tell: Tell) -> None:
        self._cluster = cluster
        self._plan = plan
        self._total = total
        self._tell = tell
        self._done = 0
        self._copied = 0
        self.is_under_way = False

    async def do(self, partitions: Sequence[TopicPartition], throttle: int | None) -> None:
        """One batch, from its throttles to its end."""
        plan = self._plan
        if throttle is not None:
            await _set_throttles(self._cluster, plan, partitions, throttle)
        self.is_under_way = True  # from here on: the answer may be lost
        outcomes = await admin_partitions.alter_reassignments(
            self._cluster, {partition: plan.after[partition] for partition in partitions}
        )
        refused = {p: error for p, error in outcomes.items() if error is not None}
        begun = [partition for partition in partitions if partition not in refused]
        await self._wait(begun)
        self.is_under_way = False
        if refused:
            first, error = min(refused.items())
            raise ExecutionError(
                f"{len(refused)} of {len(partitions)} partitions were refused, {first}: {error}. "
                f"{self._done} of {self._total} partitions are as planned; the rest is as it was"
            )

    async def _wait(self, begun: Sequence[TopicPartition]) -> None:
        left = set(begun)
        while left:
            under_way = await admin_partitions.list_reassignments(self._cluster, sorted(left))
            for partition in left - set(under_way):
                self._done += 1
                self._copied += _arriving(self._plan, partition)
            left &= set(under_way)
            self._report(left, await self._so_far(left))
            if left:
                await asyncio.sleep(_LOOK_S)

    async def _so_far(self, left: Iterable[TopicPartition]) -> int:
        """What of the copies under way is there already."""
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
                continue  # only for show
            copied += sum(r.size_bytes for d in directories for r in d.replicas.values())
        return copied

    def _report(self, left: Iterable[TopicPartition], under_way_bytes: int) -> None:
        total = self._plan.moved_bytes
        copied = min(total, self._copied + under_way_bytes)
        self._tell(Progress(self._done, self._total, copied, total, tuple(sorted(left))))


def _arriving(plan: Plan, partition: TopicPartition) -> int:
    copies = set(plan.after[partition]) - set(plan.before[partition])
    return len(copies) * plan.sizes.get(partition, 0)


async def settle(cluster: Cluster, tell: Tell) -> int:
    """Wait for the reassignments that are under way already. How many there were."""
    begun = await admin_partitions.list_reassignments(cluster)
    left = dict(begun)
    while left:
        tell(Progress(len(begun) - len(left), len(begun), 0, 0, tuple(sorted(left))))
        await asyncio.sleep(_LOOK_S)
        left = await admin_partitions.list_reassignments(cluster, sorted(left))
    return len(begun)


async def cancel(cluster: Cluster, brokers: Iterable[int]) -> list[TopicPartition]:
    """Take back every reassignment under way, and clear the throttles. Which ones there were.

    Raises:
        ExecutionError: one could not be taken back; the others are, and throttles are gone.
    """
    under_way = await admin_partitions.list_reassignments(cluster)
    outcomes = await admin_partitions.alter_reassignments(cluster, dict.fromkeys(under_way))
    topics = {partition.topic for partition in under_way} | set(await throttled_topics(cluster))
    await clear_throttles(cluster, brokers, topics)
    failed = {p: error for p, error in outcomes.items() if error is not None}
    if failed:
        first, error = min(failed.items())
        raise ExecutionError(f"{len(failed)} cannot be cancelled, {first}: {error}")
    return sorted(under_way)


# -------------------------------------------------------------------------------------- throttles


async def _set_throttles(
    cluster: Cluster, plan: Plan, partitions: Sequence[TopicPartition], throttle: int
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
        (admin.BROKER, str(broker)): [
            admin.Alteration(_LEADER_RATE, str(throttle)),
            admin.Alteration(_FOLLOWER_RATE, str(throttle)),
        ]
        for broker in sorted(brokers)
    }
    for topic in sorted(leaders):
        changes[admin.TOPIC, topic] = [
            admin.Alteration(_LEADER_REPLICAS, ",".join(leaders[topic])),
            admin.Alteration(_FOLLOWER_REPLICAS, ",".join(followers[topic])),
        ]
    _check(await admin.alter_configs(cluster, changes), "cannot be throttled")


async def clear_throttles(cluster: Cluster, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Remove every throttle from these brokers and topics.

    Raises:
        ExecutionError: one of them does not take it; the others are clear all the same.
    """
    changes: dict[admin.Resource, list[admin.Alteration]] = {
        (admin.BROKER, str(broker)): _deletions(BROKER_THROTTLES) for broker in sorted(brokers)
    }
    for topic in sorted(topics):
        changes[admin.TOPIC, topic] = _deletions(TOPIC_THROTTLES)
    outcomes: dict[admin.Resource, ApiError | None] = {}
    for resource, alterations in changes.items():
        # One by one: a broker that is down keeps no other from it.
        try:
            outcomes |= await admin.alter_configs(cluster, {resource: alterations})
        except (ApiError, ConnectionError) as error:
            outcomes[resource] = error if isinstance(error, ApiError) else None
    _check(outcomes, "keeps its throttle")


def _deletions(names: Iterable[str]) -> list[admin.Alteration]:
    return [admin.Alteration(name, None, admin.DELETE) for name in names]


def _check(outcomes: Mapping[admin.Resource, ApiError | None], what: str) -> None:
    for (kind, name), error in outcomes.items():
        if error is not None:
            noun = "topic" if kind == admin.TOPIC else "broker"
            raise ExecutionError(f"{noun} {name} {what}: {error}")


async def _elect(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Leadership to the preferred replicas; where it is not needed, or not possible, nothing."""
    if partitions:
        await admin_partitions.elect_leaders(cluster, admin_partitions.PREFERRED, partitions)
