"""The heat strip of a topic with many partitions: one cell for each, the worst first.

The page draws it from a compact text, `HeatStrip.data`: for each level, worst first, its number and
the partitions at that level as ranges, as in `6:12,40-42;0:0-11,13-39`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

NAMED_MAX: Final = 10  # partitions that the summary names for each level


class HeatLevel(IntEnum):
    """How bad the state of a partition is; a larger number is worse."""

    HEALTHY = 0
    NOT_PREFERRED = 1
    MOVING = 2
    UNDER_REPLICATED = 3
    AT_MIN_ISR = 4
    UNDER_MIN_ISR = 5
    OFFLINE = 6


_WORDS: Final = {
    HeatLevel.HEALTHY: "healthy",
    HeatLevel.NOT_PREFERRED: "not led by the preferred replica",
    HeatLevel.MOVING: "moving",
    HeatLevel.UNDER_REPLICATED: "under-replicated",
    HeatLevel.AT_MIN_ISR: "at min.insync.replicas",
    HeatLevel.UNDER_MIN_ISR: "under min.insync.replicas",
    HeatLevel.OFFLINE: "offline",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """The state of one partition, as far as its heat depends on it."""

    partition: int
    replicas: int  # of the target assignment
    in_sync: int  # of the replicas of the target assignment
    min_isr: int | None = None
    has_leader: bool = True
    is_preferred: bool = True  # the preferred replica leads
    is_moving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """One partition in the strip."""

    partition: int
    level: HeatLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatEntry:
    """How many partitions have a level, in words, and which if they are few."""

    level: HeatLevel
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatStrip:
    """The partitions of a topic, worst first, with the text for the drawing and for readers."""

    topic: str
    cells: tuple[HeatCell, ...]
    data: str
    summary: str
    legend: tuple[HeatEntry, ...]  # the levels that there are, worst first


def level_of(health: PartitionHealth) -> HeatLevel:
    """The worst that is true of a partition."""
    if not health.has_leader:
        return HeatLevel.OFFLINE
    if health.min_isr is not None and health.in_sync < health.min_isr:
        return HeatLevel.UNDER_MIN_ISR
    is_short = health.in_sync < health.replicas
    if is_short and health.in_sync == health.min_isr:
        return HeatLevel.AT_MIN_ISR
    if health.is_moving:
        return HeatLevel.MOVING
    if is_short:
        return HeatLevel.UNDER_REPLICATED
    return HeatLevel.HEALTHY if health.is_preferred else HeatLevel.NOT_PREFERRED


def heat_strip(topic: str, partitions: Iterable[PartitionHealth]) -> HeatStrip:
    """Order the partitions of a topic: worst first, then by number."""
    cells = sorted(
        (HeatCell(partition=health.partition, level=level_of(health)) for health in partitions),
        key=lambda cell: (-cell.level, cell.partition),
    )
    by_level = {
        level: [cell.partition for cell in cells if cell.level is level]
        for level in sorted(HeatLevel, reverse=True)
    }
    data = ";".join(f"{level.value}:{ranges(found)}" for level, found in by_level.items() if found)
    legend = tuple(_entry(level, found) for level, found in by_level.items() if found)
    return HeatStrip(
        topic=topic, cells=tuple(cells), data=data, summary=_summary(topic, legend, len(cells)),
        legend=legend,
    )  # fmt: skip


def ranges(numbers: Iterable[int]) -> str:
    """Increasing numbers as ranges: 1,3-5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _entry(level: HeatLevel, partitions: list[int]) -> HeatEntry:
    is_named = level is not HeatLevel.HEALTHY and len(partitions) <= NAMED_MAX
    named = f" ({ranges(partitions)})" if is_named else ""
    return HeatEntry(level=level, text=f"{len(partitions):,} {_WORDS[level]}{named}")


def _summary(topic: str, legend: Sequence[HeatEntry], count: int) -> str:
    total = f"{topic}: {count:,} partitions"
    if all(entry.level is HeatLevel.HEALTHY for entry in legend):
        return f"{total}, all healthy."
    return f"{total}: {'; '.join(entry.text for entry in legend)}."
