"""Fetches partitions for a reader: one Fetch in flight to each broker that leads some of them.

The reader decides which partitions are fetched from which offsets, and what becomes of the records.
The fetcher finds the brokers, keeps the fetch sessions, and handles errors: after a temporary one
it pauses and refreshes the metadata; the reader receives all others.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from odradek.client.cluster import FETCH, Cluster
from odradek.client.fetch.leaders import is_temporary
from odradek.client.fetch.requests import (
    SESSION_LOST,
    FetchLimits,
    FetchSessionHandler,
    Wanted,
    fetch,
)
from odradek.client.kafka_errors import known_code
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.fetch import PartitionData


class FetchPosition(NamedTuple):
    """Where a partition is fetched from."""

    offset: int
    # The leader epoch of the record before: with it leaders detect truncation (KIP-320).
    last_fetched_epoch: int = -1
    visit: int = 0  # changes with every seek: the answers to earlier fetches are dropped


class FetchListener(Protocol):
    """The reader for which a `ClientFetcher` works."""

    def to_fetch(self) -> Iterable[TopicPartition]:
        """The partitions to fetch now, in the order of the request."""

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Where to fetch a partition from; None if it is not to be fetched."""

    def has_room(self, in_flight: int) -> bool:
        """Whether another Fetch may be sent while this number is in flight."""

    def fetched(
        self, partition: TopicPartition, position: FetchPosition, data: PartitionData
    ) -> None:
        """Records, or none within the maximum wait."""

    async def out_of_range(
        self, partition: TopicPartition, position: FetchPosition, diverged_at: int | None
    ) -> None:
        """The leader does not have the offset, or its log differs from this offset on."""

    def delayed(self, partition: TopicPartition, error: Exception) -> None:
        """A temporary error: the partition is fetched again, after a refresh of the metadata."""

    def failed(self, error: Exception) -> None:
        """An error that is not retried."""


