"""Loading a log at start: which files to trust, what to rebuild, where to truncate.

1.  Unfinished renames: `.deleted` and `.cleaned` files are removed, and `.swap` files at or above
    the smallest `.cleaned`, because their compaction had not ended. The other `.swap` files replace
    the segments whose offsets they cover.
2.  Index files without a log segment are removed. A segment with missing or implausible indexes
    gets new ones; from a segment with a damaged transaction index on the log is recovered. Damage
    that only reading everything could find is found later, when it is read.
3.  After an unclean shutdown all segments from the recovery point on are read, batch by batch:
    length, format, checksum, increasing offsets. Indexes, leader epochs and producer state are
    rebuilt from that; their files are ignored for these segments. The first segment is read only
    from a producer snapshot within it on, at or below the recovery point: the log was closed or
    settled there (`Log.settle`), so that its indexes and all before are on disk. At the first
    invalid batch the log is truncated, and all later segments are removed. So are segments that do
    not begin at the end of the one before: that one has lost its tail in a power failure, at a
    batch boundary. In a compacted topic the gap may be the cleaner's, and they stay. If the last
    batch before what is read has another leader epoch than their file says, all is read: the log
    was truncated, a power failure has undone that, and the file was already replaced.
4.  A log that ends below its checkpointed log start offset is emptied and begins there.
    After a clean shutdown neither happens to what has a valid checksum: damage in front of whole
    batches, and such a log start offset, are not from a crash, and the broker does not start.
5.  Leader epochs are truncated to the end of the log; if their file is damaged or missing they
    are rebuilt from all batches. Producer state comes from the newest snapshot at or below the
    end and the batches after it. The high watermark is the checkpointed one, within the log.

After a crash during recovery it runs again with the same result. After a clean shutdown only the
tail of the last segment and small files that are not empty are read.

Segments with messages of formats v0 and v1 are converted before all this (`odradek.log.upgrade`).

`loading` is a generator: it yields after a little work, and returns the log. What is not in the log
any more is reported to `LogHost.cut`.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final, NamedTuple

from odradek.log.checkpoints import LEADER_EPOCH_FILE, CheckpointError
from odradek.log.deletion import drop_end, offset_of, remove_snapshots, snapshot_offset
from odradek.log.disk import DirectoryEntry, Disk
from odradek.log.index.transactions import CorruptTransactionIndexError
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log import Log
from odradek.log.log_config import NEVER, LogConfig, LogHost
from odradek.log.partition_metadata import PARTITION_METADATA, decode_metadata
from odradek.log.producer_replay import (
    load_snapshot,
    note_producer,
    rebuild_producers,
    replay,
    write_snapshot,
)
from odradek.log.producer_state import NO_OFFSET
from odradek.log.repair.cuts import CutKind, LogCut
from odradek.log.repair.damage import good_batches, refusing_to_cut, why_invalid
from odradek.log.segment import (
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
    segment_stem,
)
from odradek.log.upgrade import end_offset, first_old_message, upgrading
from odradek.model.errors import StartupError
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    BatchHeader,
    CorruptBatchError,
)

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
# A snapshot without producers: version, checksum, count.
EMPTY_SNAPSHOT_BYTES: Final = 10

Loading = Generator[None, None, Log]


class Checkpointed(NamedTuple):
    """The checkpointed offsets of one log."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    first_dirty_offset: int = 0  # the cleaner's checkpoint
    format_2_below: int = 0  # where the search for old formats has ended


