"""Markers that end transactions, and other control records."""

import pytest

from odradek.record.batch import read_header
from odradek.record.control import ControlType, Marker, build_marker, read_marker
from odradek.record.records import InvalidRecordError, Record, build_batch


def test_a_marker_is_78_bytes_with_producer_and_outcome():
    marker = Marker(ControlType.ABORT, coordinator_epoch=3)

    batch = build_marker(marker, producer_id=9, producer_epoch=2, timestamp=5, base_offset=70)

    header = read_header(batch)
    assert len(batch) == 78
    assert read_marker(batch) == marker
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert (header.base_offset, header.max_timestamp) == (70, 5)


def control(key, value):
    return build_batch([Record(key, value, 1)], control=True)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 100, -1])
def test_other_control_records_are_ignored(number):
    assert read_marker(control(b"\0\0" + number.to_bytes(2, "big", signed=True), b"")) is None


def test_a_compacted_marker_without_its_record_is_ignored():
    assert read_marker(build_batch([], control=True, last_offset=3)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\1"),
        (b"\0\0\0", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\1"),
    ],
)
def test_a_malformed_marker_is_refused(key, value):
    with pytest.raises(InvalidRecordError):
        read_marker(control(key, value))


def test_a_marker_of_a_later_version_is_read_by_its_first_fields():
    read = read_marker(control(b"\0\1\0\1", b"\0\1\0\0\0\7and more"))

    assert read == Marker(ControlType.COMMIT, 7)
