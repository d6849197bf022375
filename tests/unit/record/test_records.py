"""The records of a batch: after compaction, and damaged."""

import pytest

from odradek.record.batch import read_header
from odradek.record.compression import Codec
from odradek.record.records import InvalidRecordError, Record, assemble, build_batch, iter_records


def test_a_compacted_batch_has_gaps_and_its_last_offset():
    kept = [Record(b"a", b"1", 50, offset=12), Record(b"b", None, 40, offset=17)]

    batch = build_batch(kept, base_offset=10, last_offset=19, delete_horizon_ms=1_000_000)

    header = read_header(batch)
    assert list(iter_records(batch)) == kept
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 19, 20)
    assert header.delete_horizon_ms == header.base_timestamp == 1_000_000
    assert header.max_timestamp == 50


def test_a_compacted_batch_may_have_no_records():
    batch = build_batch(
        [], base_offset=10, last_offset=19, codec=Codec.LZ4, producer_id=3, base_sequence=7
    )

    header = read_header(batch)
    assert list(iter_records(batch)) == []
    assert (len(batch), header.record_count, header.codec) == (61, 0, Codec.NONE)
    assert (header.last_offset, header.last_sequence) == (19, 16)


def test_a_header_key_that_is_not_utf8_is_unchanged():
    batch = build_batch([Record(None, None, 1, (("k", b"\xff"),))])
    damaged = batch.replace(b"\x02k", b"\x02\xfe")

    (record,) = iter_records(damaged)

    assert build_batch([record])[61:] == damaged[61:]


def varint(value):
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes([zigzag])


def record_of(*fields, length=None):
    body = b"\0" + b"".join(
        field if isinstance(field, bytes) else varint(field) for field in fields
    )
    return varint(len(body) if length is None else length) + body


WHOLE = (0, 0, 1, b"k", 1, b"v", 0)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(record_of(*WHOLE), 2, id="fewer than counted"),
        pytest.param(record_of(*WHOLE), 0x7FFFFFFF, id="far fewer than counted"),
        pytest.param(record_of(*WHOLE) * 2, 1, id="more than counted"),
        pytest.param(record_of(*WHOLE) + b"\0", 1, id="a byte too many"),
        pytest.param(record_of(*WHOLE)[:-1], 1, id="a byte too few"),
        pytest.param(record_of(*WHOLE, length=-1), 1, id="negative length"),
        pytest.param(record_of(*WHOLE, length=7), 1, id="length too small"),
        pytest.param(record_of(*WHOLE, length=1 << 30), 1, id="length too large"),
        pytest.param(record_of(0, 0, -2, 1, b"v", 0), 1, id="negative key length"),
        pytest.param(record_of(0, 0, -1, -7, 0), 1, id="negative value length"),
        pytest.param(record_of(0, 0, 1 << 30, b"k", 0, 0), 1, id="key beyond the end"),
        pytest.param(record_of(0, 0, -1, 1 << 30, b"v", 0), 1, id="value beyond the end"),
        pytest.param(record_of(0, 0, -1, -1, -1), 1, id="negative header count"),
        pytest.param(record_of(0, 0, -1, -1, 1 << 30), 1, id="header count beyond the end"),
        pytest.param(record_of(0, 0, -1, -1, 1, -1, -1), 1, id="header without a key"),
        pytest.param(record_of(0, 0, -1, -1, 1, -1), 1, id="header that is read twice"),
        pytest.param(record_of(0, 0, -1, -1, 1, 0, -2), 1, id="negative header value length"),
        pytest.param(record_of(0, 0, -1, -1, 1, 0, 9), 1, id="header value beyond the end"),
        pytest.param(record_of(0, b"\xff" * 5 + b"\1", -1, -1, 0), 1, id="overlong varint"),
        pytest.param(record_of(b"\xff" * 10 + b"\1", 0, -1, -1, 0), 1, id="overlong varlong"),
    ],
)
def test_damaged_records_raise_invalid_record_and_never_an_index_error(body, count):
    header = read_header(build_batch([]))._replace(record_count=count)
    batch = assemble(header, body)

    with pytest.raises(InvalidRecordError):
        list(iter_records(batch))


def test_a_batch_longer_than_its_bytes_is_refused():
    with pytest.raises(InvalidRecordError, match="batch of 69 bytes in 68"):
        list(iter_records(build_batch([Record(None, b"v", 1)])[:-1]))


def test_a_record_beyond_the_end_is_not_yielded():
    header = read_header(build_batch([]))._replace(record_count=1)
    batch = assemble(header, record_of(0, 0, -1, -1, 1, 0, 9, length=17))

    with pytest.raises(InvalidRecordError):
        next(iter_records(batch))
