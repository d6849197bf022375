"""What a fetch has brought of one partition, handed out record by record. Pure.

A response begins with the batch in which the asked offset lies, so records before it are passed
over; markers never reach an application; and who reads committed data does not see the batches of
transactions that were aborted, which the response lists by producer and first offset.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import BatchHeader, Bytes, has_valid_crc, iter_batches
from odradek.record.control import ControlType, read_marker
from odradek.record.records import iter_records


class ConsumerRecord(NamedTuple):
    """One record, and where it stands."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: CreateTime; 1: LogAppendTime; -1: there is none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


class Aborted(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int


class Fetched:
    """The records of one partition out of one response."""

    def __init__(
        self,
        partition: TopicPartition,
        data: Bytes,
        *,
        offset: int,
        visit: int,
        aborted: Sequence[Aborted] | None,
        checks_crcs: bool,
    ) -> None:
        self.partition = partition
        self.visit = visit
        self.size_bytes = len(data)
        self.next_offset = offset  # where to go on after what was handed out
        self.leader_epoch = -1  # of the last record before it
        self._data = memoryview(data)
        self._aborted = sorted(aborted or (), key=lambda a: a.first_offset)
        self._skips_aborted = aborted is not None
        self._checks_crcs = checks_crcs
        self._records = self._walk()

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """So many records more; fewer at the end.

        Raises:
            ApiError: CORRUPT_MESSAGE or INVALID_RECORD, naming the partition and the offset.
        """
        taken: list[ConsumerRecord] = []
        for record in self._records:
            taken.append(record)
            if len(taken) == records_max:
                break
        return taken

    def _walk(self) -> Iterator[ConsumerRecord]:
        topic, index = self.partition
        open_aborted: set[int] = set()
        try:
            for position, header in iter_batches(self._data):
                if self._checks_crcs:
                    _check_crc(self._data, position, header)
                batch = self._data[position : position + header.size_bytes]
                if not self._is_skipped(header, batch, open_aborted):
                    stamp = int(header.timestamp_type) if header.max_timestamp >= 0 else -1
                    epoch = header.leader_epoch
                    for key, value, timestamp, headers, offset in iter_records(batch):
                        if offset < self.next_offset:
                            continue
                        self.next_offset = offset + 1
                        self.leader_epoch = epoch
                        yield ConsumerRecord(
                            topic, index, offset, timestamp, stamp, key, value, headers, epoch
                        )
                # Beyond markers, what was aborted, and what compaction has taken.
                if header.next_offset > self.next_offset:
                    self.next_offset = header.next_offset
                    self.leader_epoch = header.leader_epoch
        except ApiError as error:
            raise ApiError(
                error.code, f"{self.partition} at offset {self.next_offset}: {error.message}"
            ) from None

    def _is_skipped(self, header: BatchHeader, batch: Bytes, open_aborted: set[int]) -> bool:
        """Whether no application may see this batch; markers and the list of aborted ones tell."""
        if self._skips_aborted:
            while self._aborted and self._aborted[0].first_offset <= header.last_offset:
                open_aborted.add(self._aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                open_aborted.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in open_aborted


def _check_crc(data: memoryview, position: int, header: BatchHeader) -> None:
    if not has_valid_crc(data, position, header):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {header.base_offset} does not match its checksum",
        )
