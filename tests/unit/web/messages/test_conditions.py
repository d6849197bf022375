"""The conditions of a search: record by record, and whether a batch may be skipped."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.record.batch import read_header
from odradek.record.records import Record, build_batch, records_bytes
from odradek.web.messages.conditions import (
    HeaderEquals,
    JsonContains,
    JsonEquals,
    KeyEquals,
    Matcher,
    TextContains,
    Where,
)
from odradek.web.messages.jsonpath import parse_path


def record(key=None, value=None, headers=(), timestamp=1_000):
    return Record(key, value, timestamp, tuple(headers))


def both(condition, one):
    """Whether the record matches; and whether its batch would be searched at all."""
    batch = build_batch([record(b"other", b"neighbour"), one])
    matcher = Matcher((condition,))
    may = matcher.may_match(records_bytes(batch, read_header(batch)))
    return matcher.matches(one), may


def path(text):
    return parse_path(text)


MATCHING = [
    (KeyEquals(b"k"), record(b"k")),
    (KeyEquals(None), record(None, b"v")),
    (KeyEquals(b"x" * 300), record(b"x" * 300)),
    (TextContains("needle"), record(b"k", b"hay needle hay")),
    (TextContains("needle"), record(b"a needle")),
    (TextContains("needle"), record(headers=[("h", b"needle")])),
    (TextContains("needle", Where.HEADERS), record(headers=[("needle", None)])),
    (TextContains("NeeDLE", Where.VALUE, ignore_case=True), record(value=b"a nEEdle")),
    (TextContains("caf\u00e9"), record(value="un caf\u00e9".encode())),
    (TextContains("caf\u00e9"), record(value=json.dumps("un caf\u00e9").encode())),
    (TextContains("caf\u00e9"), record(value=b'"caf\\u00E9"')),
    (HeaderEquals("h"), record(headers=[("g", b"1"), ("h", None)])),
    (HeaderEquals("h", b"1"), record(headers=[("h", b"0"), ("h", b"1")])),
    (JsonEquals(path("$.id"), "7"), record(value=b'{"id": 7}')),
    (JsonEquals(path("$.id"), "7"), record(value=b'{"id": "7"}')),
    (JsonEquals(path("$.id"), "7"), record(value=b'{"id": 7.0}')),
    (JsonEquals(path("$.id"), "70"), record(value=b'{"id": 7e1}')),
    (JsonEquals(path("$.id"), "-70"), record(value=b'{"id": -7.0E+1}')),
    (JsonEquals(path("$.id"), "true"), record(value=b'{"id": true}')),
    (JsonEquals(path("$.id"), "null"), record(value=b'{"id": null}')),
    (JsonEquals(path("$.id"), '{"a": [1]}'), record(value=b'{"id":{"a":[1]}}')),
    (JsonEquals(path("$.id"), "abc"), record(value=b'{"id": "abc"}')),
    (JsonEquals(path("$.id"), "abc"), record(value=b'{"id": "\\u0061bc"}')),
    (JsonEquals(path("$.id"), "a"), record(value=b'{"\\u0069d": "a"}')),
    (JsonEquals(path("$.id"), "a"), record(value=b'\x00\x00\x00\x00\x07{"id": "a"}')),
    (JsonContains(path("$.id"), "order-"), record(value=b'{"id": "order-12"}')),
    (JsonContains(path("$..id"), ""), record(value=b'{"a": {"id": 1}}')),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "one"), MATCHING)
def test_a_record_matches_and_its_batch_is_searched(condition, one):
    assert both(condition, one) == (True, True)


@pytest.mark.parametrize(
    ("condition", "one"),
    [
        (KeyEquals(b"k"), record(b"kk")),
        (KeyEquals(b"k"), record(None, b"k")),
        (KeyEquals(b""), record(None)),
        (KeyEquals(None), record(b"")),
        (TextContains("needle"), record(value=b"Needle")),
        (TextContains("needle", Where.KEY), record(value=b"needle")),
        (TextContains("ab"), record(b"a", b"b")),
        (HeaderEquals("h", b"1"), record(headers=[("h", b"11"), ("g", b"1")])),
        (JsonEquals(path("$.id"), "7"), record(value=b'{"id": 77}')),
        (JsonEquals(path("$.id"), "1"), record(value=b'{"id": true}')),
        (JsonEquals(path("$.id"), "7"), record(value=b"id 7")),
        (JsonContains(path("$.id"), "7"), record(value=b'{"id": 77}')),
        (JsonContains(path("$.id"), "7"), record(None)),
    ],
)
def test_a_record_does_not_match(condition, one):
    assert both(condition, one)[0] is False


@pytest.mark.parametrize(
    "condition",
    [
        KeyEquals(b"needle"),
        TextContains("needle"),
        TextContains("NEEDLE", ignore_case=True),
        HeaderEquals("needle"),
        JsonEquals(path("$.id"), "needle"),
        JsonContains(path("$.needle"), ""),
    ],
)
def test_a_batch_without_the_bytes_is_not_decoded(condition):
    batch = build_batch([record(b"key", b'{"id": "hay"}')])

    assert not Matcher((condition,)).may_match(records_bytes(batch, read_header(batch)))


def test_a_value_that_is_not_json_is_counted_only_where_json_was_needed():
    matcher = Matcher((KeyEquals(b"k"), JsonEquals(path("$.id"), "1")))

    for one in (record(b"k", b'"id": 1'), record(b"x", b'"id": 1'), record(b"k", b'{"id": 1}')):
        matcher.matches(one)

    assert matcher.not_json == 1


def test_times_bound_the_records():
    matcher = Matcher(from_ms=10, to_ms=20)

    assert [matcher.matches(record(timestamp=at)) for at in (9, 10, 19, 20)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert matcher.is_before(9)
    assert not matcher.is_before(10)


TEXTS = st.text(alphabet='ab\u00e9\\"{}:0 ', max_size=4)


@given(
    text=TEXTS.filter(bool),
    value=st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(0, 99), st.none()), max_size=3),
    ascii_only=st.booleans(),
    name=TEXTS,
)
def test_a_batch_with_a_matching_record_is_never_skipped(text, value, ascii_only, name):
    one = record(text.encode(), json.dumps(value, ensure_ascii=ascii_only).encode())
    batch = build_batch([one])
    body = records_bytes(batch, read_header(batch))
    steps = parse_path("$") if not name.isalnum() else parse_path(f"$['{name}']")

    for condition in (
        KeyEquals(text.encode()),
        TextContains(text),
        TextContains(text, ignore_case=True),
        JsonEquals(steps, text),
        JsonContains(steps, text),
    ):
        matcher = Matcher((condition,))
        assert matcher.may_match(body) or not matcher.matches(one)
