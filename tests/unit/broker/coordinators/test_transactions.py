"""Transactions on one whole broker: coordinator, leaders and readers, as clients see them."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, fetched, part_of, play, produce, produced, soon, values

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.control import ControlType
from odradek.sim.world.disk import DiskFault
from odradek.txn.events import TimedOut
from odradek.txn.machine import TransactionMachine
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

T0, T1 = ("t", 0), ("t", 1)
COMMITTED = {"isolation_level": 1}
V1_PRODUCE, V2_PRODUCE = 11, 12


class Client:
    """A transactional producer, as thin as can be."""

    def __init__(self, live, name="x") -> None:
        self.live, self.name = live, name
        self.peer = live.peer()
        self.id, self.epoch = -1, -1
        self.sequences = {}

    async def find(self):
        """Wait until there is a coordinator."""
        while True:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
            found = (await self.peer.ask(request)).coordinators[0]
            if not found.error_code:
                return
            await asyncio.sleep(0.05)

    async def init(self, version=5, **fields):
        """Until it is neither loading nor busy. Returns the error, or NONE."""
        while True:
            request = InitProducerIdRequest(
                **{"transactional_id": self.name, "transaction_timeout_ms": 60_000, **fields}
            )
            answer = await self.peer.ask(request, version)
            error = ErrorCode(answer.error_code)
            if error not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ):
                break
            await asyncio.sleep(0.05)
        if error is ErrorCode.NONE:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return error

    async def add(self, *partitions, version=3):
        """The errors, by partition; one for all if they are the same."""
        while True:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics_of(partitions),
            )
            answer = await self.peer.ask(request, version)
            errors = [
                ErrorCode(part.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ]
            if ErrorCode.CONCURRENT_TRANSACTIONS not in errors:
                return errors[0] if len(set(errors)) == 1 else errors
            await asyncio.sleep(0.05)

    def batch(self, partition, *records):
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(records)
        return self.live.batch(
            *records,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def send(self, *records, to=T0, version=V1_PRODUCE, acks=-1):
        request = produce(self.batch(to, *records), *to, acks=acks, transactional_id=self.name)
        return self.peer.send(request, version, answered=acks != 0)

    async def write(self, *records, to=T0, version=V1_PRODUCE):
        return produced(await self.send(*records, to=to, version=version))[to]

    async def end(self, *, commit=True, version=4):
        while True:
            request = EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            answer = await self.peer.ask(request, version)
            error = ErrorCode(answer.error_code)
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0.05)
        if error is ErrorCode.NONE and version >= 5:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return error

    async def state(self):
        answer = await self.peer.ask(DescribeTransactionsRequest(transactional_ids=[self.name]))
        return answer.transaction_states[0]

    async def at_rest(self):
        """Wait until the markers are written and the coordinator has the result."""
        for _ in range(1_000):
            if (await self.state()).transaction_state.startswith(("Complete", "Empty")):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it does not come to an end")


def topics_of(partitions):
    names = dict.fromkeys(topic for topic, _ in partitions)
    return [
        AddPartitionsToTxnTopic(name=name, partitions=[n for t, n in partitions if t == name])
        for name in names
    ]


async def begun(live, name="x", **fields) -> Client:
    if live.partition("t") is None:
        await live.topic("t", 2)
    client = Client(live, name)
    await client.find()
    assert await client.init(**fields) is ErrorCode.NONE
    return client


async def read(live, partition=T0, *, offset=0, **more):
    return await live.peer().ask(fetch({partition: offset}, max_wait_ms=0, **more), 12)


async def read_values(live, partition=T0, **more):
    return fetched(await read(live, partition, **more))[partition]


def test_what_is_committed_is_read_when_it_is_committed():
    async def story(live):
        client = await begun(live)
        assert await client.add(T0, T1) is ErrorCode.NONE
        assert await client.write(b"a", b"b") == 0
        assert await client.write(b"c", to=T1) == 0
        assert await client.write(b"d") == 2
        assert await read_values(live) == [b"a", b"b", b"d"]
        assert await read_values(live, **COMMITTED) == []

        assert await client.end() is ErrorCode.NONE
        await client.at_rest()
        assert await read_values(live, **COMMITTED) == [b"a", b"b", b"d"]
        assert await read_values(live, T1, **COMMITTED) == [b"c"]

    play(story)


def test_a_read_committed_fetch_gets_the_aborted_transactions():
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        await client.write(b"a")
        await client.end(commit=False)
        await client.at_rest()
        await client.add(T0)
        assert await client.write(b"b") == 2
        await client.end()
        await client.at_rest()
        part = part_of(await read(live, **COMMITTED))

        assert part.last_stable_offset == part.high_watermark == 4
        assert values(part.records) == [b"a", b"b"]
        assert [(t.producer_id, t.first_offset) for t in part.aborted_transactions] == [
            (client.id, 0)
        ]
        assert part_of(await read(live, offset=2, **COMMITTED)).aborted_transactions == []

    play(story)


def test_a_waiting_reader_is_woken_by_the_end_of_the_transaction():
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        await client.write(b"x" * 5_000)
        waiting = live.peer().send(
            fetch({T0: 0}, max_wait_ms=60_000, min_bytes=4_000, **COMMITTED), 12
        )
        await asyncio.sleep(1)
        assert not waiting.done()
        await client.end()
        await client.at_rest()

        assert fetched(await soon(waiting)) == {T0: [b"x" * 5_000]}

    play(story)


def test_the_end_for_readers_of_committed_is_the_first_open_transaction():
    async def story(live):
        async def latest(isolation):
            asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
            answer = await live.peer().ask(
                ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=isolation,
                    topics=[ListOffsetsTopic(name="t", partitions=[asked])],
                )
            )
            return answer.topics[0].partitions[0].offset

        client = await begun(live)
        live.append(b"before")
        await client.add(T0)
        await client.write(b"a")
        assert (await latest(0), await latest(1)) == (2, 1)
        await client.end()
        await client.at_rest()
        assert (await latest(0), await latest(1)) == (3, 3)

    play(story)


# ------------------------------------------------------------------------------- verification


@pytest.mark.parametrize(
    ("version", "error"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_partition_that_was_not_added_is_not_written_to(version, error):
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        assert await client.write(b"a", to=T1, version=version) is error
        assert live.log("t", 1).leo == 0
        assert await client.write(b"a", version=version) == 0

    play(story)


def test_what_comes_after_the_end_opens_no_transaction_that_hangs():
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        await client.write(b"a")
        await client.end(commit=False)
        await client.at_rest()

        assert await client.write(b"late") is ErrorCode.TRANSACTION_ABORTABLE
        assert live.log().last_stable_offset == live.log().leo == 2

    play(story)


def test_what_a_producer_sends_next_does_not_overtake_a_batch_that_is_being_verified():
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        questions = []
        live.broker.produce.verification = questions.append
        first, second = client.send(b"a"), client.send(b"b")
        assert len(questions) == 1
        questions[0].answered({TopicPartition(*T0): ErrorCode.NONE})

        assert produced(await first) == {T0: 0}
        assert produced(await second) == {T0: 1}
        assert len(questions) == 1

    play(story)


def test_a_coordinator_that_cannot_be_asked_is_a_reason_to_try_again():
    async def story(live):
        await live.topic("t")
        client = Client(live)
        client.id, client.epoch = 5, 0
        answer = await client.send(b"a")
        part = answer.responses[0].partition_responses[0]

        assert part.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert part.error_message == (
            "Unable to verify the partition has been added to the transaction. "
            "Underlying error: COORDINATOR_NOT_AVAILABLE"
        )

    play(story)


def test_one_request_has_one_producer():
    async def story(live):
        client = await begun(live)
        await client.add(T0, T1)
        other = live.batch(
            b"b", producer_id=client.id + 1, producer_epoch=0, base_sequence=0, transactional=True
        )
        request = produce(client.batch(T0, b"a"), transactional_id="x")
        request.topic_data += produce(other, *T1).topic_data

        assert produced(await client.peer.ask(request, V1_PRODUCE)) == {
            T0: 0,
            T1: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        }

    play(story)


def test_a_refused_batch_without_acknowledgement_ends_the_connection():
    async def story(live):
        client = await begun(live)
        client.send(b"a", acks=0)
        await live.until(lambda: client.peer.closed)

    play(story)


def test_verification_can_be_switched_off_while_running():
    async def story(live):
        client = await begun(live)
        config = live.broker.config.with_dynamic(
            dynamic={}, dynamic_default={"transaction.partition.verification.enable": "false"}
        )
        live.broker.set_config(config)
        assert await client.write(b"a") == 0

    play(story)


def late_marker(client, transaction_version):
    """The marker of the transaction before the present one, as its coordinator sent it."""
    marker = WritableTxnMarker(
        producer_id=client.id,
        producer_epoch=client.epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=0,
        transaction_version=transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


@pytest.mark.parametrize(
    ("transaction_version", "error", "aborted"),
    [(2, ErrorCode.INVALID_PRODUCER_EPOCH, 1), (0, ErrorCode.NONE, 0)],
)
def test_a_late_copy_of_a_marker_ends_no_other_transaction(transaction_version, error, aborted):
    """In version 2; in version 1 an epoch does not identify a transaction."""

    async def story(live):
        await live.topic("t")
        client = Client(live)
        await client.find()
        await client.init()
        assert await client.write(b"committed", version=V2_PRODUCE) == 0
        assert await client.end(version=5) is ErrorCode.NONE
        await client.at_rest()
        assert await client.write(b"aborted", version=V2_PRODUCE) == 2
        answer = await live.peer().ask(late_marker(client, transaction_version))
        assert answer.markers[0].topics[0].partitions[0].error_code == error
        assert await client.end(commit=False, version=5) is ErrorCode.NONE
        await client.at_rest()
        log = live.log()
        assert len(log.aborted_transactions(0, log.leo)) == aborted
        assert log.last_stable_offset == log.leo

    play(story)


def test_in_version_2_leaders_add_partitions_also_where_verification_is_off():
    async def story(live):
        await live.topic("t")
        client = Client(live)
        await client.find()
        await client.init()
        assert await client.write(b"a", version=V2_PRODUCE) == 0
        assert await client.end(version=5) is ErrorCode.NONE
        await client.at_rest()
        assert live.log().last_stable_offset == live.log().leo == 2

    play(story, transaction_partition_verification_enable="false")


def test_the_expiration_of_producer_ids_can_be_changed_while_running():
    async def story(live):
        await live.topic("t")
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        config = live.broker.config.with_dynamic(
            dynamic={}, dynamic_default={"producer.id.expiration.ms": "5000"}
        )
        live.broker.set_config(config)
        await asyncio.sleep(4)
        assert len(live.log().producers) == 1
        await asyncio.sleep(4)
        assert len(live.log().producers) == 0

    play(story, producer_id_expiration_check_interval_ms=2_000)


def test_partitions_that_are_not_there_or_not_theirs_are_not_added():
    async def story(live):
        client = await begun(live)
        assert await client.add(("__consumer_offsets", 0)) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await client.add(T0, ("nowhere", 0)) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (await client.state()).transaction_state == "Empty"

    play(story)


# ----------------------------------------------------------------------------------- fencing


@pytest.mark.parametrize("count", [10, 6_000])
def test_of_partitions_of_which_one_is_unknown_none_is_added_however_many_they_are(count):
    async def story(live):
        await live.topic("t", 1)
        client = Client(live)
        await client.find()
        assert await client.init() is ErrorCode.NONE
        added = await client.add(*[T0] * count, ("unknown", 0))

        assert added == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        state = await client.state()
        assert (state.transaction_state, state.topics) == ("Empty", [])

    play(story)


def test_a_second_producer_fences_the_first():
    async def story(live):
        first = await begun(live)
        await first.add(T0)
        await first.write(b"a")
        second = await begun(live)
        assert (second.id, second.epoch) == (first.id, 2)

        assert await first.add(T1) is ErrorCode.PRODUCER_FENCED
        assert await first.add(T1, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.end() is ErrorCode.PRODUCER_FENCED
        assert await first.end(version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.write(b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
        fields = {"producer_id": first.id, "producer_epoch": 0}
        assert await first.init(**fields) is ErrorCode.PRODUCER_FENCED
        assert await first.init(3, **fields) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await read_values(live, **COMMITTED) == [b"a"]
        assert part_of(await read(live, **COMMITTED)).aborted_transactions

    play(story)


def test_a_transaction_that_takes_too_long_is_aborted():
    async def story(live):
        client = await begun(live, transaction_timeout_ms=15_000)
        await client.add(T0)
        await client.write(b"a")
        await asyncio.sleep(14)
        assert live.log().last_stable_offset == 0
        await asyncio.sleep(12)
        assert live.log().last_stable_offset == 2
        assert await client.end() is ErrorCode.PRODUCER_FENCED

    play(story)


def test_one_that_cannot_be_aborted_does_not_keep_the_others_open(monkeypatch):
    handle = TransactionMachine.handle

    def fail_at_the_first(self, event, now):
        assert event != TimedOut("first"), "it cannot be aborted"
        return handle(self, event, now)

    monkeypatch.setattr(TransactionMachine, "handle", fail_at_the_first)

    async def story(live):
        for name, partition in (("first", T0), ("second", T1)):
            client = await begun(live, name, transaction_timeout_ms=15_000)
            await client.add(partition)
            await client.write(b"a", to=partition)
        await asyncio.sleep(30)
        assert live.log(index=0).last_stable_offset == 0
        assert live.log(index=1).last_stable_offset == 2

    play(story, transaction_state_log_num_partitions="1")


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_limit_is_refused(timeout_ms):
    async def story(live):
        client = Client(live)
        await client.find()
        error = await client.init(transaction_timeout_ms=timeout_ms)
        assert error is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    play(story)


def test_an_unused_transactional_id_expires():
    async def story(live):
        client = await begun(live)
        open_ = await begun(live, "open")
        await open_.add(T0)
        await asyncio.sleep(100)
        assert (await client.state()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await open_.state()).transaction_state == "Ongoing"
        await live.restart()
        again = Client(live)
        await again.find()
        assert await again.init() is ErrorCode.NONE
        assert again.id != client.id

    play(
        story,
        transactional_id_expiration_ms=40_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000_000,
    )


# ---------------------------------------------------------------------------------- failover


def test_a_transaction_goes_on_when_its_coordinator_is_started_again():
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        await client.write(b"a")
        await live.restart()
        client.peer = live.peer()
        await client.find()
        await live.until(lambda: live.broker.transactions.transactions().transactions)
        assert await client.add(T0) is ErrorCode.NONE
        assert await client.write(b"b") == 1
        assert await client.end() is ErrorCode.NONE
        await client.at_rest()
        assert await read_values(live, **COMMITTED) == [b"a", b"b"]

    play(story)


def test_what_was_decided_is_carried_out_by_the_next_coordinator():
    async def story(live):
        client = await begun(live)
        await client.add(T0)
        await client.write(b"a")

        async def lost(request):
            await asyncio.Event().wait()

        live.broker.txn_markers.write = lost
        assert await client.end() is ErrorCode.NONE
        await asyncio.sleep(1)
        assert live.log().last_stable_offset == 0
        assert (await client.state()).transaction_state == "PrepareCommit"
        await live.restart()
        await live.until(lambda: live.log() is not None and live.log().last_stable_offset == 2)
        assert await read_values(live, **COMMITTED) == [b"a"]

    play(story)


def test_a_deleted_topic_needs_no_marker():
    async def story(live):
        await live.topic("gone")
        client = await begun(live)
        await client.add(T0, ("gone", 0))
        await client.write(b"a")
        request = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000)
        assert (await live.peer().ask(request, 5)).responses[0].error_code == 0
        assert await client.end() is ErrorCode.NONE
        await client.at_rest()

    play(story)


# --------------------------------------------------------------------------------- version 2


def test_in_version_2_partitions_join_by_being_written_to():
    async def story(live):
        client = await begun(live)
        assert await client.write(b"a", version=V2_PRODUCE) == 0
        assert await client.write(b"b", to=T1, version=V2_PRODUCE) == 0
        assert await client.end(version=5) is ErrorCode.NONE
        assert client.epoch == 1
        await client.at_rest()
        assert await client.write(b"c", version=V2_PRODUCE) == 2
        assert await client.end(commit=False, version=5) is ErrorCode.NONE
        await client.at_rest()
        assert client.epoch == 2
        part = part_of(await read(live, **COMMITTED))
        assert values(part.records) == [b"a", b"c"]
        assert [t.first_offset for t in part.aborted_transactions] == [2]
        assert await read_values(live, T1, **COMMITTED) == [b"b"]

    play(story)


def test_in_version_2_a_marker_that_comes_while_the_coordinator_is_asked_is_asked_about():
    async def story(live):
        client = await begun(live)
        own = live.broker.transactions
        add, asked = own.add_partitions, []

        async def add_partitions(*arguments, **fields):
            asked.append(1)
            if len(asked) == 1:  # the last transaction's, on its way until now
                live.mark(ControlType.COMMIT, client.id)
            return await add(*arguments, **fields)

        own.add_partitions = add_partitions
        assert await client.write(b"a", version=V2_PRODUCE) == 1
        assert len(asked) == 2

    play(story)


def test_in_version_2_the_next_transaction_waits_for_the_end_of_the_last():
    async def story(live):
        client = await begun(live)
        assert await client.write(b"a", version=V2_PRODUCE) == 0
        own, may_write = live.broker.txn_markers.write, asyncio.Event()

        async def later(request):
            await may_write.wait()
            return await own(request)

        live.broker.txn_markers.write = later
        assert await client.end(version=5) is ErrorCode.NONE
        assert await client.write(b"b", version=V2_PRODUCE) is ErrorCode.CONCURRENT_TRANSACTIONS
        client.sequences.clear()
        waiting = client.send(b"b", version=V2_PRODUCE)
        await asyncio.sleep(0.01)
        may_write.set()
        assert produced(await waiting) == {T0: 2}

    play(story)


def test_in_version_2_what_is_late_is_of_an_epoch_that_is_over():
    async def story(live):
        client = await begun(live)
        await client.write(b"a", version=V2_PRODUCE)
        late = client.batch(T0, b"late")
        await client.end(commit=False, version=5)
        await client.at_rest()
        answer = await client.peer.ask(produce(late, transactional_id="x"), V2_PRODUCE)
        assert produced(answer) == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}

    play(story)


# ---------------------------------------------------------------------------- administrators


def test_transactions_are_listed_by_state_producer_and_age():
    async def story(live):
        async def listed(**filters):
            answer = await live.peer().ask(ListTransactionsRequest(**filters))
            assert not answer.error_code
            return {t.transactional_id for t in answer.transaction_states}

        x, y = await begun(live), await begun(live, "y")
        await x.add(T0)
        await asyncio.sleep(2)
        await y.add(T1)
        assert await listed() == {"x", "y"}
        assert await listed(state_filters=["Ongoing"]) == {"x", "y"}
        assert await listed(state_filters=["CompleteCommit"]) == set()
        assert await listed(producer_id_filters=[y.id]) == {"y"}
        assert await listed(duration_filter=1_000) == {"x"}
        answer = await live.peer().ask(ListTransactionsRequest(state_filters=["Nonsense"]))
        assert answer.unknown_state_filters == ["Nonsense"]
        assert answer.transaction_states == []

    play(story)


def test_a_transaction_is_described():
    async def story(live):
        client = await begun(live, transaction_timeout_ms=5_000)
        began_ms = live.clock.wall_ms()
        await client.add(T1, T0)
        state = await client.state()

        assert (state.transaction_state, state.producer_id, state.producer_epoch) == (
            "Ongoing",
            client.id,
            0,
        )
        assert state.transaction_timeout_ms == 5_000
        assert 0 <= state.transaction_start_time_ms - began_ms < 100
        assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0, 1])]

    play(story)


def test_a_transaction_that_hangs_is_seen_and_aborted():
    async def story(live):
        await live.topic("t")
        live.append(b"a", producer_id=77, producer_epoch=3, base_sequence=0, transactional=True)
        topic = TopicRequest(name="t", partition_indexes=[0])
        answer = await live.peer().ask(DescribeProducersRequest(topics=[topic]))
        (producer,) = answer.topics[0].partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch) == (77, 3)
        assert (producer.last_sequence, producer.current_txn_start_offset) == (0, 0)
        assert producer.coordinator_epoch == -1

        assert await aborted(live, producer_id=77, producer_epoch=2) is (
            ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert await aborted(live, producer_id=77, producer_epoch=3) is ErrorCode.NONE
        assert live.log().last_stable_offset == 2
        part = part_of(await read(live, **COMMITTED))
        assert [t.producer_id for t in part.aborted_transactions] == [77]

    play(story)


async def aborted(live, **fields):
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(topics=[topic], transaction_result=False, **fields)
    answer = await live.peer().ask(WriteTxnMarkersRequest(markers=[marker]))
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_a_marker_of_an_older_coordinator_is_refused():
    async def story(live):
        await live.topic("t")
        live.append(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        live.mark(ControlType.ABORT, 7)
        error = await aborted(live, producer_id=7, producer_epoch=0, coordinator_epoch=-1)
        assert error is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    play(story)


def test_a_marker_counts_as_written_when_it_is_durable_where_that_is_asked_for():
    async def story(live):
        await live.topic("t", flush_messages=2)
        live.append(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        error = await aborted(live, producer_id=7, producer_epoch=0, coordinator_epoch=0)
        assert error is ErrorCode.NONE
        assert live.log().recovery_point == live.log().leo

        live.append(b"b", producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
        live.disk.faults.append(DiskFault("flush", "t-0"))
        error = await aborted(live, producer_id=7, producer_epoch=0, coordinator_epoch=0)
        assert error is ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_markers_go_to_leaders_alone():
    async def story(live):
        topic = WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0])
        marker = WritableTxnMarker(producer_id=1, topics=[topic])
        answer = await live.peer().ask(WriteTxnMarkersRequest(markers=[marker]))
        part = answer.markers[0].topics[0].partitions[0]
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_brokers_ask_about_many_transactions_at_once():
    async def story(live):
        client = await begun(live)
        await client.add(T0)

        def asked(name, *partitions, verify_only=True, epoch=0):
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=client.id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=topics_of(partitions),
            )

        async def ask(version, *transactions):
            request = AddPartitionsToTxnRequest(transactions=list(transactions))
            answer = await live.peer().ask(request, version)
            return {
                (result.transactional_id, topic.name, part.partition_index): ErrorCode(
                    part.partition_error_code
                )
                for result in answer.results_by_transaction
                for topic in result.topic_results
                for part in topic.results_by_partition
            }

        both = await ask(5, asked("x", T0, T1), asked("y", T0))
        assert both == {
            ("x", *T0): ErrorCode.NONE,
            ("x", *T1): ErrorCode.TRANSACTION_ABORTABLE,
            ("y", *T0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        }
        assert await ask(4, asked("x", T1)) == {("x", *T1): ErrorCode.INVALID_TXN_STATE}
        assert await ask(5, asked("x", T0, epoch=1)) == {("x", *T0): ErrorCode.PRODUCER_FENCED}
        assert await ask(5, asked("x", T1, verify_only=False)) == {("x", *T1): ErrorCode.NONE}
        assert await ask(5, asked("x", T1)) == {("x", *T1): ErrorCode.NONE}

    play(story)
