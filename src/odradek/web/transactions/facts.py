"""Collects the transactions of any Kafka cluster from 2.8 on.

Coordinators list and describe transactions from Kafka 3.0 on. What transactions hold back is found
without them: partitions whose last stable offset is below their high watermark, and the producers
that their leaders have with an open transaction.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import odradek.client.admin.groups as admin_groups
from odradek.client.admin.groups import TransactionDescription
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import LATEST, ListedOffset
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.plan.collect import open_producers, open_transactions
from odradek.plan.commands import Caller
from odradek.plan.facts import OpenProducer
from odradek.web.facts.source import Source
from odradek.web.messages.offsets import list_offsets_now

DESCRIBED_MAX: Final = 200
_GROUPS_MAX: Final = 100
_PART_S: Final = 5.0
# The states of a transactional id without a transaction under way.
_ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPartition:
    """A partition whose last stable offset is below its high watermark."""

    partition: TopicPartition
    stable: int
    high_watermark: int
    producers: tuple[OpenProducer, ...] = ()
    groups: tuple[str, ...] = ()  # whose committed offset is the last stable offset

    @property
    def held(self) -> int:
        """The offsets that consumers with read_committed do not get yet."""
        return max(0, self.high_watermark - self.stable)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsNow:
    """All transactions under way; `problems` says what is not known, and why."""

    at_ms: int
    transactions: tuple[TransactionDescription, ...] = ()
    held: tuple[HeldPartition, ...] = ()
    idle: int = 0  # transactional ids without a transaction
    caller: Caller = Caller()  # how commands name the cluster
    problems: Mapping[str, str] = field(default_factory=dict)


async def collect_transactions(source: Source, _argument: str, _before: object) -> TransactionsNow:
    """The transactions now.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    found = await transactions_now(await source.cluster())
    return TransactionsNow(
        at_ms=found.at_ms,
        transactions=found.transactions,
        held=found.held,
        idle=found.idle,
        caller=source.caller(),
        problems=found.problems,
    )


async def transactions_now(cluster: Cluster) -> TransactionsNow:
    """The transactions of a cluster, and what they hold back.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    await cluster.refresh(None)
    problems: dict[str, str] = {}
    described: list[TransactionDescription] = []
    idle = 0
    try:
        async with asyncio.timeout(_PART_S):
            described, idle = await _described(cluster, problems)
    except (OdradekError, ConnectionError, TimeoutError) as error:
        problems["coordinators"] = _why(error)
    held: list[HeldPartition] = []
    try:
        async with asyncio.timeout(_PART_S):
            held = await held_partitions(cluster, _led(cluster))
    except (OdradekError, ConnectionError, TimeoutError) as error:
        problems["partitions"] = _why(error)
    if held:
        try:
            async with asyncio.timeout(_PART_S):
                held = await _with_groups(cluster, held)
        except (OdradekError, ConnectionError, TimeoutError) as error:
            problems["groups"] = _why(error)
    return TransactionsNow(
        at_ms=real_wall_ms(),
        transactions=tuple(sorted(described, key=lambda each: (each.started_ms, each[0]))),
        held=tuple(held),
        idle=idle,
        problems=problems,
    )


def _why(error: Exception) -> str:
    if isinstance(error, ApiError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
        return "the brokers cannot be asked: they are older than Kafka 3.0"
    return str(error) or f"a broker does not answer within {_PART_S:.0f} s"


async def _described(
    cluster: Cluster, problems: dict[str, str]
) -> tuple[list[TransactionDescription], int]:
    """The transactions under way, and the number of transactional ids without one."""
    listed = await admin_groups.list_transactions(cluster)
    under_way = [each for each in listed if each.state not in _ENDED]
    if len(under_way) > DESCRIBED_MAX:
        problems["described"] = f"only {DESCRIBED_MAX} of {len(under_way)} are described"
    found = []
    for each in sorted(under_way)[:DESCRIBED_MAX]:
        try:
            found.append(await admin_groups.describe_transaction(cluster, each.transactional_id))
        except ApiError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                problems[each.transactional_id] = str(error)
    return found, len(listed) - len(under_way)


def _led(cluster: Cluster) -> list[TopicPartition]:
    """The partitions that have a leader."""
    metadata = cluster.metadata
    names = [p for topic in sorted(metadata.topics) for p in metadata.partitions(topic)]
    without = set(metadata.without_leader(names))
    return [each for each in names if each not in without]


async def held_partitions(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> list[HeldPartition]:
    """Those of these partitions that a transaction holds back.

    Raises:
        ApiError, ConnectionError: a leader refuses, or cannot be reached.
    """
    names = list(partitions)
    try:
        producers = await open_transactions(cluster, names)
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        producers = await open_producers(cluster, names)
    specs = dict.fromkeys(sorted(producers), LATEST)
    stable = await list_offsets_now(cluster, specs, reads_committed=True)
    ends = await list_offsets_now(cluster, specs)
    found = []
    for partition in specs:
        low, high = stable.get(partition), ends.get(partition)
        if isinstance(low, ListedOffset) and isinstance(high, ListedOffset):
            held = HeldPartition(
                partition=partition,
                stable=low.offset,
                high_watermark=high.offset,
                producers=tuple(producers[partition]),
            )
            if held.held or held.producers:
                found.append(held)
    return found


async def _with_groups(cluster: Cluster, held: Collection[HeldPartition]) -> list[HeldPartition]:
    """With the groups that have read up to the last stable offset, and no further."""
    waiting: dict[TopicPartition, list[str]] = {each.partition: [] for each in held}
    stable = {each.partition: each.stable for each in held}
    for group in sorted(await admin_groups.list_groups(cluster))[:_GROUPS_MAX]:
        try:
            committed = await admin_groups.committed_offsets(cluster, group.group_id)
        except ApiError:
            continue
        for partition, names in waiting.items():
            offset = committed.get(partition)
            if offset is not None and offset.offset == stable[partition]:
                names.append(group.group_id)
    return [
        HeldPartition(
            partition=each.partition,
            stable=each.stable,
            high_watermark=each.high_watermark,
            producers=each.producers,
            groups=tuple(waiting[each.partition]),
        )
        for each in held
    ]
