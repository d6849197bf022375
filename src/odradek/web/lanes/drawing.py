"""Draws the lanes of a partition as SVG.

Lengths along the offset axis are percentages and all others are pixels, so the picture fills any
width from 360 px on while its texts keep their size. Colours and transitions are in
`static/lanes.css`; what a colour says is also said by a shape, a hatching or a text. There is no
inline style, which the page's content security policy would refuse. Each moving element has a
`data-key` that stays the same from one picture of the partition to the next.
"""

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from odradek.web.lanes import words
from odradek.web.lanes.axis import LEFT, RIGHT, OffsetAxis, axis_of
from odradek.web.lanes.values import AxisMark, LaneRole, MarkKind, PartitionLanes, ReplicaLane

LANE_PX: Final = 66
BAR_PX: Final = 16
_BAR_Y: Final = 24
_MARK_PX: Final = 18
_AXIS_PX: Final = 26
_SIDE: Final = 8  # percent of the width, in which half a number does not fit into 360 px
_OFFSETS_MAX: Final = 24  # characters that fit beside the state into 360 px
_REASON_MAX: Final = 58  # characters that fit into 360 px
# Shapes around (0, 0), one for each kind of mark.
_SHAPES: Final = {
    MarkKind.COMMITTED: "M-5 -5H5L0 5Z",
    MarkKind.POSITION: "M-5 0L0 -5L5 0L0 5Z",
    MarkKind.TRANSACTION: "M-1 -6H5V-4H1V4H5V6H-1Z",
    MarkKind.COMMIT: "M-5 0L-2 4L5 -4L4 -5L-2 2L-4 -1Z",
    MarkKind.ABORT: "M-5 -4L-4 -5L5 4L4 5ZM4 -5L5 -4L-4 5L-5 4Z",
}


