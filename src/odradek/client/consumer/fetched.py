"""The fetched records of one partition (Java's CompletedFetch). Pure.

The first batch of a response may begin before the fetch offset, so earlier records are skipped.
Control batches are never returned. With read_committed, batches of aborted transactions are
skipped; the response lists these by producer id and first offset.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.client.fetch.aborted import AbortedBatches
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import BatchHeader, Bytes, has_valid_crc, iter_batches
from odradek.record.records import iter_records
from odradek.wire.messages.fetch import AbortedTransaction


class ConsumerRecord(NamedTuple):
    """One record with its partition, offset, timestamp, key, value and headers."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: CreateTime; 1: LogAppendTime; -1: magic 0 has none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


class CompletedFetch:
    """The records of one partition in one Fetch response."""

    def __init__(
        self,
        partition: TopicPartition,
        data: Bytes,
        *,
        offset: int,
        visit: int,
        aborted: Iterable[AbortedTransaction],
        checks_crcs: bool,
    ) -> None:
        self.partition = partition
        self.visit = visit
        self.size_bytes = len(data)
        self.next_offset = offset  # of the next record to return
        self.leader_epoch = -1  # of the last returned record
        self._data = memoryview(data)
        self._aborted = AbortedBatches(aborted)
        self._checks_crcs = checks_crcs
        self._records = self._walk()

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """The next `records_max` records; fewer at the end.

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
        try:
            for position, header in iter_batches(self._data):
                if self._checks_crcs:
                    _check_crc(self._data, position, header)
                if not self._aborted.skips(header, self._data, position):
                    batch = self._data[position : position + header.size_bytes]
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
                # Skip control batches, aborted batches and gaps of compaction.
                if header.next_offset > self.next_offset:
                    self.next_offset = header.next_offset
                    self.leader_epoch = header.leader_epoch
        except ApiError as error:
            raise ApiError(
                error.code, f"{self.partition} at offset {self.next_offset}: {error.message}"
            ) from None


def _check_crc(data: memoryview, position: int, header: BatchHeader) -> None:
    if not has_valid_crc(data, position, header):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {header.base_offset} does not match its checksum",
        )
