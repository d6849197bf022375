"""Positions and keys of the records of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.record.batch import read_header
from odradek.record.outline import outline
from odradek.record.records import InvalidRecordError, Record, build_batch, records_bytes

BYTES = st.one_of(st.none(), st.binary(max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, BYTES, BYTES, st.integers(0, 1 << 50), HEADERS, st.just(-1)),
    min_size=1,
    max_size=5,
)


def body_of(records):
    batch = build_batch(records)
    header = read_header(batch)
    return header, records_bytes(batch, header)


@given(RECORDS)
def test_the_outline_has_all_records(records):
    header, body = body_of(records)
    found = outline(body, len(records))

    assert [entry[4] for entry in found] == [record.key for record in records]
    assert [entry[5] for entry in found] == [record.value is not None for record in records]
    assert [header.base_timestamp + entry[2] for entry in found] == [r.timestamp for r in records]
    assert [entry[3] for entry in found] == list(range(len(records)))
    assert b"".join(body[entry[0] : entry[1]] for entry in found) == body


@given(RECORDS, st.data())
def test_truncated_records_are_refused(records, data):
    _, body = body_of(records)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(InvalidRecordError):
        outline(body[:cut], len(records))
    with pytest.raises(InvalidRecordError):
        outline(body + b"\0", len(records))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_random_bytes_raise_only_the_documented_error(data, count):
    try:
        found = outline(data, count)
    except InvalidRecordError:
        return
    assert len(found) == count
