"""What is wrong with a partition's directory, without a broker.

    torn          bytes behind the last whole batch of a segment
    damaged       a checksum that is not that of the bytes, records that are none, what is no batch,
                  an index, snapshot or checkpoint that cannot be read
    order         a batch that begins before the one in front of it ends, or before its segment
    gap           offsets that nobody has; in a compacted topic they are right, so the row says
                  where they are and no more
    index         an entry of an offset index at which no batch with that offset stands
    hanging       a transaction that was begun and has no marker: below it the last stable offset
                  stays. It may still end, if its producer lives

Everything is read once, batch by batch. On a log that is being written, the last rows may be of
what was under way.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.files import checkpoints, indexes, snapshots
from odradek.files.segments import Batch, FileError, base_offset_of, batches
from odradek.log.checkpoints import LEADER_EPOCH_FILE
from odradek.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX
from odradek.model.errors import ApiError
from odradek.record.batch import NO_PRODUCER_ID
from odradek.record.control import read_marker
from odradek.record.outline import outline
from odradek.record.records import records_bytes


class Finding(NamedTuple):
    """One thing that is not as it should be, or may not be."""

    kind: str
    file: str
    offset: int  # -1: it is of no offset
    text: str

    def __str__(self) -> str:
        where = f" at offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.kind}: {self.file}{where}: {self.text}"


class OpenTransaction(NamedTuple):
    """A transaction that has no marker."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    last_timestamp: int


def examine(directory: str | Path) -> Iterator[Finding]:
    """Everything that is found in a partition's directory, segment by segment.

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
        except FileError as error:
            yield Finding("damaged", snapshot.name, -1, str(error))
    epochs = path / LEADER_EPOCH_FILE
    if epochs.exists():
        try:
            checkpoints.leader_epochs(epochs)
        except FileError as error:
            yield Finding("damaged", epochs.name, -1, str(error))
    for found in state.open_transactions():
        yield Finding(
            "hanging",
            path.name,
            found.first_offset,
            f"producer {found.producer_id} in epoch {found.producer_epoch} wrote last at offset "
            f"{found.last_offset}, timestamp {found.last_timestamp}, and has neither committed "
            "nor aborted",
        )


def open_transactions(directory: str | Path) -> list[OpenTransaction]:
    """The transactions of a partition that have no marker, oldest first.

    Raises:
        FileError, ApiError: a segment is damaged.
        OSError: the directory cannot be read.
    """
    state = _State()
    for log in sorted(Path(directory).glob(f"*{LOG}")):
        for batch in batches(log):
            state.follow(batch)
    return state.open_transactions()


class _State:
    """What is known at the end of what was read so far."""

    def __init__(self) -> None:
        self.next_offset = -1  # -1: nothing was read yet
        self._open: dict[int, OpenTransaction] = {}

    def follow(self, batch: Batch) -> None:
        """Another batch."""
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
        """Those without a marker, oldest first."""
        return sorted(self._open.values(), key=lambda found: found.first_offset)


def _segment(log: Path, state: _State) -> Iterator[Finding]:
    try:
        base_offset = base_offset_of(log)
    except FileError as error:
        yield Finding("damaged", log.name, -1, str(error))
        return
    end = 0
    try:
        for batch in batches(log):
            end = batch.position + batch.header.size_bytes
            yield from _batch(log, batch, base_offset, state)
    except FileError as error:
        yield Finding("damaged", log.name, state.next_offset, str(error))
        return
    size = log.stat().st_size
    if size > end:
        yield Finding(
            "torn", log.name, state.next_offset, f"{size - end} bytes behind position {end}"
        )


def _batch(log: Path, batch: Batch, base_offset: int, state: _State) -> Iterator[Finding]:
    header = batch.header
    due = state.next_offset
    where = f"position {batch.position}"
    if header.base_offset < max(base_offset, due):
        yield Finding(
            "order",
            log.name,
            header.base_offset,
            f"the batch at {where} begins below {max(base_offset, due)}, where it should",
        )
    elif -1 < due < header.base_offset:
        yield Finding(
            "gap", log.name, due, f"nothing up to {header.base_offset}, where a batch begins"
        )
    if not batch.is_valid:
        yield Finding(
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
        yield Finding("damaged", log.name, header.base_offset, f"the batch at {where}: {error}")


def _index(index: Path, log: Path) -> Iterator[Finding]:
    if not index.exists():
        return
    try:
        indexes.check_sanity(index)
        entries = indexes.offset_entries(index)
    except FileError as error:
        yield Finding("damaged", index.name, -1, str(error))
        return
    base_offset = base_offset_of(log)
    wanted = {
        entry.position: entry.offset
        for number, entry in enumerate(entries)
        if not number or entry.offset != base_offset  # else preallocated room
    }
    try:
        for batch in batches(log):
            offset = wanted.pop(batch.position, batch.header.last_offset)
            if not batch.header.base_offset <= offset <= batch.header.last_offset:
                yield Finding(
                    "index",
                    index.name,
                    offset,
                    f"at position {batch.position} stand offsets {batch.header.base_offset} to "
                    f"{batch.header.last_offset}",
                )
    except FileError:
        return  # reported with the segment
    for position, offset in sorted(wanted.items()):
        yield Finding("index", index.name, offset, f"no batch begins at position {position}")


def _readable(index: Path) -> Iterator[Finding]:
    if index.exists():
        try:
            indexes.check_sanity(index)
        except FileError as error:
            yield Finding("damaged", index.name, -1, str(error))
