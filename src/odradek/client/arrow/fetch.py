"""Fetches ranges of partitions concurrently, while others are decoded, in bounded memory.

A `RangeFetcher` has one Fetch in flight to each broker that leads a requested partition. When a
response arrives, its records are queued and the next Fetch is sent at once, from the end of the
last complete batch; then the records are returned to be decoded. Queued bytes and requests in
flight together stay below `buffer_bytes_max`.

A partition ends at its end offset; one without an end offset is fetched until the fetcher is
closed. Leader changes and broker failures are retried until a partition has made no progress for
`stall_timeout_ms`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.client.cluster import USUAL, Cluster
from odradek.client.fetch.fetcher import ClientFetcher, FetchPosition
from odradek.client.fetch.offsets import EARLIEST, LATEST, list_offsets
from odradek.client.fetch.requests import FetchLimits
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.record.batch import next_offset_at, size_at, whole_batches_end
from odradek.wire.messages.fetch import AbortedTransaction, PartitionData

_log = logging.getLogger("odradek.client")
_NEVER: Final = 1 << 62  # the position of a partition that is not fetched any further


class DataLossError(OdradekError):
    """Requested offsets were deleted."""


@dataclass(slots=True, kw_only=True)
class FetchSettings:
    """Sizes and time-outs of fetching."""

    partition_bytes_max: int = 4 << 20
    fetch_bytes_max: int = 8 << 20
    buffer_bytes_max: int = 48 << 20
    wait_ms_max: int = 500
    min_bytes: int = 1
    stall_timeout_ms: int = 120_000
    committed: bool = False  # read_committed
    # False: lost offsets are skipped, and described in `RangeFetcher.losses`.
    fail_on_data_loss: bool = True
    rack: str = ""  # client.rack: leaders may name a nearer follower (KIP-392)


class Range(NamedTuple):
    """Offsets of one partition; `end` is exclusive, or None for no end."""

    start: int
    end: int | None


class FetchedRecords(NamedTuple):
    """The complete batches of one partition in one Fetch response."""

    partition: TopicPartition
    start: int  # the fetch offset; the first batch may begin before it
    records: memoryview
    aborted: list[AbortedTransaction]
    high_watermark: int


class RangeFetcher:
    """Fetches ranges of partitions; `next` returns one response's records at a time.

    A `FetchListener`.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, Range],
        settings: FetchSettings | None = None,
    ) -> None:
        self.losses: list[str] = []
        self._cluster = cluster
        self._settings = settings = settings or FetchSettings()
        self._ends = {partition: wanted.end for partition, wanted in ranges.items()}
        self._positions = {
            partition: wanted.start
            for partition, wanted in ranges.items()
            if wanted.end is None or wanted.start < wanted.end
        }
        self._order = deque(self._positions)
        self._progress_s = dict.fromkeys(self._order, asyncio.get_running_loop().time())
        self._queue: deque[FetchedRecords] = deque()
        self._buffered_bytes = 0
        self._errors: list[Exception] = []
        self._has_begun = False
        self._arrived = asyncio.Event()
        limits = FetchLimits(
            bytes_max=settings.fetch_bytes_max,
            partition_bytes_max=settings.partition_bytes_max,
            bytes_min=settings.min_bytes,
            wait_ms_max=settings.wait_ms_max,
            reads_committed=settings.committed,
            rack=settings.rack,
        )
        # Without sessions: a reader of one range sends few requests to a broker.
        self._fetcher = ClientFetcher(
            cluster, self, limits, arrived=self._arrived.set, lane=USUAL, has_sessions=False
        )

    async def next(self) -> FetchedRecords | None:
        """The records that were fetched next; None when all ranges are complete.

        Raises:
            ApiError: a broker refuses, or a partition made no progress for `stall_timeout_ms`.
            DataLossError: an offset of a range was deleted, and `fail_on_data_loss` is set.
        """
        if not self._has_begun:
            self._has_begun = True
            await self._find_leaders()
        while True:
            self._arrived.clear()
            self._fetcher.send()
            if self._errors:
                raise self._errors[0]
            if self._queue:
                one = self._queue.popleft()
                self._buffered_bytes -= len(one.records)
                self._fetcher.send()
                return one
            if not self._positions:
                return None
            await self._arrived.wait()

    async def close(self) -> None:
        """Cancel the fetches in flight."""
        await self._fetcher.close()

    async def _find_leaders(self) -> None:
        """Refresh the metadata if it lacks leaders, without a pause before the first Fetch."""
        if self._cluster.metadata.without_leader(self._positions):
            with contextlib.suppress(ConnectionError):  # the fetcher tries again
                await self._cluster.refresh(sorted({name.topic for name in self._positions}))

    # ------------------------------------------------------------- for the ClientFetcher

    def to_fetch(self) -> list[TopicPartition]:
        """The incomplete partitions; the first ones of a request get the most bytes."""
        self._order.rotate(-1)
        return [partition for partition in self._order if partition in self._positions]

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """The next offset of an incomplete partition."""
        offset = self._positions.get(partition)
        return None if offset is None else FetchPosition(offset)

    def has_room(self, in_flight: int) -> bool:
        """Whether the buffer has room for another response.

        If nothing is buffered or in flight, one fetch is always allowed: else there is no progress.
        """
        reserved = (in_flight + 1) * self._settings.fetch_bytes_max
        fits = self._buffered_bytes + reserved <= self._settings.buffer_bytes_max
        return fits or not (in_flight or self._queue)

    def fetched(
        self, partition: TopicPartition, position: FetchPosition, data: PartitionData
    ) -> None:
        """Queue the records; without any, check that an end offset can still be reached."""
        records = memoryview(data.records or b"")
        if records or self._ends[partition] is None:
            self._progress_s[partition] = asyncio.get_running_loop().time()
        if not records:
            if self._is_stalled(partition):
                self._errors.append(self._stalled(partition, data))
            return
        aborted = data.aborted_transactions or []
        self._queue.append(
            FetchedRecords(partition, position.offset, records, aborted, data.high_watermark)
        )
        self._buffered_bytes += len(records)
        self._move(partition, _after(records, position.offset))

    async def out_of_range(
        self,
        partition: TopicPartition,
        position: FetchPosition,
        diverged_at: int | None,  # noqa: ARG002  None, as fetches have no last fetched epoch
    ) -> None:
        """The fetch offset was deleted, or does not exist yet: skip or raise.

        Raises:
            DataLossError: `fail_on_data_loss` is set.
        """
        first = (await list_offsets(self._cluster, {partition: EARLIEST}))[partition].offset
        end = (await list_offsets(self._cluster, {partition: LATEST}))[partition].offset
        message = (
            f"{partition}: offset {position.offset} is out of range; "
            f"the partition has offsets {first} to {end}"
        )
        if self._settings.fail_on_data_loss:
            raise DataLossError(message)
        self.losses.append(message)
        _log.warning("%s: skipped", message)
        self._move(partition, first if position.offset < first else _NEVER)

    def delayed(self, partition: TopicPartition, error: Exception) -> None:
        """Give up after `stall_timeout_ms` without progress."""
        if self._is_stalled(partition):
            self._errors.append(error)

    def failed(self, error: Exception) -> None:
        """Have `next` raise the error."""
        self._errors.append(error)

    # ---------------------------------------------------------------------------- progress

    def _move(self, partition: TopicPartition, offset: int) -> None:
        end = self._ends[partition]
        if offset == _NEVER or (end is not None and offset >= end):
            del self._positions[partition]
        else:
            self._positions[partition] = offset

    def _is_stalled(self, partition: TopicPartition) -> bool:
        waited_s = asyncio.get_running_loop().time() - self._progress_s[partition]
        return waited_s * 1000 >= self._settings.stall_timeout_ms

    def _stalled(self, partition: TopicPartition, data: PartitionData) -> ApiError:
        limit = data.last_stable_offset if self._settings.committed else data.high_watermark
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{partition} at offset {self._positions[partition]}: no records for "
            f"{self._settings.stall_timeout_ms} ms; requested are offsets before "
            f"{self._ends[partition]}, those below {limit} can be read",
        )


def _after(records: memoryview, position: int) -> int:
    """The next fetch offset. A damaged batch is reported by the decoder, so fetching ends there."""
    try:
        end = whole_batches_end(records)
    except ApiError:
        return _NEVER
    last = at = 0
    while at < end:
        last = at
        at += size_at(records, at)
    return max(position, next_offset_at(records, last)) if end else _NEVER
