"""Findings in damaged directories of partitions, and none in sound ones."""

import struct

import pytest

from odradek.files.examine import examine, open_transactions
from odradek.log.producer_state import ProducerState
from odradek.record.batch import read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, assemble, build_batch

FIRST = f"{0:020d}"


def batch(offset, count=1, **fields):
    records = [Record(b"k", b"v%d" % n, 5) for n in range(count)]
    return bytes(build_batch(records, base_offset=offset, **fields))


def transactional(offset, producer_id=7):
    return batch(offset, producer_id=producer_id, producer_epoch=3, base_sequence=0,
                 transactional=True)  # fmt: skip


def marker(offset, kind=ControlType.COMMIT, producer_id=7):
    return build_marker(
        Marker(kind, 0), producer_id=producer_id, producer_epoch=3, timestamp=5, base_offset=offset
    )


def write(directory, *batches, base=0, suffix=".log"):
    (directory / f"{base:020d}{suffix}").write_bytes(b"".join(batches))


def found(directory):
    return [(finding.kind, finding.offset) for finding in examine(directory)]


def test_a_sound_directory_has_no_findings(tmp_path):
    write(tmp_path, batch(0), batch(1, 3), transactional(4), marker(5))
    write(tmp_path, batch(6), base=6)
    write(tmp_path, struct.pack(">ii", 3, len(batch(0))), suffix=".index")
    write(tmp_path, struct.pack(">qi", 5, 3), suffix=".timeindex")
    write(tmp_path, ProducerState().encode_snapshot(), base=6, suffix=".snapshot")
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    assert found(tmp_path) == []


def test_a_torn_tail(tmp_path):
    write(tmp_path, batch(0), batch(1)[:-1])

    assert found(tmp_path) == [("torn", 1)]


def test_a_gap_and_where_it_ends(tmp_path):
    write(tmp_path, batch(0), batch(4))
    (finding,) = examine(tmp_path)

    assert (finding.kind, finding.offset) == ("gap", 1)
    assert "up to 4" in finding.text


def test_batches_out_of_order(tmp_path):
    write(tmp_path, batch(5), batch(3))

    assert found(tmp_path) == [("order", 3)]


def test_a_batch_below_its_segment(tmp_path):
    write(tmp_path, batch(3), base=4)

    assert found(tmp_path) == [("order", 3)]


def test_a_wrong_checksum(tmp_path):
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    write(tmp_path, bytes(damaged), batch(1))

    assert found(tmp_path) == [("damaged", 0)]


def test_records_that_cannot_be_decoded(tmp_path):
    write(tmp_path, bytes(assemble(read_header(batch(0)), b"\xff\xff")))

    assert found(tmp_path) == [("damaged", 0)]


def test_bytes_that_are_not_a_batch(tmp_path):
    write(tmp_path, batch(0), bytes(100))

    assert found(tmp_path) == [("damaged", 1)]


@pytest.mark.parametrize(
    ("entry", "offset"), [((9, len(batch(0))), 9), ((1, 3), 1)], ids=["offset", "position"]
)
def test_an_index_entry_that_points_elsewhere(tmp_path, entry, offset):
    write(tmp_path, batch(0), batch(1))
    write(tmp_path, struct.pack(">ii", *entry), suffix=".index")

    assert found(tmp_path) == [("index", offset)]


def test_preallocated_zeros_are_not_entries(tmp_path):
    write(tmp_path, batch(0), batch(1))
    write(tmp_path, struct.pack(">ii", 1, len(batch(0))), bytes(80), suffix=".index")
    kinds = [finding.kind for finding in examine(tmp_path)]

    assert kinds == []


def test_files_that_cannot_be_read(tmp_path):
    write(tmp_path, batch(0))
    write(tmp_path, b"123", suffix=".index")
    write(tmp_path, b"123", suffix=".timeindex")
    write(tmp_path, b"123", suffix=".snapshot")
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")

    assert found(tmp_path) == [("damaged", -1)] * 4


def test_a_hanging_transaction(tmp_path):
    write(tmp_path, transactional(0), transactional(1, 8), marker(2, producer_id=8), batch(3))
    (finding,) = examine(tmp_path)

    assert (finding.kind, finding.offset) == ("hanging", 0)
    assert "producer 7 in epoch 3" in finding.text
    (known,) = open_transactions(tmp_path)
    assert (known.producer_id, known.first_offset, known.last_offset) == (7, 0, 0)


def test_a_transaction_over_two_segments(tmp_path):
    write(tmp_path, transactional(0))
    write(tmp_path, transactional(1), marker(2, ControlType.ABORT), base=1)

    assert found(tmp_path) == []
