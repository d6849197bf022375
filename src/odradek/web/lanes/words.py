"""The picture of lanes in sentences: for screen readers, for text browsers and for tooltips."""

from odradek.plan.quantities import binary_text, span_text
from odradek.web.lanes.values import AxisMark, LaneRole, PartitionLanes, ReplicaLane


def number(offset: int | None) -> str:
    """An offset with separated thousands, or "unknown"."""
    return "unknown" if offset is None else f"{offset:,}"


def state(lane: ReplicaLane) -> str:
    """The role of a replica, its part in a reassignment, and whether it is in sync."""
    words = [lane.role.value]
    if lane.move is not None:
        words.append(lane.move.value)
    if lane.in_sync is None:
        words.append("in sync or not: unknown")
    elif lane.in_sync or lane.move is None:
        words.append("in sync" if lane.in_sync else "out of sync")
    return ", ".join(words)


def offsets(lane: ReplicaLane) -> str:
    """High watermark and log end offset, as short as they are written in the picture."""
    parts = [f"HW {_short(lane.high_watermark)}", f"LEO {_short(lane.leo)}"]
    if lane.last_stable_offset not in (None, lane.high_watermark):
        parts.insert(0, f"LSO {_short(lane.last_stable_offset)}")
    return ", ".join(parts)


def progress(lane: ReplicaLane) -> str:
    """What is left of a move; an empty text if nothing is known about it."""
    parts = []
    if lane.bytes_left is not None:
        parts.append(f"{binary_text(lane.bytes_left)} left")
    if lane.bytes_per_s is not None:
        parts.append(f"{binary_text(lane.bytes_per_s)}/s")
    if lane.seconds_left is not None:
        parts.append(f"{span_text(lane.seconds_left)} to go")
    return ", ".join(parts)


def sentence(lane: ReplicaLane) -> str:
    """All that is known about a replica."""
    parts = [
        state(lane),
        f"log end offset {number(lane.leo)}",
        f"high watermark {number(lane.high_watermark)}",
    ]
    if lane.last_stable_offset is not None:
        parts.append(f"last stable offset {number(lane.last_stable_offset)}")
    if lane.log_start_offset:
        parts.append(f"log start offset {number(lane.log_start_offset)}")
    if lane.leader_epoch is not None:
        parts.append(f"leader epoch {lane.leader_epoch}")
    if moving := progress(lane):
        parts.append(moving)
    rack = "" if lane.rack is None else f" in rack {lane.rack}"
    reason = f" {lane.reason}" if lane.reason else ""
    return f"Broker {lane.broker}{rack}: {', '.join(parts)}.{reason}"


def mark_words(mark: AxisMark) -> str:
    """What a mark shows, its label and its offset."""
    return f"{mark.kind.value} {mark.label}: {number(mark.offset)}"


def title(partition: PartitionLanes) -> str:
    """One sentence: how many replicas there are, how many are in sync, and which one leads."""
    lanes = partition.lanes
    leaders = [lane.broker for lane in lanes if lane.role is LaneRole.LEADER]
    led = f"led by broker {leaders[0]}" if leaders else "without a leader"
    count = "1 replica" if len(lanes) == 1 else f"{len(lanes)} replicas"
    if any(lane.in_sync is None for lane in lanes):
        synced = "not known which are in sync"
    else:
        synced = f"{sum(bool(lane.in_sync) for lane in lanes)} in sync"
    return f"{partition.topic}-{partition.partition}: {count}, {synced}, {led}"


def description(partition: PartitionLanes) -> str:
    """The whole picture in sentences."""
    marks = [f"{mark_words(mark)[0].upper()}{mark_words(mark)[1:]}." for mark in partition.marks]
    return " ".join([*map(sentence, partition.lanes), *marks])


def _short(offset: int | None) -> str:
    return "?" if offset is None else f"{offset:,}"