def loading(
    partition: TopicPartition,
    directory: str,
    config: LogConfig,
    host: LogHost,
    *,
    clean: bool,
    checkpointed: Checkpointed = Checkpointed(),  # noqa: B008 - a value, never changed
) -> Loading:
    """Load an existing log.

    Raises:
        StartupError: a malformed file, damage in a segment of an old format, or damage that has
            whole batches behind it after a clean shutdown.
        StorageError: an I/O error.
    """
    log = Log(partition, directory, config, host)
    disk = host.disk
    entries = _settle_transit(disk, directory, disk.list(directory))
    files = {entry.name: entry for entry in entries if not entry.is_dir}
    log.topic_id = _topic_id(disk, directory, files)
    yield from _find_segments(log, files, checkpointed, clean=clean)
    if not log.segments:
        log.open_segment(checkpointed.log_start_offset)
    log.activate_last()
    sound = log.segments if clean else log.segments_before(checkpointed.recovery_point)
    yield from _check_indexes(log, sound, files)
    intact = _read_epochs(log, files)
    log.log_start_offset = max(checkpointed.log_start_offset, log.segments[0].base_offset)
    is_whole, was_cut = clean, False
    damaged = _first_damaged(log, sound, files, ends_here=clean)
    if damaged is not None:
        # Written since its last flush or close: recovered as after a crash, from there on.
        if clean:
            yield from refusing_to_cut(log.segments_from(damaged))
        clean, checkpointed = False, _recovered_from(checkpointed, damaged, keeps_gaps=clean)
    if not clean:
        was_cut = yield from _recover(log, checkpointed, files, has_epochs=intact)
        log.producers_end = log.leo
        log.doubt_what_is_durable()
    if log.leo < log.log_start_offset:
        _begin_at_log_start(log, is_whole=is_whole)
    elif not was_cut:
        _report_missing(log, checkpointed.high_watermark)
    log.recovery_point = log.leo if clean else min(checkpointed.recovery_point, log.leo)
    log.activate_last()
    log.update_config(config)
    if not intact and log.leo > log.log_start_offset:
        yield from _reread_epochs(log)
    log.cut_epochs()
    if clean:
        log.clean_leo = log.leo
        yield from _clean_producers(log, files)
    log.set_high_watermark(checkpointed.high_watermark)
    log.rest()
    return log


def _recovered_from(checkpointed: Checkpointed, offset: int, *, keeps_gaps: bool) -> Checkpointed:
    if keeps_gaps:
        return checkpointed._replace(recovery_point=offset, first_dirty_offset=NEVER)
    return checkpointed._replace(recovery_point=min(offset, checkpointed.recovery_point))


def _report_missing(log: Log, high_watermark: int) -> None:
    if log.leo < high_watermark:
        reason = "a crash, or somebody, removed them: the log ends below its high watermark"
        span = log.leo, high_watermark
        _report(log, CutKind.MISSING, high_watermark, reason, span=span)


def _begin_at_log_start(log: Log, *, is_whole: bool) -> None:
    """Empty a log that ends below its log start offset."""
    start, size_bytes = log.log_start_offset, log.size_bytes
    if is_whole and size_bytes:
        raise StartupError(
            f"{log.directory} ends at offset {log.leo}, and log-start-offset-checkpoint beside it "
            f"says that all records below {start} were deleted: after a clean shutdown one of them "
            f"is from another time. Restore the latest copy of the directory, or move it away; or "
            f"keep its records: remove its line from that file, and lower the count in line 2"
        )
    reason = f"the log ends below its log start offset {start}: these records were deleted before"
    span = log.segments[0].base_offset, log.leo
    log.truncate_fully_and_start_at(start)
    if size_bytes:
        _report(log, CutKind.LOG_START, NO_OFFSET, reason, size_bytes=size_bytes, span=span)


def _report(
    log: Log,
    kind: CutKind,
    high_watermark: int,
    reason: str,
    *,
    size_bytes: int = 0,
    span: tuple[int, int | None] | None = None,
) -> None:
    """Report what was cut; without `span`, from the end of the log on."""
    begin, end = span or (log.leo, None)
    log.host.cut(
        LogCut(log.partition, kind, log.directory, begin, end, size_bytes, high_watermark, reason)
    )


# ---------------------------------------------------------------------- files and their names


def _settle_transit(
    disk: Disk, directory: str, entries: list[DirectoryEntry]
) -> list[DirectoryEntry]:
    """Finish or undo unfinished renames. Returns the entries after that."""
    transit = [entry for entry in entries if entry.name.endswith((DELETED, CLEANED, SWAP))]
    if not transit:
        return entries
    cleaned = [_offset(e.name) or 0 for e in transit if e.name.endswith(CLEANED)]
    unfinished = min(cleaned, default=NEVER)
    swaps = []
    for entry in transit:
        if entry.name.endswith(SWAP) and (_offset(entry.name) or 0) < unfinished:
            swaps.append(entry)
        else:
            disk.unlink(f"{directory}/{entry.name}")
    _swap_in(disk, directory, swaps, [e.name for e in entries if e not in transit])
    return disk.list(directory)


