"""Sequences, open transactions and snapshots; the long comparison is in tests/oracle."""

import sys

import pytest

from odradek.log.producer_state import (
    CorruptSnapshotError,
    ProducerState,
    StoredBatch,
)
from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import SEQUENCE_MAX, BatchHeader
from odradek.record.control import ControlType, Marker

NOW = 1_000_000
DAY_MS = 86_400_000


def header(producer_id=1, *, epoch=0, sequence=0, count=1, transactional=False, timestamp=NOW):
    return BatchHeader(
        base_offset=0,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x10 if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def wrote(state, *batches, base_offset=0):
    """Append the batches of a producer; returns the log end offset."""
    for batch in batches:
        assert state.check(batch) is None
        state.appended(batch, base_offset)
        base_offset += batch.record_count
    return base_offset


def ends(state, base_offset, producer_id=1, *, commit=True, epoch=0, coordinator_epoch=0):
    marker = Marker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
    batch = header(producer_id, epoch=epoch, sequence=-1, transactional=True)
    return state.marker_appended(batch, marker, base_offset)


def code_of(state, batch):
    with pytest.raises(ApiError) as refused:
        state.check(batch)
    return refused.value.code


# ------------------------------------------------------------------------------ idempotence


def test_the_last_five_batches_are_duplicates_and_the_sixth_is_not():
    state = ProducerState()
    batches = [header(sequence=sequence, count=2) for sequence in range(0, 12, 2)]
    wrote(state, *batches)

    answers = [state.check(batch) for batch in batches[1:]]

    assert [answer.base_offset for answer in answers] == [2, 4, 6, 8, 10]
    assert [answer.base_sequence for answer in answers] == [2, 4, 6, 8, 10]
    assert code_of(state, batches[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_part_of_a_batch_is_not_a_duplicate():
    state = ProducerState()
    wrote(state, header(sequence=0, count=4))

    for sequence, count in ((0, 3), (0, 5), (1, 3)):
        batch = header(sequence=sequence, count=count)
        assert code_of(state, batch) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused():
    state = ProducerState()
    wrote(state, header(sequence=0, count=4))

    assert code_of(state, header(sequence=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(sequence=4)) is None


def test_sequences_wrap_after_the_largest():
    state = ProducerState()
    wrote(state, header(sequence=SEQUENCE_MAX - 1, count=2), header(sequence=0))

    assert state.check(header(sequence=SEQUENCE_MAX - 1, count=2)).base_offset == 0


def test_a_batch_across_the_largest_sequence_is_a_duplicate():
    state = ProducerState()
    wrote(state, header(sequence=SEQUENCE_MAX, count=3))

    assert state.check(header(sequence=2)) is None
    assert state.check(header(sequence=SEQUENCE_MAX, count=3)) == StoredBatch(1, 2, 2, NOW)


def test_a_producer_id_without_state_may_begin_with_any_sequence():
    assert ProducerState().check(header(sequence=77)) is None


def test_a_new_epoch_begins_at_0_and_drops_the_batches_of_the_former():
    state = ProducerState()
    wrote(state, header(sequence=0, count=4))

    assert code_of(state, header(epoch=1, sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wrote(state, header(epoch=1, sequence=0, count=4), base_offset=4)
    assert state.check(header(epoch=1, sequence=0, count=4)).base_offset == 4
    assert code_of(state, header(sequence=4)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_after_a_marker_of_a_new_epoch_sequences_begin_at_0():
    state = ProducerState()
    wrote(state, header(sequence=0, count=4, transactional=True))
    ends(state, 4, epoch=1)

    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(state, header(epoch=1, sequence=4, transactional=True)) is expected
    assert state.check(header(epoch=1, sequence=0, transactional=True)) is None


def test_a_coordinator_writes_without_sequences_but_not_in_a_former_epoch():
    state = ProducerState()
    wrote(state, *[header(epoch=2, sequence=-1, transactional=True)] * 3)

    stale = header(epoch=1, sequence=-1, transactional=True)
    assert code_of(state, stale) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_follower_does_not_check_what_its_leader_accepted():
    state = ProducerState()
    for batch in (header(epoch=2, sequence=9), header(epoch=2, sequence=50), header(epoch=1)):
        state.appended(batch, 0)

    (producer,) = state.active_producers()
    assert (producer.producer_epoch, producer.last_sequence) == (1, 0)


# ----------------------------------------------------------------------------- transactions


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction():
    state = ProducerState()
    wrote(state, header(1, transactional=True), base_offset=10)
    wrote(state, header(2, transactional=True), base_offset=11)
    wrote(state, header(1, sequence=1, transactional=True), base_offset=12)

    assert state.last_stable_offset(high_watermark=13) == 10
    assert state.last_stable_offset(high_watermark=5) == 5
    ends(state, 13, 1)
    state.high_watermark_advanced(14)
    assert state.last_stable_offset(high_watermark=14) == 11


def test_a_marker_that_is_not_replicated_holds_back_the_last_stable_offset():
    state = ProducerState()
    wrote(state, header(transactional=True), base_offset=10)
    ends(state, 11)

    state.high_watermark_advanced(11)
    assert state.last_stable_offset(11) == 10
    state.high_watermark_advanced(12)
    assert state.last_stable_offset(12) == 12


def test_a_transaction_that_ends_late_does_not_hide_one_that_began_before():
    state = ProducerState()
    wrote(state, header(1, transactional=True), base_offset=10)
    wrote(state, header(2, transactional=True), base_offset=11)
    ends(state, 12, 2)
    ends(state, 13, 1)

    state.high_watermark_advanced(13)
    assert state.last_stable_offset(13) == 10
    state.high_watermark_advanced(14)
    assert state.last_stable_offset(14) == 14


def test_an_aborted_transaction_is_reported_for_the_index():
    state = ProducerState()
    wrote(state, header(1, transactional=True), base_offset=10)
    wrote(state, header(2, transactional=True), base_offset=11)

    second = ends(state, 12, 2, commit=False)
    first = ends(state, 13, 1, commit=False)

    assert second == (2, 11, 12, 10, True)
    assert first == (1, 10, 13, 14, True)


def test_a_marker_without_a_transaction_ends_nothing():
    state = ProducerState()

    assert ends(state, 10) is None
    assert state.last_stable_offset(11) == 11


def test_markers_of_a_former_producer_or_coordinator_epoch_are_refused():
    state = ProducerState()
    ends(state, 10, epoch=3, coordinator_epoch=5)

    with pytest.raises(ApiError) as stale_producer:
        state.check_marker(1, producer_epoch=2, coordinator_epoch=5)
    with pytest.raises(ApiError) as stale_coordinator:
        state.check_marker(1, producer_epoch=3, coordinator_epoch=4)
    state.check_marker(1, producer_epoch=3, coordinator_epoch=5)
    state.check_marker(99, producer_epoch=0, coordinator_epoch=0)

    assert stale_producer.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stale_coordinator.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_batch_outside_the_open_transaction_is_refused():
    state = ProducerState()
    wrote(state, header(transactional=True))

    assert state.has_open_transaction(1, 0)
    assert code_of(state, header(sequence=1)) is ErrorCode.INVALID_TXN_STATE
    ends(state, 1)
    assert not state.has_open_transaction(1, 0)
    assert state.check(header(sequence=1)) is None


# ----------------------------------------------------------------------------- housekeeping


def test_idle_producer_ids_expire_unless_their_transaction_is_open():
    state = ProducerState()
    wrote(state, header(1, timestamp=NOW))
    wrote(state, header(2, timestamp=NOW, transactional=True), base_offset=1)
    wrote(state, header(3, timestamp=NOW + 1), base_offset=2)

    assert state.expire(wall_ms=NOW + DAY_MS - 1, expiration_ms=DAY_MS) == 0
    assert state.expire(wall_ms=NOW + DAY_MS, expiration_ms=DAY_MS) == 1

    assert [producer.producer_id for producer in state.active_producers()] == [2, 3]
    assert len(state) == 2


def test_a_partition_without_idempotent_producers_has_almost_no_state():
    state = ProducerState()
    state.high_watermark_advanced(10)

    parts = [getattr(state, name) for name in state.__slots__]
    assert sys.getsizeof(state) + sum(map(sys.getsizeof, parts)) < 300
    assert state.expire(wall_ms=NOW, expiration_ms=1) == len(state) == 0
    assert list(state.active_producers()) == []


# --------------------------------------------------------------------------------- snapshot


def a_state():
    state = ProducerState()
    wrote(state, header(1, sequence=0, count=3), header(1, sequence=3, count=2))
    wrote(state, header(2, transactional=True), base_offset=5)
    ends(state, 6, 3, epoch=4, coordinator_epoch=8)
    return state


def loaded(data, wall_ms=NOW):
    state = ProducerState()
    state.load_snapshot(data, wall_ms=wall_ms, expiration_ms=DAY_MS)
    return state


def test_a_snapshot_has_producer_ids_their_last_batch_and_open_transactions():
    state = loaded(a_state().encode_snapshot())

    assert list(state.active_producers()) == list(a_state().active_producers())
    assert state.last_stable_offset(7) == 5
    assert state.check(header(1, sequence=3, count=2)).base_offset == 3
    assert code_of(state, header(1, sequence=0, count=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert ends(state, 7, 2, commit=False) == (2, 5, 7, 8, True)


def test_loading_a_snapshot_replaces_the_state_without_expired_producer_ids():
    state = a_state()
    state.load_snapshot(ProducerState().encode_snapshot(), wall_ms=NOW, expiration_ms=DAY_MS)
    assert (len(state), state.last_stable_offset(7)) == (0, 7)

    late = loaded(a_state().encode_snapshot(), wall_ms=NOW + DAY_MS)
    assert [producer.producer_id for producer in late.active_producers()] == [2]


def test_open_transactions_are_in_order_after_loading():
    state = ProducerState()
    for producer_id, base_offset in ((5, 10), (4, 11)):
        wrote(state, header(producer_id, transactional=True), base_offset=base_offset)
    ends(state, 12, 5)
    wrote(state, header(5, sequence=1, transactional=True), base_offset=13)

    again = loaded(state.encode_snapshot())

    assert again.last_stable_offset(20) == 11
    ends(again, 14, 4)
    again.high_watermark_advanced(15)
    assert again.last_stable_offset(20) == 13


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:9],
        lambda data: b"\0\2" + data[2:],
        lambda data: data[:20] + b"\xff" + data[21:],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"",
    ],
)
def test_a_damaged_snapshot_is_refused_and_the_state_is_empty(damage):
    state = a_state()

    with pytest.raises(CorruptSnapshotError):
        state.load_snapshot(damage(state.encode_snapshot()), wall_ms=NOW, expiration_ms=DAY_MS)

    assert len(state) == 0
    assert state.last_stable_offset(7) == 7
