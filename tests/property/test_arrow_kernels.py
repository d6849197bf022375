"""Compares both Arrow kernels with the plain decoder and encoder, which work record by record."""

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odradek.client.arrow.numpy_kernel as arrow_numpy
from odradek.client.arrow.decode import ALL_COLUMNS, Layout, PartitionDecoder
from odradek.client.arrow.encode import encode_partition
from odradek.client.arrow.partition import murmur2
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    HEADER_BYTES,
    TimestampType,
    has_valid_crc,
    iter_batches,
    sign,
)
from odradek.record.compression import Codec
from odradek.record.records import Record, assemble, build_batch, iter_records

T = TopicPartition("orders", 3)
KERNELS = [arrow_numpy]
with contextlib.suppress(ImportError):
    import odradek_fast

    KERNELS.append(odradek_fast)
both = pytest.mark.parametrize("using", KERNELS, ids=lambda module: module.__name__)

TIMESTAMPS = st.integers(-1, 2**45)
BYTES = st.none() | st.binary(max_size=20) | st.builds(bytes, st.sampled_from([64, 8192, 20_000]))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(BYTES, BYTES, TIMESTAMPS, HEADERS).map(lambda fields: Record(*fields)), max_size=6
)
CODECS = st.sampled_from(list(Codec))
BATCHES = st.lists(st.tuples(RECORDS, CODECS, st.booleans()), min_size=1, max_size=60)


def log_of(batches):
    """A sequence of batches, and the rows that a reader should get."""
    out, rows, offset = bytearray(), [], 5
    for records, codec, stamped in batches:
        batch = build_batch(
            records,
            base_offset=offset,
            codec=codec,
            timestamp_type=TimestampType(stamped),
            append_time_ms=1_700_000_000_123 if stamped else -1,
            last_offset=offset + len(records),  # the last one did not survive compaction
        )
        out += batch
        offset += len(records) + 1
        rows += [(record, int(stamped)) for record in iter_records(batch)]
    return bytes(out), rows, offset


def rows_of(table):
    for row in table.to_pylist():
        stamp = row["timestamp"].value if hasattr(row["timestamp"], "value") else row["timestamp"]
        headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
        yield Record(row["key"], row["value"], stamp, headers, row["offset"]), row["timestamp_type"]


def decoded(data, using, *, start=0, end=None, columns=ALL_COLUMNS):
    decoder = PartitionDecoder(T, Layout(columns), start=start, end=end, using=using)
    batches = list(decoder.decode(data))
    table = pa.Table.from_batches(batches, Layout(columns).schema)
    if "timestamp" in columns:
        at = columns.index("timestamp")
        table = table.set_column(at, "timestamp", table.column(at).cast(pa.int64()))
    return table, decoder


@both
@settings(max_examples=60)
@given(batches=BATCHES)
def test_every_record_is_read_as_by_the_plain_decoder(using, batches):
    data, rows, end = log_of(batches)

    table, decoder = decoded(data, using)

    table.validate(full=True)
    assert list(rows_of(table)) == rows
    assert set(table.column("topic").to_pylist()) <= {"orders"}
    assert set(table.column("partition").to_pylist()) <= {3}
    assert decoder.next_offset == end


@both
@settings(max_examples=60)
@given(batches=BATCHES, start=st.integers(0, 60), length=st.integers(0, 60))
def test_a_range_has_only_the_requested_offsets(using, batches, start, length):
    data, rows, _ = log_of(batches)

    table, _ = decoded(data, using, start=start, end=start + length)

    assert list(rows_of(table)) == [row for row in rows if start <= row[0].offset < start + length]


@both
@settings(max_examples=60)
@given(batches=BATCHES, columns=st.permutations(ALL_COLUMNS), count=st.integers(1, 4))
def test_a_selection_of_columns_equals_those_columns_of_all(using, batches, columns, count):
    data, _, _ = log_of(batches)
    whole, _ = decoded(data, using)

    part, _ = decoded(data, using, columns=tuple(columns[:count]))

    assert part.equals(whole.select(columns[:count]))


SMALL = build_batch([Record(b"k", b"v", 1, (("h", b"x"),)), Record(None, b"w", 2)])


