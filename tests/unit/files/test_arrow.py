"""Reading segments as Arrow tables."""

import zipfile
from pathlib import Path

import pytest

from odradek.files.segments import FileFormatError, batches
from odradek.log.index.transactions import AbortedTransaction
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch

arrow = pytest.importorskip("odradek.files.arrow", reason="the extra `arrow`", exc_type=ImportError)
RECORDED = Path(__file__).parents[2] / "oracle" / "log" / "kafka_3_9_cleaned.zip"


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory):
    """A partition written by Apache Kafka, with all codecs and with transactions."""
    directory = tmp_path_factory.mktemp("data") / "rec-0"
    directory.mkdir()
    with zipfile.ZipFile(RECORDED) as archive:
        for name in archive.namelist():
            if name.startswith("before2/"):
                (directory / Path(name).name).write_bytes(archive.read(name))
    return directory


def test_a_partition_has_the_records_of_its_batches(kafkas):
    table = arrow.read_table(kafkas)
    expected = [
        (record.offset, record.key, record.value)
        for log in sorted(kafkas.glob("*.log"))
        for batch in batches(log)
        if not batch.header.is_control
        for record in batch.records()
    ]
    columns = [table.column(name).to_pylist() for name in ("offset", "key", "value")]

    assert list(zip(*columns, strict=True)) == expected
    assert set(table.column("topic").to_pylist()) == {"rec"}


def test_one_segment_and_some_columns(kafkas):
    log = max(kafkas.glob("*.log"))
    table = arrow.read_table(log, columns=["offset"])

    assert table.schema.names == ["offset"]
    assert table.column("offset")[0].as_py() >= int(log.name.partition(".")[0])


def test_aborted_records_are_left_out(tmp_path):
    directory = tmp_path / "t-3"
    directory.mkdir()

    def transactional(offset):
        return bytes(build_batch([Record(b"k", b"%d" % offset, 1)], base_offset=offset,
                                 producer_id=7, producer_epoch=0, base_sequence=offset,
                                 transactional=True))  # fmt: skip

    def marker(offset, kind):
        return build_marker(Marker(kind, 0), producer_id=7, producer_epoch=0, timestamp=1,
                            base_offset=offset)  # fmt: skip

    first = transactional(0) + marker(1, ControlType.ABORT)
    second = transactional(2) + marker(3, ControlType.COMMIT)
    (directory / f"{0:020d}.log").write_bytes(first)
    (directory / f"{2:020d}.log").write_bytes(second)
    (directory / f"{0:020d}.txnindex").write_bytes(AbortedTransaction(7, 0, 1, 2).encode())

    assert arrow.read_table(directory).column("offset").to_pylist() == [0, 2]
    assert arrow.read_table(directory, committed=True).column("offset").to_pylist() == [2]


def test_a_directory_that_is_not_a_partition_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="does not have the name of a partition"):
        list(arrow.record_batches(tmp_path / "something"))
