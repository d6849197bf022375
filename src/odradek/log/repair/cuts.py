"""Records that a log lost, or no longer shows, without retention or DeleteRecords: as data.

Loading (`odradek.log.recovery`), followers and log directories report each `LogCut` to
`LogHost.cut`; the broker logs, counts and keeps it.
"""

from enum import Enum
from typing import NamedTuple

from odradek.model.partition import TopicPartition


class CutKind(Enum):
    """The operation that removed records; the value is the label of the metric."""

    DAMAGE = "damage"  # at a start, from the first invalid batch to the end of the log
    GAP = "gap"  # at a start, segments that do not begin where the one before ends
    MISSING = "missing"  # at a start, the log ended below its checkpointed high watermark
    LOG_START = "log-start"  # at a start, the log ended below its log start offset
    TRUNCATION = "truncation"  # a follower was truncated below its high watermark
    SET_ASIDE = "set-aside"  # the directory was renamed as stray: its files are kept


class LogCut(NamedTuple):
    """What one operation took out of a log."""

    partition: TopicPartition
    kind: CutKind
    directory: str
    offset: int  # all records from here on
    end_offset: int | None  # to here, exclusive; None: what was removed is not readable
    size_bytes: int  # removed from the log's segments; 0: they were not there any more
    high_watermark: int  # before; as checkpointed, at a start
    reason: str

    @property
    def has_committed(self) -> bool:
        """Whether records below the high watermark are among what was removed."""
        return self.offset < self.high_watermark

    @property
    def span(self) -> str:
        """The offsets, in words."""
        if self.end_offset is None:
            return f"the records from offset {self.offset} on"
        return f"the records from offset {self.offset} to {self.end_offset - 1}"

    def __str__(self) -> str:
        """What happened to which records, where, and why."""
        verb = "are not in the log any more"
        if self.kind is CutKind.SET_ASIDE:
            verb = "are set aside; delete the directory when they are not needed"
        committed = (
            f"; those below the high watermark {self.high_watermark} were committed"
            if self.has_committed
            else ""
        )
        return (
            f"{self.partition}: {self.span} {verb} ({self.size_bytes} bytes, "
            f"{self.directory}): {self.reason}{committed}"
        )
