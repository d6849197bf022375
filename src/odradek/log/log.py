"""One partition's log: a list of segments, of which the last one is active.

    log start offset <= high watermark <= LEO
                        recovery point <= LEO

A leader's append sets base offset and leader epoch (both outside a batch's checksum) and is
one write into the page cache; a follower's is one write for all batches of a fetch. Durability
comes from replication; `flush.messages`, `flush.ms` and `flush` write to the disk as well.

Methods called for each batch of a request return plain numbers and only write to the disk or read
from it. Whatever may take long on the disk ends in a callback, and a read that would have to wait
for the device returns a `ColdRead`.

The log rolls when the next batch would not fit (`segment.bytes`), when the segment has been active
for `segment.ms` by the records' timestamps (minus a jitter, so that the partitions of a topic do
not roll together), when an index is full, or when an offset would exceed the range of the index.
The former active segment gets its last index entries and is flushed in the background.

The flush of a log writes what is needed to start from the new recovery point: segments, the
indexes of those that are not active any more, producer snapshots, leader epochs, directory
entries. Everything else is rebuilt from the log after a crash (`odradek.log.recovery`).

This module does not decide whether to truncate or where the high watermark is: its callers do.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from odradek.log.deletion import drop_end, remove_segments, remove_snapshots
from odradek.log.disk import Data, changing
from odradek.log.flushing import FlushDone, Flusher
from odradek.log.index.recent import RecentBatches
from odradek.log.index.transactions import AbortedTransaction, collect
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log_config import NEVER, LogConfig, LogHost
from odradek.log.log_state import check
from odradek.log.partition_metadata import PARTITION_METADATA, encode_metadata
from odradek.log.producer_replay import note_producer, rebuild_producers, write_snapshot
from odradek.log.producer_replay import prepare_markers as prepare
from odradek.log.producer_state import NO_OFFSET, ActiveProducer, ProducerState
from odradek.log.retention import Expired, expired_segments
from odradek.log.segment import RELATIVE_OFFSET_MAX, ColdError, Segment
from odradek.log.slices import (
    SIZE_BYTES,
    Appended,
    ColdRead,
    LogSlice,
    OffsetOutOfRangeError,
    UnexpectedOffsetError,
    larger_than_segment,
    load_slice,
)
from odradek.log.timestamps import StampedOffset, first_at, largest
from odradek.model.clock import MonotonicMs, WallMs
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    NO_SEQUENCE,
    OVERHEAD_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    patched_prefix,
    size_at,
)
from odradek.record.control import read_marker
from odradek.record.validate import validate_replicated

# Earlier than any timestamp: check whether to roll at the next append.
_LOOK: Final = -(1 << 63)
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs


class Log:
    """One replica of one partition on this broker (Kafka: `UnifiedLog`)."""

    __slots__ = (
        "__weakref__",
        "_active",
        "_bases",
        "_flush_at",
        "_flusher",
        "_index_interval_bytes",
        "_is_lowered",
        "_recent",
        "_roll_after",
        "_segment_bytes",
        "clean_leo",
        "config",
        "cuts",
        "cuts_flushed",
        "directory",
        "epochs",
        "first_dirty_offset",
        "high_watermark",
        "host",
        "leo",
        "log_start_offset",
        "partition",
        "producers",
        "producers_end",
        "recovery_point",
        "removed",
        "segments",
        "topic_id",
    )

    def __init__(
        self, partition: TopicPartition, directory: str, config: LogConfig, host: LogHost
    ) -> None:
        """A log without segments: `create` or `odradek.log.recovery` adds some."""
        self.partition = partition
        self.directory = directory
        self.host = host
        self.topic_id: bytes | None = None
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.log_start_offset = self.high_watermark = self.leo = self.recovery_point = 0
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.producers_end = 0  # the end of the last batch in the producer state
        self.clean_leo = -1  # the log end offset at a clean start
        self._is_lowered = False  # the recovery point moved back, and nothing was written since
        self.cuts = 0  # number of truncations: a flush under way may be about removed batches
        self.cuts_flushed = 0  # how many of them are flushed
        self.removed = False  # deleted, or its log directory is offline
        self.first_dirty_offset = 0  # end of the clean part of a compacted log
        self._flusher = Flusher(self)
        self._active: Segment
        self._recent: RecentBatches  # of the active segment
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
        """A new, empty log in a new directory."""
        log = cls(partition, directory, config, host)
        host.disk.mkdir(directory)
        log.open_segment(0)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def update_config(self, config: LogConfig) -> None:
        """Use a changed topic configuration."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_at = min(NEVER, self.recovery_point + config.flush_messages)
        self._roll_after = _LOOK

    def validate(self) -> None:
        """Check what holds between two operations: see `odradek.log.log_state.check`."""
        check(self)

    # --------------------------------------------------------------------------- appending

    def append_as_leader(
        self,
        batch: Data,
        header: BatchHeader,
        leader_epoch: int,
        flushed: FlushDone | None = None,
        from_client: bool = True,
    ) -> Appended:
        """Append one validated batch at the end of the log.

        `flushed` is called only if this append reaches `flush.messages`, when it is on disk.
        `from_client` False: offsets of a transaction, each batch of which has sequence 0; the
        sequence is not checked (`AppendOrigin.COORDINATOR`).

        Raises:
            ApiError: RECORD_LIST_TOO_LARGE, or refused by `ProducerState.check`.
            StorageError: nothing was appended, or the log directory has to go offline.
        """
        size = header.length + OVERHEAD_BYTES
        if size > self._segment_bytes:
            raise larger_than_segment(size, self._segment_bytes)
        if header.producer_id >= 0:
            stored = self._check_producer(batch, header, from_client)
            if stored is not None:
                return stored
        first_offset = self.leo
        last_offset = first_offset + header.last_offset_delta
        active = self._active
        position = active.size
        if (
            header.max_timestamp > self._roll_after
            or position + size > self._segment_bytes
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(header, size, last_offset, position):
            active = self.roll()
            position = 0
        if header.attributes & CONTROL_BIT:
            prepare(active, batch, (header,))
        if leader_epoch != self.epochs.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        if self._is_lowered:
            self._write_lowered()
        prefix = patched_prefix(first_offset, header.length, leader_epoch)
        active.file.write(position, (prefix, memoryview(batch)[PREFIX_BYTES:size]))
        self._note(active, batch, header, first_offset, position)
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else -1
        flushes = self.leo >= self._flush_at
        if flushes:
            self.flush(flushed)
        return _new(Appended, (first_offset, last_offset, append_time, False, flushes))

    def append_as_follower(self, batches: memoryview) -> int:
        """Append the whole ones of fetched batches, unchanged. Returns the bytes appended.

        Raises:
            CorruptBatchError, UnexpectedOffsetError: nothing was appended.
            InvalidRecordError: of a control record; it and what follows was not appended.
            StorageError: what was appended is whole, or the log directory has to go offline.
        """
        taken, headers = validate_replicated(batches)
        if headers and headers[0].base_offset < self.leo:
            raise UnexpectedOffsetError(headers[0], self.leo)
        begin = end = first = 0
        for index, header in enumerate(headers):
            size = header.length + OVERHEAD_BYTES
            planned = self._active.size + end - begin
            last_offset = header.base_offset + header.last_offset_delta
            if (
                header.max_timestamp > self._roll_after
                or planned + size > self._segment_bytes
                or last_offset - self._active.base_offset > RELATIVE_OFFSET_MAX
            ) and self._must_roll(header, size, last_offset, planned):
                self._write_run(batches[begin:end], headers[first:index])
                # The roll is at the log end offset, even if compaction has left a gap before the
                # batch: recovery removes segments after a gap if the topic is not compacted.
                is_near = last_offset - self.leo <= RELATIVE_OFFSET_MAX
                self.roll(self.leo if is_near else header.base_offset)
                begin, first = end, index
            end += size
        self._write_run(batches[begin:end], headers[first:])
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
        prepare(active, batches, run)
        active.file.write(position, (batches,))
        at = 0
        latest_epoch = self.epochs.latest_epoch
        for header in run:
            if header.leader_epoch > latest_epoch:
                latest_epoch = header.leader_epoch
                self.assign_epoch(latest_epoch, header.base_offset)
            size = header.length + OVERHEAD_BYTES
            self._note(active, batches[at : at + size], header, header.base_offset, position + at)
            at += size

    def _note(
        self, active: Segment, batch: Data, header: BatchHeader, base_offset: int, position: int
    ) -> None:
        """Add a written batch to the active segment's indexes and to the producer state."""
        last_offset = base_offset + header.last_offset_delta
        has_grown = active.appended(position, header, last_offset, self._index_interval_bytes)
        if has_grown and active.index_is_full(self.config.segment_index_bytes):
            self._roll_after = _LOOK  # the next append rolls
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                with changing():
                    note_producer(self.producers, active, batch, header, base_offset)
                active.rest_aborted()
            else:
                self.producers.appended(header, base_offset)
            self.producers_end = last_offset + 1
        self.leo = last_offset + 1
        self._recent.add(last_offset + 1, active.size)

    def _check_producer(
        self, batch: Data, header: BatchHeader, from_client: bool
    ) -> Appended | None:
        if header.attributes & CONTROL_BIT:
            marker = read_marker(batch)
            if marker is not None:
                self.producers.check_marker(
                    header.producer_id,
                    producer_epoch=header.producer_epoch,
                    coordinator_epoch=marker.coordinator_epoch,
                )
            return None
        if not from_client:
            header = header._replace(base_sequence=NO_SEQUENCE)
        if not self.leo:
            self.producers.check_first(header)
        stored = self.producers.check(header)
        if stored is None:
            return None
        return Appended(stored.base_offset, stored.last_offset, stored.timestamp, duplicate=True)

    # ------------------------------------------------------------------------------- rolling

    def _must_roll(self, header: BatchHeader, size: int, last_offset: int, position: int) -> bool:
        """Whether a batch begins a new segment; only asked if one of three fast checks says so."""
        active = self._active
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        return position > 0 and (
            position + size > self._segment_bytes
            or active.index_is_full(self.config.segment_index_bytes)
            or self._is_open_too_long(header.max_timestamp)
        )

    def _is_open_too_long(self, timestamp: int) -> bool:
        if timestamp <= self._roll_after:
            return False
        active, config = self._active, self.config
        open_ms = config.roll_ms - config.jitter_ms(self.partition, active.base_offset)
        first_timestamp = active.first_timestamp
        if first_timestamp < 0:
            return self.host.clock.wall_ms() - active.created_ms > open_ms
        self._roll_after = first_timestamp + open_ms
        return timestamp > self._roll_after

    def roll(self, base_offset: int = 0) -> Segment:
        """Begin a new segment at the end of the log (or at a later offset, after a gap)."""
        active = self._active
        base_offset = max(base_offset, self.leo)
        if active.base_offset == base_offset:
            assert not active.size, active.stem
            return active
        rolled = self._new_segment(base_offset)
        with changing():
            if active.size:
                self._flusher.seal(active)
            else:
                self.segments.pop()
                remove_segments(self.host, [active], delay_ms=0)
            self._activate(rolled)
            self._flusher.paths.append(write_snapshot(self))
        if active.size:
            self._flusher.request(None)
        return self._active

    def open_segment(self, base_offset: int) -> None:
        """Add an empty active segment."""
        self._activate(self._new_segment(base_offset))

    def _new_segment(self, base_offset: int) -> Segment:
        wall_ms = self.host.clock.wall_ms()
        return Segment.create(self.host.disk, self.directory, base_offset, wall_ms)

    def _activate(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._flusher.directory_changed = True
        self.leo = segment.base_offset
        self.activate_last()

    def activate_last(self) -> None:
        self._active = self.segments[-1]
        self._bases = [segment.base_offset for segment in self.segments]
        self.host.index_cache.drop(self._active)
        self._roll_after = _LOOK
        self._recent = RecentBatches(self.leo, self._active.size)

    def segments_from(self, offset: int) -> list[Segment]:
        """The segment that has `offset`, and all later ones."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def segments_before(self, offset: int) -> list[Segment]:
        """All segments before the one that has `offset`."""
        return self.segments[: max(0, bisect_right(self._bases, offset) - 1)]

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        index = self.segments.index(old[0])
        assert self.segments[index : index + len(old)] == list(old), self.partition
        assert self._active not in old, self.partition
        self.segments[index : index + len(old)] = [new]
        self._bases = [segment.base_offset for segment in self.segments]
        self._flusher.directory_changed = True

    @property
    def active_segment(self) -> Segment:
        """The segment that batches are appended to."""
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
        """Batches of one segment, from the one that has `offset`, below `end_offset`.

        None: there is nothing between the two, or `max_bytes` is too small. With
        `minimum_one_message` the first batch is read even if it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRangeError: `offset` is below the log start offset or above the LEO.
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
            if size < end - start and segment is self._active:
                size = self._recent.whole_batches_in(start, size) or size
            if load:
                return load_slice(
                    segment, start, size, end, at_least_one=minimum_one_message, wait=wait
                )
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
        """The segment with the first batch to read, and the positions of start and end."""
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
            position = self._recent.position_of(offset)
            if position is not None:
                return position
        else:
            self.host.index_cache.used(segment)
        return segment.find(offset, wait=wait)

    def recent(self, offset: int, bytes_max: int) -> tuple[Segment, int, int] | None:
        """Segment, position and size of the batches from a recent offset on, without any I/O.

        None: the offset is not recent or not in the log, or its batch is larger than `bytes_max`.
        """
        if not self.log_start_offset <= offset < self.leo:
            return None
        position = self._recent.position_of(offset)
        if position is None:
            return None
        size = self._recent.whole_batches_in(position, bytes_max)
        return (self._active, position, size) if size else None

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """About how many bytes a read of that range would return, without any I/O."""
        if not self.log_start_offset <= offset < end_offset:
            return 0
        first, last = self._recent.position_of(offset), self._recent.position_of(end_offset)
        if first is not None and last is not None:
            return last - first
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
        """An offset at or after the end of the slice."""
        segment = found.segment
        index = bisect_right(self._bases, segment.base_offset)
        following = self._bases[index] if index < len(self._bases) else self.leo
        if found.position + found.size >= segment.size:
            return following
        relative = segment.indexes()[0].offset_at_or_behind(found.position + found.size)
        return following if relative is None else segment.base_offset + relative + 1

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap a range."""
        aborted: list[AbortedTransaction] = []
        for segment in self.segments_from(offset):
            if collect(segment.aborted(), fetch_offset=offset, end_offset=end_offset, into=aborted):
                break
        return aborted

    def offset_for_timestamp(
        self, timestamp: int, *, wait: bool = True
    ) -> StampedOffset | ColdRead | None:
        """The first record with that timestamp or a later one, if there is one."""
        try:
            return first_at(
                self.segments, timestamp, log_start_offset=self.log_start_offset, wait=wait
            )
        except ColdError as cold:
            return ColdRead(cold.file, cold.position, cold.length)

    def max_timestamp_offset(self, *, wait: bool = True) -> StampedOffset | ColdRead | None:
        """The record with the largest timestamp, if any record has one."""
        try:
            return largest(self.segments, wait=wait)
        except ColdError as cold:
            return ColdRead(cold.file, cold.position, cold.length)

    # --------------------------------------------------------------------- offsets set by callers

    def set_high_watermark(self, offset: int) -> int:
        """Set the high watermark, limited to the log. Returns it."""
        if not self.log_start_offset <= offset <= self.leo:
            offset = max(min(offset, self.leo), self.log_start_offset)
        self.high_watermark = offset
        if self.producers.first_unstable_offset != NO_OFFSET:
            self.producers.high_watermark_advanced(offset)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset, at least the log start offset.

        An open transaction may begin below the log start offset: DeleteRecords and retention do
        not regard transactions.
        """
        first = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        if first == NO_OFFSET or first > high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)

    def advance_log_start(self, offset: int) -> bool:
        """Delete records below `offset` (DeleteRecords). Returns whether the log start moved.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self._flusher.save_epochs()
        return True

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Record that a leader epoch starts at this offset."""
        if leader_epoch >= 0 and self.epochs.assign(leader_epoch, start_offset):
            self._flusher.save_epochs()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The end offset of a leader epoch: see `LeaderEpochs.end_offset_for`."""
        return self.epochs.end_offset_for(leader_epoch, self.leo)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def active_producers(self) -> list[ActiveProducer]:
        """Every producer id with state."""
        return list(self.producers.active_producers())

    # ------------------------------------------------------------------------ truncation

    def truncate_to(self, offset: int) -> bool:
        """Truncate to `offset`. Returns whether anything was removed.

        Whole batches are removed, also one that begins below `offset` and ends above it.
        """
        if offset >= self.leo:
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.cuts += 1
        keep = bisect_right(self._bases, offset)
        end = self.segments[keep - 1].end_below(offset)
        self._truncate(offset, keep, end)
        return True

    @changing()
    def _truncate(self, offset: int, keep: int, end: int) -> None:
        # First: if the process ends now, its high watermark is not above the end of the log.
        self.set_high_watermark(min(self.high_watermark, end))
        if end < max(self.recovery_point, self.first_dirty_offset):
            self.recovery_point = min(self.recovery_point, end)
            self.first_dirty_offset = min(self.first_dirty_offset, end)
            self._lowered()
        dropped, self.segments[keep:] = self.segments[keep:], []
        if dropped:
            drop_end(self.host, dropped, delay_ms=self.config.file_delete_delay_ms)
        self._ends_at(self.segments[-1].truncate(offset))
        # Also if the recovery point is below them, or a roll adds a segment after them.
        self._flusher.paths += [self._active.file.path, *self._active.index_paths()]
        # Before the recovery point moves: recovery begins at the newest snapshot below it.
        self._flusher.directory_changed |= remove_snapshots(self, above=self.leo)
        if offset < self.producers_end:
            for _ in rebuild_producers(self):
                pass

    @changing()
    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the empty log continues at `offset`."""
        self.cuts += 1
        self.high_watermark = self.producers_end = 0  # first, as in `truncate_to`
        if self.recovery_point:
            # Until their removal is flushed the segments may be back after a crash, incomplete.
            self.recovery_point = 0
            self._lowered()
        dropped, self.segments = self.segments, []
        remove_segments(self.host, dropped[::-1], delay_ms=self.config.file_delete_delay_ms)
        remove_snapshots(self, above=-1)
        self.producers.clear()
        self.open_segment(offset)
        self.log_start_offset = self.high_watermark = self.first_dirty_offset = offset
        self._ends_at(offset)

    def _lowered(self) -> None:
        self._is_lowered = True
        self.host.recovery_point_lowered(self.directory)

    def _write_lowered(self) -> None:
        self.host.write_lowered(self.directory)
        self._is_lowered = False

    def _ends_at(self, leo: int) -> None:
        self.leo = leo
        self.log_start_offset = min(self.log_start_offset, leo)
        self._flush_at = min(NEVER, self.recovery_point + self.config.flush_messages)
        self.activate_last()
        self.set_high_watermark(min(self.high_watermark, leo))
        self.cut_epochs()

    def cut_epochs(self) -> None:
        """Remove the leader epochs that have no batch in the log."""
        changed = self.epochs.truncate_from_end(self.leo)
        if self.epochs.truncate_from_start(self.log_start_offset) or changed:
            self._flusher.save_epochs()

    # --------------------------------------------------------------- deletion of old segments

    def delete_old_segments(self, wall_ms: WallMs) -> Expired:
        """Delete segments by retention: renamed now, removed after `file.delete.delay.ms`."""
        expired = expired_segments(
            self.segments,
            self.config,
            leo=self.leo,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            wall_ms=wall_ms,
        )
        count = expired.segments
        if not count:
            return expired
        if count == len(self.segments):
            self.roll()
        dropped, self.segments = self.segments[:count], self.segments[count:]
        self._bases = self._bases[count:]
        self.log_start_offset = max(self.log_start_offset, self._bases[0])
        if self.epochs.truncate_from_start(self.log_start_offset):
            self._flusher.save_epochs()
        # The recovery point does not move: if the deleted segments are back after a power failure,
        # they may be incomplete and have to be recovered from there on.
        with changing():
            remove_segments(self.host, dropped, delay_ms=self.config.file_delete_delay_ms)
        return expired

    # ------------------------------------------------------------------------------ durability

    def flush(self, done: FlushDone | None = None) -> None:
        """Flush all, and count `flush.messages` from here: `done` counts it for the leader."""
        self._flush_at = min(NEVER, self.leo + self.config.flush_messages)
        self._flusher.request(done)

    def flush_rest(self, done: FlushDone) -> None:
        """Flush everything, unless a flush under way does."""
        self._flusher.join(done)

    @property
    def counted_end(self) -> int:
        """The log end offset that this replica may count as its own.

        Below the LEO while `flush.messages` or more are not on disk: Kafka flushes within the
        append, before it updates the high watermark or fetches again.
        """
        return min(self.leo, self.recovery_point + self.config.flush_messages - 1)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write `partition.metadata`: the id of the topic that this log belongs to."""
        assert self.topic_id is None, (self.partition, self.topic_id, topic_id)
        self.topic_id = topic_id
        self._flusher.replace(PARTITION_METADATA, encode_metadata(topic_id))

    def doubt_what_is_durable(self) -> None:
        """After an unclean shutdown: what was read, or truncated before, may not be on disk."""
        self.cuts += 1
        self._flusher.doubt(self._active)

    def flush_if_overdue(self, monotonic_ms: MonotonicMs) -> None:
        """Flush if `flush.ms` has passed; monotonic."""
        if self._flusher.is_overdue(monotonic_ms):
            self._flusher.request(None)

    def settle(self, done: FlushDone) -> None:
        """Flush everything, so that recovery after a crash begins at the present end."""
        self._flusher.settle(done)

    def close(self, done: FlushDone) -> None:
        """Write everything that the next start needs to skip recovery, then call `done`."""
        self._active.finish()
        if self.leo > self.segments[0].base_offset:
            self._flusher.paths.append(write_snapshot(self))
        self._flusher.close(done)

    @property
    def is_as_loaded(self) -> bool:
        """Whether nothing has changed since a clean start."""
        return self.leo == self.clean_leo and not self.cuts and self._flusher.is_idle

    def rest(self) -> None:
        """Close the file descriptors of all segments until the next use."""
        for segment in self.segments:
            segment.file.rest()
            segment.rest_aborted()

    def moved(self, directory: str) -> None:
        """The directory was renamed."""
        self._flusher.moved(self.directory, directory)
        self.directory = directory
        for segment in self.segments:
            segment.moved(directory)
