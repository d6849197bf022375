"""Fetched records: the start offset, skipped batches, damage."""

import pytest

from odradek.client.consumer.fetched import CompletedFetch
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.record.compression import Codec
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.wire.messages.fetch import AbortedTransaction

T0 = TopicPartition("t", 0)


def batch(base, *values, producer=None, codec=Codec.NONE):
    return build_batch(
        [Record(None, value, 7) for value in values],
        base_offset=base,
        codec=codec,
        leader_epoch=3,
        producer_id=-1 if producer is None else producer,
        producer_epoch=-1 if producer is None else 0,
        base_sequence=-1 if producer is None else 0,
        transactional=producer is not None,
    )


def marker(base, producer, kind):
    return build_marker(
        Marker(kind, 1), producer_id=producer, producer_epoch=0, timestamp=7, base_offset=base
    )


def fetched(*batches, offset=0, aborted=(), checks_crcs=True):
    return CompletedFetch(
        T0, b"".join(batches), offset=offset, visit=1, aborted=aborted, checks_crcs=checks_crcs
    )


def values(it, count=100):
    return [(record.offset, record.value) for record in it.take(count)]


def test_records_before_the_position_are_skipped():
    it = fetched(batch(0, b"a", b"b", b"c", codec=Codec.LZ4), offset=1)

    assert values(it, 1) == [(1, b"b")]
    assert it.next_offset == 2
    assert values(it) == [(2, b"c")]
    assert (it.next_offset, it.leader_epoch) == (3, 3)
    assert values(it) == []


def test_an_incomplete_last_batch_is_left_for_the_next_fetch():
    whole, torn = batch(0, b"a"), batch(1, b"b")[:-3]

    it = fetched(whole, torn)

    assert values(it) == [(0, b"a")]
    assert it.next_offset == 1


def test_read_committed_skips_aborted_batches():
    data = [
        batch(0, b"a0", producer=1),
        batch(1, b"b0", producer=2),
        marker(2, 1, ControlType.ABORT),
        batch(3, b"a1", producer=1),
        marker(4, 2, ControlType.COMMIT),
        marker(5, 1, ControlType.COMMIT),
    ]

    it = fetched(*data, aborted=[AbortedTransaction(producer_id=1, first_offset=0)])

    assert values(it) == [(1, b"b0"), (3, b"a1")]
    assert it.next_offset == 6


def test_read_uncommitted_returns_aborted_records_but_no_markers():
    it = fetched(batch(0, b"a0", producer=1), marker(1, 1, ControlType.ABORT))

    assert values(it) == [(0, b"a0")]
    assert it.next_offset == 2


def test_a_gap_left_by_compaction_is_skipped():
    last = build_batch([Record(None, b"a", 7, offset=5)], base_offset=5, last_offset=9)

    it = fetched(last, offset=5)
    assert values(it) == [(5, b"a")]
    assert it.next_offset == 10


def test_the_error_of_a_damaged_batch_names_partition_and_offset():
    damaged = bytearray(batch(4, b"a"))
    damaged[-2] ^= 1

    it = fetched(batch(3, b"good"), bytes(damaged), offset=3)
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE: t-0 at offset 4: the batch at offset 4"):
        it.take(10)

    assert len(fetched(batch(3, b"good"), bytes(damaged), checks_crcs=False).take(10)) == 2
