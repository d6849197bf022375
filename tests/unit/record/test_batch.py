"""The header of a batch: read, iterated, patched."""

import pytest

from odradek.record import batch as batches
from odradek.record.batch import (
    PREFIX_BYTES,
    CorruptBatchError,
    has_valid_crc,
    iter_batches,
    patch,
    patched_prefix,
    read_header,
    whole_batches_end,
)
from odradek.record.records import Record, build_batch


def a_batch(base_offset=0, count=3, **fields):
    records = [Record(b"k", b"v%d" % i, 1000 + i) for i in range(count)]
    return build_batch(records, base_offset=base_offset, **fields)


def with_field(batch, position, value, size):
    changed = bytearray(batch)
    changed[position : position + size] = value.to_bytes(size, "big", signed=True)
    return bytes(changed)


def test_single_fields_equal_those_of_the_header():
    buffer = b"junk" + a_batch(base_offset=40, leader_epoch=7, transactional=True)

    header = read_header(buffer, 4)

    assert header.next_offset == batches.next_offset_at(buffer, 4) == 43
    assert header.base_offset == batches.base_offset_at(buffer, 4) == 40
    assert header.size_bytes == batches.size_at(buffer, 4) == len(buffer) - 4
    assert header.leader_epoch == batches.leader_epoch_at(buffer, 4) == 7


def test_the_last_sequence_wraps_after_the_largest():
    header = read_header(a_batch(count=3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))

    assert header.last_sequence == 0


def test_a_batch_without_a_sequence_has_no_last_sequence():
    assert read_header(a_batch()).last_sequence == -1


def test_iteration_ends_before_an_incomplete_batch_of_any_length():
    first, second = a_batch(0), a_batch(3)
    for length in range(len(second)):
        buffer = first + second[:length]

        assert [position for position, _ in iter_batches(buffer)] == [0]
        assert whole_batches_end(buffer) == len(first)


def test_iteration_gives_each_batch_with_its_position():
    buffer = a_batch(0) + a_batch(3, count=2) + a_batch(5)

    found = [(position, header.base_offset) for position, header in iter_batches(buffer)]

    size = len(a_batch(0))
    assert found == [(0, 0), (size, 3), (len(buffer) - size, 5)]


@pytest.mark.parametrize("torn_to", [17, 60, None])
@pytest.mark.parametrize(
    ("position", "value", "size", "complaint"),
    [
        (8, -1, 4, "length -1"),
        (8, 48, 4, "length 48"),
        (16, 1, 1, "format v1"),
        (16, 3, 1, "magic 3"),
    ],
)
def test_bytes_that_are_not_a_batch_are_refused(position, value, size, complaint, torn_to):
    bad = with_field(a_batch(3), position, value, size)[:torn_to]

    with pytest.raises(CorruptBatchError, match=complaint):
        list(iter_batches(a_batch(0) + bad))


def test_a_length_too_small_for_a_batch_is_refused():
    with pytest.raises(CorruptBatchError, match="length 13 at position 0"):
        whole_batches_end(with_field(a_batch(), 8, 13, 4))


def test_offset_and_epoch_can_be_set_in_place_or_as_prefix_and_the_checksum_stays_valid():
    produced = a_batch()
    in_place = bytearray(produced)
    patch(in_place, 0, base_offset=1 << 40, leader_epoch=9)
    in_front = patched_prefix(1 << 40, read_header(produced).length, 9) + produced[PREFIX_BYTES:]

    header = read_header(in_place)

    assert in_place == in_front
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert has_valid_crc(memoryview(in_place), 0, header)


def test_a_flipped_bit_anywhere_after_the_checksum_is_found():
    batch = a_batch()
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10

        assert not has_valid_crc(memoryview(damaged), 0, read_header(damaged))
