"""Lanes as values, as sentences and as SVG."""

import re
from dataclasses import asdict, replace
from itertools import pairwise
from json import dumps
from xml.etree import ElementTree

import pytest

from odradek.web.lanes import words
from odradek.web.lanes.axis import LEFT, RIGHT, OffsetAxis, axis_of
from odradek.web.lanes.drawing import lanes_svg
from odradek.web.lanes.values import (
    AxisMark,
    EpochStart,
    LaneMove,
    LaneRole,
    MarkKind,
    PartitionLanes,
    ReplicaLane,
)

SVG = "{http://www.w3.org/2000/svg}"
LEADER = ReplicaLane(
    broker=1,
    rack="a",
    role=LaneRole.LEADER,
    in_sync=True,
    leo=1006,
    high_watermark=1005,
    last_stable_offset=1003,
    log_start_offset=0,
    leader_epoch=3,
    epochs=(
        EpochStart(leader_epoch=2, start_offset=10),
        EpochStart(leader_epoch=3, start_offset=1004),
    ),
)
FOLLOWER = replace(LEADER, broker=2, role=LaneRole.FOLLOWER, leo=1005, high_watermark=1004)
BEHIND = replace(
    FOLLOWER,
    broker=3,
    in_sync=False,
    leo=1002,
    high_watermark=1000,
    reason="It has <stopped> & waits.",
)
LANES = PartitionLanes(topic="orders", partition=0, lanes=(LEADER, FOLLOWER, BEHIND))


def drawn(partition):
    return ElementTree.fromstring(lanes_svg(partition))


def keyed(partition):
    return {e.get("data-key"): e for e in drawn(partition).iter() if e.get("data-key")}


def texts(partition):
    return ["".join(text.itertext()) for text in drawn(partition).iter(f"{SVG}text")]


def percent(element, attribute="x"):
    return float(element.get(attribute).removesuffix("%"))


def test_the_axis_shows_where_the_replicas_differ():
    assert axis_of(LANES) == OffsetAxis(start=996, end=1006, is_broken=True)


def test_a_short_log_is_shown_as_a_whole():
    short = PartitionLanes(
        topic="t",
        partition=0,
        lanes=(replace(LEADER, leo=9, high_watermark=9, last_stable_offset=9),),
    )
    assert axis_of(short) == OffsetAxis(start=0, end=9, is_broken=False)


def test_nothing_known_has_no_axis():
    lane = ReplicaLane(broker=1, role=LaneRole.OFFLINE)
    nothing = PartitionLanes(topic="t", partition=0, lanes=(lane,))
    assert axis_of(nothing) is None
    assert "? offline" in texts(nothing)


def test_an_empty_log_has_an_axis():
    lane = ReplicaLane(broker=1, role=LaneRole.LEADER, leo=0, high_watermark=0)
    empty = PartitionLanes(topic="t", partition=0, lanes=(lane,))
    assert axis_of(empty) == OffsetAxis(start=0, end=1, is_broken=False)
    assert percent(keyed(empty)["lanes-t-0-1-outline"], "width") == 0


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (0, 5), (996, 1006), (0, 123_456), (7, 90), (10**9, 10**9 + 9)]
)
def test_the_axis_has_few_round_ticks(start, end):
    ticks = OffsetAxis(start=start, end=end, is_broken=False).ticks()
    assert 1 <= len(ticks) <= 6
    assert all(start <= tick <= end for tick in ticks)
    assert len({b - a for a, b in pairwise(ticks)}) <= 1


def test_the_ends_of_the_axis_are_inside_the_picture():
    axis = axis_of(LANES)
    assert (axis.percent(996), axis.percent(1006), axis.percent(3)) == (LEFT, RIGHT, LEFT)


def test_the_picture_says_itself_in_sentences():
    assert words.title(LANES) == "orders-0: 3 replicas, 2 in sync, led by broker 1"
    assert words.description(LANES) == (
        "Broker 1 in rack a: leader, in sync, log end offset 1,006, high watermark 1,005, "
        "last stable offset 1,003, leader epoch 3. "
        "Broker 2 in rack a: follower, in sync, log end offset 1,005, high watermark 1,004, "
        "last stable offset 1,003, leader epoch 3. "
        "Broker 3 in rack a: follower, out of sync, log end offset 1,002, high watermark 1,000, "
        "last stable offset 1,003, leader epoch 3. It has <stopped> & waits."
    )


def test_the_svg_has_the_same_sentences_for_screen_readers():
    svg = drawn(LANES)
    assert svg.get("role") == "img"
    labels = svg.get("aria-labelledby").split()
    found = {e.get("id"): e.text for e in svg.iter()}
    assert [found[label] for label in labels] == [words.title(LANES), words.description(LANES)]


