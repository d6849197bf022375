"""The fields of the search form."""

import pytest

from odradek.model.clock import WallMs
from odradek.web.messages.conditions import (
    HeaderEquals,
    JsonContains,
    JsonEquals,
    KeyEquals,
    TextContains,
    Where,
)
from odradek.web.messages.jsonpath import PathError, parse_path
from odradek.web.messages.query import (
    AtOffset,
    AtTime,
    Query,
    QueryError,
    fields_of,
    pinned,
    read_query,
)

NOW = WallMs(1_767_225_600_000)  # 2026-01-01T00:00:00Z


def query(**fields):
    return read_query({"topic": "orders", **fields}, NOW)


def test_a_topic_alone_is_everything():
    assert query() == Query(topic="orders")


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"partitions": "0, 3-5,4"}, {"partitions": (0, 3, 4, 5)}),
        ({"from": "120"}, {"start": AtOffset(120)}),
        ({"to": "0"}, {"end": AtOffset(0)}),
        ({"from": "2026-01-01"}, {"start": AtTime(NOW)}),
        ({"from": "2026-01-01T01:00+01:00"}, {"start": AtTime(NOW)}),
        ({"from": "@-5"}, {"start": AtTime(-5)}),
        ({"from": "-15m"}, {"start": AtTime(NOW - 900_000)}),
        ({"to": "-1d"}, {"end": AtTime(NOW - 86_400_000)}),
        ({"last": "10"}, {"last": 10}),
        ({"key": "k"}, {"conditions": (KeyEquals(b"k"),)}),
        ({"key": "00ff", "key_is": "hex"}, {"conditions": (KeyEquals(b"\x00\xff"),)}),
        ({"key_is": "null"}, {"conditions": (KeyEquals(None),)}),
        ({"text": "a"}, {"conditions": (TextContains("a"),)}),
        (
            {"text": "a", "where": "value", "case": "ignore"},
            {"conditions": (TextContains("a", Where.VALUE, ignore_case=True),)},
        ),
        ({"header": "h"}, {"conditions": (HeaderEquals("h"),)}),
        ({"header": "h = a=b"}, {"conditions": (HeaderEquals("h", b"a=b"),)}),
        ({"header": "h="}, {"conditions": (HeaderEquals("h", b""),)}),
        (
            {"path": "$.id", "json": "7"},
            {"conditions": (JsonEquals(parse_path("id"), "7"),)},
        ),
        (
            {"path": "$.id", "json": "7", "is": "contains"},
            {"conditions": (JsonContains(parse_path("id"), "7"),)},
        ),
        ({"state": "committed"}, {"committed_only": True}),
        ({"markers": "1"}, {"shows_markers": True}),
        ({"markers": "1", "text": "a"}, {"conditions": (TextContains("a"),)}),
        ({"limit": "7"}, {"limit": 7}),
    ],
)
def test_fields_have_their_meaning(fields, values):
    assert query(**fields) == Query(topic="orders", **values)


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": " "},
        {"partitions": "a"},
        {"partitions": "5-3"},
        {"partitions": "0-999999"},
        {"from": "yesterday"},
        {"from": "9" * 30},
        {"from": "10", "to": "10"},
        {"from": "-1m", "to": "-2m"},
        {"last": "0"},
        {"last": "\u0663"},
        {"last": "5", "from": "3"},
        {"key": "xyz", "key_is": "hex"},
        {"key_is": "other"},
        {"text": "a", "where": "body"},
        {"json": "7"},
        {"limit": "501"},
        {"text": "x" * 5_000},
    ],
)
def test_an_invalid_field_is_refused(fields):
    with pytest.raises(QueryError):
        query(**fields)


def test_an_invalid_path_is_refused():
    with pytest.raises(PathError):
        query(path="$.a[1:2]", json="x")


def test_a_relative_time_is_pinned_so_that_the_cursor_stays_valid():
    fields = pinned({"topic": "orders", "from": "-1h"}, NOW)

    later = WallMs(NOW + 60_000)
    assert read_query(fields, later).digest == read_query(fields, NOW).digest
    assert read_query(fields, later).start == AtTime(NOW - 3_600_000)


def test_the_limit_may_change_between_slices_and_a_condition_may_not():
    assert query(limit="7").digest == query().digest
    assert query(text="a").digest != query().digest


def test_empty_and_unknown_parameters_are_left_out():
    assert fields_of({"topic": "a", "text": " ", "cursor": "x"}) == {"topic": "a"}
