"""Files of found records."""

import csv
import io
import json
import sys

import pytest

from odradek.record.compression import Codec
from odradek.web.messages.export import ExportError, exported
from odradek.web.messages.scan import FoundRecord, TransactionState


def record(offset, key, value, headers=()):
    return FoundRecord(
        partition=0, offset=offset, timestamp=1_767_225_600_000, timestamp_type=0, key=key,
        key_bytes=len(key or b""), value=value, value_bytes=len(value or b""), headers=headers,
        headers_cut=0, leader_epoch=0, codec=Codec.NONE, batch_offset=0, batch_bytes=0,
        batch_records=1, producer_id=-1, producer_epoch=-1, sequence=-1,
        state=TransactionState.NONE, marker="",
    )  # fmt: skip


RECORDS = [
    record(0, None, b"line\none, \"quoted\"", (("h", b"\xff"), ("g", None))),
    record(1, b"\xff\x00", None),
    record(2, b"k", "caf\u00e9".encode()),
]  # fmt: skip


def test_json_lines_keep_null_and_bytes():
    lines = [json.loads(line) for line in exported("jsonl", "t", RECORDS).splitlines()]

    assert [(each["key"], each["key_encoding"]) for each in lines] == [
        (None, "null"), ("/wA=", "base64"), ("k", "utf-8"),
    ]  # fmt: skip
    assert [each["value"] for each in lines] == ['line\none, "quoted"', None, "caf\u00e9"]
    assert lines[0]["headers"] == [
        {"name": "h", "value": "/w==", "encoding": "base64"},
        {"name": "g", "value": None, "encoding": "null"},
    ]


def test_csv_has_a_row_for_each_record():
    rows = list(csv.DictReader(io.StringIO(exported("csv", "t", RECORDS).decode(), newline="")))

    assert [row["value"] for row in rows] == ['line\none, "quoted"', "", "caf\u00e9"]
    assert [row["value_encoding"] for row in rows] == ["utf-8", "null", "utf-8"]
    assert rows[0]["time"] == "2026-01-01T00:00:00.000Z"


def test_parquet_without_its_library_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ExportError, match="needs pyarrow"):
        exported("parquet", "t", RECORDS)


def test_another_format_is_refused():
    with pytest.raises(ExportError, match="jsonl, csv, parquet"):
        exported("xml", "t", RECORDS)


def test_parquet_has_binary_values():
    pq = pytest.importorskip("pyarrow.parquet")

    table = pq.read_table(io.BytesIO(exported("parquet", "t", RECORDS)))

    assert table.column("key").to_pylist() == [None, b"\xff\x00", b"k"]
    assert table.column("headers").to_pylist()[0] == [
        {"key": "h", "value": b"\xff"}, {"key": "g", "value": None},
    ]  # fmt: skip
