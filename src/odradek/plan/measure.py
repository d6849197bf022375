"""Measures the throughput of one partition on a real cluster, with a topic of its own.

The topic has one partition and the replication factor of the planned topic; batches of the given
size are written with acks=all, five requests in flight, for some seconds; then all of it is read
once, on one connection. The topic is deleted at the end in any case.

Elections are measured on another topic, without stopping a broker: the order of its replicas is
changed, which copies nothing, and then all preferred leaders are elected at once. The time is the
controller's work until every broker has the metadata update, without the detection of a failure.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import odradek.client.admin.topics as admin
from odradek.client.admin.partitions import (
    PREFERRED,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from odradek.client.cluster import FETCH, Cluster
from odradek.client.connection import Connection
from odradek.client.fetch.offsets import EARLIEST, list_offsets
from odradek.client.fetch.requests import FetchLimits, Wanted, fetch
from odradek.client.kafka_errors import check
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.placement.sizing import BATCH_BYTES, Throughput
from odradek.record.batch import BatchHeader, iter_batches
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch, iter_records
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PREFIX: Final = "odradek-plan-"
_UNDER_WAY: Final = 5
_SETTLE_S: Final = 30.0
_LOOK_S: Final = 0.005
_FETCH_BYTES: Final = 4 << 20
_PRODUCE_VERSION_MAX: Final = 9


class MeasureError(OdradekError):
    """The measurement could not be completed."""


async def measure(
    cluster: Cluster,
    *,
    replication_factor: int,
    seconds: float,
    record_bytes: int,
    batch_bytes: int = BATCH_BYTES,
    codec: Codec = Codec.NONE,
) -> Throughput:
    """Measure one partition, in bytes a second on the wire.

    Raises:
        MeasureError, ApiError, ConnectionError: the measurement failed; the topic is deleted.
    """
    async with _topic(cluster, 1, replication_factor) as name:
        partition = TopicPartition(name, 0)
        produced, took_s = await _write(
            cluster, partition, _batch(record_bytes, batch_bytes, codec), seconds
        )
        read_s = await _read(cluster, partition, produced)
    return Throughput(produced / took_s, produced / read_s)


@asynccontextmanager
async def _topic(cluster: Cluster, partitions: int, replication_factor: int) -> AsyncIterator[str]:
    """The name of a new topic, which is deleted at the end."""
    name = f"{PREFIX}{random.getrandbits(64):016x}"
    settings = {"retention.bytes": "-1"}
    topic = admin.NewTopic(name, partitions, replication_factor, configs=settings)
    outcome = (await admin.create_topics(cluster, [topic]))[name]
    if outcome is not None:
        raise outcome
    try:
        yield name
    finally:
        await asyncio.shield(admin.delete_topics(cluster, [name]))


# -------------------------------------------------------------------------------------- elections


class Elections(NamedTuple):
    """The number of partitions elected, and the time until every broker had the new leaders."""

    partitions: int
    seconds: float


async def measure_elections(
    cluster: Cluster, *, partitions: int, replication_factor: int
) -> Elections:
    """Measure the election of other leaders of a number of partitions.

    Raises:
        MeasureError, ApiError, ConnectionError: the measurement failed; the topic is deleted.
    """
    if replication_factor < 2:
        raise MeasureError("with one replica there is no other leader to elect")
    async with _topic(cluster, partitions, replication_factor) as name:
        await _until(lambda: _all_in_sync(cluster, name, partitions), "its replicas in sync")
        (response,) = await admin.describe_topics(cluster, [name])
        turned = {
            TopicPartition(name, p.partition_index): [*p.replica_nodes[1:], p.replica_nodes[0]]
            for p in response.partitions
        }
        _raise_first(await alter_reassignments(cluster, turned))
        await _until(lambda: _none_moving(cluster, sorted(turned)), "its replicas reordered")
        # A partition led by its preferred replica already was elected by the auto rebalance.
        led = await _leaders(cluster, name)
        to_elect = {p: order[0] for p, order in turned.items() if led[p] != order[0]}
        if len(to_elect) < partitions / 2:
            raise MeasureError(
                "the controller elects preferred leaders by itself (auto.leader.rebalance.enable)"
            )
        return Elections(len(to_elect), await _timed(cluster, name, to_elect))


async def _timed(cluster: Cluster, topic: str, wanted: Mapping[TopicPartition, int]) -> float:
    loop = asyncio.get_running_loop()
    brokers = [await cluster.broker(node) for node in sorted(cluster.metadata.nodes)]
    started_s = loop.time()
    _raise_first(await elect_leaders(cluster, PREFERRED, sorted(wanted)))
    for broker in brokers:

        async def has_new_leaders(broker: Connection = broker) -> bool:
            return (await _led_as(broker, topic)).items() >= wanted.items()

        await _until(has_new_leaders, "its new leaders in every broker's metadata")
    return loop.time() - started_s


def _raise_first(outcomes: Mapping[TopicPartition, ApiError | None]) -> None:
    for error in outcomes.values():
        if error is not None:
            raise error


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Poll until `holds`; the interval is short compared with what is measured.

    Raises:
        MeasureError: it does not hold in time.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _SETTLE_S
    while not await holds():
        if loop.time() >= deadline_s:
            raise MeasureError(f"the topic to elect leaders on has not had {what} in time")
        await asyncio.sleep(_LOOK_S)


async def _all_in_sync(cluster: Cluster, topic: str, count: int) -> bool:
    (response,) = (await cluster.refresh([topic])).topics
    return len(response.partitions) == count and all(
        p.leader_id >= 0 and len(p.isr_nodes) == len(p.replica_nodes) for p in response.partitions
    )


async def _none_moving(cluster: Cluster, partitions: Sequence[TopicPartition]) -> bool:
    return not await list_reassignments(cluster, partitions)


async def _leaders(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    return await _led_as(await cluster.any_broker(), topic)


async def _led_as(broker: Connection, topic: str) -> dict[TopicPartition, int]:
    """The leaders of a topic's partitions in one broker's metadata."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    response = await broker.request(request, MetadataResponse)
    return {
        TopicPartition(topic, p.partition_index): p.leader_id for p in response.topics[0].partitions
    }


