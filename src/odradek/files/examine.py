"""Checks a partition's directory without a broker.

    torn          bytes after the last whole batch of a segment
    damaged       a wrong checksum, records that cannot be decoded, bytes that are not a batch, an
                  index, snapshot or checkpoint that cannot be read
    order         a batch that begins below the end of the one before, or below its segment
    gap           offsets without a batch; compaction leaves such gaps, so they are reported
                  without a verdict
    index         an entry of an offset index that does not point to a batch with its offset
    hanging       a transaction without a marker: the last stable offset stays below it. It may
                  still end, if its producer runs

Everything is read once, batch by batch. If the log is being written, the last findings may come
from an append under way.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.files import checkpoints, indexes, snapshots
from odradek.files.segments import FileBatch, FileFormatError, base_offset_of, batches
from odradek.log.checkpoints import LEADER_EPOCH_FILE
from odradek.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX
from odradek.model.errors import ApiError
from odradek.record.batch import NO_PRODUCER_ID
from odradek.record.control import read_marker
from odradek.record.outline import outline
from odradek.record.records import records_bytes


class FileFinding(NamedTuple):
    """One problem, or what may be one."""

    kind: str
    file: str
    offset: int  # -1: without an offset
    text: str

    def __str__(self) -> str:
        where = f" at offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.kind}: {self.file}{where}: {self.text}"


class OpenTransaction(NamedTuple):
    """A transaction without a marker."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    last_timestamp: int


def examine(directory: str | Path) -> Iterator[FileFinding]:
    """All findings in a partition's directory, segment by segment.

    Raises:
        OSError: the directory cannot be read.
    """
    path = Path(directory)
    state = _State()
    for log in sorted(path.glob(f"*{LOG}")):
        yield from _segment(log, state)
        yield from _index(log.with_suffix(INDEX), log)
        yield from _readable(log.with_suffix(TIME_INDEX))
    for snapshot in sorted(path.glob(f"*{SNAPSHOT}")):
        try:
            snapshots.producers(snapshot)
        except FileFormatError as error:
            yield FileFinding("damaged", snapshot.name, -1, str(error))
    epochs = path / LEADER_EPOCH_FILE
    if epochs.exists():
        try:
            checkpoints.leader_epochs(epochs)
        except FileFormatError as error:
            yield FileFinding("damaged", epochs.name, -1, str(error))
    for found in state.open_transactions():
        yield FileFinding(
            "hanging",
            path.name,
            found.first_offset,
            f"producer {found.producer_id} in epoch {found.producer_epoch} wrote last at offset "
            f"{found.last_offset}, timestamp {found.last_timestamp}, and has not committed "
            "or aborted",
        )


def open_transactions(directory: str | Path) -> list[OpenTransaction]:
    """The transactions of a partition without a marker, oldest first.

    Raises:
        FileFormatError, ApiError: a segment is damaged.
        OSError: the directory cannot be read.
    """
    state = _State()
    for log in sorted(Path(directory).glob(f"*{LOG}")):
        for batch in batches(log):
            state.follow(batch)
    return state.open_transactions()


class _State:
    """Offsets and open transactions after the batches read so far."""

    def __init__(self) -> None:
        self.next_offset = -1  # -1: no batch was read yet
        self._open: dict[int, OpenTransaction] = {}

    def follow(self, batch: FileBatch) -> None:
        """Take note of the next batch."""
        header = batch.header
        self.next_offset = max(self.next_offset, header.next_offset)
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        if header.is_control:
            if read_marker(batch.data) is not None:
                self._open.pop(producer_id, None)
        elif header.is_transactional and header.record_count:
            before = self._open.get(producer_id)
            self._open[producer_id] = OpenTransaction(
                producer_id,
                header.producer_epoch,
                before.first_offset if before else header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions without a marker, oldest first."""
        return sorted(self._open.values(), key=lambda found: found.first_offset)


def _segment(log: Path, state: _State) -> Iterator[FileFinding]:
    try:
        base_offset = base_offset_of(log)
    except FileFormatError as error:
        yield FileFinding("damaged", log.name, -1, str(error))
        return
    end = 0
    try:
        for batch in batches(log):
            end = batch.position + batch.header.size_bytes
            yield from _batch(log, batch, base_offset, state)
    except FileFormatError as error:
        yield FileFinding("damaged", log.name, state.next_offset, str(error))
        return
    size = log.stat().st_size
    if size > end:
        yield FileFinding(
            "torn", log.name, state.next_offset, f"{size - end} bytes after position {end}"
        )


def _batch(log: Path, batch: FileBatch, base_offset: int, state: _State) -> Iterator[FileFinding]:
    header = batch.header
    due = state.next_offset
    where = f"position {batch.position}"
    if header.base_offset < max(base_offset, due):
        yield FileFinding(
            "order",
            log.name,
            header.base_offset,
            f"the batch at {where} begins below {max(base_offset, due)}, its lowest offset",
        )
    elif -1 < due < header.base_offset:
        yield FileFinding(
            "gap", log.name, due, f"no batch has the offsets up to {header.base_offset}"
        )
    if not batch.is_valid:
        yield FileFinding(
            "damaged",
            log.name,
            header.base_offset,
            f"the checksum of the batch at {where} is wrong",
        )
        state.next_offset = max(state.next_offset, header.next_offset)
        return
    try:
        if header.record_count:
            outline(records_bytes(batch.data, header), header.record_count)
        state.follow(batch)
    except ApiError as error:
        yield FileFinding("damaged", log.name, header.base_offset, f"the batch at {where}: {error}")


def _index(index: Path, log: Path) -> Iterator[FileFinding]:
    if not index.exists():
        return
    try:
        indexes.check_sanity(index)
        entries = indexes.offset_entries(index)
    except FileFormatError as error:
        yield FileFinding("damaged", index.name, -1, str(error))
        return
    base_offset = base_offset_of(log)
    wanted = {
        entry.position: entry.offset
        for number, entry in enumerate(entries)
        if not number or entry.offset != base_offset  # else a preallocated entry
    }
    try:
        for batch in batches(log):
            offset = wanted.pop(batch.position, batch.header.last_offset)
            if not batch.header.base_offset <= offset <= batch.header.last_offset:
                yield FileFinding(
                    "index",
                    index.name,
                    offset,
                    f"the batch at position {batch.position} has offsets "
                    f"{batch.header.base_offset} to {batch.header.last_offset}",
                )
    except FileFormatError:
        return  # reported with the segment
    for position, offset in sorted(wanted.items()):
        yield FileFinding("index", index.name, offset, f"no batch begins at position {position}")


def _readable(index: Path) -> Iterator[FileFinding]:
    if index.exists():
        try:
            indexes.check_sanity(index)
        except FileFormatError as error:
            yield FileFinding("damaged", index.name, -1, str(error))
