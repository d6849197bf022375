"""The producer: when batches are sent, what is retried, and sequence numbers."""

import asyncio

import pytest
from tests.unit.client.fakes import FakeCluster

from odradek.client.errors import (
    ClientTimeoutError,
    ClosedError,
    IllegalStateError,
    RecordTooLargeError,
)
from odradek.client.group.offsets import GroupMetadata, OffsetAndMetadata
from odradek.client.producer.batches import PartitionQueue, ProducerIdAndEpoch
from odradek.client.producer.partitioner import partition_of_key
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import read_header
from odradek.record.records import Record, iter_records
from odradek.sim.world.loop import run
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.messages.end_txn import EndTxnResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse


def producing(then, *, answers=(), partitions=1, **properties):
    """Run `then(producer, cluster)`, with these answers to produce requests."""

    async def play():
        text = {name.replace("_", "."): str(value) for name, value in properties.items()}
        settings = ProducerSettings.from_properties(text)
        cluster = FakeCluster(partitions, settings=settings.client)
        cluster.connection.produce = list(answers)
        producer = Producer(cluster, settings, draw=lambda: 0.0, wall_ms=lambda: 1000)
        try:
            await asyncio.wait_for(then(producer, cluster), 1000)
        finally:
            await producer.close(0)
        return cluster

    return run(play())


def sent(cluster):
    """Partition, base sequence, producer epoch and values of each sent batch."""
    return [
        (
            partition.partition,
            read_header(batch).base_sequence,
            read_header(batch).producer_epoch,
            [record.value for record in iter_records(batch)],
        )
        for partition, batch in cluster.connection.produced
    ]


def test_the_metadata_of_a_record_has_its_partition_and_offset():
    async def then(producer, cluster):
        first = await producer.send("t", b"a", key=b"k", headers=[("h", None)])
        second = await producer.send("t", b"b", timestamp=5)
        assert await second == (("t", 0), 1, 5)
        assert await first == (("t", 0), 0, 1000)

    assert sent(producing(then)) == [(0, 0, 0, [b"a", b"b"])]


def test_a_full_batch_is_sent_at_once_and_others_after_linger_ms():
    async def then(producer, cluster):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        deliveries = [await producer.send("t", b"x" * 100) for _ in range(3)]
        await deliveries[0]
        assert loop.time() - begun < 0.5
        await deliveries[2]
        assert 1.0 <= loop.time() - begun < 1.1

    cluster = producing(then, linger_ms=1000, batch_size=300)

    assert [len(values) for _, _, _, values in sent(cluster)] == [1, 1, 1]


def test_flush_does_not_wait_for_linger_ms():
    async def then(producer, cluster):
        delivery = await producer.send("t", b"a")
        await producer.flush()
        assert delivery.is_done
        assert asyncio.get_running_loop().time() < 1

    producing(then, linger_ms=60_000)


def test_a_retry_has_the_same_sequence_numbers():
    async def then(producer, cluster):
        await (await producer.send("t", b"a"))

    answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionError("lost")]
    cluster = producing(then, answers=answers)

    assert sent(cluster) == [(0, 0, 0, [b"a"])] * 3
    assert cluster.refreshed >= 2


OF_PARTITION_1 = next(key for n in range(9) if partition_of_key(key := b"%d" % n, 2) == 1)


def test_keyed_records_go_to_added_partitions_after_metadata_max_age_ms():
    async def then(producer, cluster):
        await (await producer.send("t", b"a", key=OF_PARTITION_1))
        cluster.partitions = 2
        await asyncio.sleep(1.1)
        await (await producer.send("t", b"b", key=OF_PARTITION_1))  # the refresh begins
        await asyncio.sleep(0.1)
        await (await producer.send("t", b"c", key=OF_PARTITION_1))

    cluster = producing(then, metadata_max_age_ms=1000)
    assert [(partition, values) for partition, _, _, values in sent(cluster)] == [
        (0, [b"a"]),
        (0, [b"b"]),
        (1, [b"c"]),
    ]