def _swap_in(
    disk: Disk, directory: str, swaps: Sequence[DirectoryEntry], names: Sequence[str]
) -> None:
    begin = end = -1
    for name, _, size, mtime_ms in swaps:
        base_offset = _offset(name, LOG + SWAP)
        if base_offset is None:
            continue
        segment = Segment.existing(disk, directory, base_offset, size=size, mtime_ms=mtime_ms)
        segment.file.path = f"{directory}/{name}"
        last = end_offset(segment)
        segment.file.rest()
        begin = base_offset if begin < 0 else min(begin, base_offset)
        end = max(end, last)
    for name in names:
        offset = _offset(name)
        if offset is not None and begin <= offset < end:
            disk.unlink(f"{directory}/{name}")
    # Indexes first: a segment without indexes gets new ones, indexes without a segment are removed.
    for name in sorted((e.name for e in swaps), key=lambda name: name.endswith(LOG + SWAP)):
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _offset(name: str, *suffixes: str) -> int | None:
    """The base offset in the name of a segment's file; None for any other name."""
    if suffixes and not name.endswith(suffixes):
        return None
    stem, dot, suffix = name.partition(".")
    return offset_of(stem) if not suffixes or dot + suffix in suffixes else None


def _topic_id(disk: Disk, directory: str, files: dict[str, DirectoryEntry]) -> bytes | None:
    # Empty after a power failure: the next LeaderAndIsr request has the id again.
    if PARTITION_METADATA not in files or not files[PARTITION_METADATA].size:
        return None
    path = f"{directory}/{PARTITION_METADATA}"
    return decode_metadata(disk.read_file(path) or b"", path)


def _find_segments(
    log: Log, files: dict[str, DirectoryEntry], checkpointed: Checkpointed, *, clean: bool
) -> Generator[None, None, None]:
    disk, directory = log.host.disk, log.directory
    format_2_below = checkpointed.format_2_below
    names = [name for name in files if _offset(name, *SEGMENT_SUFFIXES) is not None]
    logs = [name for name in names if name.endswith(LOG)]
    for name, following in zip_longest(logs, logs[1:]):
        entry, base_offset = files[name], int(name.removesuffix(LOG))
        segment = Segment.existing(
            disk, directory, base_offset, size=entry.size, mtime_ms=entry.mtime_ms
        )
        if following is None or int(following.removesuffix(LOG)) > format_2_below:
            old_at = yield from first_old_message(segment, files, known_below=format_2_below)
            if old_at is not None:
                may_be_torn = not clean and following is None
                segment, torn = yield from upgrading(
                    segment, directory, files, old_at=old_at, may_be_torn=may_be_torn
                )
                if torn is not None:
                    _report(
                        log,
                        CutKind.DAMAGE,
                        checkpointed.high_watermark,
                        torn.reason,
                        size_bytes=torn.size_bytes,
                        span=(end_offset(segment), None),
                    )
        log.segments.append(segment)
        yield
    for name in names:
        if name.partition(".")[0] + LOG not in files:
            disk.unlink(f"{directory}/{name}")


def _check_indexes(
    log: Log, segments: Sequence[Segment], files: dict[str, DirectoryEntry]
) -> Iterator[None]:
    """Rebuild indexes that are missing or have an implausible size."""
    for segment in segments:
        stem = f"{segment.base_offset:020d}"
        index, time_index = files.get(stem + INDEX), files.get(stem + TIME_INDEX)
        index_bytes = index.size if index else -1
        time_index_bytes = time_index.size if time_index else -1
        if segment is log.active_segment and index_bytes <= 0:
            segment.take_indexes_as_empty(index_bytes, time_index_bytes)
        elif (
            index_bytes < 0
            or index_bytes % 8
            or time_index_bytes < 0
            or time_index_bytes % 12
            or (not time_index_bytes and segment.first_timestamp >= 0)
        ):
            with suppress(CorruptBatchError):  # reported to the reader that gets there
                yield from segment.rebuilding(log.config.index_interval_bytes)
            segment.finish()
            # Flushed at once: they are below the recovery point. After a power failure a time index
            # of zeros would say that all records are old enough for retention.
            disk = log.host.disk
            disk.flush_now([*map(disk.file, segment.index_paths()), log.directory])


