"""Prefetching for a consumer: one Fetch in flight to each broker that leads an assigned partition.

A partition is not fetched again before its records were taken, so memory is bounded by
`fetch.max.bytes` for each broker. Records fetched before a seek are dropped.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.client.cluster import FETCH, Cluster
from odradek.client.consumer.fetch_sessions import FetchSessionHandler, Wanted
from odradek.client.consumer.fetched import Aborted, CompletedFetch, ConsumerRecord
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.consumer.subscription import AssignedPartition, SubscriptionState
from odradek.client.errors import NoOffsetError
from odradek.client.fetch.offsets import EARLIEST, LATEST
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from odradek.wire.schema import ZERO_UUID

_TOPIC_IDS_FROM: Final = 13
_REFRESH: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class ConsumerFetcher:
    """The fetches of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        assigned: SubscriptionState,
        arrived: Callable[[], None],
    ) -> None:
        """`arrived` is called when `take` has records to return or an error to raise."""
        self._cluster = cluster
        self._settings = settings
        self._assigned = assigned
        self._arrived = arrived
        self._buffer: list[CompletedFetch] = []
        self._errors: list[Exception] = []
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._not_before_s: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._stale: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._reset_default = {"earliest": EARLIEST, "latest": LATEST}.get(settings.offset_reset)

    async def close(self) -> None:
        """Cancel all requests."""
        tasks = [*self._under_way.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------- taking

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """At most `records_max` fetched records; advances the positions.

        Raises:
            ApiError, NoOffsetError: a partition cannot be read any further.
        """
        taken: list[ConsumerRecord] = []
        waiting: list[CompletedFetch] = []
        while self._buffer and len(taken) < records_max:
            fetched = self._buffer.pop(0)
            assigned = self._assigned.get(fetched.partition)
            if assigned is None or assigned.visit != fetched.visit:
                continue
            if assigned.is_paused:
                waiting.append(fetched)
                continue
            try:
                records = fetched.take(records_max - len(taken))
            except ApiError as error:
                if taken:
                    self._errors.append(error)
                    break
                raise
            taken += records
            assigned.offset = fetched.next_offset
            if fetched.leader_epoch >= 0:
                assigned.leader_epoch = fetched.leader_epoch
            if len(taken) == records_max:
                self._buffer.insert(0, fetched)
        self._buffer += waiting
        if not taken and self._errors:
            raise self._errors.pop(0)
        return taken

    def drop(self) -> None:
        """Drop fetched records of partitions that are not assigned any more."""
        self._buffer = [f for f in self._buffer if f.partition in self._assigned]

    @property
    def has_something(self) -> bool:
        """Whether `take` would return records or raise an error."""
        if self._errors:
            return True
        for fetched in self._buffer:
            assigned = self._assigned.get(fetched.partition)
            if assigned is not None and assigned.visit == fetched.visit and not assigned.is_paused:
                return True
        return False

    # ------------------------------------------------------------------------- asking

    def ask(self) -> None:
        """Send a Fetch to each broker that has none in flight."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        here = {fetched.partition for fetched in self._buffer}
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition in self._assigned.fetchable():
            if partition in here:
                continue
            broker = self._source(partition, now_s)
            if broker == NO_LEADER:
                self._stale.add(partition.topic)
            else:
                by_broker.setdefault(broker, []).append(partition)
        for broker, partitions in by_broker.items():
            if broker in self._under_way:
                continue
            pause_s = self._not_before_s.get(broker, 0.0) - now_s
            if pause_s > 0:
                loop.call_later(pause_s, self._arrived)
                continue
            self._under_way[broker] = loop.create_task(self._fetch(broker, partitions))
        self._refresh()

    def _source(self, partition: TopicPartition, now_s: float) -> int:
        assigned = self._assigned[partition]
        if assigned.preferred_replica >= 0:
            if (
                now_s < assigned.preferred_until_s
                and assigned.preferred_replica in self._cluster.metadata.nodes
            ):
                return assigned.preferred_replica
            assigned.preferred_replica = -1
        return self._cluster.metadata.leader(partition)

    async def _fetch(self, broker: int, partitions: list[TopicPartition]) -> None:
        try:
            await self._fetch_from(broker, partitions)
            self._failures.pop(broker, None)
        except (ConnectionError, OdradekError) as error:
            self._sessions.pop(broker, None)
            self._stale.update(partition.topic for partition in partitions)
            self._pause(broker)
            waits = isinstance(error, ConnectionError) or (
                isinstance(error, ApiError)
                and (error.code in RETRIABLE or error.code is ErrorCode.BROKER_NOT_AVAILABLE)
            )
            if not waits:
                self._errors.append(error)
        finally:
            del self._under_way[broker]
            self._arrived()

    def _pause(self, broker: int) -> None:
        failures = self._failures.get(broker, 0) + 1
        self._failures[broker] = failures
        now_s = asyncio.get_running_loop().time()
        self._not_before_s[broker] = now_s + self._cluster.retry_pause_s(failures)

    async def _fetch_from(self, broker: int, partitions: list[TopicPartition]) -> None:
        settings = self._settings
        connection = await self._cluster.broker(broker, FETCH)
        session = self._sessions.setdefault(broker, FetchSessionHandler())
        visits: dict[TopicPartition, tuple[int, int]] = {}
        wanted: dict[TopicPartition, Wanted] = {}
        for partition in partitions:
            assigned = self._assigned.get(partition)
            if assigned is not None and assigned.has_position:
                visits[partition] = assigned.visit, assigned.offset
                wanted[partition] = self._wanted(partition, assigned)
        if not wanted:
            return
        ask = session.ask(wanted)
        request = FetchRequest(
            max_wait_ms=settings.fetch_wait_ms_max,
            min_bytes=settings.fetch_bytes_min,
            max_bytes=settings.fetch_bytes_max,
            isolation_level=int(settings.reads_committed),
            session_id=ask.session_id,
            session_epoch=ask.session_epoch,
            topics=ask.topics,
            forgotten_topics_data=ask.forgotten,
            rack_id=settings.rack,
        )
        # Topic ids only if every topic has one.
        by_name = any(one.topic_id == ZERO_UUID for one in wanted.values())
        answer = await connection.request(
            request,
            FetchResponse,
            version_max=_TOPIC_IDS_FROM - 1 if by_name else None,
            timeout_ms=self._cluster.settings.request_timeout_ms + settings.fetch_wait_ms_max,
        )
        if not session.answered(answer.error_code, answer.session_id):
            if answer.error_code and ErrorCode(answer.error_code) not in RETRIABLE:
                raise ApiError(ErrorCode(answer.error_code), "Fetch")
            self._stale.update(partition.topic for partition in partitions)
            return
        names = {one.topic_id: partition.topic for partition, one in wanted.items()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id)
            for data in topic.partitions:
                if name is not None:
                    partition = TopicPartition(name, data.partition_index)
                    if partition in visits:
                        self._take_in(broker, partition, data, visits[partition])

    def _wanted(self, partition: TopicPartition, assigned: AssignedPartition) -> Wanted:
        state = self._cluster.metadata.state(partition)
        return Wanted(
            topic_id=self._cluster.metadata.topic_id(partition.topic),
            offset=assigned.offset,
            leader_epoch=-1 if state is None else state.leader_epoch,
            # With it the leader detects that the log was truncated below the position (KIP-320).
            last_fetched_epoch=assigned.leader_epoch,
            bytes_max=self._settings.partition_bytes_max,
        )

    # ------------------------------------------------------------------------ what came

    def _take_in(
        self, broker: int, partition: TopicPartition, data: PartitionData, visit: tuple[int, int]
    ) -> None:
        assigned = self._assigned.get(partition)
        if assigned is None or assigned.visit != visit[0]:
            return
        if data.error_code:
            self._refused(broker, partition, assigned, ErrorCode(data.error_code))
            return
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            self._truncated(partition, assigned, data.diverging_epoch.end_offset)
            return
        assigned.end_offset = data.high_watermark
        assigned.last_stable_offset = data.last_stable_offset
        assigned.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            now_s = asyncio.get_running_loop().time()
            assigned.preferred_replica = data.preferred_read_replica
            assigned.preferred_until_s = now_s + self._cluster.settings.metadata_age_ms_max / 1000
        if not data.records:
            return
        aborted = None
        if self._settings.reads_committed:
            aborted = [
                Aborted(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()
            ]
        fetched = CompletedFetch(
            partition,
            data.records,
            offset=visit[1],
            visit=visit[0],
            aborted=aborted,
            checks_crcs=self._settings.checks_crcs,
        )
        self._buffer.append(fetched)

    def _refused(
        self, broker: int, partition: TopicPartition, assigned: AssignedPartition, code: ErrorCode
    ) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if assigned.preferred_replica >= 0:
                assigned.preferred_replica = -1  # a follower may be behind: fetch from the leader
            elif self._reset_default is not None:
                self._assigned.reset(partition, self._reset_default)
            else:
                self._errors.append(
                    NoOffsetError(
                        f"Fetch position {assigned.offset} is out of range for partition "
                        f"{partition}, and auto.offset.reset is none"
                    )
                )
        elif code in _REFRESH:
            self._stale.add(partition.topic)
            self._pause(broker)
            assigned.preferred_replica = -1
        elif code not in RETRIABLE:
            self._errors.append(ApiError(code, str(partition)))

    def _truncated(
        self, partition: TopicPartition, assigned: AssignedPartition, end_offset: int
    ) -> None:
        """The log was truncated below the position (KIP-320): reset to the divergence or fail."""
        if self._reset_default is None:
            self._errors.append(
                NoOffsetError(
                    f"Truncation of partition {partition} detected at {end_offset}, position "
                    f"{assigned.offset}, and auto.offset.reset is none"
                )
            )
            self._assigned.seek(partition, assigned.offset)
        else:
            self._assigned.seek(partition, min(end_offset, assigned.offset))

    # -------------------------------------------------------------------------- metadata

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
            self._errors.append(error)
        await asyncio.sleep(self._cluster.retry_pause_s(1))
        self._arrived()
