"""The shown values of a group, and its assignment as a picture."""

import xml.etree.ElementTree as ET

from odradek.model.partition import TopicPartition
from odradek.web.groups import view
from odradek.web.groups.facts import NextRecord
from odradek.web.groups.history import GroupHistory
from odradek.web.groups.picture import assignment_svg, level
from odradek.web.groups.values import ObservedGroup, ObservedMember, PartitionLag

P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))

GROUP = ObservedGroup(
    group_id="<g>",
    state="Stable",
    wall_ms=1_767_225_600_000,
    protocol_type="consumer",
    assignor="range",
    coordinator=(1, "b1", 9092),
    members=(
        ObservedMember(member_id="c-1", client_id="app", host="10.0.0.1", partitions=(P0, P1)),
        ObservedMember(member_id="c-2", client_id="a&b", host="10.0.0.2", instance_id="static"),
    ),
    partitions=(
        PartitionLag(partition=P0, committed=100, end=100, log_start=0, stable=100, member="c-1"),
        PartitionLag(partition=P1, committed=40, end=100, log_start=50, stable=40, member="c-1",
                     metadata="m"),
        PartitionLag(partition=P2, end=7, log_start=0, stable=7),
    ),
)  # fmt: skip


def test_a_group_has_its_largest_lag_and_how_it_was_found():
    records = {P1: NextRecord(GROUP.wall_ms - 90_000, is_append_time=True)}

    shown = view.details(GROUP, GroupHistory(), records)

    assert (shown["lag"], shown["lag_seconds"]) == (60, 90.0)
    assert shown["lag_time"]["text"] == "1 min 30 s"
    assert "the broker's clock" in shown["lag_time"]["why"]
    assert shown["coordinator"] == {"broker": 1, "host": "b1", "port": 9092}


def test_without_the_record_the_lag_in_seconds_is_not_known():
    shown = view.details(GROUP, GroupHistory())

    assert (shown["lag_seconds"], shown["lag_time"]["text"]) == (None, "not known")


def test_partitions_come_with_the_largest_lag_first_and_their_facts():
    first, second, third = view.details(GROUP, GroupHistory())["partitions"]

    assert (first["partition"], first["lag"], first["lost"], first["metadata"]) == (1, 60, 10, "m")
    assert first["held_back"]
    assert not second["held_back"]
    assert (third["committed_offset"], third["lag_time"]["why"]) == (None, "no offset is committed")


def test_members_have_the_lag_of_their_partitions():
    first, second = view.details(GROUP, GroupHistory())["members"]

    assert (first["lag"], first["partitions"]) == (60, ["orders-0", "orders-1"])
    assert (second["lag"], second["instance_id"]) == (None, "static")


def test_the_assignment_is_a_picture_of_members_by_partitions():
    root = ET.fromstring(assignment_svg(GROUP))

    svg = "{http://www.w3.org/2000/svg}"
    rows = [row.find(f"{svg}text").text for row in root.findall(f"{svg}g")]
    cells = [cell.get("class") for cell in root.iter(f"{svg}rect")]
    assert rows == ["c-1", "static", "no member"]
    assert cells == [
        "assignment-cell lag-none", "assignment-cell lag-low", "assignment-cell lag-unknown",
    ]  # fmt: skip
    assert root.get("aria-label") == (
        "Assignment of group <g>: 2 members, 0 to 2 partitions each, 1 without a member"
    )
    assert "style=" not in assignment_svg(GROUP)


def test_a_group_without_partitions_has_no_picture():
    empty = ObservedGroup(group_id="g", state="Empty", wall_ms=1)

    assert assignment_svg(empty) == ""
    assert view.summary(empty, GroupHistory())["lag"] is None


def test_levels_of_lag():
    assert [level(each) for each in (None, 0, 1, 100, 101, 10_000, 10_001)] == [
        "unknown", "none", "low", "low", "medium", "medium", "high",
    ]  # fmt: skip
