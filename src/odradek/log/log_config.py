"""A log's topic configuration, and the objects that its logs get from the broker."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from odradek.log.disk import Disk, StorageError
from odradek.log.repair.cuts import LogCut
from odradek.log.segment import IndexCache
from odradek.model.clock import Clock
from odradek.model.partition import TopicPartition
from odradek.obs.metrics import Histogram

NEVER: Final = (1 << 63) - 1
DAY_MS: Final = 86_400_000


@dataclass(slots=True, kw_only=True)
class LogConfig:
    """The configuration of a topic as far as its logs need it, with Kafka's defaults.

    Without `preallocate`, which has no effect here.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1  # -1: no limit
    retention_ms: int = 7 * DAY_MS  # -1: no limit
    max_message_bytes: int = 1_048_588
    flush_messages: int = NEVER
    message_downconversion_enable: bool = True
    flush_ms: int = NEVER
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is rolled: an active segment cannot be cleaned."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else (self.segment_ms)
        )

    def jitter_ms(self, partition: TopicPartition, base_offset: int) -> int:
        """How much earlier a segment is rolled: different for each one, but not random."""
        jitter_ms_max = min(self.segment_jitter_ms, self.segment_ms)
        if not jitter_ms_max:
            return 0
        return crc32(f"{partition}@{base_offset}".encode()) % jitter_ms_max

    @property
    def is_deleted(self) -> bool:
        """Whether segments are deleted by age and size."""
        return "delete" in self.cleanup_policy


@dataclass(slots=True, kw_only=True)
class LogHost:
    """What the logs of one broker need from it."""

    disk: Disk
    clock: Clock
    # Of the event loop: calls a function after some seconds.
    call_later: Callable[[float, Callable[[], None]], object]
    # Reports an I/O error of background work: the log directory has to go offline.
    failed: Callable[[StorageError], None]
    # A log's recovery point in this directory moved back: its checkpoint is above it.
    recovery_point_lowered: Callable[[str], None] = lambda _directory: None
    # Called before offsets above a truncation are written again: no checkpoint may have a
    # recovery point above it until they are flushed.
    write_lowered: Callable[[str], None] = lambda _directory: None
    # Records are not in a log any more, and neither retention nor DeleteRecords removed them.
    cut: Callable[[LogCut], None] = lambda _cut: None
    producer_id_expiration_ms: int = DAY_MS
    index_cache: IndexCache = field(default_factory=IndexCache)
    flush_ms: Histogram = field(default_factory=Histogram)