def _first_damaged(
    log: Log, segments: Sequence[Segment], files: dict[str, DirectoryEntry], *, ends_here: bool
) -> int | None:
    """The first segment with more than a damaged index, as far as this can be seen cheaply."""
    for segment in segments:
        if f"{segment.base_offset:020d}{TRANSACTION_INDEX}" in files:
            try:
                segment.aborted()
            except CorruptTransactionIndexError:
                return segment.base_offset
    if ends_here:
        try:
            log.leo = log.segments[-1].read_tail()
        except CorruptBatchError:
            return log.segments[-1].base_offset
    return None


# ------------------------------------------------------------------------ after an unclean shutdown


def _recover(
    log: Log,
    checkpointed: Checkpointed,
    files: dict[str, DirectoryEntry],
    *,
    has_epochs: bool,
) -> Generator[None, None, bool]:
    """Read everything from the recovery point on; truncate at the first invalid batch.

    Returns whether anything was removed.

    Compaction leaves gaps between segments, which stay when the topic is no longer compacted.
    `has_epochs`: the file of the leader epochs was there, and whole.
    """
    recovery_point = checkpointed.recovery_point
    first_dirty_offset = checkpointed.first_dirty_offset
    suspect = log.segments_from(recovery_point)
    sizes = [segment.size for segment in suspect]
    snapshots = _snapshots(files)
    aborts = f"{suspect[0].base_offset:020d}{TRANSACTION_INDEX}" in files
    first = _resume(log, suspect[0], recovery_point, snapshots, has_aborted=aborts)
    if has_epochs and not _has_its_epochs(log, suspect[0], first):
        suspect[0].size = sizes[0]
        begin = log.segments[0].base_offset
        again = checkpointed._replace(recovery_point=begin)
        return (yield from _recover(log, again, files, has_epochs=True))
    remove_snapshots(log, above=first, among=snapshots)
    # Later epochs in the file may be missing in the log, or the other way round.
    log.epochs.truncate_from_end(first)
    log.leo = first
    yield from _producers_before(log, first, [at for at in snapshots if at <= first])
    for index, (segment, whole) in enumerate(zip(suspect, sizes, strict=True)):
        if index:
            may_begin_later = log.config.is_compacted or segment.base_offset <= first_dirty_offset
            if segment.base_offset != log.leo and not (
                may_begin_later and segment.base_offset > log.leo
            ):
                reason, size_bytes = f"the next segment is {segment.stem}{LOG}", sum(sizes[index:])
                high_watermark = checkpointed.high_watermark
                _report(log, CutKind.GAP, high_watermark, reason, size_bytes=size_bytes)
                _drop(log, suspect[index:])
                return True
            log.leo = segment.base_offset
            write_snapshot(log)
            _begin_again(segment)
        yield from _recover_segment(log, segment, whole)
        if segment.size < whole:
            _report_damage(log, segment, whole, sum(sizes[index + 1 :]), checkpointed)
            _drop(log, suspect[index + 1 :])
            segment.file.truncate(segment.size)
            # Flushed at once: 1. The next roll puts this segment below the recovery point. 2. After
            # a power failure the truncated tail is back, where recovery no longer looks.
            log.host.disk.flush_now([segment.file])
            return True
        if segment is not suspect[-1]:
            segment.finish()
    return False


def _report_damage(
    log: Log, segment: Segment, whole: int, behind: int, checkpointed: Checkpointed
) -> None:
    """Report that a segment of `whole` bytes ends at its present size, with `behind` behind it."""
    position = segment.size
    why = why_invalid(segment, position, whole, log.leo)
    reason = f"at position {position} of {segment.stem}{LOG} {why}"
    size_bytes = whole - position + behind
    _report(log, CutKind.DAMAGE, checkpointed.high_watermark, reason, size_bytes=size_bytes)


def _resume(
    log: Log,
    segment: Segment,
    recovery_point: int,
    snapshots: Sequence[int],
    *,
    has_aborted: bool,
) -> int:
    """The offset from which to read a segment, which ends there until it is read.

    It is that of a producer snapshot at which the log was closed or settled, else the base offset.
    """
    within = [at for at in snapshots if segment.base_offset < at <= recovery_point]
    if within and segment.resume(within[-1], has_aborted=has_aborted):
        return within[-1]
    if within:
        # 1. The indexes are written again, in place. 2. After a power failure they are torn, and
        # the snapshot is back, which says that they can be trusted.
        remove_snapshots(log, above=segment.base_offset, among=snapshots)
        log.host.disk.flush_now([log.directory])
    _begin_again(segment)
    return segment.base_offset


