"""What one partition takes and gives on a real cluster: a topic of its own, written and read.

The topic has one partition and as many replicas as the topic that is planned for; batches of the
given size go out with acks=all, five requests under way, for some seconds; then all of it is read
once, from one connection. The topic is removed in the end, whatever happened.
"""

import asyncio
import random
from typing import Final

from odradek.client import admin
from odradek.client.admin_partitions import EARLIEST, list_offsets
from odradek.client.cluster import FETCH, Cluster
from odradek.client.connection import Connection
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.placement.sizing import BATCH_BYTES, Throughput
from odradek.record.batch import BatchHeader, iter_batches
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch, iter_records
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PREFIX: Final = "odradek-plan-"
_UNDER_WAY: Final = 5
_FETCH_BYTES: Final = 4 << 20
_FETCH_BY_NAME: Final = 12
_PRODUCE_VERSION_MAX: Final = 9


class MeasureError(OdradekError):
    """The cluster did not let itself be measured."""


async def measure(
    cluster: Cluster,
    *,
    replication_factor: int,
    seconds: float,
    record_bytes: int,
    batch_bytes: int = BATCH_BYTES,
    codec: Codec = Codec.NONE,
) -> Throughput:
    """Measure one partition; bytes a second, as they are on the wire.

    Raises:
        MeasureError, ApiError, ConnectionError: it could not be done; the topic is removed.
    """
    name = f"{PREFIX}{random.getrandbits(64):016x}"
    topic = admin.NewTopic(name, 1, replication_factor, configs={"retention.bytes": "-1"})
    outcome = (await admin.create_topics(cluster, [topic]))[name]
    if outcome is not None:
        raise outcome
    try:
        partition = TopicPartition(name, 0)
        produced, took_s = await _write(
            cluster, partition, _batch(record_bytes, batch_bytes, codec), seconds
        )
        read_s = await _read(cluster, partition, produced)
    finally:
        await asyncio.shield(admin.delete_topics(cluster, [name]))
    return Throughput(produced / took_s, produced / read_s)


def _batch(record_bytes: int, batch_bytes: int, codec: Codec) -> bytes:
    # Neither all equal, which compresses to nothing, nor all by chance, which does not at all.
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
    await _produce(connection, partition, batch)  # the first opens files and elects nobody any more
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
    told = await connection.request(request, ProduceResponse, version_max=_PRODUCE_VERSION_MAX)
    (answer,) = told.responses[0].partition_responses
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code), answer.error_message)


async def _read(cluster: Cluster, partition: TopicPartition, size_bytes: int) -> float:
    """How long it takes to read so many bytes from the start."""
    connection = await cluster.leader(partition, FETCH)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    offset = got = 0
    while got < size_bytes:
        before = got
        for header, _ in await _fetch(connection, partition, offset):
            offset = header.next_offset
            got += header.size_bytes
        if got == before:
            raise MeasureError(f"{partition} ends at offset {offset}, after {got} bytes")
    return max(loop.time() - started_s, 1e-6)


async def _fetch(
    connection: Connection, partition: TopicPartition, offset: int
) -> list[tuple[BatchHeader, memoryview]]:
    """Some batches from an offset on; none at the end."""
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=partition.topic,
                partitions=[
                    FetchPartition(
                        partition=partition.partition,
                        fetch_offset=offset,
                        partition_max_bytes=_FETCH_BYTES,
                    )
                ],
            )
        ],
    )
    told = await connection.request(request, FetchResponse, version_max=_FETCH_BY_NAME)
    (answer,) = told.responses[0].partitions
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    data = memoryview(answer.records or b"")
    return [(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]


async def sample_keys(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    """The keys of a topic's oldest records, as many of each partition, `count` in all.

    Raises:
        ApiError: there is no such topic, or it may not be read.
        ConnectionError: the cluster is not there any more.
    """
    await admin.describe_topics(cluster, [topic])
    partitions = cluster.picture.partitions(topic)
    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    keys: list[bytes | None] = []
    for partition in partitions:
        start = starts[partition]
        if isinstance(start, ApiError):
            raise start
        keys += await _keys_of(cluster, partition, start.offset, -(-count // len(partitions)))
    return keys


async def _keys_of(
    cluster: Cluster, partition: TopicPartition, offset: int, count: int
) -> list[bytes | None]:
    connection = await cluster.leader(partition, FETCH)
    keys: list[bytes | None] = []
    while len(keys) < count:
        batches = await _fetch(connection, partition, offset)
        if not batches:
            break
        for header, batch in batches:
            offset = header.next_offset
            if not header.is_control:
                keys += [record.key for record in iter_records(batch)]
    return keys[:count]
