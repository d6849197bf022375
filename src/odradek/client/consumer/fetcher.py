"""Reads ahead for a consumer: one request under way to each broker that leads something it reads.

A partition whose records are not yet taken is not asked for again, so memory is bounded by
`fetch.max.bytes` for each broker. What was fetched before a seek is dropped when it comes.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.client.cluster import FETCH, Cluster
from odradek.client.consumer.fetch_sessions import FetchSession, Wanted
from odradek.client.consumer.fetched import Aborted, ConsumerRecord, Fetched
from odradek.client.consumer.list_offsets import EARLIEST, LATEST
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.consumer.subscription import Reading, Readings
from odradek.client.errors import NoOffsetError
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


class Fetcher:
    """The fetches of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        readings: Readings,
        arrived: Callable[[], None],
    ) -> None:
        """`arrived` is called when there is something to take, or to raise."""
        self._cluster = cluster
        self._settings = settings
        self._readings = readings
        self._arrived = arrived
        self._buffer: list[Fetched] = []
        self._errors: list[Exception] = []
        self._sessions: dict[int, FetchSession] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._not_before_s: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._stale: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._reset_default = {"earliest": EARLIEST, "latest": LATEST}.get(settings.offset_reset)

    async def close(self) -> None:
        """Stop everything that is under way."""
        tasks = [*self._under_way.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------- taking

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Records that are here; positions move with them.

        Raises:
            ApiError, NoOffsetError: a partition cannot be read on.
        """
        taken: list[ConsumerRecord] = []
        waiting: list[Fetched] = []
        while self._buffer and len(taken) < records_max:
            fetched = self._buffer.pop(0)
            reading = self._readings.get(fetched.partition)
            if reading is None or reading.visit != fetched.visit:
                continue
            if reading.is_paused:
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
            reading.offset = fetched.next_offset
            if fetched.leader_epoch >= 0:
                reading.leader_epoch = fetched.leader_epoch
            if len(taken) == records_max:
                self._buffer.insert(0, fetched)
        self._buffer += waiting
        if not taken and self._errors:
            raise self._errors.pop(0)
        return taken

    def drop(self) -> None:
        """Partitions were taken away: forget what is here of others than are read."""
        self._buffer = [f for f in self._buffer if f.partition in self._readings]

    @property
    def has_something(self) -> bool:
        """Whether `take` would give or raise something."""
        if self._errors:
            return True
        for fetched in self._buffer:
            reading = self._readings.get(fetched.partition)
            if reading is not None and reading.visit == fetched.visit and not reading.is_paused:
                return True
        return False

    # ------------------------------------------------------------------------- asking

    def ask(self) -> None:
        """Send what can be sent: to each broker that is not being asked already."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        here = {fetched.partition for fetched in self._buffer}
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition in self._readings.fetchable():
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
        reading = self._readings[partition]
        if reading.preferred_replica >= 0:
            if (
                now_s < reading.preferred_until_s
                and reading.preferred_replica in self._cluster.picture.nodes
            ):
                return reading.preferred_replica
            reading.preferred_replica = -1
        return self._cluster.picture.leader(partition)

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
        session = self._sessions.setdefault(broker, FetchSession())
        visits: dict[TopicPartition, tuple[int, int]] = {}
        wanted: dict[TopicPartition, Wanted] = {}
        for partition in partitions:
            reading = self._readings.get(partition)
            if reading is not None and reading.has_position:
                visits[partition] = reading.visit, reading.offset
                wanted[partition] = self._wanted(partition, reading)
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
        # By id only where every topic has one.
        by_name = any(want.topic_id == ZERO_UUID for want in wanted.values())
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
        names = {want.topic_id: partition.topic for partition, want in wanted.items()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id)
            for data in topic.partitions:
                if name is not None:
                    partition = TopicPartition(name, data.partition_index)
                    if partition in visits:
                        self._take_in(broker, partition, data, visits[partition])

    def _wanted(self, partition: TopicPartition, reading: Reading) -> Wanted:
        state = self._cluster.picture.state(partition)
        return Wanted(
            topic_id=self._cluster.picture.topic_id(partition.topic),
            offset=reading.offset,
            leader_epoch=-1 if state is None else state.leader_epoch,
            # The leader tells us if what stood before our position stands there no more.
            last_fetched_epoch=reading.leader_epoch,
            bytes_max=self._settings.partition_bytes_max,
        )

    # ------------------------------------------------------------------------ what came

    def _take_in(
        self, broker: int, partition: TopicPartition, data: PartitionData, visit: tuple[int, int]
    ) -> None:
        reading = self._readings.get(partition)
        if reading is None or reading.visit != visit[0]:
            return
        if data.error_code:
            self._refused(broker, partition, reading, ErrorCode(data.error_code))
            return
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            self._truncated(partition, reading, data.diverging_epoch.end_offset)
            return
        reading.end_offset = data.high_watermark
        reading.last_stable_offset = data.last_stable_offset
        reading.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            now_s = asyncio.get_running_loop().time()
            reading.preferred_replica = data.preferred_read_replica
            reading.preferred_until_s = now_s + self._cluster.settings.metadata_age_ms_max / 1000
        if not data.records:
            return
        aborted = None
        if self._settings.reads_committed:
            aborted = [
                Aborted(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()
            ]
        fetched = Fetched(
            partition,
            data.records,
            offset=visit[1],
            visit=visit[0],
            aborted=aborted,
            checks_crcs=self._settings.checks_crcs,
        )
        self._buffer.append(fetched)

    def _refused(
        self, broker: int, partition: TopicPartition, reading: Reading, code: ErrorCode
    ) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if reading.preferred_replica >= 0:
                reading.preferred_replica = -1  # a follower may be behind: ask the leader
            elif self._reset_default is not None:
                self._readings.reset(partition, self._reset_default)
            else:
                self._errors.append(
                    NoOffsetError(
                        f"Fetch position {reading.offset} is out of range for partition "
                        f"{partition}, and auto.offset.reset is none"
                    )
                )
        elif code in _REFRESH:
            self._stale.add(partition.topic)
            self._pause(broker)
            reading.preferred_replica = -1
        elif code not in RETRIABLE:
            self._errors.append(ApiError(code, str(partition)))

    def _truncated(self, partition: TopicPartition, reading: Reading, end_offset: int) -> None:
        """The log was cut below our position (KIP-320): what we read is not in it any more."""
        if self._reset_default is None:
            self._errors.append(
                NoOffsetError(
                    f"Truncation of partition {partition} detected at {end_offset}, position "
                    f"{reading.offset}, and auto.offset.reset is none"
                )
            )
            self._readings.seek(partition, reading.offset)
        else:
            self._readings.seek(partition, min(end_offset, reading.offset))

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
