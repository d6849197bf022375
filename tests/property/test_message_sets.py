"""Message sets round-trip with every codec, batches convert down and up, and damage is refused."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from odradek.model.errors import ApiError
from odradek.record.compression import Codec
from odradek.record.conversion import convert_down, convert_up
from odradek.record.message_set import iter_messages, iter_records, write_messages
from odradek.record.records import Record, build_batch
from odradek.record.records import iter_records as iter_batch
from odradek.record.validate import ValidationRules

BYTES = st.none() | st.binary(max_size=20) | st.builds(bytes, st.sampled_from([64, 8192, 70_000]))
GAPS = st.integers(1, 3)
OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
MAGICS = st.integers(0, 1)


@st.composite
def record_lists(draw, min_size=1):
    offset = draw(st.integers(0, 2**40))
    records = []
    for key, value, timestamp, gap in draw(
        st.lists(
            st.tuples(BYTES, BYTES, st.integers(-1, 2**45), GAPS), min_size=min_size, max_size=6
        )
    ):
        records.append(Record(key, value, timestamp, (), offset))
        offset += gap
    return records


def read(data):
    return [record for message in iter_messages(data) for record in iter_records(message)]


def as_of(magic, records):
    return records if magic else [record._replace(timestamp=-1) for record in records]


@given(record_lists(), MAGICS, OLD_CODECS)
def test_written_messages_are_read(records, magic, codec):
    assert read(write_messages(records, magic=magic, codec=codec)) == as_of(magic, records)


@given(record_lists(), MAGICS, OLD_CODECS)
def test_a_batch_is_converted_down_and_up(records, magic, codec):
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)

    down = convert_down(memoryview(batch), magic, records[0].offset)
    up = convert_up(
        memoryview(bytes(down.messages)), ValidationRules(message_bytes_max=1 << 30), wall_ms=0
    )

    assert read(down.messages) == as_of(magic, records)
    assert down.records == len(records)
    assert down.next_offset == records[-1].offset + 1
    expected = as_of(magic, records)
    assert [record._replace(offset=0) for record in iter_batch(up.view)] == [
        record._replace(offset=0) for record in expected
    ]
    assert [record.offset for record in iter_batch(up.view)] == list(range(len(records)))
    assert up.header.codec == codec
    assert up.header.max_timestamp == max(-1, *(record.timestamp for record in expected))


FLIPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)


@given(record_lists(), MAGICS, OLD_CODECS, FLIPS, st.integers(0, 200))
def test_damaged_messages_raise_only_our_errors(records, magic, codec, flips, cut):
    data = write_messages(records, magic=magic, codec=codec)
    for at, byte in flips:
        data[at % len(data)] = byte
    rules = ValidationRules(decompressed_bytes_max=1 << 20)
    with contextlib.suppress(ApiError):
        convert_up(memoryview(data), rules, wall_ms=0)
    with contextlib.suppress(ApiError):
        convert_up(memoryview(data)[: len(data) - cut], rules, wall_ms=0)
    with contextlib.suppress(ApiError):
        convert_down(memoryview(data), 0, 0)


@given(st.binary(max_size=300))
def test_any_bytes_raise_only_our_errors(data):
    with contextlib.suppress(ApiError):
        convert_up(memoryview(data), ValidationRules(), wall_ms=0)
    with contextlib.suppress(ApiError):
        convert_down(memoryview(data), 1, 0)
