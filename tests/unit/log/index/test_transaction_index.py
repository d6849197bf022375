"""Which aborted transactions a read_committed fetch gets."""

import pytest

from odradek.log.index.transactions import (
    AbortedTransaction,
    CorruptTransactionIndexError,
    collect,
    decode,
)

ENTRIES = [
    AbortedTransaction(1, first_offset=10, last_offset=20, last_stable_offset=12),
    AbortedTransaction(2, first_offset=12, last_offset=30, last_stable_offset=31),
    AbortedTransaction(3, first_offset=40, last_offset=50, last_stable_offset=51),
]


@pytest.mark.parametrize(
    ("fetch_offset", "end_offset", "producers", "complete"),
    [
        pytest.param(0, 10, [], True, id="below all"),
        pytest.param(0, 11, [1], True, id="the first one begins"),
        pytest.param(0, 13, [1, 2], True, id="two of them overlap"),
        pytest.param(20, 21, [1, 2], True, id="the offset of the marker counts"),
        pytest.param(21, 35, [2], True, id="one ended before"),
        pytest.param(31, 40, [], True, id="between"),
        pytest.param(45, 51, [3], True, id="all had ended up to the end"),
        pytest.param(45, 52, [3], False, id="the next segment may have more"),
    ],
)
def test_the_transactions_that_overlap_a_range(fetch_offset, end_offset, producers, complete):
    found = []

    answer = collect(ENTRIES, fetch_offset=fetch_offset, end_offset=end_offset, into=found)

    assert [entry.producer_id for entry in found] == producers
    assert answer == complete


def test_encoded_entries_are_decoded():
    data = b"".join(entry.encode() for entry in ENTRIES)

    assert len(data) == 3 * 34
    assert decode(memoryview(data), base_offset=20) == ENTRIES


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (ENTRIES[0].encode()[:-1], "33 bytes"),
        (b"\0\1" + ENTRIES[0].encode()[2:], "version 1"),
        (ENTRIES[0].encode(), "in the segment 21"),
        (AbortedTransaction(1, 30, 29, 0).encode(), "first_offset=30"),
        (ENTRIES[2].encode() + ENTRIES[1].encode(), "behind 50"),
    ],
)
def test_a_corrupt_index_is_refused(data, complaint):
    with pytest.raises(CorruptTransactionIndexError, match=complaint):
        decode(data, base_offset=21)


@pytest.mark.parametrize("entries", [[], ENTRIES])
def test_zeros_at_the_end_are_refused(entries):
    data = b"".join(entry.encode() for entry in entries)

    with pytest.raises(CorruptTransactionIndexError, match="last_offset=0"):
        decode(data + bytes(34))
