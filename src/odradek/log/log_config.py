"""What a log is told: its topic's options, and the world it lives in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from odradek.log.disk import Disk, StorageError
from odradek.log.segment import IndexCache
from odradek.model.clock import Clock

NEVER: Final = (1 << 63) - 1
DAY_MS: Final = 86_400_000


@dataclass(slots=True, kw_only=True)
class LogConfig:
    """The options of one topic that its logs go by, with Kafka's defaults.

    `preallocate` is not among them: it has no effect here.
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
    flush_ms: int = NEVER
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner works on it."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment is written: what is open cannot be cleaned."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else (self.segment_ms)
        )

    @property
    def is_deleted(self) -> bool:
        """Whether retention by age and size works on it."""
        return "delete" in self.cleanup_policy


@dataclass(slots=True, kw_only=True)
class LogHost:
    """The world as the logs of one broker see it."""

    disk: Disk
    clock: Clock
    # As of an event loop: seconds, and a callback.
    call_later: Callable[[float, Callable[[], None]], object]
    # Something that nobody waits for went wrong: take the log dir offline.
    failed: Callable[[StorageError], None]
    # The recovery point of a log in this directory went back: its checkpoint says too much.
    recovery_point_lowered: Callable[[str], None] = lambda _directory: None
    # What stands behind where one was cut is about to be written anew: see that, until it is
    # flushed, no checkpoint calls it durable.
    write_lowered: Callable[[str], None] = lambda _directory: None
    producer_id_expiration_ms: int = DAY_MS
    index_cache: IndexCache = field(default_factory=IndexCache)