def _has_its_epochs(log: Log, segment: Segment, first: int) -> bool:
    """Whether the last batch before `first` has the leader epoch that the log's epochs say.

    `segment` has `first`, or begins there. With the same epoch at one offset, all before it is the
    same, too: in no leader epoch two leaders write.
    """
    if first > segment.base_offset:
        before = segment
    else:
        before = log.segments[max(log.segments.index(segment) - 1, 0)]
    if before.base_offset >= first or first <= log.log_start_offset:
        return True
    last: BatchHeader | None = None
    has_index = before.offset_index is not None
    with suppress(CorruptBatchError):  # reported to the reader that gets there
        for _, header in before.walk(before.indexes()[0].last_position()):
            last = header
    if not has_index:
        before.offset_index = before.time_index = None
    if last is None or last.leader_epoch < 0:
        return True
    return log.epochs.epoch_at(last.last_offset) == last.leader_epoch


def _begin_again(segment: Segment) -> None:
    segment.begin_rebuild()
    segment.clear_aborted()


def _snapshots(files: dict[str, DirectoryEntry]) -> list[int]:
    """The offsets of the producer snapshots, increasing as their names do."""
    return [offset for name in files if (offset := snapshot_offset(name)) is not None]


def _producers_before(log: Log, offset: int, snapshots: Sequence[int]) -> Iterator[None]:
    start = load_snapshot(log, offset=offset, among=snapshots)
    for segment in log.segments_from(start):
        if max(segment.base_offset, start) >= offset:
            return
        for position, header in segment.walk(segment.find(start, wait=True)):
            if header.producer_id >= 0:
                replay(log.producers, segment, position, header)
            yield


def _recover_segment(log: Log, segment: Segment, size: int) -> Iterator[None]:
    """Read a segment of that size from its present end on."""
    interval = log.config.index_interval_bytes
    for position, header, batch in good_batches(segment, segment.size, size, log.leo):
        segment.appended(position, header, header.last_offset, interval)
        if header.leader_epoch > log.epochs.latest_epoch:
            log.assign_epoch(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            note_producer(log.producers, segment, batch, header, header.base_offset)
        log.leo = header.next_offset
        yield
    segment.file.rest()


def _drop(log: Log, segments: Sequence[Segment]) -> None:
    if segments:
        del log.segments[log.segments.index(segments[0]) :]
        drop_end(log.host, segments, delay_ms=log.config.file_delete_delay_ms)


# ---------------------------------------------------------------- leader epochs and producers


def _read_epochs(log: Log, files: dict[str, DirectoryEntry]) -> bool:
    """Read the leader epochs. False if there is no such file, or it is damaged."""
    entry = files.get(LEADER_EPOCH_FILE)
    if entry is None or not entry.size:
        return False
    data = log.host.disk.read_file(f"{log.directory}/{LEADER_EPOCH_FILE}") or b""
    try:
        log.epochs = LeaderEpochs.decode(data)
    except CheckpointError:
        return False
    return True


def _reread_epochs(log: Log) -> Iterator[None]:
    log.epochs.clear()
    for segment in log.segments:
        for _, header in segment.walk(0):
            if header.leader_epoch > log.epochs.latest_epoch:
                log.assign_epoch(header.leader_epoch, header.base_offset)
            yield


def _clean_producers(log: Log, files: dict[str, DirectoryEntry]) -> Iterator[None]:
    snapshots = {at: files[f"{at:020d}{SNAPSHOT}"].size for at in _snapshots(files)}
    newest = max((offset for offset in snapshots if offset <= log.leo), default=-1)
    kept = {newest, *(segment.base_offset for segment in log.segments)}
    for offset in snapshots.keys() - kept:
        log.host.disk.unlink(segment_stem(log.directory, offset) + SNAPSHOT)
    is_unwritten = newest == log.leo and snapshots[newest] == EMPTY_SNAPSHOT_BYTES
    if (log.leo > log.log_start_offset or newest >= 0) and not is_unwritten:
        yield from rebuild_producers(log, among=sorted(snapshots.keys() & kept))