@both
@pytest.mark.parametrize("where", range(HEADER_BYTES, len(SMALL)))
def test_a_changed_byte_has_the_same_result_as_with_the_plain_decoder(using, where):
    for value in (*range(16), 0x7F, 0x80, 0x81, 0xFE, 0xFF):
        batch = bytearray(SMALL)
        batch[where] = value
        sign(batch)
        try:
            expected = list(iter_records(bytes(batch)))
        except ApiError:
            with pytest.raises(ApiError, match="orders-3 at offset 0"):
                decoded(bytes(batch), using)
        else:
            table, _ = decoded(bytes(batch), using)
            assert table.column("key").to_pylist() == [each.key for each in expected]
            assert table.column("value").to_pylist() == [each.value for each in expected]


FLIPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@both
@settings(max_examples=60)
@given(records=RECORDS.filter(bool), flips=FLIPS, copies=st.sampled_from([1, 60]))
def test_damage_behind_a_valid_checksum_is_refused_or_read_as_the_plain_decoder_does(
    using, records, flips, copies
):
    batch = bytearray(build_batch(records))
    for where, value in flips:
        batch[HEADER_BYTES + where % (len(batch) - HEADER_BYTES)] = value
    sign(batch)
    log = bytearray()
    for copy in range(copies):  # the checksum does not cover the base offset
        batch[:8] = (copy * len(records)).to_bytes(8, "big")
        log += batch
    try:
        expected = list(iter_records(bytes(batch)))
    except ApiError:
        with pytest.raises(ApiError, match="orders-3 at offset 0"):
            decoded(bytes(log), using)
    else:
        table, _ = decoded(bytes(log), using)
        assert table.column("value").to_pylist() == [each.value for each in expected] * copies


@both
@settings(max_examples=60)
@given(records=RECORDS.filter(bool), where=st.integers(21, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(using, records, where, bit):
    batch = bytearray(build_batch(records))
    batch[21 + (where - 21) % (len(batch) - 21)] ^= 1 << bit

    with pytest.raises(ApiError, match=r"orders-3 at offset 0: checksum"):
        decoded(bytes(batch), using)


# ------------------------------------------------------------------------------------ encoding


def table_of(records):
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
            "headers": pa.array(
                [
                    [{"key": key, "value": value} for key, value in record.headers] or None
                    for record in records
                ],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


@both
@settings(max_examples=60)
@given(records=RECORDS.filter(bool), codec=CODECS, size=st.sampled_from([1, 100, 100_000]))
def test_encoded_batches_are_those_of_the_plain_encoder(using, records, codec, size):
    settings = ProducerSettings(batch_bytes=size, codec=codec)

    encoded = encode_partition(table_of(records), settings, using=using)
    batches = [assemble(*each) for each in encoded]

    read = []
    for batch in batches:
        (position, header), *more = iter_batches(memoryview(batch))
        assert not more
        assert has_valid_crc(memoryview(batch), position, header)
        inside = [record._replace(offset=-1) for record in iter_records(batch)]
        # zstd may use another frame format for another call; the records are the same.
        assert codec is Codec.ZSTD or bytes(batch) == build_batch(inside, codec=codec)
        assert header.last_offset_delta + 1 == header.record_count == len(inside)
        read += inside
    assert read == records
    assert size > 1 or len(batches) == len(records)


def java_murmur2(data):
    """Kafka's `Utils.murmur2` in plain Python."""
    mask = 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ k >> 24) * 0x5BD1E995 & mask
        h = h * 0x5BD1E995 & mask ^ k
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    h = (h ^ h >> 13) * 0x5BD1E995 & mask
    return h ^ h >> 15


@both
@settings(max_examples=60)
@given(keys=st.lists(st.binary(max_size=40)))
def test_the_hash_is_kafkas(using, keys):
    assert murmur2(pa.array(keys, pa.binary()), using=using) == [java_murmur2(key) for key in keys]


@both
@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_the_hash_of_known_keys_is_what_apache_kafka_computes(using, key, expected):
    (computed,) = murmur2(pa.array([key], pa.binary()), using=using)

    assert computed == expected & 0xFFFFFFFF
