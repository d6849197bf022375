"""The form that resets the offsets of a group."""

import pytest

from odradek.client.admin.offset_reset import (
    NewOffsets,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffsets,
    ToTime,
    duration_ms,
)
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.model.partition import TopicPartition
from odradek.web.groups.pages import (
    ResetError,
    chosen,
    read_scenario,
    read_topics,
    reset_rows,
    tool_arguments,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_767_225_600_000


@pytest.mark.parametrize(
    ("name", "value", "scenario"),
    [
        ("to-earliest", "", ToEarliest()),
        ("to-latest", "", ToLatest()),
        ("to-current", "", ToCurrent()),
        ("to-offset", "7", ToOffsets({P0: 7, P1: 7})),
        ("shift-by", "-5", ShiftBy(-5)),
        ("by-duration", "PT1H", ToTime(NOW - 3_600_000)),
        ("to-datetime", "2026-01-01T00:00", ToTime(NOW)),
        ("to-datetime", "2026-01-01T01:00+01:00", ToTime(NOW)),
    ],
)
def test_a_scenario(name, value, scenario):
    assert read_scenario({"scenario": name, "value": value}, [P0, P1], NOW) == scenario


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", ""), ("to-nowhere", ""), ("to-offset", "-1"), ("to-offset", "x"), ("shift-by", ""),
        ("shift-by", "9" * 19 + "9"), ("by-duration", "1h"), ("to-datetime", "noon"),
    ],
)  # fmt: skip
def test_an_invalid_scenario_is_refused(name, value):
    with pytest.raises(ResetError):
        read_scenario({"scenario": name, "value": value}, [P0], NOW)


def test_topics_are_chosen_by_name_and_partition():
    committed = {P1: OffsetAndMetadata(5)}
    there = {"orders": [P0, P1]}

    assert read_topics(" orders:0,1  paid ") == {"orders": (0, 1), "paid": None}
    assert chosen({}, committed, {}) == [P1]
    assert chosen({"orders": None}, committed, there) == [P0, P1]
    assert chosen({"orders": (0, 0)}, committed, there) == [P0]


@pytest.mark.parametrize("text", ["orders:x", ":0", "orders:0,"])
def test_an_invalid_topic_is_refused(text):
    with pytest.raises(ResetError):
        read_topics(text)


@pytest.mark.parametrize(
    ("topics", "committed"), [({}, {}), ({"gone": None}, {}), ({"orders": (7,)}, {})]
)
def test_what_does_not_exist_cannot_be_reset(topics, committed):
    with pytest.raises(ResetError):
        chosen(topics, committed, {"orders": [P0, P1]})


def test_the_tool_does_the_same():
    fields = {"scenario": "to-datetime", "value": "2026-01-01T01:00+01:00", "topics": "a:0 b"}

    assert tool_arguments("my group", fields) == (
        *("--reset-offsets", "--group", "my group", "--topic", "a:0", "--topic", "b"),
        *("--to-datetime", "2026-01-01T00:00:00.000", "--dry-run"),
    )
    assert tool_arguments("g", {"scenario": "to-latest", "execute": "1"}) == (
        *("--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute"),
    )
    assert "--shift-by=-5" in tool_arguments("g", {"scenario": "shift-by", "value": "-5"})


def test_a_row_says_what_differs_from_the_request():
    new = NewOffsets({P0: 10, P1: 3}, limited={P0: 99}, without_record=[P1])

    rows = reset_rows(new, {P0: OffsetAndMetadata(4)})

    assert [(row["committed_offset"], row["new_offset"], row["shift"]) for row in rows] == [
        (4, 10, 6), (None, 3, None),
    ]  # fmt: skip
    assert [row["note"] for row in rows] == [
        "99 is out of bounds: the end offset is taken",
        "there is no record at or after that time: the end offset is taken",
    ]


def test_durations_are_those_of_iso_8601():
    assert [duration_ms(each) for each in ("PT0S", "P1DT1H", "-PT1.5S", "PT2M")] == [
        0, 90_000_000, -1_500, 120_000,
    ]  # fmt: skip
