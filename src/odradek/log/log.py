"""One partition's log: a row of segments, of which the last is written.

    log start offset <= high watermark <= LEO
                        recovery point <= LEO

A leader's append sets base offset and leader epoch (both lie outside a batch's checksum) and is
one write into the page cache; a follower's is one write for all batches that came. Durability
comes from replication; who wants the disk as well says `flush.messages` or calls `flush`.

What is called for each batch of a request returns plain numbers and asks the disk only to
write or to read. What may take long on the disk ends in a callback, and a read that would
have to wait for the device comes back as `ColdRead`.

Roll, when the next batch would not fit (`segment.bytes`), when the segment is open for
`segment.ms` by the records' own clock (less a jitter, so that the partitions of a topic do not
roll together), when an index is full, or when offsets would leave the range of the index. The
segment that becomes inactive gets its last index entries, and is flushed behind the scenes.

The flush of a log writes what is needed to start from the new recovery point: segments, the
indexes of those that are not active any more, producer snapshots, leader epochs, names in the
directory. Everything else is made anew from the log after a crash (`odradek.log.recovery`).

This file never decides whether to truncate or how far the high watermark goes: it is told.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from odradek.log.deletion import drop_end, remove_segments, remove_snapshots
from odradek.log.disk import Data
from odradek.log.flushing import FlushDone, Flusher
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log_config import NEVER, LogConfig, LogHost
from odradek.log.partition_metadata import PARTITION_METADATA, encode_metadata
from odradek.log.producer_replay import note_producer, rebuild_producers, write_snapshot
from odradek.log.producer_state import NO_OFFSET, ActiveProducer, ProducerState
from odradek.log.retention import Expired, expired_segments
from odradek.log.segment import RELATIVE_OFFSET_MAX, ColdError, Segment
from odradek.log.slices import (
    Appended,
    ColdRead,
    LogSlice,
    OffsetOutOfRangeError,
    UnexpectedOffsetError,
)
from odradek.log.timestamps import StampedOffset, first_at, largest
from odradek.log.transaction_index import AbortedTransaction, collect
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    OVERHEAD_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    patched_prefix,
    size_at,
)
from odradek.record.control import read_marker
from odradek.record.validate import validate_replicated

# Where the last batches end, so that reads at the tail need neither index nor walk.
RECENT_MAX: Final = 256
# Of a batch: the base offset and the length.
SIZE_BYTES: Final = 12
# Earlier than any timestamp: whether to roll is looked into at the next append.
_LOOK: Final = -(1 << 63)


class Log:
    """One replica of one partition on this broker."""

    __slots__ = (
        "_active",
        "_bases",
        "_flush_at",
        "_flusher",
        "_index_interval_bytes",
        "_is_lowered",
        "_recent_offsets",
        "_recent_positions",
        "_roll_after",
        "_segment_bytes",
        "clean_leo",
        "config",
        "cuts",
        "cuts_flushed",
        "directory",
        "epochs",
        "first_dirty_offset",
        "gone",
        "high_watermark",
        "host",
        "leo",
        "log_start_offset",
        "partition",
        "producers",
        "producers_end",
        "recovery_point",
        "segments",
        "topic_id",
    )

    def __init__(
        self, partition: TopicPartition, directory: str, config: LogConfig, host: LogHost
    ) -> None:
        """A log without segments: `create` or `odradek.log.recovery` gives it some."""
        self.partition = partition
        self.directory = directory
        self.host = host
        self.topic_id: bytes | None = None
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.log_start_offset = self.high_watermark = self.leo = self.recovery_point = 0
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.producers_end = 0  # behind the last batch that the producer state knows of
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self.clean_leo = -1  # where a clean start found the end
        self._is_lowered = False  # its recovery point, and nothing was written since
        self.cuts = 0  # counts truncations: what was being flushed may not be there any more
        self.cuts_flushed = 0  # of them, how many have reached the disk
        self.gone = False  # deleted, or on a disk that failed
        self.first_dirty_offset = 0  # below it the cleaner has been
        self._flusher = Flusher(self)
        self._active: Segment
        self.update_config(config)

    @classmethod
    def create(
        cls,
        partition: TopicPartition,
        directory: str,
        config: LogConfig,
        host: LogHost,
        *,
        topic_id: bytes | None = None,
    ) -> "Log":
        """A new, empty log in a directory that is made for it."""
        log = cls(partition, directory, config, host)
        host.disk.mkdir(directory)
        log.open_segment(0)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def update_config(self, config: LogConfig) -> None:
        """The topic's options changed."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_at = min(NEVER, self.recovery_point + config.flush_messages)
        self._roll_after = _LOOK

    # --------------------------------------------------------------------------- appending

    def append_as_leader(
        self,
        batch: Data,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        flushed: FlushDone | None = None,
    ) -> Appended:
        """Append one validated batch at the end of the log.

        `flushed` is called only if this append reaches `flush.messages`, when it is durable.

        Raises:
            ApiError: RECORD_LIST_TOO_LARGE; what `ProducerState.check` refuses.
            StorageError: the disk refused; the log dir has to go offline.
        """
        size = header.length + OVERHEAD_BYTES
        if size > self._segment_bytes:
            raise _larger_than_segment(size, self._segment_bytes)
        if header.producer_id >= 0:
            stored = self._check_producer(batch, header)
            if stored is not None:
                return stored
        first_offset = self.leo
        last_offset = first_offset + header.last_offset_delta
        active = self._active
        position = active.size
        if (
            position + size > self._segment_bytes
            or header.max_timestamp > self._roll_after
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(header, size, last_offset, position, now_ms):
            active = self.roll()
            position = 0
        if leader_epoch != self.epochs.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        if self._is_lowered:
            self._write_lowered()
        prefix = patched_prefix(first_offset, header.length, leader_epoch)
        active.file.write(position, (prefix, memoryview(batch)[PREFIX_BYTES:size]))
        self._note(active, batch, header, first_offset, position)
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else -1
        if self.leo >= self._flush_at:
            self.flush(flushed)
            return Appended(first_offset, last_offset, append_time, flushes=True)
        return Appended(first_offset, last_offset, append_time)

    def append_as_follower(self, batches: memoryview, *, now_ms: int) -> int:
        """Append what the leader sent, offsets and epochs as they are. Returns the bytes taken.

        A batch that is not all there, at the end of `batches`, is left.

        Raises:
            CorruptBatchError: nothing was appended.
            UnexpectedOffsetError: nothing was appended.
            StorageError: the disk refused; the log dir has to go offline.
        """
        taken, headers = validate_replicated(batches)
        if headers and headers[0].base_offset < self.leo:
            raise UnexpectedOffsetError(headers[0], self.leo)
        begin = end = 0
        run: list[BatchHeader] = []
        for header in headers:
            size = header.length + OVERHEAD_BYTES
            planned = self._active.size + end - begin
            if self._must_roll(header, size, header.last_offset, planned, now_ms):
                self._write_run(batches[begin:end], run)
                # At our end, though compaction may have left a gap in front of the batch: after a
                # crash a log whose topic is not compacted any more has to have none.
                is_near = header.last_offset - self.leo <= RELATIVE_OFFSET_MAX
                self.roll(self.leo if is_near else header.base_offset)
                begin, run = end, []
            run.append(header)
            end += size
        self._write_run(batches[begin:end], run)
        if self.leo >= self._flush_at:
            self.flush()
        return taken

    def _write_run(self, batches: memoryview, run: Sequence[BatchHeader]) -> None:
        if not run:
            return
        if self._is_lowered:
            self._write_lowered()
        active = self._active
        position = active.size
        active.file.write(position, (batches,))
        at = 0
        for header in run:
            if header.leader_epoch > self.epochs.latest_epoch:
                self.assign_epoch(header.leader_epoch, header.base_offset)
            size = header.length + OVERHEAD_BYTES
            self._note(active, batches[at : at + size], header, header.base_offset, position + at)
            at += size

    def _note(
        self, active: Segment, batch: Data, header: BatchHeader, base_offset: int, position: int
    ) -> None:
        """A batch stands in the active segment: index it, and remember who wrote it."""
        last_offset = base_offset + header.last_offset_delta
        if active.appended(position, header, last_offset, self._index_interval_bytes):
            self._roll_after = _LOOK  # an index grew: it may be full
        if header.producer_id >= 0:
            note_producer(self.producers, active, batch, header, base_offset)
            self.producers_end = last_offset + 1
        self.leo = last_offset + 1
        recent = self._recent_offsets
        recent.append(last_offset + 1)
        self._recent_positions.append(active.size)
        if len(recent) > RECENT_MAX:
            del recent[: RECENT_MAX // 2], self._recent_positions[: RECENT_MAX // 2]

    def _check_producer(self, batch: Data, header: BatchHeader) -> Appended | None:
        if header.attributes & CONTROL_BIT:
            marker = read_marker(batch)
            if marker is not None:
                self.producers.check_marker(
                    header.producer_id,
                    producer_epoch=header.producer_epoch,
                    coordinator_epoch=marker.coordinator_epoch,
                )
            return None
        stored = self.producers.check(header)
        if stored is None:
            return None
        return Appended(stored.base_offset, stored.last_offset, stored.timestamp, duplicate=True)

    # ------------------------------------------------------------------------------- rolling

    def _must_roll(
        self, header: BatchHeader, size: int, last_offset: int, position: int, now_ms: int
    ) -> bool:
        active = self._active
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        return position > 0 and (
            position + size > self._segment_bytes
            or active.index_is_full(self.config.segment_index_bytes)
            or self._is_open_too_long(header.max_timestamp, now_ms)
        )

    def _is_open_too_long(self, timestamp: int, now_ms: int) -> bool:
        if timestamp <= self._roll_after:
            return False
        active, config = self._active, self.config
        open_ms = config.roll_ms - self._jitter_ms(active.base_offset)
        first_timestamp = active.first_timestamp
        if first_timestamp < 0:
            return now_ms - active.created_ms > open_ms
        self._roll_after = first_timestamp + open_ms
        return timestamp > self._roll_after

    def _jitter_ms(self, base_offset: int) -> int:
        # Different for each partition and segment, yet no chance in it.
        jitter_ms_max = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if not jitter_ms_max:
            return 0
        return crc32(f"{self.partition}@{base_offset}".encode()) % jitter_ms_max

    def roll(self, base_offset: int = 0) -> Segment:
        """Begin a new segment at the end of the log (or at a later offset, after a gap)."""
        active = self._active
        base_offset = max(base_offset, self.leo)
        if active.base_offset == base_offset:
            assert not active.size, active.stem
            return active
        if active.size:
            active.finish()
            if self.cuts_flushed < self.cuts:
                # With the new segment it is out of sight of recovery, and what was cut off it
                # would be back after a power loss, behind what is written from here on.
                disk = self.host.disk
                disk.flush_now([active.file, *map(disk.file, active.index_paths())])
            active.file.rest()
            # They were written now, even if all batches in there were flushed before.
            self._flusher.paths += active.index_paths()
            self.host.index_cache.used(active)
        else:
            self.segments.pop()
            remove_segments(self.host, [active], delay_ms=0)
        self.open_segment(base_offset)
        self._flusher.paths.append(write_snapshot(self))
        if active.size:
            self.flush()
        return self._active

    def open_segment(self, base_offset: int) -> None:
        """Make an empty segment the active one."""
        now_ms = self.host.clock.wall_ms()
        segment = Segment.create(self.host.disk, self.directory, base_offset, now_ms)
        self.segments.append(segment)
        self._bases.append(base_offset)
        self._flusher.directory_changed = True
        self.leo = base_offset
        self.activate_last()

    def activate_last(self) -> None:
        """The last segment is the active one, and ends at `leo`."""
        self._active = self.segments[-1]
        self._bases = [segment.base_offset for segment in self.segments]
        self.host.index_cache.forget(self._active)
        self._roll_after = _LOOK
        self._recent_offsets = array("q", (self.leo,))
        self._recent_positions = array("q", (self._active.size,))

    def segments_from(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and those behind it."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def segments_before(self, offset: int) -> list[Segment]:
        """The segments in front of the one that holds `offset`."""
        return self.segments[: max(0, bisect_right(self._bases, offset) - 1)]

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """One segment has taken the place of neighbours, none of them the active one."""
        index = self.segments.index(old[0])
        assert self.segments[index : index + len(old)] == list(old), self.partition
        assert self._active not in old, self.partition
        self.segments[index : index + len(old)] = [new]
        self._bases = [segment.base_offset for segment in self.segments]
        self._flusher.directory_changed = True

    @property
    def active_segment(self) -> Segment:
        """The segment that is written."""
        return self._active

    # ------------------------------------------------------------------------------- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        minimum_one_message: bool = True,
        wait: bool = False,
        load: bool = True,
    ) -> LogSlice | ColdRead | None:
        """Batches from the one that reaches `offset` on, below `end_offset`, of one segment.

        None: there is nothing between the two, or not enough room for it. With
        `minimum_one_message` the first batch is taken even if it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRangeError: `offset` is not in the log, nor its end.
        """
        if not self.log_start_offset <= offset <= self.leo:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.leo)
        if offset >= end_offset:
            return None
        try:
            found = self._locate(offset, end_offset, wait=wait)
            if found is None:
                return None
            segment, start, end = found
            size = min(end - start, max_bytes)
            if load:
                return _load(segment, start, size, end, at_least_one=minimum_one_message, wait=wait)
            if size < end - start:
                first = size_at(segment.read(start, SIZE_BYTES, wait=wait), 0)
                if first > size:
                    size = first if minimum_one_message else 0
            return LogSlice(segment, start, size, None) if size else None
        except ColdError as cold:
            return ColdRead(cold.file, cold.position, cold.length)

    def _locate(
        self, offset: int, end_offset: int, *, wait: bool
    ) -> tuple[Segment, int, int] | None:
        """The segment with the first batch to read, and the positions where to begin and end."""
        index = bisect_right(self._bases, offset) - 1
        last = len(self.segments) - 1
        while index <= last:
            segment = self.segments[index]
            start = self._position(segment, offset, wait=wait)
            if start < segment.size:
                ends_here = index == last or end_offset < self._bases[index + 1]
                end = self._position(segment, end_offset, wait=wait) if ends_here else segment.size
                return (segment, start, end) if start < end else None
            index += 1  # a gap at the end of a compacted segment
        return None

    def _position(self, segment: Segment, offset: int, *, wait: bool) -> int:
        if segment is self._active:
            index = bisect_right(self._recent_offsets, offset) - 1
            if index >= 0:
                return self._recent_positions[index]
        else:
            self.host.index_cache.used(segment)
        return segment.find(offset, wait=wait)

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """About how many bytes a read of that range would find, without reading any."""
        if not self.log_start_offset <= offset < end_offset:
            return 0
        recent = self._recent_offsets
        if offset >= recent[0]:
            positions = self._recent_positions
            first = positions[bisect_right(recent, offset) - 1]
            return positions[bisect_right(recent, end_offset) - 1] - first
        total = 0
        for segment in self.segments_from(offset):
            if segment.base_offset >= end_offset:
                break
            relative = max(0, offset - segment.base_offset)
            start = segment.indexes()[0].lookup(relative)
            end = segment.size
            if segment is self._active and end_offset < self.leo:
                end = segment.indexes()[0].lookup(end_offset - segment.base_offset)
            total += max(0, end - start)
        return total

    def end_offset_of(self, found: LogSlice) -> int:
        """An offset that nothing in the slice reaches."""
        segment = found.segment
        index = bisect_right(self._bases, segment.base_offset)
        following = self._bases[index] if index < len(self._bases) else self.leo
        if found.position + found.size >= segment.size:
            return following
        relative = segment.indexes()[0].offset_at_or_behind(found.position + found.size)
        return following if relative is None else segment.base_offset + relative + 1

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that reach into a range."""
        aborted: list[AbortedTransaction] = []
        for segment in self.segments_from(offset):
            if collect(segment.aborted(), fetch_offset=offset, end_offset=end_offset, into=aborted):
                break
        return aborted

    def offset_for_timestamp(
        self, timestamp: int, *, wait: bool = True
    ) -> StampedOffset | ColdRead | None:
        """The first record stamped at or after a time, if there is one."""
        try:
            return first_at(
                self.segments, timestamp, log_start_offset=self.log_start_offset, wait=wait
            )
        except ColdError as cold:
            return ColdRead(cold.file, cold.position, cold.length)

    def max_timestamp_offset(self, *, wait: bool = True) -> StampedOffset | ColdRead | None:
        """The record with the largest timestamp, if any has one."""
        try:
            return largest(self.segments, wait=wait)
        except ColdError as cold:
            return ColdRead(cold.file, cold.position, cold.length)

    # --------------------------------------------------------------------- what others move

    def set_high_watermark(self, offset: int) -> int:
        """The high watermark moves, within the log. Returns it."""
        offset = min(offset, self.leo)
        offset = max(offset, self.log_start_offset)
        self.high_watermark = offset
        if self.producers.first_unstable_offset != NO_OFFSET:
            self.producers.high_watermark_advanced(offset)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """How far a read_committed consumer may read; the log start at least.

        An open transaction may begin below the log start: DeleteRecords and retention know no
        transactions.
        """
        first = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        if first == NO_OFFSET or first > high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)

    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` are deleted. Whether that is news.

        Raises:
            OffsetOutOfRangeError: they are not committed yet.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self._save_epochs()
        return True

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A leader's reign begins here."""
        if leader_epoch >= 0 and self.epochs.assign(leader_epoch, start_offset):
            self._save_epochs()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Where an epoch ended: see `LeaderEpochs.end_offset_for`."""
        return self.epochs.end_offset_for(leader_epoch, self.leo)

    @property
    def size_bytes(self) -> int:
        """All segments."""
        return sum(segment.size for segment in self.segments)

    def active_producers(self) -> list[ActiveProducer]:
        """Every producer that is remembered."""
        return list(self.producers.active_producers())

    # ------------------------------------------------------------------------ cutting the end

    def truncate_to(self, offset: int) -> bool:
        """Cut `offset` and all behind it. Whether there was anything to cut.

        Batches are cut whole: one that reaches from below `offset` to above it goes as well.
        """
        if offset >= self.leo:
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.cuts += 1
        keep = bisect_right(self._bases, offset)
        end = self.segments[keep - 1].end_below(offset)
        # First: should the process die within the cut, it died believing in nothing that is gone.
        self.set_high_watermark(min(self.high_watermark, end))
        if end < max(self.recovery_point, self.first_dirty_offset):
            self.recovery_point = min(self.recovery_point, end)
            self.first_dirty_offset = min(self.first_dirty_offset, end)
            self._lowered()
        gone, self.segments[keep:] = self.segments[keep:], []
        if gone:
            drop_end(self.host, gone, delay_ms=self.config.file_delete_delay_ms)
        self._ends_at(self.segments[-1].truncate(offset))
        # Even if the recovery point stays in front of them, or a roll leaves them behind.
        self._flusher.paths += [self._active.file.path, *self._active.index_paths()]
        remove_snapshots(self.host.disk, self.directory, above=self.leo)
        if offset < self.producers_end:
            for _ in rebuild_producers(self):
                pass
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at `offset`."""
        self.cuts += 1
        self.high_watermark = 0  # first, as in `truncate_to`
        if self.recovery_point:
            # Until it is durable that they are gone, the segments may come back, torn.
            self.recovery_point = 0
            self._lowered()
        gone, self.segments = self.segments, []
        remove_segments(self.host, gone[::-1], delay_ms=self.config.file_delete_delay_ms)
        remove_snapshots(self.host.disk, self.directory, above=-1)
        self.producers.clear()
        self.open_segment(offset)
        self.log_start_offset = self.high_watermark = self.first_dirty_offset = offset
        self._ends_at(offset)

    def _lowered(self) -> None:
        self._is_lowered = True
        self.host.recovery_point_lowered(self.directory)

    def _write_lowered(self) -> None:
        self._is_lowered = False
        self.host.write_lowered(self.directory)

    def _ends_at(self, leo: int) -> None:
        self.leo = leo
        self.log_start_offset = min(self.log_start_offset, leo)
        self._flush_at = min(NEVER, self.recovery_point + self.config.flush_messages)
        self.activate_last()
        self.set_high_watermark(min(self.high_watermark, leo))
        self.cut_epochs()

    def cut_epochs(self) -> None:
        """Leader epochs are those of what is in the log."""
        changed = self.epochs.truncate_from_end(self.leo)
        if self.epochs.truncate_from_start(self.log_start_offset) or changed:
            self._save_epochs()

    # --------------------------------------------------------------- cutting the beginning

    def delete_old_segments(self, now_ms: int) -> Expired:
        """What retention lets go is renamed now and removed after `file.delete.delay.ms`."""
        expired = expired_segments(
            self.segments,
            self.config,
            leo=self.leo,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            now_ms=now_ms,
        )
        count = expired.segments
        if not count:
            return expired
        if count == len(self.segments):
            self.roll()
        gone, self.segments = self.segments[:count], self.segments[count:]
        self._bases = self._bases[count:]
        self.log_start_offset = max(self.log_start_offset, self._bases[0])
        if self.epochs.truncate_from_start(self.log_start_offset):
            self._save_epochs()
        # The recovery point stays where it is: should what goes now come back after a power loss,
        # it may be torn from there on, and has to be looked at.
        remove_segments(self.host, gone, delay_ms=self.config.file_delete_delay_ms)
        return expired

    # ------------------------------------------------------------------------------ durability

    def flush(self, done: FlushDone | None = None) -> None:
        """Make durable all that was appended so far. `done` hears of it."""
        self._flush_at = min(NEVER, self.leo + self.config.flush_messages)
        self._flusher.request(done)

    def flush_rest(self, done: FlushDone) -> None:
        """The same, if it is not being done already."""
        self._flusher.join(done)

    @property
    def counted_end(self) -> int:
        """Up to where this replica may say that it has the records.

        Not to the end while `flush.messages` or more are not on the disk: Kafka flushes within the
        append, before it looks at the high watermark, or fetches on.
        """
        return min(self.leo, self.recovery_point + self.config.flush_messages - 1)

    @property
    def unflushed_messages(self) -> int:
        """How many offsets may be lost with the power."""
        return self.leo - self.recovery_point

    def _save_epochs(self) -> None:
        self._flusher.save_epochs()

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write `partition.metadata`: which incarnation of the topic this belongs to."""
        assert self.topic_id is None, (self.partition, self.topic_id, topic_id)
        self.topic_id = topic_id
        self._flusher.replace(PARTITION_METADATA, encode_metadata(topic_id))

    def doubt_what_is_durable(self) -> None:
        """After an unclean stop: what is in the page cache may not be on the disk."""
        # The process before us may have cut the end, too, and died before that was flushed.
        self.cuts += 1
        active = self._active
        self._flusher.doubt(self.host.disk.list(self.directory))
        self._flusher.paths += [active.file.path, *active.index_paths()]

    def flush_if_overdue(self, now_ms: int) -> None:
        """Flush if `flush.ms` is over; monotonic time."""
        if self._flusher.is_overdue(now_ms):
            self.flush()

    def close(self, done: FlushDone) -> None:
        """Write all that makes the next start need no recovery. `done` when it is durable."""
        self._active.finish()
        if self.leo > self.segments[0].base_offset:
            self._flusher.paths.append(write_snapshot(self))
        self._flusher.close(done)

    @property
    def is_as_loaded(self) -> bool:
        """Whether nothing happened since a clean start."""
        return self.leo == self.clean_leo and not self.cuts and self._flusher.is_idle

    def rest(self) -> None:
        """Give back descriptors."""
        for segment in self.segments:
            segment.file.rest()

    def moved(self, directory: str) -> None:
        """The directory has another name now."""
        self.directory = directory
        self._flusher.directory_changed = True
        for segment in self.segments:
            segment.moved(directory)


def _larger_than_segment(size: int, segment_bytes: int) -> ApiError:
    return ApiError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"record batch of {size} bytes; segment.bytes={segment_bytes}",
    )


def _load(
    segment: Segment, start: int, size: int, end: int, *, at_least_one: bool, wait: bool
) -> LogSlice | None:
    data = segment.read(start, max(size, SIZE_BYTES), wait=wait)
    if size < end - start:
        first = size_at(data, 0)
        if first > size:
            if not at_least_one:
                return None
            data = segment.read(start, first, wait=wait)
    return LogSlice(segment, start, len(data), data)