class SvgText(str):
    """Markup that a template with autoescape inserts as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def lanes_svg(
    partition: PartitionLanes, *, prefix: str = "", axis: OffsetAxis | None = None
) -> SvgText:
    """The picture of a partition, as an `svg` element.

    With a prefix for its ids, a document can have two pictures of one partition, which can have a
    common axis.
    """
    axis = axis or axis_of(partition)
    key = f"{prefix}{partition.key}"
    body = [
        _tag("title", escape(words.title(partition)), id=f"{key}-title"),
        _tag("desc", escape(words.description(partition)), id=f"{key}-desc"),
        _tag("defs", _hatching(key)),
    ]
    for row, lane in enumerate(partition.lanes):
        body.append(_lane(lane, axis, key, row * LANE_PX))
    y = len(partition.lanes) * LANE_PX
    if axis is not None:
        for mark in partition.marks:
            body.append(_mark(mark, axis, key, y))
            y += _MARK_PX
        body.append(_scale(axis, key, y))
    return SvgText(
        _tag(
            "svg",
            "\n".join(body),  # a line for each lane: `odradek.web.live.edits` compares lines
            id=key,
            data_key=key,
            class_="lanes",
            role="img",
            aria_labelledby=f"{key}-title {key}-desc",
            width="100%",
            height=y + _AXIS_PX,
            xmlns="http://www.w3.org/2000/svg",
        )
    )


# ------------------------------------------------------------------------------ one replica


def _lane(lane: ReplicaLane, axis: OffsetAxis | None, key: str, y: int) -> str:
    own = f"{key}-{lane.broker}"
    classes = ["lane", f"lane-{lane.role.value}"]
    if lane.in_sync is not None:
        classes.append("lane-in-sync" if lane.in_sync else "lane-out-of-sync")
    if lane.move is not None:
        classes.append(f"lane-{lane.move.value}")
    parts = [
        _tag("title", escape(words.sentence(lane))),
        _badge(lane),
        _head(f"Broker {lane.broker}", lane),
        _offsets(lane),
        _text(_small_print(lane), "lane-reason", x="14", y=_BAR_Y + BAR_PX + 15),
        _tag("rect", class_="lane-track", x=_pc(LEFT), y=_BAR_Y, width=_pc(RIGHT - LEFT),
             height=BAR_PX),
    ]  # fmt: skip
    if axis is None or lane.leo is None:
        parts.append(_unknown(lane))
    else:
        parts += _bars(lane, lane.leo, axis, own, key)
    if axis is not None:
        parts += _watermarks(lane, axis, own)
    return _tag("g", *parts, id=own, data_key=own, class_=" ".join(classes),
                transform=f"translate(0 {y})")  # fmt: skip


def _head(name: str, lane: ReplicaLane) -> str:
    """The broker and its state, whose role is left out of a narrow picture: the badge shows it."""
    role, comma, rest = words.state(lane).partition(", ")
    state = (_tag("tspan", role + comma, class_="lane-role"), rest) if rest else (role,)
    return _tag("text", _tag("tspan", name, class_="lane-name"), " ",
                _tag("tspan", *state, class_="lane-state"), x="14", y=13)  # fmt: skip


def _offsets(lane: ReplicaLane) -> str:
    """The offsets; a narrow picture has only a mark for those for which there is no room."""
    said = words.offsets(lane)
    short = "HW " if len(said) - said.index("HW ") <= _OFFSETS_MAX else "LEO "
    wide, rest = said[: said.index(short)], said[said.index(short) :]
    return _tag("text", _tag("tspan", wide, class_="lane-wide") if wide else "", rest,
                class_="lane-offsets", x="100%", y=13, text_anchor="end")  # fmt: skip


def _badge(lane: ReplicaLane) -> str:
    """A shape before the name: filled for the leader, a ring for a follower, a cross if offline."""
    if lane.role is LaneRole.OFFLINE:
        return _tag("path", class_="lane-badge", d="M1 4L8 13M8 4L1 13")
    return _tag("circle", class_="lane-badge", cx=5, cy=9, r=4)


def _bars(lane: ReplicaLane, leo: int, axis: OffsetAxis, own: str, key: str) -> list[str]:
    """The log: what is committed by the replica's own HW, and the rest, which is hatched."""
    start = axis.percent(lane.log_start_offset or 0)
    end = axis.percent(leo)
    if lane.high_watermark is None:
        parts = [_bar(f"{own}-log", "lane-unsure", start, end)]
    else:
        committed = axis.percent(min(lane.high_watermark, leo))
        hatching = f"url(#{key}-hatching)"
        parts = [
            _bar(f"{own}-committed", "lane-committed", start, committed),
            _bar(f"{own}-rest", "lane-rest", committed, end),
            _bar(f"{own}-hatch", "lane-hatch", committed, end, fill=hatching),
        ]
    parts.append(_bar(f"{own}-outline", "lane-outline", start, end))
    if lane.log_start_offset is not None and lane.log_start_offset < axis.start:
        zigzag = f"M0 0L4 4L0 8L4 12L0 {BAR_PX}"
        parts.append(
            _at(f"{own}-break", start, _BAR_Y, _tag("path", class_="lane-break", d=zigzag))
        )
    for epoch in lane.epochs:
        if axis.shows(epoch.start_offset):
            name = f"{own}-epoch-{epoch.leader_epoch}"
            shown = (
                _tag("path", class_="lane-epoch", d=f"M0 0V{BAR_PX}"),
                _text(f"e{epoch.leader_epoch}", "lane-epoch-name", x="3", y=12),
            )
            parts.append(_at(name, axis.percent(epoch.start_offset), _BAR_Y, *shown))
    return parts


def _watermarks(lane: ReplicaLane, axis: OffsetAxis, own: str) -> list[str]:
    parts = []
    stable, high = lane.last_stable_offset, lane.high_watermark
    if stable is not None and stable != high:
        shape = _tag("path", class_="lane-stable", d=f"M0 -2V{BAR_PX + 2}")
        parts.append(_at(f"{own}-stable", axis.percent(stable), _BAR_Y, shape))
    if high is not None:
        shape = _tag("path", class_="lane-high", d=f"M-4 -4H4L0 1V{BAR_PX + 3}L0 1Z")
        parts.append(_at(f"{own}-high", axis.percent(high), _BAR_Y, shape))
    return parts


