"""Fetches many partitions concurrently, while others are decoded, in bounded memory.

A `RangeFetcher` has one Fetch in flight to each broker that leads a requested partition. When a
response arrives, its records are queued and the next Fetch is sent at once, from the end of the
last complete batch; then the records are returned to be decoded. Queued bytes and requests in
flight together stay below `buffer_bytes_max`.

A partition ends at its end offset; one without an end offset is fetched until the fetcher is
closed. Leader changes and broker failures are retried until a partition has made no progress for
`stall_timeout_ms`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.client.arrow.cluster import Patience, may_pass, retried
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import EARLIEST, LATEST, list_offsets
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.record.batch import next_offset_at, size_at, whole_batches_end
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_log = logging.getLogger("odradek.client")


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


_NOTHING_LEFT: Final = None


class RangeFetcher:
    """Fetches ranges of partitions; `next` returns one response's records at a time."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, Range],
        settings: FetchSettings | None = None,
    ) -> None:
        self.losses: list[str] = []
        self._cluster = cluster
        self._settings = settings or FetchSettings()
        self._ends = {partition: wanted.end for partition, wanted in ranges.items()}
        self._positions = {
            partition: wanted.start
            for partition, wanted in ranges.items()
            if wanted.end is None or wanted.start < wanted.end
        }
        self._order = deque(self._positions)
        self._patience = {name: Patience(self._settings.stall_timeout_ms) for name in self._order}
        self._under_way: dict[asyncio.Task[None], int] = {}  # the broker of each fetch in flight
        self._fetched: deque[FetchedRecords] = deque()
        self._buffered_bytes = 0
        self._nearer: dict[TopicPartition, int] = {}  # the preferred read replica

    async def next(self) -> FetchedRecords | None:
        """The records that were fetched next; None when all ranges are complete.

        Raises:
            ApiError: a broker refuses, or a partition made no progress for `stall_timeout_ms`.
            DataLossError: an offset of a range was deleted, and `fail_on_data_loss` is set.
        """
        while True:
            self._send()
            if self._fetched:
                one = self._fetched.popleft()
                self._buffered_bytes -= len(one.records)
                self._send()
                return one
            if not self._under_way:
                if not self._positions:
                    return _NOTHING_LEFT
                await self._find_leaders()
                continue
            done, _ = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del self._under_way[task]
                task.result()

    async def close(self) -> None:
        """Cancel the fetches in flight."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._under_way.clear()

    # --------------------------------------------------------------------------- asking

    def _send(self) -> None:
        """Send a Fetch to each leader that has none in flight, if the buffer has room."""
        for task in [task for task in self._under_way if task.done()]:
            del self._under_way[task]
            task.result()
        busy = set(self._under_way.values())
        wanted: dict[int, list[TopicPartition]] = {}
        self._order.rotate(-1)  # the first partitions of a request get the most bytes
        for partition in self._order:
            source = self._nearer.get(partition, self._cluster.metadata.leader(partition))
            if partition in self._positions and source != NO_LEADER and source not in busy:
                wanted.setdefault(source, []).append(partition)
        for source, partitions in wanted.items():
            reserved = (len(self._under_way) + 1) * self._settings.fetch_bytes_max
            # If nothing is buffered or in flight, one fetch is always allowed: else there is no
            # progress.
            if self._buffered_bytes + reserved > self._settings.buffer_bytes_max and (
                self._under_way or self._fetched
            ):
                return
            task = asyncio.get_running_loop().create_task(self._fetch(source, partitions))
            self._under_way[task] = source

    async def _fetch(self, source: int, partitions: list[TopicPartition]) -> None:
        try:
            connection = await self._cluster.broker(source)
            answer = await connection.request(self._request(partitions), FetchResponse)
        except (ApiError, ConnectionError) as error:
            await self._later(partitions, error)
            return
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            await self._later(partitions, ApiError(code, f"fetch from broker {source}"))
            return
        names = {self._cluster.topic_id(p.topic): p.topic for p in partitions}
        failed: list[tuple[TopicPartition, ApiError]] = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition in self._positions:
                    code = ErrorCode(data.error_code)
                    if not await self._taken(partition, data, code):
                        failed.append((partition, self._refused(partition, code)))
        if failed:
            await self._later([partition for partition, _ in failed], failed[0][1])

    async def _taken(self, partition: TopicPartition, data: PartitionData, code: ErrorCode) -> bool:
        """Process one partition of a response; False if the broker returned an error."""
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower's log may be behind, or start later: the leader decides.
            if self._nearer.pop(partition, None) is None:
                await self._out_of_range(partition)
            return True
        if code is not ErrorCode.NONE:
            return False
        if data.preferred_read_replica >= 0:
            self._nearer[partition] = data.preferred_read_replica
        self._take(partition, data)
        return True

    def _request(self, partitions: Iterable[TopicPartition]) -> FetchRequest:
        settings = self._settings
        topics: dict[str, FetchTopic] = {}
        for partition in partitions:
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = FetchTopic(
                    topic=partition.topic, topic_id=self._cluster.topic_id(partition.topic)
                )
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self._positions[partition],
                    partition_max_bytes=settings.partition_bytes_max,
                )
            )
        return FetchRequest(
            max_wait_ms=settings.wait_ms_max,
            min_bytes=settings.min_bytes,
            max_bytes=settings.fetch_bytes_max,
            isolation_level=int(settings.committed),
            topics=list(topics.values()),
            rack_id=settings.rack,
        )

    # -------------------------------------------------------------------------- answers

    def _take(self, partition: TopicPartition, data: PartitionData) -> None:
        records = memoryview(data.records or b"")
        if not records:
            self._nothing_came(partition, data)
            return
        start = self._positions[partition]
        aborted = data.aborted_transactions or []
        self._fetched.append(
            FetchedRecords(partition, start, records, aborted, data.high_watermark)
        )
        self._buffered_bytes += len(records)
        self._patience[partition].reward()
        self._moved(partition, self._after(records, start))

    def _nothing_came(self, partition: TopicPartition, data: PartitionData) -> None:
        """An empty response after `wait_ms_max`: allowed, unless an end offset is to be reached.

        Raises:
            ApiError: no progress towards the end offset for `stall_timeout_ms`.
        """
        end = self._ends[partition]
        if end is not None and self._patience[partition].is_over:
            limit = data.last_stable_offset if self._settings.committed else data.high_watermark
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{partition} at offset {self._positions[partition]}: no records for "
                f"{self._settings.stall_timeout_ms} ms; requested are offsets before {end}, those "
                f"below {limit} can be read",
            )

    @staticmethod
    def _after(records: memoryview, position: int) -> int:
        """The next fetch offset. A damaged batch is reported by the decoder, so fetching ends
        there.
        """
        try:
            end = whole_batches_end(records)
        except ApiError:
            return 1 << 62  # the partition is not fetched any further
        last = at = 0
        while at < end:
            last = at
            at += size_at(records, at)
        return max(position, next_offset_at(records, last)) if end else 1 << 62

    def _moved(self, partition: TopicPartition, position: int) -> None:
        end = self._ends[partition]
        if position == 1 << 62 or (end is not None and position >= end):
            del self._positions[partition]
        else:
            self._positions[partition] = position

    def _refused(self, partition: TopicPartition, code: ErrorCode) -> ApiError:
        return ApiError(code, f"fetch of {partition} at offset {self._positions[partition]}")

    async def _out_of_range(self, partition: TopicPartition) -> None:
        """The fetch offset was deleted, or does not exist yet: skip or raise."""
        asked = self._positions[partition]
        earliest = await list_offsets(self._cluster, {partition: EARLIEST})
        latest = await list_offsets(self._cluster, {partition: LATEST})
        first, end = earliest[partition].offset, latest[partition].offset
        wanted_end = self._ends[partition]
        message = (
            f"{partition}: offset {asked} is out of range; "
            f"the partition has offsets {first} to {end}"
        )
        if self._settings.fail_on_data_loss:
            raise DataLossError(message)
        self.losses.append(message)
        _log.warning("%s: skipped", message)
        if asked < first and (wanted_end is None or first < wanted_end):
            self._positions[partition] = first
        else:
            del self._positions[partition]

    # ----------------------------------------------------------------------- what passes

    async def _later(self, partitions: list[TopicPartition], error: Exception) -> None:
        """Refresh the leaders of these partitions after an error, after a pause.

        Raises:
            ApiError, ConnectionError: permanent, or lasting for `stall_timeout_ms`.
        """
        for partition in partitions:
            self._nearer.pop(partition, None)
        if not may_pass(error) or not await self._patience[partitions[0]].once_more():
            raise error
        await self._look(partitions)

    async def _find_leaders(self) -> None:
        lost = self._cluster.metadata.without_leader(self._positions)
        if not lost:
            return
        await self._look(lost)
        if all(self._cluster.metadata.leader(name) == NO_LEADER for name in lost):
            await self._later(
                lost, ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{lost[0]} has no leader")
            )

    async def _look(self, partitions: Iterable[TopicPartition]) -> None:
        topics = {partition.topic for partition in partitions}

        async def ask() -> Any:
            return await self._cluster.refresh(topics)

        await retried(self._cluster, f"leaders of {', '.join(sorted(topics))}", ask)
