"""Compares the compiled check of records with the plain one, and both with the plain decoder."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.record.batch import HEADER_BYTES, read_header
from odradek.record.check import REJECTED_MAX, fastest_check, plain_check
from odradek.record.records import Record, build_batch, iter_spans

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
TIMESTAMPS = st.integers(-1, 2**45) | st.integers(-(2**63), 2**63 - 1)
BYTES = st.none() | st.binary(max_size=70) | st.builds(bytes, st.sampled_from([64, 130, 8192]))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(BYTES, BYTES, st.integers(-(2**40), 2**40), HEADERS), max_size=90)
# Damage: a position (near the start, or anywhere), and the bytes written there.
SPLINTERS = st.sampled_from(
    [b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\x80\x80\x80\x80\x10", b"\xff" * 9, b""]
)
DAMAGE = st.lists(
    st.tuples(st.integers(0, 60) | st.integers(0, 3000), SPLINTERS | st.binary(max_size=3)),
    max_size=3,
)

compiled = pytest.importorskip("odradek_fast").check


def body_of(fields):
    batch = build_batch([Record(key, value, at, headers) for key, value, at, headers in fields])
    return batch[HEADER_BYTES:], read_header(batch).base_timestamp


def damaged(body, damage):
    out = bytearray(body)
    for position, splinter in damage:
        out[position : position + len(splinter)] = splinter
    return bytes(out)


def verdict(check, *arguments):
    try:
        return check(*arguments)
    except ValueError as error:
        return str(error)


@settings(max_examples=400)
@given(
    RECORDS,
    DAMAGE,
    st.integers(-2, 2) | st.sampled_from([2**31 - 1, 2**62]),
    st.none() | st.integers(INT64_MIN, INT64_MAX),
    st.tuples(TIMESTAMPS, TIMESTAMPS),
    st.booleans(),
    st.integers(0, 100),
)
def test_both_checks_agree(fields, damage, more, base, limits, needs_key, start):
    body, base_timestamp = body_of(fields)
    body = bytes(start) + damaged(body, damage)
    base_timestamp = base_timestamp if base is None else base
    arguments = (body, start, len(fields) + more, base_timestamp, *limits, needs_key)

    assert verdict(compiled, *arguments) == verdict(plain_check, *arguments)


@settings(max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_both_checks_agree_on_any_bytes(body, count):
    arguments = (body, 0, count, 0, INT64_MIN, INT64_MAX, True)

    assert verdict(compiled, *arguments) == verdict(plain_check, *arguments)


@given(RECORDS, DAMAGE)
def test_accepted_records_can_be_decoded(fields, damage):
    body, base_timestamp = body_of(fields)
    body = damaged(body, damage)
    output = verdict(compiled, body, 0, len(fields), base_timestamp, INT64_MIN, INT64_MAX, False)

    read = [] if isinstance(output, str) else [span[1] for span in iter_spans(body, len(fields))]

    assert isinstance(output, str) or read == list(range(len(fields)))


def test_both_checks_list_the_first_thousand_rejected_records():
    body, base = body_of([(None, b"", 5, ())] * (REJECTED_MAX + 7))
    arguments = (body, 0, REJECTED_MAX + 7, base, INT64_MIN, INT64_MAX, True)

    largest, count, listed = compiled(*arguments)

    assert (largest, count, len(listed)) == (5, REJECTED_MAX + 7, REJECTED_MAX)
    assert compiled(*arguments) == plain_check(*arguments)


def test_the_compiled_check_is_used_if_it_is_installed():
    assert fastest_check() is compiled
