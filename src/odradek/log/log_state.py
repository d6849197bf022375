"""What flushing and the replay of producer states read and write of a log.

`Log` has both; a protocol here keeps the imports between the three files in one direction.
"""

from collections.abc import Sequence
from typing import Protocol

from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.producer_state import ProducerState
from odradek.log.segment import Segment


class LogState(Protocol):
    """A log's files and offsets; all offsets are exclusive ends but `log_start_offset`."""

    directory: str
    host: LogHost
    config: LogConfig
    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    producers_end: int
    leo: int
    high_watermark: int
    recovery_point: int
    cuts: int
    cuts_flushed: int
    gone: bool

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""

    def segments_from(self, offset: int) -> Sequence[Segment]:
        """The segment that holds `offset`, and all behind it."""
