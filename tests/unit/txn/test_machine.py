"""The transaction coordinator, case by case: what is answered, written, and sent when."""

from dataclasses import replace

import pytest

from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.invariants import InvariantError
from odradek.model.partition import TopicPartition
from odradek.model.trampoline import Trampoline
from odradek.record.coordinator import Loaded, Replayed, Resigned
from odradek.record.records import Record
from odradek.txn.effects import Answer, Append, Proceed, WriteMarkers
from odradek.txn.events import (
    AddPartitions,
    Appended,
    EndTransaction,
    ExpirationDue,
    InitProducerId,
    MarkersWritten,
    TimeoutsDue,
)
from odradek.txn.machine import EXPIRED_AT_ONCE, TransactionMachine
from odradek.txn.records import encode_key, encode_value
from odradek.txn.transaction import EPOCH_MAX, VERSION_1, VERSION_2, State, Transaction

NONE = ErrorCode.NONE
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 100
LAST = EPOCH_MAX - 1  # the last epoch that a producer gets


class Coordinator:
    """A machine and its log. What it appends is written at once, unless it is to be `held`."""

    def __init__(self, log=(), **worn):
        self.log = list(log)
        if worn:
            found = Transaction(transactional_id="x", timeout_ms=TIMEOUT_MS, updated_ms=0, **worn)
            self.log.append((encode_key("x"), encode_value(found)))
        self.machine = TransactionMachine()
        self.trampoline = Trampoline(lambda event: self.machine.handle(event, self.now))
        self.answers = {}
        self.markers = []  # the requested markers
        self.appends = []
        self.holds = False
        self.now_ms = 1_000
        self.monotonic_ms = 0
        self.drawn = 100
        self.handle(Replayed(tuple(Record(*each) for each in self.log), -1))
        self.handle(Loaded())

    @property
    def now(self):
        return Now(self.monotonic_ms, self.now_ms)

    def handle(self, event):
        self.trampoline.run(event, self.perform)
        self.machine.validate()

    def perform(self, effect):
        match effect:
            case Answer(request, answer):
                self.answers[request] = answer
            case WriteMarkers():
                self.markers.append(effect)
            case Proceed(event):
                self.handle(event)
            case Append():
                self.appends.append(effect)
                if not self.holds:
                    self.written()

    def time_out(self, now_ms, monotonic_ms):
        """Abort what is open for too long by then."""
        before = self.now
        self.now_ms, self.monotonic_ms = now_ms, monotonic_ms
        self.handle(TimeoutsDue())
        self.now_ms, self.monotonic_ms = before.wall_ms, before.monotonic_ms

    def expire(self, now_ms, expiration_ms):
        before, self.now_ms = self.now_ms, now_ms
        self.handle(ExpirationDue(expiration_ms))
        self.now_ms = before

    def written(self, error=NONE):
        """The append that waits has this outcome."""
        append = self.appends.pop()
        if error is NONE:
            transaction = append.transaction
            value = None if transaction is None else encode_value(transaction)
            self.log.append((encode_key(append.transactional_id), value))
        self.handle(Appended(append.transactional_id, error))

    def ask(self, event, name="x", **fields):
        number = len(self.answers) + len(self.appends) + 1_000
        self.handle(event(request=number, transactional_id=name, **fields))
        return self.answers.get(number)

    def draw(self, wanted):
        self.drawn += wanted
        return self.drawn if wanted else None

    def init(self, producer=(-1, -1), name="x"):
        fresh = self.draw(self.machine.needs_producer_id(name, producer[1]))
        return self.ask(
            InitProducerId, name, timeout_ms=TIMEOUT_MS, producer_id=producer[0],
            producer_epoch=producer[1], fresh_producer_id=fresh,
        )  # fmt: skip

    def begun(self, name="x"):
        """A producer's id and epoch."""
        answer = self.init(name=name)
        assert answer.error is NONE, answer
        return answer.producer_id, answer.producer_epoch

    def add(self, producer, *partitions, version=VERSION_1):
        return self.ask(
            AddPartitions, producer_id=producer[0], producer_epoch=producer[1],
            partitions=frozenset(partitions), client_version=version,
        ).error  # fmt: skip

    def end(self, producer, *, commit=True, version=VERSION_1):
        fresh = self.draw(self.machine.ends_producer_id("x", version))
        return self.ask(
            EndTransaction, producer_id=producer[0], producer_epoch=producer[1], commit=commit,
            client_version=version, fresh_producer_id=fresh,
        )  # fmt: skip

    def verify(self, producer, partition):
        asked = {"producer_id": producer[0], "producer_epoch": producer[1]}
        return self.machine.verify("x", partitions=[partition], **asked)[partition]

    def marked(self, *partitions):
        """The last requested markers are written to these partitions, or to all."""
        order = self.markers[-1]
        whole = frozenset(partitions) or order.partitions
        self.handle(MarkersWritten("x", order.producer_id, order.producer_epoch, whole))

    @property
    def state(self):
        return self.machine.find("x").state