def test_a_refresh_of_one_topic_after_an_error_does_not_postpone_that_of_the_others():
    async def then(producer, cluster):
        cluster.topics = {"t", "u"}
        await (await producer.send("t", b"a", key=OF_PARTITION_1))
        cluster.partitions = 2
        await asyncio.sleep(0.6)
        cluster.connection.produce = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await (await producer.send("u", b"", partition=0))
        await asyncio.sleep(0.5)
        await (await producer.send("t", b"b", key=OF_PARTITION_1))  # the refresh begins
        await asyncio.sleep(0.1)
        await (await producer.send("t", b"c", key=OF_PARTITION_1))

    cluster = producing(then, metadata_max_age_ms=1000)
    assert sent(cluster)[-1] == (1, 0, 0, [b"c"])


OF_SEQUENCES = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]


@pytest.mark.parametrize("refusal", OF_SEQUENCES)
def test_later_batches_wait_for_a_retried_one(refusal):
    async def then(producer, cluster):
        await (await producer.send("t", b"first"))
        deliveries = []
        for value in (b"a", b"b", b"c"):
            deliveries.append(await producer.send("t", value))
            await asyncio.sleep(0.001)
        for delivery in deliveries:
            await delivery

    # The first batch is lost; the later ones are out of order until it was written.
    answers = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, refusal, refusal]
    cluster = producing(then, answers=answers)

    one, two, three = (0, 1, 0, [b"a"]), (0, 2, 0, [b"b"]), (0, 3, 0, [b"c"])
    assert sent(cluster)[1:] == [one, two, three, one, two, three]


def test_retries_are_sent_before_new_batches():
    async def then(producer, cluster):
        first = await producer.send("t", b"a")
        await asyncio.sleep(0.004)
        second = await producer.send("t", b"b")
        await first
        await second

    in_flight = {"max.in.flight.requests.per.connection": 1}
    cluster = producing(then, answers=[ErrorCode.NOT_ENOUGH_REPLICAS], **in_flight)

    assert [values for _, _, _, values in sent(cluster)] == [[b"a"], [b"a"], [b"b"]]


def test_no_partition_waits_until_others_have_no_batch_left():
    async def then(producer, cluster):
        for partition in (0, 0, 0, 1, 1, 2):
            await producer.send("t", b"x" * 80, partition=partition)
        await producer.flush()

    one_at_a_time = {"max.in.flight.requests.per.connection": 1, "max.request.size": 250}
    cluster = producing(then, partitions=3, batch_size=100, **one_at_a_time)

    assert [partition for partition, _, _, _ in sent(cluster)] == [0, 1, 2, 0, 1, 0]


def test_no_batch_is_retried_while_a_later_one_is_in_flight():
    async def then(producer, cluster):
        hold = asyncio.Event()
        await (await producer.send("t", b"first"))
        cluster.connection.produce = [ErrorCode.NOT_ENOUGH_REPLICAS, hold]
        failing = await producer.send("t", b"a")
        await asyncio.sleep(0.001)
        later = await producer.send("t", b"b")
        await asyncio.sleep(1)
        assert len(cluster.connection.produced) == 3
        hold.set()
        await failing
        await later

    assert [values for _, _, _, values in sent(producing(then))][1:] == [[b"a"], [b"b"], [b"a"]]


def test_after_a_permanent_failure_sequences_restart_in_the_next_epoch():
    async def then(producer, cluster):
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            await (await producer.send("t", b"bad"))
        await (await producer.send("t", b"good"))

    cluster = producing(then, answers=[ErrorCode.INVALID_RECORD])

    assert sent(cluster) == [(0, 0, 0, [b"bad"]), (0, 0, 1, [b"good"])]