def _unknown(lane: ReplicaLane) -> str:
    said = "offline" if lane.role is LaneRole.OFFLINE else "log end offset unknown"
    return _tag(
        "g",
        _tag("rect", class_="lane-unknown", x=_pc(LEFT), y=_BAR_Y, width=_pc(RIGHT - LEFT),
             height=BAR_PX),
        _text(f"? {said}", "lane-unknown-name", x="50%", y=_BAR_Y + 12, text_anchor="middle"),
    )  # fmt: skip


def _small_print(lane: ReplicaLane) -> str:
    parts = [] if lane.rack is None else [f"rack {lane.rack}"]
    parts += [text for text in (words.progress(lane), lane.reason) if text]
    text = " · ".join(parts)
    return text if len(text) <= _REASON_MAX else f"{text[: _REASON_MAX - 1].rstrip()}…"


# ------------------------------------------------------------------------------ below the lanes


def _mark(mark: AxisMark, axis: OffsetAxis, key: str, y: int) -> str:
    """A mark in a row of its own; the label is on the side where there is more room."""
    at = axis.percent(mark.offset)
    is_left = at > (LEFT + RIGHT) / 2
    text = words.mark_words(mark)
    if not axis.shows(mark.offset):
        text = f"← {text}" if mark.offset < axis.start else f"{text} →"
    kind = mark.kind.name.lower()
    label = _text(
        text,
        "mark-name",
        x="-9" if is_left else "9",
        y=4,
        text_anchor="end" if is_left else "start",
    )
    shape = _tag("path", class_=f"mark-{kind}", d=_SHAPES[mark.kind])
    name = f"{key}-{kind}-{mark.label}"
    return _at(name, at, y + _MARK_PX // 2, shape, label, class_="mark")


def _scale(axis: OffsetAxis, key: str, y: int) -> str:
    line = _tag("line", x1=_pc(LEFT), x2=_pc(RIGHT), y1=y + 4, y2=y + 4)
    ticks = [
        _tag(
            "g",
            _tag("line", x1=_pc(at), x2=_pc(at), y1=y + 4, y2=y + 8),
            _text(f"{offset:,}", "axis-number", x=_pc(at), y=y + 20, text_anchor=_anchor(at)),
        )
        for offset in axis.ticks()
        for at in [axis.percent(offset)]
    ]
    return _tag("g", line, *ticks, id=f"{key}-axis", class_="axis")


def _anchor(percent: float) -> str:
    """How a number below the axis is aligned, so that it is not cut off at the sides."""
    if percent < _SIDE:
        return "start"
    return "end" if percent > 100 - _SIDE else "middle"


def _hatching(key: str) -> str:
    return _tag(
        "pattern",
        _tag("path", class_="lane-hatching", d="M-1 1L1 -1M0 6L6 0M5 7L7 5"),
        id=f"{key}-hatching",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
    )


# ------------------------------------------------------------------------------ elements


def _bar(key: str, kind: str, start: float, end: float, **more: str) -> str:
    width = max(end - start, 0)
    return _tag("rect", id=key, data_key=key, class_=kind, x=_pc(start), y=_BAR_Y, width=_pc(width),
                height=BAR_PX, **more)  # fmt: skip


def _at(key: str, percent: float, y: int, *content: str, class_: str = "at") -> str:
    """Content whose own origin is at this place."""
    return _tag("svg", *content, id=key, data_key=key, class_=class_, x=_pc(percent), y=y,
                overflow="visible")  # fmt: skip


def _text(text: str, kind: str, **where: str | int) -> str:
    return _tag("text", escape(text), class_=kind, **where) if text else ""


def _pc(percent: float) -> str:
    return f"{round(percent, 3):g}%"


def _tag(name: str, *content: str, **attributes: str | float) -> str:
    """An element; `_` in the name of an attribute stands for `-`, and a final `_` for nothing."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(str(value))}"
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(content)}</{name}>"
