"""Which offsets a picture of lanes shows, and where each of them is drawn.

Replicas differ near the end of their logs, so the axis shows that part: from a margin below the
lowest high watermark or log end offset up to the highest log end offset. The log start offset is
shown, too, if that makes the axis at most four times as long; otherwise it is behind a break.
"""

from dataclasses import dataclass
from itertools import count
from typing import Final

from odradek.web.lanes.values import PartitionLanes, ReplicaLane

LEFT: Final = 2.0  # percent of the picture's width
RIGHT: Final = 96.0
_MARGIN: Final = 4  # of the differing part, one in so many; at least so many offsets
_WHOLE: Final = 4
_TICKS: Final = 5
_TICKS_LONG: Final = 3  # of numbers with so many digits that five of them do not fit into 360 px
_LONG: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAxis:
    """The offsets from `start` to `end`."""

    start: int
    end: int
    is_broken: bool  # there are records before `start`

    def percent(self, offset: int) -> float:
        """Where an offset is drawn, in percent of the width; offsets outside are at the border."""
        inside = min(max(offset, self.start), self.end)
        share = (inside - self.start) / (self.end - self.start)
        return round(LEFT + share * (RIGHT - LEFT), 3)

    def shows(self, offset: int) -> bool:
        """Whether the offset is within the axis."""
        return self.start <= offset <= self.end

    def ticks(self) -> tuple[int, ...]:
        """Round offsets, at most six, at equal distances."""
        steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
        most = _TICKS if self.end < _LONG else _TICKS_LONG
        step = next(step for step in steps if self.end - self.start <= step * most)
        first = -(-self.start // step) * step
        return tuple(range(first, self.end + 1, step))


def axis_of(*pictures: PartitionLanes) -> OffsetAxis | None:
    """The axis of a partition, or of several pictures of it; None if no offset of it is known."""
    lanes = [lane for picture in pictures for lane in picture.lanes]
    interesting = [offset for lane in lanes for offset in _ends(lane)]
    if not interesting:
        interesting = [mark.offset for picture in pictures for mark in picture.marks]
    if not interesting:
        return None
    low, end = min(interesting), max(interesting)
    margin = max((end - low) // _MARGIN, _MARGIN)
    starts = [lane.log_start_offset for lane in lanes]
    first = min((start for start in starts if start is not None), default=0)
    start = max(low - margin, first)
    if end - first <= _WHOLE * (end - start):
        start = min(first, low)
    return OffsetAxis(start=start, end=max(end, start + 1), is_broken=start > first)


def _ends(lane: ReplicaLane) -> list[int]:
    known = (lane.leo, lane.high_watermark, lane.last_stable_offset)
    return [offset for offset in known if offset is not None]
