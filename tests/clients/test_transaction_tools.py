"""kafka-transactions of Apache Kafka lists, describes, finds hanging transactions, aborts them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import java_tools
import pytest
from harness import Cluster
from java_tools import Tool, line, tool

from odradek.client.cluster import TRANSACTION_COORDINATOR
from odradek.client.cluster import Cluster as Client
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

__all__ = ["line", "tool"]  # fixtures
pytestmark = pytest.mark.jvm
java_tools.CLASSES["transactions"] = "org.apache.kafka.tools.TransactionsCommand"

TWO_HOURS_MS: Final = 7_200_000
SWITCH: Final = "transaction.partition.verification.enable"


@pytest.fixture
def unverified(tool: Tool) -> Iterator[None]:
    """Leaders accept transactions without a coordinator, as before Kafka 3.6."""
    everywhere = ["--entity-type", "brokers", "--entity-default", "--alter"]
    tool("configs", *everywhere, "--add-config", f"{SWITCH}=false")
    yield
    tool("configs", *everywhere, "--delete-config", SWITCH)


@pytest.fixture
def topic(tool: Tool, line: str) -> Iterator[str]:
    name = f"transactions-{line}-{time.time_ns():x}"
    tool("topics", "--create", "--topic", name, "--partitions", "1")
    yield name
    tool("topics", "--delete", "--topic", name)


def play(cluster: Cluster, story: Callable[[Client], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with await Client.bootstrap(cluster.bootstrap, client_id="test") as client:
            return await story(client)

    return asyncio.run(main())


async def begin(client: Client, name: str, topic: str) -> int:
    """Open a transaction. Returns its producer id."""
    while True:
        coordinator = await client.coordinator(TRANSACTION_COORDINATOR, name)
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
        answer = await coordinator.request(init, InitProducerIdResponse)
        if not answer.error_code:
            break
        assert answer.error_code in {
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        }
        await asyncio.sleep(0.05)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=answer.producer_id,
        v3_and_below_producer_epoch=answer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    added = await coordinator.request(request, AddPartitionsToTxnResponse, version_max=3)
    assert not added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return answer.producer_id


async def leave_hanging(client: Client, topic: str) -> int:
    """Write a batch of a transaction without a coordinator, two hours old."""
    leader = await client.leader(TopicPartition(topic, 0))
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    given = await leader.request(init, InitProducerIdResponse)
    then_ms = time.time_ns() // 1_000_000 - TWO_HOURS_MS
    batch = build_batch(
        [Record(b"k", b"v", then_ms)],
        producer_id=given.producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5_000, topic_data=[data])
    while True:  # the brokers apply their configuration a moment later
        answer = await leader.request(request, ProduceResponse, version_max=11)
        error = answer.responses[0].partition_responses[0].error_code
        if not error:
            return given.producer_id
        await asyncio.sleep(0.1)


def row(text: str, *starts: str) -> list[str]:
    """The cells of the row that begins like this."""
    rows = [each.split() for each in text.splitlines()]
    (found,) = (cells for cells in rows if cells[: len(starts)] == list(starts))
    return found


def test_an_open_transaction_is_listed_and_described(
    cluster: Cluster, tool: Tool, topic: str
) -> None:
    name = f"{topic}-id"
    producer_id = play(cluster, lambda client: begin(client, name, topic))
    listed = row(tool("transactions", "list"), name)
    assert listed[2:] == [str(producer_id), "Ongoing"]
    described = tool("transactions", "describe", "--transactional-id", name).split()
    for word in (name, str(producer_id), "Ongoing", "600000", f"{topic}-0"):
        assert word in described, described


def test_a_hanging_transaction_is_found_and_aborted(
    cluster: Cluster, tool: Tool, topic: str, unverified: None
) -> None:
    producer_id = play(cluster, lambda client: leave_hanging(client, topic))
    of_topic = ["--topic", topic, "--partition", "0"]
    hangs = row(tool("transactions", "find-hanging", *of_topic), topic, "0", str(producer_id))
    assert hangs[3:6] == ["0", "-1", "0"], "epoch, coordinator epoch, start offset"
    producers = tool("transactions", "describe-producers", *of_topic)
    assert row(producers, str(producer_id))[:3] == [str(producer_id), "0", "-1"]
    tool("transactions", "abort", *of_topic, "--start-offset", "0")
    assert str(producer_id) not in tool("transactions", "find-hanging", *of_topic)
    assert "None" in row(tool("transactions", "describe-producers", *of_topic), str(producer_id))
