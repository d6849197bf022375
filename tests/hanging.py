"""A transaction that hangs: a batch of it arrives after its end, and no client ends it again.

So it was before brokers asked the coordinator whether a transaction is still under way (KIP-890):
a request that was held up in the network, or by a thread that slept, reaches the leader behind the
marker, and opens the transaction again. Brokers that verify transactions need an option not to
(`transaction.partition.verification.enable=false`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from odradek.client.admin.groups import describe_transaction
from odradek.client.cluster import TRANSACTION_COORDINATOR, Cluster
from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

AGE_MS = 7_200_000
LATER = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def begin(bootstrap: str, topic: str) -> None:
    """Begin a transaction in partition 0 of a topic, with a record of two hours ago."""

    async def play(client: Cluster) -> None:
        await _begin(client, f"open-in-{topic}", topic)

    _run(bootstrap, play)


def leave_hanging(bootstrap: str, topic: str) -> None:
    """Abort a transaction in partition 0 of a topic, and have a batch of it come behind that."""

    async def play(client: Cluster) -> None:
        name = f"hanging-in-{topic}"
        producer_id, epoch = await _begin(client, name, topic)
        end = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=False
        )
        coordinator = await client.coordinator(TRANSACTION_COORDINATOR, name)
        while error := (await coordinator.request(end, EndTxnResponse, version_max=4)).error_code:
            coordinator = await _again(client, name, error)
        # Before the marker is there, it would be of the transaction that ends.
        while (  # noqa: ASYNC110 - there is nothing to wait on from outside
            await describe_transaction(client, name)
        ).state != "CompleteAbort":
            await asyncio.sleep(0.05)
        await _write(client, name, topic, (producer_id, epoch), sequence=1)

    _run(bootstrap, play)


def _run(bootstrap: str, play: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await Cluster.bootstrap(bootstrap, client_id="test") as client:
            await play(client)

    asyncio.run(asyncio.wait_for(main(), 60))


async def _begin(client: Cluster, name: str, topic: str) -> tuple[int, int]:
    """Begin a transaction. Its producer's id and epoch."""
    coordinator = await client.coordinator(TRANSACTION_COORDINATOR, name)
    init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    while (given := await coordinator.request(init, InitProducerIdResponse)).error_code:
        coordinator = await _again(client, name, given.error_code)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    while error := _added(
        await coordinator.request(add, AddPartitionsToTxnResponse, version_max=3)
    ):
        coordinator = await _again(client, name, error)
    producer = given.producer_id, given.producer_epoch
    await _write(client, name, topic, producer, sequence=0)
    return producer


def _added(result: AddPartitionsToTxnResponse) -> int:
    (topic,) = result.results_by_topic_v3_and_below
    return topic.results_by_partition[0].partition_error_code


async def _again(client: Cluster, name: str, error: int) -> Connection:
    """The coordinator, a moment later, if that error goes away."""
    assert error in LATER, ErrorCode(error)
    await asyncio.sleep(0.05)
    client.drop_coordinator(TRANSACTION_COORDINATOR, name)
    return await client.coordinator(TRANSACTION_COORDINATOR, name)


async def _write(
    client: Cluster, name: str, topic: str, producer: tuple[int, int], *, sequence: int
) -> None:
    leader = await client.leader(TopicPartition(topic, 0))
    then_ms = time.time_ns() // 1_000_000 - AGE_MS
    batch = build_batch(
        [Record(b"k", b"v", then_ms)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=True,
    )
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5_000, topic_data=[data])
    answer = await leader.request(request, ProduceResponse, version_max=11)
    error = answer.responses[0].partition_responses[0].error_code
    assert not error, ErrorCode(error)