def test_other_partitions_keep_the_old_epoch_until_none_of_their_batches_is_in_flight():
    held = asyncio.Event

    async def then(producer, cluster):
        hold = held()
        cluster.connection.produce = [hold, ErrorCode.INVALID_RECORD]
        slow = await producer.send("t", b"s0", partition=0)
        await asyncio.sleep(0.1)
        with pytest.raises(ApiError):
            await (await producer.send("t", b"bad", partition=1))
        beside = await producer.send("t", b"s1", partition=0)
        await asyncio.sleep(0.1)
        hold.set()
        await slow
        await beside
        await (await producer.send("t", b"s2", partition=0))
        await (await producer.send("t", b"new", partition=1))

    cluster = producing(then, partitions=2)

    assert sent(cluster) == [
        (0, 0, 0, [b"s0"]),
        (1, 0, 0, [b"bad"]),
        (0, 1, 0, [b"s1"]),
        (0, 0, 1, [b"s2"]),
        (1, 0, 1, [b"new"]),
    ]


def test_a_batch_too_large_for_the_broker_is_split_with_the_same_sequence_numbers():
    async def then(producer, cluster):
        deliveries = [await producer.send("t", b"%d" % i) for i in range(4)]
        await producer.flush()
        assert all(delivery.error is None for delivery in deliveries)

    cluster = producing(then, answers=[ErrorCode.MESSAGE_TOO_LARGE], linger_ms=5)

    assert sent(cluster)[1:] == [(0, 0, 0, [b"0", b"1"]), (0, 2, 0, [b"2", b"3"])]


def test_a_batch_expires_after_delivery_timeout_ms():
    async def then(producer, cluster):
        delivery = await producer.send("t", b"a")
        with pytest.raises(ClientTimeoutError, match=r"Expiring 1 record\(s\) for t-0:"):
            await delivery

    producing(
        then,
        answers=[ErrorCode.NOT_ENOUGH_REPLICAS] * 1000,
        delivery_timeout_ms=5000,
        request_timeout_ms=1000,
    )


def test_a_batch_fails_after_the_configured_retries():
    async def then(producer, cluster):
        with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
            await (await producer.send("t", b"a"))

    answers = [ErrorCode.NOT_ENOUGH_REPLICAS] * 9
    cluster = producing(then, answers=answers, retries=2)

    assert len(sent(cluster)) == 3


def test_with_acks_0_a_record_is_done_when_it_is_sent():
    async def then(producer, cluster):
        assert (await (await producer.send("t", b"a"))).offset == -1

    assert sent(producing(then, acks=0)) == [(0, -1, -1, [b"a"])]


def test_send_waits_for_buffer_memory_up_to_max_block_ms():
    async def then(producer, cluster):
        hold = asyncio.Event()
        cluster.connection.produce = [hold]
        first = await producer.send("t", b"x" * 600)
        waiting = asyncio.create_task(producer.send("t", b"y" * 600))
        await asyncio.sleep(1)
        assert not waiting.done()
        hold.set()
        await first
        await (await waiting)
        cluster.connection.produce = [asyncio.Event()]
        await producer.send("t", b"x" * 600)
        with pytest.raises(ClientTimeoutError, match="Failed to allocate 621 bytes"):
            await producer.send("t", b"y" * 600)

    producing(then, buffer_memory=1000, max_block_ms=3000)


def test_acknowledged_batches_release_memory_also_after_a_split():
    async def then(producer, cluster):
        cluster.connection.produce = [ErrorCode.MESSAGE_TOO_LARGE]
        for _ in range(10):
            deliveries = [await producer.send("t", b"x" * 100) for _ in range(8)]
            for delivery in deliveries:
                await delivery

    producing(then, buffer_memory=1000, linger_ms=1, max_block_ms=10)


def test_send_waits_for_a_topic_up_to_max_block_ms():
    async def then(producer, cluster):
        asyncio.get_running_loop().call_later(2, cluster.topics.add, "later")
        await producer.send("later", b"a")
        with pytest.raises(ClientTimeoutError, match="never not present in metadata after 3000 ms"):
            await producer.send("never", b"a")

    producing(then, max_block_ms=3000)


def test_invalid_sends_are_refused_at_once():
    async def then(producer, cluster):
        with pytest.raises(RecordTooLargeError, match="max.request.size configuration"):
            await producer.send("t", b"x" * 2000)
        with pytest.raises(IllegalStateError, match="without enabling transactions"):
            producer.begin_transaction()
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.send("t", b"a")

    producing(then, max_request_size=1000)