class ClientFetcher:
    """The fetches of one reader."""

    def __init__(
        self,
        cluster: Cluster,
        reader: FetchListener,
        limits: FetchLimits,
        *,
        arrived: Callable[[], None],
        lane: str = FETCH,
        has_sessions: bool = True,
    ) -> None:
        """`arrived` is called when the reader should look for records or errors, and `send` again.

        `has_sessions`: the brokers keep the partitions from one Fetch to the next.
        """
        self._cluster = cluster
        self._reader = reader
        self._limits = limits
        self._arrived = arrived
        self._lane = lane
        self._has_sessions = has_sessions
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._in_flight: set[TopicPartition] = set()
        self._not_before_s: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._preferred: dict[TopicPartition, tuple[int, float]] = {}  # replica, until when (s)
        self._stale: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Cancel the requests in flight."""
        tasks = [*self._under_way.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------- asking

    def send(self) -> None:
        """Send a Fetch to each broker that has none in flight."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition in self._reader.to_fetch():
            # After a change of leaders, a fetch from the former leader may still be in flight.
            if partition in self._in_flight:
                continue
            broker = self._source(partition, now_s)
            if broker == NO_LEADER:
                why = f"{partition} has no leader"
                self._delay([partition], ApiError(ErrorCode.LEADER_NOT_AVAILABLE, why))
            else:
                by_broker.setdefault(broker, []).append(partition)
        for broker, partitions in by_broker.items():
            if broker in self._under_way:
                continue
            pause_s = self._not_before_s.get(broker, 0.0) - now_s
            if pause_s > 0:
                loop.call_later(pause_s, self._arrived)
                continue
            if not self._reader.has_room(len(self._under_way)):
                break
            self._in_flight.update(partitions)
            self._under_way[broker] = loop.create_task(self._fetch(broker, partitions))
        self._refresh()

    def _source(self, partition: TopicPartition, now_s: float) -> int:
        """The broker to fetch from: the preferred read replica for a while, or the leader."""
        if partition in self._preferred:
            replica, until_s = self._preferred[partition]
            if now_s < until_s and replica in self._cluster.metadata.nodes:
                return replica
            del self._preferred[partition]
        return self._cluster.metadata.leader(partition)

    async def _fetch(self, broker: int, partitions: list[TopicPartition]) -> None:
        try:
            await self._fetch_from(broker, partitions)
            self._failures.pop(broker, None)
        except (ConnectionError, OdradekError) as error:
            self._sessions.pop(broker, None)
            self._pause(broker)
            if is_temporary(error):
                self._delay(partitions, error)
            else:
                self._reader.failed(error)
        finally:
            del self._under_way[broker]
            self._in_flight.difference_update(partitions)
            self._arrived()

    async def _fetch_from(self, broker: int, partitions: list[TopicPartition]) -> None:
        connection = await self._cluster.broker(broker, self._lane)
        session = self._sessions.setdefault(
            broker, FetchSessionHandler(has_session=self._has_sessions)
        )
        positions: dict[TopicPartition, FetchPosition] = {}
        for partition in partitions:
            position = self._reader.position(partition)
            if position is not None:
                positions[partition] = position
        if not positions:
            return
        client = self._cluster.settings
        try:
            found = await fetch(
                connection,
                {partition: self._wanted(partition, at) for partition, at in positions.items()},
                self._limits,
                session=session,
                timeout_ms=client.request_timeout_ms + self._limits.wait_ms_max,
            )
        except ApiError as error:
            if error.code not in SESSION_LOST:
                raise
            self._delay(partitions, error)
            return
        for partition, data in found.items():
            asked = positions.get(partition)
            now = self._reader.position(partition)
            if asked is not None and now is not None and now.visit == asked.visit:
                await self._answered(broker, partition, asked, data)

    def _wanted(self, partition: TopicPartition, position: FetchPosition) -> Wanted:
        metadata = self._cluster.metadata
        return Wanted(
            topic_id=metadata.topic_id(partition.topic),
            offset=position.offset,
            bytes_max=self._limits.partition_bytes_max,
            leader_epoch=metadata.leader_epoch(partition),
            last_fetched_epoch=position.last_fetched_epoch,
        )

    # ----------------------------------------------------------------------- answers

    async def _answered(
        self, broker: int, partition: TopicPartition, position: FetchPosition, data: PartitionData
    ) -> None:
        code = known_code(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower's log may be behind, or start later: the leader decides.
            if self._preferred.pop(partition, None) is None:
                await self._reader.out_of_range(partition, position, None)
        elif code is not ErrorCode.NONE:
            error = ApiError(code, f"{partition} at offset {position.offset}")
            if is_temporary(error):
                self._pause(broker)
                self._delay([partition], error)
            else:
                self._reader.failed(error)
        elif data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            await self._reader.out_of_range(partition, position, data.diverging_epoch.end_offset)
        else:
            if data.preferred_read_replica >= 0:
                now_s = asyncio.get_running_loop().time()
                until_s = now_s + self._cluster.settings.metadata_age_ms_max / 1000
                self._preferred[partition] = data.preferred_read_replica, until_s
            self._reader.fetched(partition, position, data)

    def _pause(self, broker: int) -> None:
        failures = self._failures.get(broker, 0) + 1
        self._failures[broker] = failures
        now_s = asyncio.get_running_loop().time()
        self._not_before_s[broker] = now_s + self._cluster.retry_pause_s(failures)

    def _delay(self, partitions: Iterable[TopicPartition], error: Exception) -> None:
        for partition in partitions:
            self._stale.add(partition.topic)
            self._preferred.pop(partition, None)
            self._reader.delayed(partition, error)

    # ---------------------------------------------------------------------- metadata

    def _refresh(self) -> None:
        if self._stale and (self._refreshing is None or self._refreshing.done()):
            stale, self._stale = self._stale, set()
            self._refreshing = asyncio.get_running_loop().create_task(self._ask_metadata(stale))

    async def _ask_metadata(self, topics: set[str]) -> None:
        try:
            await self._cluster.refresh(sorted(topics))
        except ConnectionError:
            pass
        except OdradekError as error:
            self._reader.failed(error)
        await asyncio.sleep(self._cluster.retry_pause_s(1))
        self._arrived()
