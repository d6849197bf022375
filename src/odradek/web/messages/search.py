"""Reads one slice of a search: from where the cursor stands, until a bound is reached.

While the fetched bytes of one response are searched in a thread (`odradek.web.messages.scan`), the
next Fetch is in flight. Data below the last stable offset is fetched with read_committed, because
only then the response names the aborted transactions; data above it with read_uncommitted.

A slice ends when enough records were found, or when it has read for long enough, or enough bytes;
the progress then says what is left. It never raises for one partition: a partition that cannot be
read has its error in the progress.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.fetch.fetcher import ClientFetcher, FetchPosition
from odradek.client.fetch.offsets import EARLIEST, LATEST, ListedOffset
from odradek.client.fetch.requests import FetchLimits
from odradek.model.errors import ApiError, OdradekError
from odradek.model.partition import TopicPartition
from odradek.web.messages.offsets import WITHIN_S, list_offsets_now
from odradek.web.messages.progress import (
    PartitionProgress,
    SearchProgress,
    UnsearchedRange,
)
from odradek.web.messages.query import Query
from odradek.web.messages.ranges import open_producers
from odradek.web.messages.scan import (
    HELD_BYTES_MAX,
    FoundRecord,
    Scanned,
    ScanWanted,
    Stability,
    next_fetch_offset,
    scan,
)
from odradek.wire.messages.fetch import PartitionData

_PARTITION_BYTES: Final = 4 << 20
_FETCH_BYTES: Final = 8 << 20
_QUEUED_MAX: Final = 2  # responses of one partition that wait to be searched
_BUFFER_BYTES: Final = 24 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBounds:
    """How much one slice may read."""

    found: int
    seconds: float = 2.0
    bytes: int = 256 << 20
    held_bytes: int = HELD_BYTES_MAX  # of a key, a value or the headers of a found record
    found_bytes: int = 4 << 20  # of all found records
    wait_ms: int = 250  # of a Fetch at the end of a partition
    follows: bool = False  # wait for records that are still to be written


class SearchSlice(NamedTuple):
    """What a slice has found, and how far the search is."""

    found: list[FoundRecord]
    progress: SearchProgress
    # done; found, seconds, bytes: a bound; end: the leaders have no more records for now
    ended: str
    stable: Mapping[int, int]  # last stable offsets by partition, as far as they are known
    delayed: Mapping[int, str] = {}  # partitions that could not be read yet, and why


class _Fetched(NamedTuple):
    partition: int
    data: bytes | bytearray | memoryview
    stability: Stability


class _PartitionState:
    """One partition within a slice."""

    def __init__(self, progress: PartitionProgress) -> None:
        self.progress = progress
        self.fetch_from = progress.position
        self.visit = 0
        self.queued = 0
        self.was_empty = False  # the last Fetch returned nothing: the next one is for it alone
        self.is_alone = False
        self.stable = 0
        self.end_seen = False  # the leader has no more records
        self.ends_in_gap = False  # ... up to the end of the search: compaction has removed them

    def settle(self) -> None:
        """Once all fetched bytes are searched: pass offsets that nothing will be fetched for."""
        if self.queued:
            return
        progress = self.progress
        for lost in progress.expired:
            if lost.start <= progress.position < lost.end:
                progress = replace(progress, position=lost.end)
        if self.ends_in_gap and not progress.is_done:
            missing = progress.missing + progress.remaining
            progress = replace(progress, position=progress.end, missing=missing)
        self.progress = progress

    @property
    def wants_more(self) -> bool:
        """Whether something is left to fetch."""
        return (
            not self.progress.is_done
            and self.fetch_from < self.progress.end
            and self.queued < _QUEUED_MAX
            and not self.end_seen
        )


class _Lane:
    """The reader of one isolation level, for a `ClientFetcher`."""

    def __init__(self, reader: "SliceReader", *, committed: bool) -> None:
        self._reader = reader
        self._committed = committed

    def to_fetch(self) -> Iterable[TopicPartition]:
        return self._reader.to_fetch(committed=self._committed)

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        return self._reader.position(partition)

    def has_room(self, in_flight: int) -> bool:
        return self._reader.buffered + in_flight * _FETCH_BYTES < _BUFFER_BYTES

    def fetched(
        self, partition: TopicPartition, position: FetchPosition, data: PartitionData
    ) -> None:
        self._reader.fetched(partition.partition, position.offset, data, committed=self._committed)

    async def out_of_range(
        self,
        partition: TopicPartition,
        position: FetchPosition,
        diverged_at: int | None,  # noqa: ARG002  only with a last fetched epoch, which is not sent
    ) -> None:
        await self._reader.out_of_range(partition, position.offset)

    def delayed(self, partition: TopicPartition, error: Exception) -> None:
        self._reader.delayed(partition.partition, error)

    def failed(self, error: Exception) -> None:
        self._reader.failed(error)


class SliceReader:
    """Reads one slice. Used once, in one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        query: Query,
        progress: SearchProgress,
        bounds: SliceBounds,
        *,
        lane: str = "search",
    ) -> None:
        """`lane`: slices that run at the same time must have different ones."""
        self._cluster = cluster
        self._query = query
        self._progress = progress
        self._bounds = bounds
        self._states = {
            index: _PartitionState(each)
            for index, each in progress.partitions.items()
            if not each.is_done
        }
        self._order = deque(self._states)
        self._queue: deque[_Fetched] = deque()
        self.buffered = 0
        self._read = self._held = 0
        self._found: list[FoundRecord] = []
        self._news = asyncio.Event()
        self._matcher = query.matcher()
        self._error: Exception | None = None
        self._delayed: dict[int, str] = {}
        self._open: dict[int, dict[int, int]] = {}
        self._fetchers = [
            ClientFetcher(
                cluster,
                _Lane(self, committed=committed),
                FetchLimits(
                    bytes_max=_FETCH_BYTES,
                    partition_bytes_max=_PARTITION_BYTES,
                    wait_ms_max=bounds.wait_ms,
                    reads_committed=committed,
                ),
                arrived=self._news.set,
                lane=f"{lane}-{'stable' if committed else 'end'}",
                has_sessions=False,
            )
            for committed in (True, False)
        ]

    async def run(self) -> SearchSlice:
        """Read until a bound is reached.

        Raises:
            ApiError, ConnectionError: the cluster does not answer at all.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._bounds.seconds
        try:
            await self._prepare()
            ended = ""
            while not (ended := self._ended(loop.time() >= deadline_s)):
                for fetcher in self._fetchers:
                    fetcher.send()
                if self._queue:
                    await self._search(self._queue.popleft())
                    continue
                self._news.clear()
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await self._news.wait()
                except TimeoutError:
                    continue
        finally:
            for fetcher in self._fetchers:
                await fetcher.close()
        return SearchSlice(
            self._found,
            self._progress.advanced({i: each.progress for i, each in self._states.items()}),
            ended,
            {i: each.stable for i, each in self._states.items()},
            self._delayed,
        )

    def _ended(self, is_late: bool) -> str:
        if self._error is not None:
            raise self._error
        if len(self._found) >= self._bounds.found or self._held >= self._bounds.found_bytes:
            return "found"
        if all(each.progress.is_done for each in self._states.values()):
            return "done"
        if self._read >= self._bounds.bytes:
            return "bytes"
        if is_late:
            return "seconds"
        over = all(each.progress.is_done or each.end_seen for each in self._states.values())
        return "end" if over and not self._queue else ""

    async def _prepare(self) -> None:
        """The last stable offsets, and the open transactions above them."""
        names = [TopicPartition(self._query.topic, index) for index in self._states]
        if not names:
            return
        if self._cluster.metadata.without_leader(names):
            await self._cluster.refresh([self._query.topic])
        stable = await list_offsets_now(
            self._cluster, dict.fromkeys(names, LATEST), reads_committed=True
        )
        ends = await list_offsets_now(self._cluster, dict.fromkeys(names, LATEST))
        unstable = []
        for name, listed in stable.items():
            if isinstance(listed, ListedOffset):
                self._states[name.partition].stable = listed.offset
                end = ends.get(name)
                if isinstance(end, ListedOffset) and listed.offset < end.offset:
                    unstable.append(name.partition)
        try:
            async with asyncio.timeout(WITHIN_S):
                self._open = await open_producers(self._cluster, self._query.topic, unstable)
        except (OdradekError, ConnectionError, TimeoutError):
            self._open = {}  # the state of these records is then "ended", not "open"

    # ------------------------------------------------------------------- for the fetchers

    def to_fetch(self, *, committed: bool) -> Iterable[TopicPartition]:
        """The partitions to fetch with this isolation level; another one first each time."""
        self._order.rotate(-1)
        wanted = [
            index
            for index in self._order
            if (each := self._states[index]).wants_more
            and committed is (self._query.committed_only or each.fetch_from < each.stable)
        ]
        # A response that is full has no records of the last partitions. What is empty a second
        # time, when it is fetched alone, has none.
        for index in wanted:
            if self._states[index].was_empty:
                self._states[index].is_alone = True
                wanted = [index]
                break
        return [TopicPartition(self._query.topic, index) for index in wanted]

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        each = self._states.get(partition.partition)
        return FetchPosition(each.fetch_from, visit=each.visit) if each is not None else None

    def fetched(self, index: int, position: int, data: PartitionData, *, committed: bool) -> None:
        """Queue the bytes to be searched; an empty response shows where the records end."""
        each = self._states[index]
        self._delayed.pop(index, None)
        each.stable = max(each.stable, data.last_stable_offset)
        records = data.records if data.records is not None else b""
        if len(records):
            each.was_empty = each.is_alone = False
            after = next_fetch_offset(records, position)
            # Without a whole batch, the search of these bytes finds what is wrong with them.
            each.end_seen = after == position
            each.fetch_from = after
            each.queued += 1
            self.buffered += len(records)
            aborted = tuple(data.aborted_transactions or ()) if committed else ()
            stability = Stability(committed, aborted, self._open.get(index, {}))
            self._queue.append(_Fetched(index, records, stability))
        elif self._bounds.follows:
            each.was_empty = False
        elif each.is_alone or data.high_watermark <= position:
            each.end_seen = True
            each.ends_in_gap = data.high_watermark >= each.progress.end
            each.settle()
        else:
            each.was_empty = True

    async def out_of_range(self, partition: TopicPartition, position: int) -> None:
        """Records were deleted meanwhile, or the log ends before the position."""
        listed = await list_offsets_now(self._cluster, {partition: EARLIEST})
        first = listed[partition]
        each = self._states[partition.partition]
        if isinstance(first, ApiError):
            self.delayed(partition.partition, first)
            return
        if first.offset > position:
            self._expire(each, first.offset)
            return
        each.progress = replace(
            each.progress,
            error=f"offset {position} is above the end of the log: its records were truncated",
        )

    def _expire(self, each: _PartitionState, first: int) -> None:
        progress = each.progress
        # What is queued is searched first, so the range begins where the Fetch began.
        lost = UnsearchedRange(each.fetch_from, min(first, progress.end), "deleted meanwhile")
        each.fetch_from = lost.end
        each.visit += 1
        each.progress = progress.with_ranges(expired=[lost])
        each.settle()

    def delayed(self, index: int, error: Exception) -> None:
        """A temporary error; the partition is fetched again until the slice ends."""
        self._delayed[index] = str(error)

    def failed(self, error: Exception) -> None:
        """An error that is not retried ends the slice."""
        self._error = error

    # ------------------------------------------------------------------------- searching

    async def _search(self, fetched: _Fetched) -> None:
        each = self._states[fetched.partition]
        each.queued -= 1
        self.buffered -= len(fetched.data)
        progress = each.progress
        if progress.is_done:
            return
        wanted = ScanWanted(
            fetched.partition,
            progress.position,
            progress.end,
            self._bounds.found - len(self._found),
            committed_only=self._query.committed_only,
            shows_markers=self._query.shows_markers,
            held_bytes=self._bounds.held_bytes,
            room_bytes=self._bounds.found_bytes - self._held,
        )
        not_json = self._matcher.not_json
        # The decoder and the decompressors leave the event loop free for other requests.
        done = await asyncio.to_thread(scan, fetched.data, wanted, self._matcher, fetched.stability)
        self._read += done.bytes
        self._found += done.found
        self._held += sum(each.held_bytes for each in done.found)
        each.progress = _advanced(each.progress, done, self._matcher.not_json - not_json)
        each.settle()


def _advanced(progress: PartitionProgress, done: Scanned, not_json: int) -> PartitionProgress:
    """The progress after a scan; offsets that had expired before it are not missing."""
    expired = sum(
        max(0, min(r.end, done.position) - max(r.start, progress.position))
        for r in progress.expired
    )
    return replace(
        progress.with_ranges(undecodable=done.undecodable),
        position=max(progress.position, done.position),
        records=progress.records + done.records,
        found=progress.found + len(done.found),
        bytes=progress.bytes + done.bytes,
        markers=progress.markers + done.markers,
        missing=max(0, progress.missing + done.missing - expired),
        not_json=progress.not_json + not_json,
        error=progress.error or done.error,
    )