# --------------------------------------------------------------------- one transactional id


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_decided_answered_marked_and_then_over(commit):
    coordinator = Coordinator()
    producer = coordinator.begun()
    assert coordinator.add(producer, P0) is NONE
    assert coordinator.add(producer, P1) is NONE
    coordinator.holds = True
    assert coordinator.end(producer, commit=commit) is None  # not before it is written
    assert coordinator.markers == []
    coordinator.written()
    assert coordinator.answers.popitem()[1].error is NONE
    (order,) = coordinator.markers
    assert (order.commit, order.partitions) == (commit, {P0, P1})
    coordinator.marked(P0)
    assert coordinator.appends == []
    coordinator.marked(P1)
    coordinator.written()
    assert coordinator.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_while_it_is_on_its_way_to_its_end_nothing_else_begins():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.end(producer)
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.add(producer, P1) is busy
    assert coordinator.end(producer).error is busy
    assert coordinator.init().error is busy
    assert coordinator.verify(producer, P0) is busy
    coordinator.marked()
    assert coordinator.add(producer, P1) is NONE


def test_while_a_change_is_written_another_gets_concurrent_transactions():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.holds = True
    coordinator.handle(
        AddPartitions(
            request=1, transactional_id="x", producer_id=producer[0],
            producer_epoch=producer[1], partitions=frozenset({P0}),
        )
    )  # fmt: skip
    assert coordinator.add(producer, P1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.time_out(1_000_000, 1_000_000)  # nor does time
    coordinator.expire(1_000_000, 0)
    assert len(coordinator.appends) == 1


def test_time_does_not_end_what_is_just_being_changed():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.holds = True
    coordinator.end(producer)
    now_ms = coordinator.now_ms + TIMEOUT_MS + 1
    coordinator.time_out(now_ms, now_ms)
    assert len(coordinator.appends) == 1


def test_after_not_coordinator_nothing_is_started_until_the_next_election():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.end(producer)
    coordinator.holds = True
    coordinator.marked()
    coordinator.written(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.add(producer, P1) is busy
    assert coordinator.init().error is busy
    assert coordinator.end(producer).error is busy
    assert coordinator.end(producer, version=VERSION_2).error is ErrorCode.PRODUCER_FENCED
    assert coordinator.appends == []


def test_a_partition_that_is_in_it_already_is_not_written_again():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0, P1)
    length = len(coordinator.log)
    assert coordinator.add(producer, P1) is NONE
    assert len(coordinator.log) == length


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_gets_the_same_answer_and_the_opposite_end_is_refused(commit):
    coordinator = Coordinator()
    producer = coordinator.begun()
    assert coordinator.end(producer, commit=commit).error is ErrorCode.INVALID_TXN_STATE
    coordinator.add(producer, P0)
    coordinator.end(producer, commit=commit)
    coordinator.marked()
    assert coordinator.end(producer, commit=commit).error is NONE
    assert coordinator.end(producer, commit=not commit).error is ErrorCode.INVALID_TXN_STATE


# --------------------------------------------------------------------------------- fencing


@pytest.mark.parametrize(("id_off", "epoch_off"), [(0, -1), (0, 1), (1, 0)])
def test_a_former_producer_changes_nothing(id_off, epoch_off):
    coordinator = Coordinator()
    coordinator.begun()
    present = coordinator.begun()
    other = present[0] + id_off, present[1] + epoch_off
    assert coordinator.init(other).error is ErrorCode.PRODUCER_FENCED
    coordinator.add(present, P0)
    refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING if id_off else ErrorCode.PRODUCER_FENCED
    assert coordinator.add(other, P1) is refusal
    assert coordinator.end(other).error is refusal
    assert coordinator.verify(other, P0) is refusal
    assert coordinator.machine.find("x").partitions == {P0}


def test_another_producer_aborts_the_open_transaction_in_an_unused_epoch():
    coordinator = Coordinator()
    old = coordinator.begun()
    coordinator.add(old, P0)
    assert coordinator.init().error is ErrorCode.CONCURRENT_TRANSACTIONS  # it asks again
    (order,) = coordinator.markers
    assert (order.commit, order.producer_epoch) == (False, old[1] + 1)
    assert coordinator.end(old).error is ErrorCode.PRODUCER_FENCED
    coordinator.marked()
    assert coordinator.begun() == (old[0], old[1] + 2)


def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.now_ms += TIMEOUT_MS
    coordinator.add(producer, P1)  # which does not prolong it
    for late_ms in (0, 1):
        assert coordinator.markers == []
        now_ms = coordinator.now_ms + late_ms
        coordinator.time_out(now_ms, now_ms)
    assert coordinator.markers[0].commit is False
    coordinator.marked()
    assert coordinator.add(producer, P0) is ErrorCode.PRODUCER_FENCED
    assert coordinator.end(producer).error is ErrorCode.PRODUCER_FENCED


def test_no_producer_begins_a_transaction_in_the_epoch_that_only_fences():
    coordinator = Coordinator(producer_id=7, producer_epoch=EPOCH_MAX, state=State.COMPLETE_ABORT)
    assert coordinator.add((7, EPOCH_MAX), P0) is ErrorCode.PRODUCER_FENCED
    assert coordinator.begun() == (101, 0)


def test_one_that_is_open_in_the_last_of_all_epochs_times_out_in_it():
    coordinator = open_in_the_last_epoch()
    coordinator.time_out(1_000_000, 1_000_000)
    coordinator.time_out(2_000_000, 2_000_000)
    it_is_aborted_in_it(coordinator)


def test_one_that_is_open_in_the_last_of_all_epochs_is_aborted_in_it_by_another_producer():
    coordinator = open_in_the_last_epoch()
    assert coordinator.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    it_is_aborted_in_it(coordinator)


def open_in_the_last_epoch():
    """As the log of another version may have it."""
    return Coordinator(
        producer_id=7, producer_epoch=EPOCH_MAX, state=State.ONGOING, partitions=frozenset({P0}),
        started_ms=0,
    )  # fmt: skip


def it_is_aborted_in_it(coordinator):
    assert (coordinator.markers[0].commit, coordinator.markers[0].producer_epoch) == (
        False,
        EPOCH_MAX,
    )
    coordinator.marked()
    assert coordinator.begun() == (101, 0)


@pytest.mark.parametrize("jump_ms", [-1_000_000, 1_000_000])
def test_a_clock_that_jumps_ends_nothing_early_and_leaves_nothing_open_for_long(jump_ms):
    coordinator = Coordinator()
    coordinator.add(coordinator.begun(), P0)
    began_ms = coordinator.now_ms
    coordinator.time_out(began_ms, 5)
    coordinator.time_out(began_ms + jump_ms, 5 + TIMEOUT_MS)
    assert coordinator.markers == []
    coordinator.time_out(began_ms + jump_ms, 6 + TIMEOUT_MS)
    assert len(coordinator.markers) == 1


def test_what_began_by_a_clock_that_was_ahead_is_not_open_for_longer_elsewhere():
    coordinator = Coordinator()
    coordinator.now_ms += 1_000_000
    coordinator.add(coordinator.begun(), P0)
    after = Coordinator(coordinator.log)
    after.time_out(1_000, 5)
    after.time_out(1_000, 6 + TIMEOUT_MS)
    assert len(after.markers) == 1


def test_the_next_transaction_has_its_whole_time():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.time_out(coordinator.now_ms, 5)
    coordinator.end(producer)
    coordinator.marked()
    coordinator.now_ms += TIMEOUT_MS
    coordinator.add(producer, P0)
    coordinator.time_out(coordinator.now_ms, 6 + TIMEOUT_MS)
    coordinator.time_out(coordinator.now_ms, 6 + 2 * TIMEOUT_MS)
    assert len(coordinator.markers) == 1


def test_a_repeated_init_with_the_former_epoch_gets_the_same_epoch():
    """KIP-360: the response was lost, and no other producer has begun in between."""
    coordinator = Coordinator()
    first = coordinator.begun()
    answer = coordinator.init(first)
    again = coordinator.init(first)
    assert (answer.producer_epoch, again.producer_epoch) == (first[1] + 1, first[1] + 1)
    coordinator.begun()
    assert coordinator.init(first).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("has_it", [True, False])
def test_after_the_last_epoch_a_producer_gets_another_producer_id(has_it):
    coordinator = Coordinator(producer_id=7, producer_epoch=LAST - 1)
    producer = coordinator.begun()
    assert producer == (7, LAST)
    fresh = coordinator.init(producer if has_it else (-1, -1))
    assert (fresh.error, fresh.producer_id, fresh.producer_epoch) == (NONE, 101, 0)


def test_after_the_last_epoch_a_repeated_init_gets_the_same_producer_id():
    coordinator = Coordinator(producer_id=7, producer_epoch=LAST - 1)
    producer = coordinator.begun()
    coordinator.init(producer)

    again = coordinator.init(producer)  # the answer was lost
    assert (again.producer_id, again.producer_epoch) == (101, 0)


def test_without_a_drawn_id_where_one_is_needed_it_has_to_ask_again():
    coordinator = Coordinator()
    answer = coordinator.ask(InitProducerId, timeout_ms=TIMEOUT_MS)
    assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_end_in_the_last_epoch_without_a_next_id_has_to_be_repeated():
    coordinator = Coordinator(producer_id=7, producer_epoch=LAST)
    assert coordinator.ask(InitProducerId, timeout_ms=TIMEOUT_MS).error is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    coordinator.add((7, LAST), P0, version=VERSION_2)
    ending = {"producer_id": 7, "producer_epoch": LAST, "client_version": VERSION_2}
    answer = coordinator.ask(EndTransaction, commit=True, **ending)
    assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.state is State.ONGOING


def test_an_unknown_transactional_id_is_answered_as_unknown():
    coordinator = Coordinator()
    assert coordinator.add((1, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.end((1, 0)).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.verify((1, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.machine.find("x") is None


def test_what_is_not_in_the_transaction_is_not_verified():
    coordinator = Coordinator()
    producer = coordinator.begun()
    assert coordinator.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    coordinator.add(producer, P0)
    assert coordinator.verify(producer, P0) is NONE
    assert coordinator.verify(producer, P1) is ErrorCode.TRANSACTION_ABORTABLE


# ------------------------------------------------------------------------------- version 2


def test_in_version_2_each_end_has_an_epoch_and_what_is_late_ends_nothing():
    coordinator = Coordinator()
    first = coordinator.begun()
    coordinator.add(first, P0, version=VERSION_2)
    result = coordinator.end(first, version=VERSION_2)
    assert coordinator.markers[-1].client_version == VERSION_2
    second = result.producer_id, result.producer_epoch
    assert second == (first[0], first[1] + 1)
    assert coordinator.markers[-1].producer_epoch == second[1]  # partitions learn it by the marker
    assert coordinator.end(first, version=VERSION_2).error is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.marked()
    again = coordinator.end(first, version=VERSION_2)  # the response was lost
    assert (again.error, again.producer_epoch) == (NONE, second[1])
    otherwise = coordinator.end(first, version=VERSION_2, commit=False)
    assert otherwise.error is ErrorCode.INVALID_TXN_STATE
    coordinator.add(second, P1, version=VERSION_2)
    late = coordinator.end(first, version=VERSION_2)
    assert late.error is ErrorCode.PRODUCER_FENCED
    assert coordinator.state is State.ONGOING


@pytest.mark.parametrize("epoch_off", [-2, 1, 2])
def test_in_version_2_a_former_producer_ends_nothing(epoch_off):
    coordinator = Coordinator(producer_id=7, producer_epoch=4)
    coordinator.add((7, 4), P0, version=VERSION_2)
    for commit in (True, False):
        answer = coordinator.end((7, 4 + epoch_off), version=VERSION_2, commit=commit)
        assert answer.error is ErrorCode.PRODUCER_FENCED
    other = coordinator.end((8, 4), version=VERSION_2)
    assert other.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.state is State.ONGOING


def test_in_version_2_one_may_abort_what_may_never_have_begun_and_not_commit_it():
    coordinator = Coordinator()
    producer = coordinator.begun()
    refused = coordinator.end(producer, version=VERSION_2)
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    result = coordinator.end(producer, version=VERSION_2, commit=False)
    assert (result.error, result.producer_epoch) == (NONE, producer[1] + 1)
    assert coordinator.markers == []  # there is nothing to mark
    assert coordinator.state is State.COMPLETE_ABORT


def test_in_version_2_the_last_epoch_ends_with_another_producer_id():
    coordinator = Coordinator(producer_id=7, producer_epoch=LAST)
    producer = 7, LAST
    coordinator.add(producer, P0, version=VERSION_2)
    result = coordinator.end(producer, version=VERSION_2)
    assert (result.producer_id, result.producer_epoch) == (101, 0)
    assert coordinator.markers[-1].producer_epoch == EPOCH_MAX
    log = coordinator.log
    coordinator = Coordinator(log)  # another coordinates; it has it from the log
    coordinator.marked()
    found = coordinator.machine.find("x")
    assert (found.producer_id, found.producer_epoch) == (101, 0)
    assert coordinator.end(producer, version=VERSION_2).error is NONE
    assert coordinator.add((101, 0), P0, version=VERSION_2) is NONE


# ------------------------------------------------------------------- failures, other coordinators


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_could_not_be_written_has_not_happened(error, result):
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.holds = True
    coordinator.end(producer)
    coordinator.written(error)
    assert coordinator.answers.popitem()[1].error is result
    assert coordinator.markers == []
    assert coordinator.state is State.ONGOING
    assert coordinator.machine.find("x").partitions == {P0}


def test_an_id_whose_first_record_was_not_written_is_not_known():
    coordinator = Coordinator()
    coordinator.holds = True
    coordinator.init()
    coordinator.written(ErrorCode.REQUEST_TIMED_OUT)
    assert len(coordinator.machine) == 0


def test_the_last_step_is_tried_until_it_succeeds():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.end(producer)
    coordinator.holds = True
    coordinator.marked()
    coordinator.written(ErrorCode.REQUEST_TIMED_OUT)
    (append,) = coordinator.appends
    assert append.again
    coordinator.written()
    assert coordinator.state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_is_marked_by_the_next_coordinator(commit):
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0, P1)
    coordinator.end(producer, commit=commit)
    after = Coordinator(coordinator.log)
    (order,) = after.markers
    assert (order.commit, order.partitions) == (commit, {P0, P1})
    after.marked()
    assert after.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_a_marker_of_another_transaction_ends_nothing():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    coordinator.end(producer)
    for other in ((producer[0], producer[1] - 1), (producer[0] + 1, producer[1])):
        coordinator.handle(MarkersWritten("x", *other, frozenset({P0})))
    assert coordinator.state is State.PREPARE_COMMIT


def test_waiting_requests_get_not_coordinator_after_a_resignation():
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.holds = True
    coordinator.handle(
        AddPartitions(
            request=1, transactional_id="x", producer_id=producer[0],
            producer_epoch=producer[1], partitions=frozenset({P0}),
        )
    )  # fmt: skip
    coordinator.handle(Resigned())
    assert coordinator.answers[1].error is ErrorCode.NOT_COORDINATOR
    assert coordinator.init().error is ErrorCode.NOT_COORDINATOR
    coordinator.written()  # a late outcome has no effect
    assert coordinator.markers == []


# ------------------------------------------------------------------------------- expiration


def test_an_id_that_is_unused_for_long_expires_here_and_in_the_log():
    coordinator = Coordinator()
    coordinator.begun()
    coordinator.expire(coordinator.now_ms + 499, 500)
    assert len(coordinator.machine) == 1
    coordinator.expire(coordinator.now_ms + 500, 500)
    assert len(coordinator.machine) == 0
    assert len(Coordinator(coordinator.log).machine) == 0


@pytest.mark.parametrize("ends", [False, True])
def test_a_transaction_that_is_open_or_ending_does_not_expire(ends):
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.add(producer, P0)
    if ends:
        coordinator.end(producer)
    coordinator.expire(coordinator.now_ms + 10_000, 500)
    assert len(coordinator.machine) == 1


def test_a_limited_number_expires_at_once():
    coordinator = Coordinator()
    for number in range(EXPIRED_AT_ONCE + 1):
        coordinator.init(name=f"x{number}")
    coordinator.expire(coordinator.now_ms + 10_000, 500)
    assert len(coordinator.machine) == 1


def test_an_id_that_is_expiring_is_not_described():
    coordinator = Coordinator()
    coordinator.begun()
    coordinator.holds = True
    coordinator.expire(coordinator.now_ms + 10_000, 500)
    assert coordinator.machine.find("x") is None
    assert list(coordinator.machine) == []
    assert coordinator.init().error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_two_transactional_ids_with_one_producer_id_are_found():
    coordinator = Coordinator(producer_id=7, producer_epoch=0)
    other = Transaction(transactional_id="y", producer_id=7, timeout_ms=1, updated_ms=0)
    stored = encode_value(replace(other, producer_epoch=3))
    with pytest.raises(InvariantError, match="y: has producer id 7 of x"):
        coordinator.handle(Replayed((Record(encode_key("y"), stored),), -1))