# ------------------------------------------------------------------------------ writing and reading


def _batch(record_bytes: int, batch_bytes: int, codec: Codec) -> bytes:
    # Values are made of 500 random words: constant values would compress to nothing, random bytes
    # would not compress.
    rng = random.Random(0)
    words = [rng.randbytes(5).hex().encode() for _ in range(500)]
    records = []
    for _ in range(max(1, batch_bytes // (record_bytes + 10))):
        value = b" ".join(rng.choices(words, k=record_bytes // 11 + 1))[:record_bytes]
        records.append(Record(None, value, 0))
    return bytes(build_batch(records, codec=codec))


async def _write(
    cluster: Cluster, partition: TopicPartition, batch: bytes, seconds: float
) -> tuple[int, float]:
    connection = await cluster.leader(partition)
    loop = asyncio.get_running_loop()
    await _produce(connection, partition, batch)  # not measured: it opens the segment's files
    started_s = loop.time()
    sent = 0

    async def keep_sending() -> None:
        nonlocal sent
        while loop.time() - started_s < seconds:
            await _produce(connection, partition, batch)
            sent += len(batch)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_UNDER_WAY):
            tasks.create_task(keep_sending())
    return sent, loop.time() - started_s


async def _produce(connection: Connection, partition: TopicPartition, batch: bytes) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=partition.topic,
                partition_data=[PartitionProduceData(index=0, records=memoryview(batch))],
            )
        ],
    )
    response = await connection.request(request, ProduceResponse, version_max=_PRODUCE_VERSION_MAX)
    (answer,) = response.responses[0].partition_responses
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code), answer.error_message)


async def _read(cluster: Cluster, partition: TopicPartition, size_bytes: int) -> float:
    """The time to read this many bytes from the start."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    offset = got = 0
    while got < size_bytes:
        before = got
        for header, _ in await _fetch(cluster, partition, offset):
            offset = header.next_offset
            got += header.size_bytes
        if got == before:
            raise MeasureError(f"{partition} ends at offset {offset}, after {got} bytes")
    return max(loop.time() - started_s, 1e-6)


async def _fetch(
    cluster: Cluster, partition: TopicPartition, offset: int
) -> list[tuple[BatchHeader, memoryview]]:
    """Batches from an offset on; empty at the end of the log."""
    connection = await cluster.leader(partition, FETCH)
    wanted = Wanted(cluster.topic_id(partition.topic), offset, _FETCH_BYTES)
    limits = FetchLimits(_FETCH_BYTES, _FETCH_BYTES)
    answer = (await fetch(connection, {partition: wanted}, limits))[partition]
    check(answer.error_code)
    data = memoryview(answer.records or b"")
    return [(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]


async def sample_keys(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    """The keys of a topic's oldest records, equally many of each partition, `count` in all.

    Raises:
        ApiError: the topic does not exist, or may not be read.
        ConnectionError: the cluster cannot be reached.
    """
    await admin.describe_topics(cluster, [topic])
    partitions = cluster.metadata.partitions(topic)
    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    keys: list[bytes | None] = []
    for partition in partitions:
        start = starts[partition].offset
        keys += await _keys_of(cluster, partition, start, -(-count // len(partitions)))
    return keys


async def _keys_of(
    cluster: Cluster, partition: TopicPartition, offset: int, count: int
) -> list[bytes | None]:
    keys: list[bytes | None] = []
    while len(keys) < count:
        batches = await _fetch(cluster, partition, offset)
        if not batches:
            break
        for header, batch in batches:
            offset = header.next_offset
            if not header.is_control:
                keys += [record.key for record in iter_records(batch)]
    return keys[:count]
