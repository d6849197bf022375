"""Record batches to Arrow: skipped batches, range ends, damage, columns."""

import datetime
import subprocess
import sys

import pytest

from odradek.client.arrow.decode import ALL_COLUMNS, Layout, PartitionDecoder, UnknownColumnError
from odradek.client.arrow.kernel import KernelError, kernel
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import sign
from odradek.record.compression import Codec
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.wire.messages.fetch import AbortedTransaction

T = TopicPartition("orders", 0)
A, B = 7, 8


def batch(offset, *values, producer_id=-1, codec=Codec.NONE):
    return build_batch(
        [Record(None, value, 1_000 + offset) for value in values],
        base_offset=offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def marker(offset, producer_id, kind):
    return build_marker(
        Marker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset
    )


def read(data, *, start=0, end=None, aborted=(), columns=("offset", "value")):
    decoder = PartitionDecoder(T, Layout(columns), start=start, end=end)
    rows = [row for each in decoder.decode(data, aborted) for row in each.to_pylist()]
    return rows, decoder


def values(data, **options):
    return [row["value"] for row in read(data, **options)[0]]


def test_a_row_has_the_columns_of_a_record():
    data = build_batch(
        [Record(b"k", None, 1_700_000_000_001, (("trace", b"\x01"), ("trace", None)), 41)],
        base_offset=41,
    )

    rows, _ = read(data, start=41, columns=ALL_COLUMNS)

    assert rows == [
        {
            "key": b"k",
            "value": None,
            "topic": "orders",
            "partition": 0,
            "offset": 41,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 1_000, datetime.UTC),
            "timestamp_type": 0,
            "headers": [{"key": "trace", "value": b"\x01"}, {"key": "trace", "value": None}],
        }
    ]


def test_a_header_that_is_not_utf8_is_decoded_as_in_java():
    data = build_batch([Record(None, b"", 0, (("caf\udce9", b""),))])

    rows, _ = read(data, columns=("headers",))

    assert rows[0]["headers"][0]["key"] == "caf\ufffd"


def test_markers_yield_no_rows_and_the_next_offset_skips_them():
    data = batch(0, b"a", producer_id=A) + marker(1, A, ControlType.COMMIT)

    rows, decoder = read(data)

    assert rows == [{"offset": 0, "value": b"a"}]
    assert decoder.next_offset == 2


def test_only_aborted_batches_are_skipped():
    data = (
        batch(0, b"A aborted", producer_id=A)
        + batch(1, b"B", producer_id=B)
        + batch(2, b"plain")
        + marker(3, A, ControlType.ABORT)
        + batch(4, b"A again", producer_id=A)
        + marker(5, A, ControlType.COMMIT)
        + marker(6, B, ControlType.COMMIT)
    )
    aborted = [AbortedTransaction(producer_id=A, first_offset=0)]

    rows, decoder = read(data, aborted=aborted)

    assert [row["value"] for row in rows] == [b"B", b"plain", b"A again"]
    assert decoder.next_offset == 7


def test_a_transaction_aborted_later_does_not_hide_an_earlier_one_of_its_producer():
    data = (
        batch(0, b"kept", producer_id=A)
        + marker(1, A, ControlType.COMMIT)
        + batch(2, b"gone", producer_id=A)
        + marker(3, A, ControlType.ABORT)
    )

    assert values(data, aborted=[AbortedTransaction(producer_id=A, first_offset=2)]) == [b"kept"]


def test_a_fetch_of_only_markers_advances_the_next_offset():
    rows, decoder = read(marker(9, A, ControlType.ABORT), start=9)

    assert rows == []
    assert decoder.next_offset == 10


def test_an_empty_batch_left_by_compaction_advances_the_next_offset():
    rows, decoder = read(build_batch([], base_offset=4, last_offset=8), start=4)

    assert rows == []
    assert decoder.next_offset == 9


def test_records_outside_the_range_are_cut_off():
    data = batch(0, *b"abcdef".split()) + build_batch(
        [Record(None, bytes([each]), 0) for each in b"abcdef"], base_offset=1
    )

    rows, decoder = read(data, start=2, end=5)

    assert [(row["offset"], row["value"]) for row in rows] == [(2, b"b"), (3, b"c"), (4, b"d")]
    assert decoder.is_done


def test_an_incomplete_batch_is_left_for_the_next_fetch():
    whole, torn = batch(0, b"a"), batch(1, b"b")

    rows, decoder = read(whole + torn[:-1])

    assert rows == [{"offset": 0, "value": b"a"}]
    assert decoder.next_offset == 1


def test_a_batch_larger_than_the_fetch_is_refused():
    with pytest.raises(ApiError, match="orders-0: the batch at offset 7 is larger than the 60"):
        read(batch(7, b"a")[:60], start=7)


def test_rows_before_a_damaged_batch_are_returned_before_the_error():
    bad = bytearray(batch(1, b"b"))
    bad[-1] ^= 1
    decoder = PartitionDecoder(T, Layout(("value",)), start=0)
    batches = decoder.decode(batch(0, b"a") + bytes(bad))

    assert next(batches).to_pylist() == [{"value": b"a"}]
    with pytest.raises(ApiError, match="orders-0 at offset 1: checksum") as raised:
        next(batches)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_error_of_damaged_records_is_that_of_the_record_decoder():
    bad = bytearray(batch(3, b"a"))
    bad[-1] = 9  # a header count without headers
    sign(bad)

    with pytest.raises(ApiError, match="orders-0 at offset 3: header count -5"):
        read(batch(0, b"a", b"b", b"c") + bytes(bad))


def test_the_error_of_damaged_compressed_data_names_the_codec():
    bad = bytearray(batch(3, b"a" * 100, codec=Codec.ZSTD))
    bad[61] ^= 0xFF
    sign(bad)

    with pytest.raises(ApiError, match="orders-0 at offset 3: zstd"):
        read(bytes(bad), start=3)


def test_rows_without_columns_are_counted():
    decoder = PartitionDecoder(T, Layout(()), start=1)

    (only,) = decoder.decode(batch(0, b"a", b"b", b"c"))

    assert (only.num_rows, only.num_columns) == (2, 0)


@pytest.mark.parametrize("columns", [("valu",), ("value", "value")])
def test_an_unknown_or_repeated_column_is_refused(columns):
    with pytest.raises(UnknownColumnError, match="valu"):
        Layout(columns)


def test_a_timestamp_beyond_microseconds_is_refused_with_its_offset():
    data = build_batch([Record(None, b"", 1 << 62)])
    decoder = PartitionDecoder(T, Layout(("timestamp",), timestamp_unit="us"), start=0)

    with pytest.raises(ApiError, match="orders-0 at offset 0: a timestamp beyond microseconds"):
        list(decoder.decode(data))


def test_an_unknown_kernel_is_refused(monkeypatch):
    with pytest.raises(KernelError, match="must be fast or numpy"):
        kernel("cuda")


def test_the_client_is_imported_without_arrow():
    program = (
        "import sys, odradek, odradek.client, odradek.client.cluster, odradek.client.connection;"
        "print({'pyarrow', 'numpy', 'pyspark', 'pandas', 'odradek_fast'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert result.stdout == b"set()\n"