def test_the_bars_end_at_the_high_watermark_and_the_log_end_offset():
    axis, elements = axis_of(LANES), keyed(LANES)
    committed, rest = elements["lanes-orders-0-1-committed"], elements["lanes-orders-0-1-rest"]
    assert percent(committed) == LEFT
    assert percent(committed) + percent(committed, "width") == pytest.approx(axis.percent(1005))
    assert percent(rest) + percent(rest, "width") == pytest.approx(axis.percent(1006))
    assert percent(elements["lanes-orders-0-2-high"]) == axis.percent(1004)


def test_leader_epochs_are_drawn_where_they_start():
    elements = keyed(LANES)
    assert percent(elements["lanes-orders-0-1-epoch-3"]) == axis_of(LANES).percent(1004)
    assert "lanes-orders-0-1-epoch-2" not in elements, "it starts before the axis"


def test_the_part_before_the_axis_is_behind_a_break():
    assert "lanes-orders-0-1-break" in keyed(LANES)


def test_an_unknown_log_end_offset_is_drawn_as_unknown_and_never_as_zero():
    unknown = replace(FOLLOWER, leo=None, high_watermark=None, last_stable_offset=None)
    partition = PartitionLanes(topic="orders", partition=0, lanes=(LEADER, unknown))
    assert "lanes-orders-0-2-outline" not in keyed(partition)
    assert {"? log end offset unknown", "HW ?, LEO ?"} <= set(texts(partition))
    assert "log end offset unknown" in words.description(partition)


def test_an_unknown_high_watermark_leaves_open_which_records_are_committed():
    lane = replace(FOLLOWER, high_watermark=None)
    elements = keyed(PartitionLanes(topic="orders", partition=0, lanes=(lane,)))
    assert "lanes-orders-0-2-log" in elements
    assert not {"lanes-orders-0-2-committed", "lanes-orders-0-2-high"} & elements.keys()


def test_an_isr_that_is_not_known_is_said():
    partition = PartitionLanes(topic="orders", partition=0, lanes=(replace(LEADER, in_sync=None),))
    assert words.title(partition) == (
        "orders-0: 1 replica, not known which are in sync, led by broker 1"
    )
    assert "Broker 1 leader, in sync or not: unknown" in texts(partition)


def test_a_moving_replica_says_what_is_left():
    moving = replace(
        FOLLOWER, move=LaneMove.ADDING, in_sync=False, bytes_left=3 << 30, bytes_per_s=10 << 20,
        seconds_left=307,
    )  # fmt: skip
    partition = PartitionLanes(topic="orders", partition=0, lanes=(LEADER, moving))
    assert "rack a · 3.0 GiB left, 10.0 MiB/s, 5 min 7 s to go" in texts(partition)
    assert "Broker 2 follower, adding" in texts(partition)


def test_marks_have_their_own_rows_and_one_outside_is_at_the_border():
    marks = (
        AxisMark(kind=MarkKind.COMMITTED, offset=1000, label="billing"),
        AxisMark(kind=MarkKind.COMMITTED, offset=3, label="late"),
        AxisMark(kind=MarkKind.TRANSACTION, offset=1003, label="7"),
    )
    partition = replace(LANES, marks=marks)
    elements = keyed(partition)
    assert percent(elements["lanes-orders-0-committed-late"]) == LEFT
    assert "← committed offset late: 3" in texts(partition)
    rows = {elements[f"lanes-orders-0-{name}"].get("y") for name in
            ("committed-billing", "committed-late", "transaction-7")}  # fmt: skip
    assert len(rows) == 3
    assert axis_of(partition) == axis_of(LANES), "a mark does not change the axis"


def test_text_of_others_is_escaped():
    hostile = PartitionLanes(
        topic='"><script>', partition=0, lanes=(replace(LEADER, rack="<b>", reason="]]>&"),)
    )
    tags = {element.tag.removeprefix(SVG) for element in drawn(hostile).iter()}
    assert not {"script", "b"} & tags


def test_there_is_nothing_that_the_content_security_policy_refuses():
    text = lanes_svg(LANES)
    assert not re.search(r"\sstyle=|<style|<script|\son\w+=|href", text)
    assert text.__html__() is text


def test_ids_are_unique_and_stay_from_picture_to_picture():
    ids = [e.get("id") for e in drawn(LANES).iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    later = replace(LANES, lanes=(replace(LEADER, leo=1010), FOLLOWER, BEHIND))
    assert keyed(later).keys() == keyed(LANES).keys()


def test_the_values_are_json():
    assert dumps(asdict(LANES)).startswith(
        '{"topic": "orders", "partition": 0, "lanes": [{"broker"'
    )
