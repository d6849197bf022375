"""Draws the assignment of a group: members by partitions, as SVG. Pure.

A row for each member, a column for each partition, a square where it is assigned. Its class says
how large the lag is, and so does its title. Partitions without a member have a row of their own.
Colours are in the style sheet of the page; there is no inline style.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from odradek.model.partition import TopicPartition
from odradek.web.groups.values import ObservedGroup, ObservedMember, PartitionLag
from odradek.web.lanes.drawing import SvgText

CELL_PX: Final = 18
_GAP_PX: Final = 3
_NAMES_PX: Final = 190
_HEAD_PX: Final = 22
_NAME_MAX: Final = 26
MEMBERS_MAX: Final = 100
PARTITIONS_MAX: Final = 200
_LEVELS: Final = ((0, "none"), (100, "low"), (10_000, "medium"))


def assignment_svg(group: ObservedGroup) -> SvgText:
    """The picture, as an `svg` element; "" if there is nothing to draw."""
    lags = {each.partition: each for each in group.partitions}
    assigned = {p for member in group.members for p in member.partitions}
    partitions = sorted({*lags, *assigned})[:PARTITIONS_MAX]
    members = sorted(group.members, key=lambda each: each.name)[:MEMBERS_MAX]
    free = [p for p in partitions if p not in assigned]
    if not partitions or not (members or free):
        return SvgText("")
    columns = _columns(partitions)
    rows = [_member_row(member, columns, lags, row) for row, member in enumerate(members)]
    if free:
        rows.append(_row("no member", "no member", free, columns, lags, len(members)))
    width = _NAMES_PX + max(columns.values()) + CELL_PX + _GAP_PX
    height = _HEAD_PX + len(rows) * (CELL_PX + _GAP_PX)
    title = f"Assignment of group {group.group_id}: {_summary(group, free)}"
    return SvgText(
        f'<svg class="assignment" role="img" aria-label={quoteattr(title)} '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
        f"{_headings(columns)}{''.join(rows)}</svg>"
    )


def _summary(group: ObservedGroup, free: Sequence[TopicPartition]) -> str:
    counts = sorted(len(each.partitions) for each in group.members)
    spread = f", {counts[0]} to {counts[-1]} partitions each" if counts else ""
    rest = f", {len(free)} without a member" if free else ""
    return f"{len(group.members)} members{spread}{rest}"


def _columns(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The left edge of each partition; a gap separates topics."""
    left = 0
    columns: dict[TopicPartition, int] = {}
    last = ""
    for partition in partitions:
        if last and partition.topic != last:
            left += CELL_PX
        last = partition.topic
        columns[partition] = left
        left += CELL_PX + _GAP_PX
    return columns


def _headings(columns: Mapping[TopicPartition, int]) -> str:
    """The name of each topic above its first partition, as far as there is room."""
    topics: dict[str, list[int]] = {}
    for partition, left in columns.items():
        topics.setdefault(partition.topic, []).append(left)
    parts = []
    for topic, lefts in topics.items():
        room = max(3, (lefts[-1] - lefts[0] + CELL_PX) // 7)
        parts.append(
            f'<text class="assignment-topic" x="{_NAMES_PX + lefts[0]}" y="14">'
            f"{escape(_short(topic, room))}<title>{escape(topic)}</title></text>"
        )
    return "".join(parts)


def _member_row(
    member: ObservedMember,
    columns: Mapping[TopicPartition, int],
    lags: Mapping[TopicPartition, PartitionLag],
    row: int,
) -> str:
    title = f"{member.name} ({member.client_id} on {member.host})"
    return _row(member.name, title, member.partitions, columns, lags, row)


def _row(
    name: str,
    title: str,
    partitions: Sequence[TopicPartition],
    columns: Mapping[TopicPartition, int],
    lags: Mapping[TopicPartition, PartitionLag],
    row: int,
) -> str:
    top = _HEAD_PX + row * (CELL_PX + _GAP_PX)
    cells = "".join(
        _cell(partition, columns[partition], top, lags.get(partition))
        for partition in sorted(partitions)
        if partition in columns
    )
    return (
        f'<g class="assignment-member"><text class="assignment-name" x="0" y="{top + 13}">'
        f"{escape(_short(name, _NAME_MAX))}<title>{escape(title)}</title></text>{cells}</g>"
    )


def _cell(partition: TopicPartition, left: int, top: int, lag: PartitionLag | None) -> str:
    known = None if lag is None else lag.lag
    title = f"{partition}: " + ("lag not known" if known is None else f"lag {known:,}")
    x = _NAMES_PX + left
    return (
        f'<rect class="assignment-cell lag-{level(known)}" x="{x}" y="{top}" '
        f'width="{CELL_PX}" height="{CELL_PX}" rx="3"><title>{escape(title)}</title></rect>'
        f'<text class="assignment-number" x="{x + CELL_PX // 2}" y="{top + 13}" '
        f'text-anchor="middle">{partition.partition}</text>'
    )


def level(lag: int | None) -> str:
    """The class of a lag: unknown, none, low, medium, high."""
    if lag is None:
        return "unknown"
    return next((name for limit, name in _LEVELS if lag <= limit), "high")


def _short(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(1, room - 1)]}\u2026"
