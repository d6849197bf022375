"""The asyncio consumer, standalone or as a member of a group.

    async with await Consumer.open(settings) as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            ...

`poll` returns fetched records, or waits for some; rebalances, their callbacks and automatic commits
happen only inside it. Iterating calls `poll` repeatedly: for ever, or until no record has come for
`consumer.timeout.ms`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from odradek.client.closing import Closing
from odradek.client.cluster import Cluster
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.client.consumer.fetcher import RESETS, ConsumerFetcher
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.consumer.subscription import SubscriptionState
from odradek.client.errors import (
    ClientTimeoutError,
    ClosedError,
    IllegalStateError,
    NoOffsetError,
    WakeUpError,
    refusal,
)
from odradek.client.fetch.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from odradek.client.group.offsets import GroupMetadata, OffsetAndMetadata
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.consumer.coordinator import ConsumerCoordinator, Offsets, RebalanceListener

_TOPIC_NEVER: Final = (
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class Consumer(Closing):
    """A consumer. Opened by `open`, closed by `close` or by leaving its `async with`."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._assigned = SubscriptionState()
        self._wake = asyncio.Event()
        self._fetcher = ConsumerFetcher(cluster, settings, self._assigned, self._wake.set)
        self._topics: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self.listener: RebalanceListener | None = None
        self._coordinator: ConsumerCoordinator | None = None
        self._is_assigned = False  # by `assign`, not by a group
        self._woken = False
        self._closed = False
        self._refreshed_s: float | None = None
        self._retry_s = 0.0
        self._failures = 0
        self._finding: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, settings: ConsumerSettings, *, wait_ms: int = 0) -> Self:
        """Connect to the cluster, retrying for `wait_ms`.

        Raises:
            BootstrapError: no broker answers.
            AuthenticationError, SettingsError: see `Cluster.connect`.
        """
        return cls(await Cluster.connect(settings.client, wait_ms=wait_ms), settings)

    # --------------------------------------------------------------------- what to read

    def subscribe(
        self, topics: Collection[str], listener: "RebalanceListener | None" = None
    ) -> None:
        """Subscribe to topics as a member of the group.

        Raises:
            IllegalStateError: `group.id` is not set, or partitions were assigned by `assign`.
        """
        self._join_group()
        self._topics, self._pattern = tuple(sorted(set(topics))), None
        self.listener = listener
        self._refreshed_s = None
        if self._coordinator is not None:
            self._coordinator.rejoin("the subscription has changed")

    def subscribe_pattern(
        self, pattern: str | re.Pattern[str], listener: "RebalanceListener | None" = None
    ) -> None:
        """Subscribe to all topics whose whole name matches, including topics created later.

        A text has Python's syntax; `model.java_pattern` compiles one in Java's.

        Raises:
            IllegalStateError: as `subscribe`.
            re.error: the pattern is invalid.
        """
        compiled = re.compile(pattern)
        self._join_group()
        self._topics, self._pattern, self.listener = (), compiled, listener
        self._refreshed_s = None

    def _join_group(self) -> None:
        if self._is_assigned:
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive"
            )
        if self._settings.group_id is None:
            raise IllegalStateError(
                "To use the group management or offset commit APIs, you must provide a valid "
                "group.id in the consumer configuration."
            )
        self._group()

    def _group(self) -> "ConsumerCoordinator":
        if self._coordinator is None:
            from odradek.client.consumer.coordinator import ConsumerCoordinator  # noqa: PLC0415  not all have one

            group_id = self._settings.group_id
            if group_id is None:
                raise IllegalStateError(
                    "To use the group management or offset commit APIs, you must provide a valid "
                    "group.id in the consumer configuration."
                )
            subscriber = _Subscriber(self, self._assigned, self._fetcher)
            self._coordinator = ConsumerCoordinator(
                self._cluster, self._settings, group_id, subscriber
            )
        return self._coordinator

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assign partitions, without group membership.

        Raises:
            IllegalStateError: topics were subscribed to.
        """
        if self._topics or self._pattern is not None:
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive"
            )
        self._is_assigned = True
        self._assigned.assign(partitions)
        self._fetcher.drop()

    async def unsubscribe(self) -> None:
        """Drop subscription and assignment; leaves the group."""
        if self._coordinator is not None and not self._is_assigned:
            await self._coordinator.close()
            self._coordinator = None
        self._topics, self._pattern, self._is_assigned = (), None, False
        self._assigned.assign(())
        self._fetcher.drop()

    def assignment(self) -> list[TopicPartition]:
        return list(self._assigned)

    def subscription(self) -> tuple[str, ...]:
        """The subscribed topics, or those that match the pattern."""
        return self._topics

    # ------------------------------------------------------------------------- reading

    async def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """At most `max.poll.records` records, ordered within a partition; empty after the time-out.

        Raises:
            ApiError: a topic, partition or group is refused permanently.
            NoOffsetError: a partition has no committed offset and no reset policy.
            AuthenticationError: a broker refuses the credentials.
            WakeUpError: `wake_up` was called.
            IllegalStateError: nothing is subscribed or assigned.
        """
        if self._closed:
            raise ClosedError("This consumer has already been closed.")
        if not (self._topics or self._pattern is not None or self._is_assigned):
            raise IllegalStateError(
                "Consumer is not subscribed to any topics or assigned any partitions"
            )
        deadline_s = self._loop.time() + timeout_ms / 1000
        while True:
            self._wake.clear()
            if self._woken:
                self._woken = False
                raise WakeUpError("poll was woken up")
            await self._keep_up(deadline_s)
            records = self._fetcher.take(self._settings.poll_records_max)
            self._fetcher.ask()
            if records or self._loop.time() >= deadline_s:
                return records
            if self._fetcher.has_something:
                continue
            await self._wait(deadline_s)

    async def _wait(self, deadline_s: float) -> None:
        """Wait until a fetch completes, the time-out has passed, or a retry or heartbeat is due."""
        due_s = deadline_s
        if self._retry_s > self._loop.time():
            due_s = min(due_s, self._retry_s)
        if self._coordinator is not None:
            due_s = min(due_s, self._loop.time() + self._settings.heartbeat_interval_ms / 1000)
        try:
            async with asyncio.timeout_at(due_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _keep_up(self, deadline_s: float) -> None:
        """Metadata, group membership and positions: the steps before records can be fetched."""
        await self._refresh_if_old()
        coordinator = self._coordinator
        if coordinator is not None:
            if not self._is_assigned and self._topics:
                coordinator.counts_changed()
                await coordinator.poll(deadline_s)
            elif self._is_assigned:
                coordinator.commit_if_due()
        if self._finding is not None and self._finding.done():
            finding, self._finding = self._finding, None
            finding.result()
        if (
            self._finding is None
            and self._loop.time() >= self._retry_s
            and (self._assigned.without_position() or self._assigned.to_reset())
        ):
            # A task, because it may take longer than this poll.
            self._finding = self._loop.create_task(self._try_to_find_positions())

    async def _refresh_if_old(self) -> None:
        """Refresh metadata when it has expired, and more often while a topic is missing in it."""
        now_s = self._loop.time()
        age_ms_max = self._settings.client.metadata_age_ms_max
        wanted = self._topics or sorted({p.topic for p in self._assigned})
        missing = [topic for topic in wanted if topic not in self._cluster.metadata.topics]
        if self._refreshed_s is not None:
            age_ms = (now_s - self._refreshed_s) * 1000
            if age_ms < (self._settings.client.retry_backoff_max_ms if missing else age_ms_max):
                return
        try:
            everything = self._pattern is not None
            await self._cluster.refresh(
                None if everything else wanted, creating=self._settings.creates_topics
            )
        except ConnectionError:
            self._retry_s = max(self._retry_s, now_s + self._cluster.retry_pause_s(1))
            return
        self._refreshed_s = now_s
        self._cluster.log_errors(wanted)
        for topic in wanted:
            code = self._cluster.metadata.errors.get(topic)
            if code in _TOPIC_NEVER:
                raise ApiError(ErrorCode(code), refusal(code, topic))
        if self._pattern is not None:
            self._match(self._pattern)

    def _match(self, pattern: re.Pattern[str]) -> None:
        topics = tuple(
            sorted(
                name
                for name, state in self._cluster.metadata.topics.items()
                if pattern.fullmatch(name)
                and not (state.is_internal and self._settings.excludes_internal)
            )
        )
        if topics != self._topics:
            self._topics = topics
            if self._coordinator is not None:
                self._coordinator.rejoin("the pattern matches other topics")

    async def _try_to_find_positions(self) -> None:
        try:
            await self._find_positions(self._settings.client.request_timeout_ms)
            self._failures = 0
        except (ConnectionError, ClientTimeoutError):
            self._failures += 1
            self._retry_s = self._loop.time() + self._cluster.retry_pause_s(self._failures)
        finally:
            self._wake.set()

    async def _find_positions(self, timeout_ms: int) -> None:
        new = self._assigned.without_position()
        asked = {partition: self._assigned[partition].visit for partition in new}
        committed: Offsets = {}
        if new and self._settings.group_id is not None:
            committed = await self._group().committed(new, timeout_ms)
        # A partition that was revoked and assigned again meanwhile may have a later committed
        # offset.
        without = [p for p in self._assigned.without_position() if asked.get(p) == self._visit(p)]
        for partition in without:
            offset = committed.get(partition)
            if offset is not None:
                self._assigned.seek(partition, offset.offset, offset.leader_epoch)
            elif self._settings.offset_reset in RESETS:
                self._assigned.reset(partition, RESETS[self._settings.offset_reset])
        without = [partition for partition in without if partition not in committed]
        if without and self._settings.offset_reset not in RESETS:
            raise NoOffsetError(
                "Undefined offset with no reset policy for partitions: "
                f"[{', '.join(map(str, without))}]"
            )
        resets = self._assigned.to_reset()
        visits = {partition: self._visit(partition) for partition in resets}
        if not resets:
            return
        found = await list_offsets(
            self._cluster,
            resets,
            reads_committed=self._settings.reads_committed,
            timeout_ms=timeout_ms,
        )
        for partition, result in found.items():
            reading = self._assigned.get(partition)
            if reading is not None and reading.visit == visits[partition]:
                self._assigned.seek(partition, result.offset, result.leader_epoch)

    def _visit(self, partition: TopicPartition) -> int:
        return self._assigned[partition].visit

    def wake_up(self) -> None:
        """Make the current or next `poll` raise WakeUpError."""
        self._woken = True
        self._wake.set()

    def look_again(self) -> None:
        """Make a waiting `poll` check for changes."""
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records; ends when none has come for `consumer.timeout.ms`."""
        timeout_ms = self._settings.iteration_timeout_ms
        forever_ms = self._settings.poll_interval_ms_max // 2
        while True:
            records = await self.poll(forever_ms if timeout_ms is None else timeout_ms)
            for record in records:
                yield record
            if not records and timeout_ms is not None:
                return

    # -------------------------------------------------------------------------- positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition.

        Raises:
            IllegalStateError: the partition is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise IllegalStateError("seek offset must not be a negative number")
        self._must_read([partition])
        self._assigned.seek(partition, offset)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Set the position to the log start offset; all assigned partitions if none is given."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Set the position to the end offset; all assigned partitions if none is given."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        self._must_read(partitions)
        for partition in partitions or self._assigned:
            self._assigned.reset(partition, timestamp)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._must_read(partitions)
        for partition in partitions:
            self._assigned[partition].is_paused = True

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._must_read(partitions)
        for partition in partitions:
            self._assigned[partition].is_paused = False
        self._wake.set()

    def paused(self) -> list[TopicPartition]:
        return [partition for partition in self._assigned if self._assigned[partition].is_paused]

    def _must_read(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._assigned:
                raise IllegalStateError(f"No current assignment for partition {partition}")

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record.

        Raises:
            ClientTimeoutError: it could not be determined in time.
        """
        self._must_read([partition])
        timeout_ms = self._settings.client.api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = self._loop.time() + timeout_ms / 1000
        while not self._assigned[partition].has_position:
            await self._find_positions(timeout_ms)
            if self._loop.time() >= deadline_s:
                raise ClientTimeoutError(
                    f"Timeout of {timeout_ms}ms expired before the position for partition "
                    f"{partition} could be determined"
                )
        return self._assigned[partition].offset

    async def offsets_for_times(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset]:
        """The first offset at or after each timestamp; -1 if there is no such record."""
        return await list_offsets(
            self._cluster, wanted, reads_committed=self._settings.reads_committed
        )

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The end offset of each partition; with read_committed the last stable offset."""
        return await self._ends(partitions, LATEST)

    async def _ends(
        self, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        found = await self.offsets_for_times(dict.fromkeys(partitions, timestamp))
        return {partition: result.offset for partition, result in found.items()}

    @property
    def cluster(self) -> Cluster:
        """The connections and metadata of this consumer, for other requests."""
        return self._cluster

    async def partitions_for(
        self, topic: str, *, creating: bool | None = None
    ) -> list[TopicPartition]:
        """The partitions of a topic; empty if there is none. `creating` allows auto-creation."""
        creating = self._settings.creates_topics if creating is None else creating
        await self._cluster.refresh([topic], creating=creating)
        return self._cluster.metadata.partitions(topic)

    async def topics(self) -> list[str]:
        """The names of all topics that this client is authorized to describe."""
        answer = await self._cluster.refresh(None)
        return sorted(topic.name for topic in answer.topics if topic.name is not None)

    # ---------------------------------------------------------------------------- commits

    async def commit(self, offsets: "Offsets | None" = None, timeout_ms: int | None = None) -> None:
        """Commit these offsets, or all positions, with retries; see `ConsumerCoordinator`."""
        wanted = self._assigned.positions() if offsets is None else offsets
        await self._group().commit(wanted, timeout_ms)

    def commit_async(
        self,
        offsets: "Offsets | None" = None,
        done: "Callable[[Offsets, Exception | None], None] | None" = None,
    ) -> None:
        """Commit these offsets, or all positions, without retries; then calls `done`."""
        wanted = self._assigned.positions() if offsets is None else offsets
        self._group().commit_async(wanted, done)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are left out."""
        return await self._group().committed(partitions)

    def group_metadata(self) -> GroupMetadata:
        """MemberSubscription id and generation, for `Producer.send_offsets`."""
        return self._group().metadata()

    @property
    def is_joined(self) -> bool:
        """Whether the group has assigned partitions to this member."""
        return self._coordinator is not None and self._coordinator.is_joined

    # ------------------------------------------------------------------------------ the end

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Commit, leave the group and close the connections, within the time-out."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if self._coordinator is not None:
                    await self._coordinator.close()
        except (TimeoutError, ConnectionError, OdradekError):
            pass  # the group removes the member after its session timeout
        finally:
            if self._finding is not None:
                self._finding.cancel()
                await asyncio.gather(self._finding, return_exceptions=True)
            await self._fetcher.close()
            await self._cluster.close()


class _Subscriber:
    """The consumer as seen by its coordinator code."""

    def __init__(
        self, consumer: Consumer, assigned: SubscriptionState, fetcher: ConsumerFetcher
    ) -> None:
        self._consumer = consumer
        self._assigned = assigned
        self._fetcher = fetcher

    @property
    def topics(self) -> Sequence[str]:
        return self._consumer.subscription()

    @property
    def listener(self) -> "RebalanceListener | None":
        return self._consumer.listener

    def owned(self) -> list[TopicPartition]:
        return list(self._assigned)

    def take_over(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned.assign(partitions)
        self._fetcher.drop()

    def positions(self) -> "Offsets":
        return self._assigned.positions()

    def wake(self) -> None:
        self._consumer.look_again()
