"""What the parts of a log read and write of it, and what always holds of it.

`Log` has what `LogState` names; a protocol here keeps the imports between the files in one
direction.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.producer_state import ProducerState
from odradek.log.segment import Segment
from odradek.model.invariants import InvariantError
from odradek.model.partition import TopicPartition


class LogState(Protocol):
    """A log's files and offsets; all offsets are exclusive ends but `log_start_offset`."""

    partition: TopicPartition
    directory: str
    host: LogHost
    config: LogConfig
    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    producers_end: int
    leo: int
    high_watermark: int
    log_start_offset: int
    recovery_point: int
    cuts: int
    cuts_flushed: int
    removed: bool

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer reads."""

    def segments_from(self, offset: int) -> Sequence[Segment]:
        """The segment that holds `offset`, and all behind it."""


def check(log: LogState) -> None:
    """Check what holds of a log between two operations, as far as it is in memory.

    Raises:
        InvariantError: something does not hold.
    """
    name, start, end = log.partition, log.log_start_offset, log.leo
    high_watermark, stable = log.high_watermark, log.last_stable_offset
    if not start <= high_watermark <= end:
        raise InvariantError(f"{name}: HW {high_watermark} is not within [{start}, {end}]")
    if not start <= stable <= high_watermark:
        raise InvariantError(
            f"{name}: LSO {stable} is not between log start {start} and HW {high_watermark}"
        )
    if log.recovery_point > end:
        raise InvariantError(
            f"{name}: the recovery point {log.recovery_point} is above the LEO {end}"
        )
    _check_segments(log)
    starts = log.epochs.starts()
    if any(first[0] >= then[0] or first[1] >= then[1] for first, then in pairwise(starts)):
        raise InvariantError(
            f"{name}: leader epochs and their start offsets do not increase: {starts}"
        )
    if starts and not start <= starts[0][1] <= starts[-1][1] <= end:
        raise InvariantError(f"{name}: leader epochs {starts} begin outside of [{start}, {end}]")
    if log.producers_end > end:
        raise InvariantError(
            f"{name}: the producer state is that of {log.producers_end}, the LEO is {end}"
        )
    log.producers.validate(name, leo=end, high_watermark=high_watermark)


def _check_segments(log: LogState) -> None:
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    if any(first >= then for first, then in pairwise(bases)):
        raise InvariantError(
            f"{log.partition}: the base offsets of segments do not increase: {bases}"
        )
    # The segment that an offset is found in, by binary search, is the one that has it.
    for index, segment in enumerate(segments):
        found = log.segments_from(segment.base_offset)
        if len(found) != len(segments) - index or found[0] is not segment:
            raise InvariantError(
                f"{log.partition}: segment {segment.base_offset} is not found: {bases}"
            )
    if not bases or log.active_segment is not segments[-1]:
        raise InvariantError(f"{log.partition}: the last segment is not the active one: {bases}")
    if not bases[0] <= log.log_start_offset:
        raise InvariantError(f"{log.partition}: log start {log.log_start_offset} is before {bases}")
    if not bases[-1] <= log.leo:
        raise InvariantError(
            f"{log.partition}: the LEO {log.leo} is before the active segment: {bases}"
        )
