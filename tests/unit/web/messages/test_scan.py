"""Searching fetched bytes: counts that add up, transactions, gaps, damage, codecs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.record.batch import TimestampType
from odradek.record.compression import Codec
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.web.messages.conditions import KeyEquals, Matcher, TextContains
from odradek.web.messages.scan import (
    ScanWanted,
    Stability,
    TransactionState,
    next_fetch_offset,
    scan,
)
from odradek.wire.messages.fetch import AbortedTransaction

STABLE = Stability(is_stable=True)
EVERYTHING = Matcher()


def batch(base, *values, **options):
    return build_batch(
        [Record(b"k%d" % n, value, 1_000 + base + n) for n, value in enumerate(values)],
        base_offset=base,
        **options,
    )


def marker(base, producer_id, kind=ControlType.COMMIT):
    return build_marker(
        Marker(kind, 4), producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=base
    )


def search(data, matcher=EVERYTHING, stability=STABLE, position=0, end=100, room=100, **options):
    return scan(data, ScanWanted(3, position, end, room, **options), matcher, stability)


def offsets(done):
    return [each.offset for each in done.found]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_each_codec_are_found(codec):
    data = batch(0, b"a", b"b", codec=codec) + batch(2, b"c", None, b"a", codec=codec)

    done = search(data, Matcher((TextContains("a"),)))

    assert offsets(done) == [0, 4]
    assert {each.codec for each in done.found} == {codec}
    assert (done.position, done.records, done.missing, done.bytes) == (5, 5, 0, len(data))


def test_a_found_record_has_what_its_batch_says():
    data = build_batch(
        [Record(None, None, 5), Record(b"k", b"v", 6, (("h", b"1"), ("g", None)))],
        base_offset=10,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        leader_epoch=9,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=99,
    )

    null, found = search(data, position=10).found

    assert (null.key, null.value, null.key_bytes) == (None, None, 0)
    assert (found.partition, found.offset, found.timestamp, found.timestamp_type) == (3, 11, 99, 1)
    assert (found.producer_id, found.producer_epoch, found.sequence) == (7, 2, 41)
    assert (found.leader_epoch, found.batch_offset, found.batch_records) == (9, 10, 2)
    assert found.headers == (("h", b"1"), ("g", None))


def test_a_batch_that_is_too_old_is_counted_and_not_decoded():
    damaged_inside = bytearray(batch(0, b"a", b"b"))

    done = search(bytes(damaged_inside), Matcher(from_ms=5_000))

    assert (offsets(done), done.records, done.position) == ([], 2, 2)


def test_gaps_between_and_within_batches_are_missing_offsets():
    compacted = build_batch(
        [Record(b"k", b"a", 1, offset=12), Record(b"k", b"b", 1, offset=15)],
        base_offset=10,
        last_offset=19,
    )

    done = search(batch(0, b"a") + compacted, end=40)

    assert offsets(done) == [0, 12, 15]
    assert (done.position, done.records, done.missing) == (20, 3, 17)


def test_gaps_are_counted_alike_where_records_need_not_be_decoded():
    compacted = build_batch([Record(b"k", b"a", 1, offset=12)], base_offset=10, last_offset=19)

    done = search(compacted, Matcher((TextContains("zzz"),)), position=5, end=40)

    assert (done.position, done.records, done.missing) == (20, 1, 14)


def test_an_empty_batch_that_compaction_keeps_has_no_records():
    empty = build_batch([], base_offset=10, last_offset=13, producer_id=1)

    done = search(empty + batch(14, b"a"), position=10, end=40)

    assert (offsets(done), done.missing, done.records) == ([14], 4, 1)


def test_the_search_begins_and_ends_within_a_batch():
    data = batch(0, b"a", b"b", b"c", b"d", b"e") + batch(5, b"f")

    done = search(data, position=1, end=4)

    assert (offsets(done), done.position, done.records) == ([1, 2, 3], 4, 3)


def test_an_end_in_a_gap_is_reached():
    done = search(batch(0, b"a") + batch(10, b"b"), end=5)

    assert (offsets(done), done.position, done.missing) == ([0], 5, 4)


def test_a_full_slice_stops_after_the_record_that_fills_it_and_goes_on_there():
    data = batch(0, b"a", b"x", b"a", b"a") + batch(4, b"a")
    matcher = Matcher((TextContains("a"),))

    first = search(data, matcher, room=2)
    rest = search(data, matcher, position=first.position)

    assert (offsets(first), first.position, first.records) == ([0, 2], 3, 3)
    assert (offsets(rest), rest.position, rest.records) == ([3, 4], 5, 2)


def test_a_slice_is_full_when_the_found_records_hold_enough_bytes_and_the_last_one_is_whole():
    large = b"a" * 100
    data = batch(0, b"a", large, large) + batch(3, large)

    first = search(data, room_bytes=100)
    rest = search(data, position=first.position, room_bytes=100)

    assert (offsets(first), first.position, first.found[-1].is_cut) == ([0, 1], 2, False)
    assert (offsets(rest), rest.position) == ([2], 3)


def test_a_batch_that_ends_after_the_response_is_left_for_the_next_one():
    whole = batch(0, b"a")
    data = whole + batch(1, b"b")[:-1]

    assert search(data).position == 1
    assert next_fetch_offset(data, 0) == 1


# ------------------------------------------------------------------------------- transactions


def transaction(base, producer_id, *values):
    return batch(
        base, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0,
        transactional=True,
    )  # fmt: skip


TWO = (
    transaction(0, 7, b"a") + transaction(1, 8, b"b") + batch(2, b"c")
    + marker(3, 8, ControlType.ABORT) + marker(4, 7) + transaction(5, 8, b"d") + marker(6, 8)
)  # fmt: skip
ABORTED = Stability(True, (AbortedTransaction(producer_id=8, first_offset=1),))


def test_records_have_the_state_of_their_transaction():
    done = search(TWO, stability=ABORTED)

    assert [(each.offset, each.state) for each in done.found] == [
        (0, TransactionState.COMMITTED),
        (1, TransactionState.ABORTED),
        (2, TransactionState.NONE),
        (5, TransactionState.COMMITTED),
    ]
    assert (done.records, done.markers, done.position) == (4, 3, 7)


def test_only_committed_records_are_found_and_all_are_searched():
    done = search(TWO, stability=ABORTED, committed_only=True)

    assert (offsets(done), done.records, done.markers) == ([0, 2, 5], 4, 3)


def test_above_the_last_stable_offset_a_transaction_is_open_or_has_ended():
    unstable = Stability(is_stable=False, open_from={7: 0})

    done = search(TWO, stability=unstable)

    assert [each.state for each in done.found] == [
        TransactionState.OPEN, TransactionState.ENDED, TransactionState.NONE,
        TransactionState.ENDED,
    ]  # fmt: skip


def test_markers_are_shown_as_such():
    done = search(TWO, stability=ABORTED, shows_markers=True)

    assert [(each.offset, each.marker) for each in done.found if each.marker] == [
        (3, "ABORT"), (4, "COMMIT"), (6, "COMMIT"),
    ]  # fmt: skip
    assert {each.coordinator_epoch for each in done.found if each.marker} == {4}


# ------------------------------------------------------------------------------------- damage


def damaged(data, at=-1):
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


def test_a_damaged_batch_is_reported_and_passed():
    data = batch(0, b"a") + damaged(batch(1, b"b", b"c")) + batch(3, b"d")

    done = search(data)

    assert offsets(done) == [0, 3]
    assert done.undecodable == [(1, 3, "its bytes do not match their checksum")]
    assert (done.records, done.position) == (2, 4)


def test_a_message_of_an_old_format_is_reported_and_passed():
    old = bytearray(batch(0, b"a"))
    old[16] = 1

    done = search(bytes(old) + batch(1, b"b"))

    assert offsets(done) == [1]
    assert done.undecodable == [(0, 1, "message format v1, of Kafka before 0.11")]


def test_a_length_that_cannot_be_ends_the_partition():
    broken = bytearray(batch(1, b"b"))
    broken[8:12] = (3).to_bytes(4, "big")

    done = search(batch(0, b"a") + bytes(broken))

    assert (offsets(done), done.position) == ([0], 1)
    assert "length 3" in done.error


def test_long_values_are_cut_and_their_lengths_are_whole():
    data = batch(0, b"x" * 100)

    (found,) = search(data, held_bytes=10).found

    assert (found.value, found.value_bytes, found.is_cut) == (b"x" * 10, 100, True)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # missing offsets before the batch
            st.lists(st.sampled_from([b"a", b"b", None]), min_size=1, max_size=5),
            st.sampled_from(["records", "marker", "damaged"]),
        ),
        max_size=8,
    ),
    st.integers(0, 30),
    st.integers(0, 40),
    st.integers(1, 4),
)
def test_every_offset_that_is_passed_is_counted_once(parts, position, end, room):
    data, at = b"", 0
    for gap, values, kind in parts:
        at += gap
        match kind:
            case "records":
                data += batch(at, *values)
            case "damaged":
                data += damaged(batch(at, *values))
            case "marker":
                data += marker(at, 1)
        at += 1 if kind == "marker" else len(values)
    end = max(end, position)

    while True:
        done = search(data, Matcher((TextContains("a"),)), position=position, end=end, room=room)
        undecodable = sum(each.size for each in done.undecodable)
        counted = done.records + done.missing + done.markers + undecodable
        assert counted == done.position - position
        assert done.position <= end
        if done.position == position:
            break
        position = done.position


def test_a_key_is_found_among_many():
    data = b"".join(batch(n, b"v") for n in range(50))

    assert len(search(data, Matcher((KeyEquals(b"k0"),))).found) == 50