def test_records_without_key_are_spread_batch_by_batch():
    async def then(producer, cluster):
        for _ in range(4):
            await producer.send("t", b"x" * 80)
        await producer.flush()

    cluster = producing(then, partitions=3, batch_size=250, linger_ms=10)

    assert {partition for partition, _, _, _ in sent(cluster)} == {0, 1}


# ------------------------------------------------------------------------------ transactions


def test_a_transaction_adds_partitions_before_it_writes():
    async def then(producer, cluster):
        with pytest.raises(IllegalStateError, match="beginTransaction needs a producer that is"):
            producer.begin_transaction()
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"a")
        await producer.commit_transaction()
        with pytest.raises(IllegalStateError):
            await producer.send("t", b"outside")

    cluster = producing(then, transactional_id="x")

    names = [type(message).__name__ for message in cluster.asked]
    assert names == ["InitProducerIdRequest", "AddPartitionsToTxnRequest", "EndTxnRequest"]
    assert cluster.asked[-1].committed
    assert read_header(cluster.connection.produced[0][1]).is_transactional


def test_in_version_2_partitions_are_not_added_and_each_end_returns_the_next_epoch():
    async def then(producer, cluster):
        cluster.connection.features = {"transaction.version": 2}
        await producer.init_transactions()
        for value in (b"a", b"b"):
            producer.begin_transaction()
            await producer.send("t", value)
            cluster.answers = [EndTxnResponse(producer_id=7, producer_epoch=4)]
            await producer.commit_transaction()

    cluster = producing(then, transactional_id="x")

    names = [type(message).__name__ for message in cluster.asked]
    assert names == ["InitProducerIdRequest", "EndTxnRequest", "EndTxnRequest"]
    assert sent(cluster) == [(0, 0, 0, [b"a"]), (0, 0, 4, [b"b"])]
    assert cluster.connection.versions == {12}


def test_in_version_2_offsets_are_committed_without_add_offsets():
    async def then(producer, cluster):
        cluster.connection.features = {"transaction.version": 2}
        await producer.init_transactions()
        producer.begin_transaction()
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
        cluster.answers = [TxnOffsetCommitResponse(), EndTxnResponse(producer_id=7)]
        await producer.send_offsets(offsets, GroupMetadata("g", 3, "m"))
        await producer.commit_transaction()

    cluster = producing(then, transactional_id="x")

    names = [type(message).__name__ for message in cluster.asked]
    assert names == ["InitProducerIdRequest", "TxnOffsetCommitRequest", "EndTxnRequest"]
    assert (cluster.asked[1].generation_id, cluster.asked[1].member_id) == (3, "m")


def test_in_version_1_request_versions_stay_below_those_of_version_2():
    async def then(producer, cluster):
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"a")
        await producer.commit_transaction()

    assert producing(then, transactional_id="x").connection.versions == {11}


def test_an_empty_transaction_ends_without_a_request():
    async def then(producer, cluster):
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.commit_transaction()

    cluster = producing(then, transactional_id="x")

    assert len(cluster.asked) == 1


def test_after_a_failed_record_only_abort_is_possible_and_the_epoch_is_bumped():
    async def then(producer, cluster):
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"bad")
        with pytest.raises(IllegalStateError, match="can only be aborted: INVALID_RECORD"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send("t", b"good")
        await producer.commit_transaction()

    cluster = producing(then, transactional_id="x", answers=[ErrorCode.INVALID_RECORD])

    assert sent(cluster) == [(0, 0, 0, [b"bad"]), (0, 0, 1, [b"good"])]
    ends = [m.committed for m in cluster.asked if type(m).__name__ == "EndTxnRequest"]
    assert ends == [False, True]


def test_a_fenced_producer_fails_for_good():
    async def then(producer, cluster):
        await producer.init_transactions()
        producer.begin_transaction()
        cluster.answers = [_refusal(ErrorCode.PRODUCER_FENCED)]
        with pytest.raises(ApiError, match="PRODUCER_FENCED"):
            await producer.send("t", b"a")
        with pytest.raises(IllegalStateError, match="failed for good"):
            await producer.abort_transaction()

    producing(then, transactional_id="x")


def _refusal(code):
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name="t",
                results_by_partition=[AddPartitionsToTxnPartitionResult(partition_error_code=code)],
            )
        ]
    )


def test_temporary_errors_of_a_coordinator_are_retried():
    async def then(producer, cluster):
        await producer.init_transactions()
        producer.begin_transaction()
        cluster.answers = [
            _refusal(ErrorCode.CONCURRENT_TRANSACTIONS),
            _refusal(ErrorCode.NOT_COORDINATOR),
            ConnectionError("lost"),
        ]
        await producer.send("t", b"a")
        await producer.commit_transaction()
        assert cluster.dropped == 2

    producing(then, transactional_id="x")


# ---------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("properties", "idempotent"),
    [
        ({}, True),
        ({"enable.idempotence": "false"}, False),
        ({"acks": "1"}, False),
        ({"retries": "0"}, False),
    ],
)
def test_default_idempotence_is_switched_off_by_contradicting_options(properties, idempotent):
    assert ProducerSettings.from_properties(properties).is_idempotent is idempotent


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"acks": "1", "enable.idempotence": "true"}, "Must set acks to all"),
        ({"retries": "0", "transactional.id": "x"}, "Must set retries to non-zero"),
        ({"max.in.flight.requests.per.connection": "6"}, "at most 5"),
        ({"enable.idempotence": "false", "transactional.id": "x"}, "Cannot set a transactional.id"),
        ({"delivery.timeout.ms": "1"}, "delivery.timeout.ms should be equal to or larger"),
        ({"compression.type": "brotli"}, "String must be one of"),
    ],
)
def test_contradicting_options_are_refused(properties, complaint):
    with pytest.raises(Exception, match=complaint):
        ProducerSettings.from_properties(properties)


@pytest.mark.parametrize("begin_s", [0.0, 3.001, 3.03, 3.062, 3.097])
def test_the_sender_wakes_once_when_a_batch_expires(begin_s):
    """However the sum of creation time and time-out is rounded; else the loop is busy for ever."""

    async def then(producer, cluster):
        await asyncio.sleep(begin_s)
        with pytest.raises(ClientTimeoutError, match="Expiring"):
            await (await producer.send("t", b"a"))

    answers = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
    producing(then, answers=answers, delivery_timeout_ms=5000, request_timeout_ms=1000)


def test_a_batch_that_may_be_written_is_not_renumbered_after_out_of_order_sequence():
    """The error may come from a former leader that was paused."""

    async def then(producer, cluster):
        await (await producer.send("t", b"a"))
        await (await producer.send("t", b"b"))

    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    cluster = producing(then, answers=[None, ConnectionError("lost"), out_of_order, out_of_order])

    assert sent(cluster)[1:] == [(0, 1, 0, [b"b"])] * 4


@pytest.mark.parametrize("refusal", OF_SEQUENCES)
def test_a_batch_that_was_not_written_is_renumbered(refusal):
    async def then(producer, cluster):
        await (await producer.send("t", b"a"))
        await (await producer.send("t", b"b"))

    cluster = producing(then, answers=[None, refusal])

    assert sent(cluster)[1:] == [(0, 1, 0, [b"b"]), (0, 0, 1, [b"b"])]


@pytest.mark.parametrize(("is_in_doubt", "numbers"), [(True, (1, 0)), (False, (0, 1))])
def test_after_a_failed_batch_only_unwritten_batches_are_renumbered(is_in_doubt, numbers):
    queue = PartitionQueue(TopicPartition("t", 0))
    batches = []
    for value in (b"a", b"b"):
        queue.append(Record(None, value, 0), 100, batch_bytes=100, now_s=0.0)
        batches.append(queue.take(ProducerIdAndEpoch(7, 0)))
    lost, behind = batches
    behind.is_in_doubt = is_in_doubt
    queue.failed(lost)
    queue.again(behind, 0.0)
    queue.begin_anew()

    repeated = queue.take(ProducerIdAndEpoch(7, 1))

    assert (repeated.base_sequence, repeated.identity.producer_epoch) == numbers
