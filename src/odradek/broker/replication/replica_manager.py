"""The replicas of this broker, and how it carries out LeaderAndIsr and StopReplica.

Looking up a partition returns it, or Kafka's error: NOT_LEADER_OR_FOLLOWER for a partition that the
metadata has but this broker does not lead, UNKNOWN_TOPIC_OR_PARTITION for one that the metadata
does not have, KAFKA_STORAGE_ERROR for one whose log directory failed.

A request of the controller may name thousands of partitions, so it is carried out in slices:
between two slices the loop serves other requests. The controller's next request waits for its end.

A broker that was down when it was removed from a partition's replicas, or when the topic was
deleted, still has the log. If it becomes a replica of the same topic again, the log is used and
truncated by leader epochs like that of every follower. If it becomes a replica of another topic of
the same name, the log is set aside.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from odradek.broker.replication.partition import Partition
from odradek.broker.replication.roles import RefusedRoles, described, state_changes, tried_again
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.log_config import LogConfig
from odradek.log.logs import Logs
from odradek.log.slices import ColdRead
from odradek.model.clock import Clock, MonotonicMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.ids import uuid_text
from odradek.model.partition import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    RECOVERING,
    LeaderAndIsr,
    TopicPartition,
)
from odradek.record.validate import ValidationRules
from odradek.replica.throttle import Throttles
from odradek.replica.topic_ids import TopicIds
from odradek.replica.transitions import refuse_role, refuse_stop
from odradek.wire.messages.update_metadata import UpdateMetadataTopicState
from odradek.wire.schema import ZERO_UUID

T = TypeVar("T")
log = logging.getLogger(__name__)
SLICE_MS = 5
_NONE = ErrorCode.NONE  # a global: the attribute look-up would cost time in every request


class TopicSettings(NamedTuple):
    """What a topic's configuration sets for its partitions on this broker."""

    log_config: LogConfig
    rules: ValidationRules
    isr_min: int
    throttles: Throttles = Throttles()


class Settings(Protocol):
    """Looks up the configuration of topics."""

    def topic(self, name: str) -> TopicSettings:
        """The topic's present settings; topics without options of their own share one object."""


class LeaderAndIsrPartition(NamedTuple):
    """One partition of a LeaderAndIsr request."""

    topic_partition: TopicPartition
    topic_id: bytes
    state: LeaderAndIsr
    controller_epoch: int
    replicas: tuple[int, ...]
    is_new: bool
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class StopReplicaPartition(NamedTuple):
    """One partition of a StopReplica request."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


def _ignore(partition: Partition) -> None:
    del partition


class ReplicaManager:
    """All replicas that this broker holds (Kafka's `ReplicaManager`)."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        broker_id: int,
        logs: Logs,
        clock: Clock,
        settings: Settings,
        lag_ms_max: int,
        knows: Callable[[str, int], bool],
        ask_for_isr: Callable[[Partition, tuple[int, ...]], None] = lambda _partition, _isr: None,
        follow: Callable[[Partition], None] = _ignore,
        leave: Callable[[Partition], None] = _ignore,
        role_changed: Callable[[Partition], None] = _ignore,
    ) -> None:
        """`knows` returns whether the metadata cache has a partition.

        `ask_for_isr` proposes an ISR to the controller; `follow` and `leave` start and end fetching
        from a leader; `role_changed` is called in the loop's turn in which the leader changed.
        """
        self._broker_id = broker_id
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._lag_ms_max = lag_ms_max
        self._knows = knows
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topic_names: dict[bytes, str] = {}
        self._held = Counter[bytes]()  # partitions of each topic id
        self._topic_ids = TopicIds()
        self._state_change = asyncio.Lock()
        self.ask_for_isr = ask_for_isr
        self.follow = follow
        self.leave = leave
        self.role_changed = role_changed
        self.refused_roles = RefusedRoles()
        self._live: frozenset[int] = frozenset()

    # -------------------------------------------------------------------- look-ups

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def logs(self) -> Logs:
        """The logs in this broker's log directories, also those without a partition here."""
        return self._logs

    def get(self, topic: str, index: int) -> Partition | None:
        """A partition held here, as leader or follower."""
        return self._partitions.get((topic, index))

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """A partition held here, or the error for the client."""
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        if self._knows(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_led(self, topic: str, index: int, leader_epoch: int = -1) -> Partition | ErrorCode:
        """A partition led here in the requester's leader epoch, or the error for the requester.

        A `leader_epoch` of -1 is not checked.
        """
        partition = self._partitions.get((topic, index))
        if (
            partition is not None
            and partition.error is _NONE
            and (leader_epoch == -1 or leader_epoch == partition.leader_epoch)  # noqa: PLR1714
        ):
            return partition
        found = self.find(topic, index)
        if isinstance(found, ErrorCode):
            return found
        if found.error is not ErrorCode.NONE:
            return found.error
        return found.check_epoch(leader_epoch) or found

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic of which this broker holds a partition."""
        return self._topic_names.get(topic_id)

    async def loaded(self, cold: ColdRead) -> None:
        """Read something into memory.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; the directory is offline now.
        """
        try:
            await load(cold)
        except StorageError as error:
            self.storage_failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    # -------------------------------------------------------------------- replication

    def follower_fetched(
        self,
        partition: Partition,
        follower: int,
        offset: int,
        monotonic_ms: MonotonicMs,
        broker_epoch: int,
        log_start_offset: int = -1,
    ) -> None:
        """A follower's fetch acknowledges records, and may let it join the ISR."""
        isr = partition.follower_fetched(
            follower, offset, monotonic_ms, broker_epoch, log_start_offset
        )
        if isr is not None:
            self.ask_for_isr(partition, isr)

    def isr_stored(self, partition: Partition, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller stored a proposed ISR: propose the next follower, if there is one."""
        partition.isr_stored(isr, partition_epoch, self._clock.monotonic_ms())
        leader = partition.leader
        # Other followers may have caught up while this change was in flight, and in an idle
        # partition no later fetch proposes them.
        proposed = leader.missed_expansion() if leader is not None else None
        if proposed is not None:
            self.ask_for_isr(partition, proposed)

    def brokers_changed(self, live: frozenset[int]) -> None:
        """The controller's metadata lists these registered brokers."""
        if live == self._live:
            return
        self._live = live
        monotonic_ms = self._clock.monotonic_ms()
        for partition in self._partitions.values():
            partition.brokers_changed(live, monotonic_ms)

    def review_isrs(self) -> None:
        """Propose ISRs without followers that fell behind, or with those that have caught up.

        A follower is proposed when a fetch brings it to the end of the log. If the controller
        refused that (the broker was not registered yet), an idle partition has no second occasion.
        """
        monotonic_ms = self._clock.monotonic_ms()
        for partition in list(self._partitions.values()):
            leader = partition.leader
            if leader is not None and leader.followers:
                isr = leader.shrinkage(monotonic_ms) or leader.missed_expansion()
                if isr is not None:
                    self.ask_for_isr(partition, isr)

    @property
    def is_replicated(self) -> bool:
        """Whether the in-sync followers of each partition led here have all of its log."""
        return all(
            partition.log is None or partition.log.leo <= leader.leo_in_sync
            for partition in self._partitions.values()
            if (leader := partition.leader) is not None
        )

    def metadata_updated(self, topics: Iterable[UpdateMetadataTopicState]) -> None:
        """Stop serving partitions of which UpdateMetadata says that other brokers hold them.

        1. A reassignment removes this broker from the replicas. 2. The controller fails before
        StopReplica arrives; its successor does not send it again. 3. A leader that went on leading
        would accept records from clients with old metadata, and lose them. The log stays: it is
        deleted, or used again, when the controller says so.
        """
        for topic in topics:
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                partition = self._partitions.get(name)
                if (
                    partition is not None
                    and partition.topic_id == topic.topic_id
                    and state.leader_epoch > partition.leader_epoch
                    and self._broker_id not in state.replicas
                    and state.leader != LEADER_DURING_DELETE
                    and (partition.leader is not None or partition.follows)
                ):
                    self._stop_serving(partition)
                    log.info(
                        "%s: its replicas are now brokers %s, without this broker: it is no longer "
                        "served here; its log stays until it is deleted or assigned here again",
                        name,
                        ",".join(map(str, state.replicas)),
                    )

    def topic_deleted(self, partition: Partition) -> None:
        """The controller answered an AlterPartition of its leader with UNKNOWN_TOPIC_ID.

        A broker that was down when the topic was deleted, and was no longer one of its replicas,
        gets no StopReplica for it.
        """
        self._stop_serving(partition)
        log.info(
            "%s: the controller has no topic with its id: it is no longer led here; its log stays",
            partition.topic_partition,
        )

    def _stop_serving(self, partition: Partition) -> None:
        before = described(partition)
        self.leave(partition)
        partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.leader_id = NO_LEADER
        self._changed(partition, before, "stopped")

    def _changed(self, partition: Partition, before: str, after: str = "") -> None:
        """Notify of a role change, and write it to the state-change log with the role `before`."""
        self.role_changed(partition)
        if before:
            after = after or described(partition)
            state_changes.debug("%s: %s -> %s", partition.topic_partition, before, after)

    # ------------------------------------------------- requests of the controller

    async def take_roles(
        self, changes: Sequence[LeaderAndIsrPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Become leader or follower of these partitions. Returns the error code of each."""
        outcome = {}
        async with self._state_change:
            pause = _Pause(self._clock)
            for change in changes:
                self._set_aside_earlier(change)
                await pause.if_due()
            await self._remove_from_checkpoints(changes)
            for change in changes:
                outcome[change.topic_partition] = await self._take_role_at_last(change)
                await pause.if_due()
        return outcome

    async def _take_role_at_last(self, change: LeaderAndIsrPartition) -> ErrorCode:
        name = change.topic_partition
        try:
            return await tried_again(partial(self._take_role, change), name)
        except StorageError as error:
            self._logs.take_offline(error)  # which the controller learns
            self._hold_without_log(change, self._settings.topic(name.topic))
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _set_aside_earlier(self, change: LeaderAndIsrPartition) -> None:
        """Set aside the log of an earlier topic of the same name."""
        name, topic_id = change.topic_partition, change.topic_id
        if topic_id == ZERO_UUID or self._is_replaced(change):
            return
        partition = self._partitions.get(name)
        if partition is not None and partition.topic_id != topic_id:
            self.leave(partition)
            self._drop(partition)
        found = self._logs.get(name)
        if found is None or found.topic_id == topic_id:
            return
        # A log without id was written before topics had ids - unless the replica is new: then
        # the power failed before the id was written.
        if found.topic_id is None and not (change.is_new and found.leo):
            return
        try:
            self._logs.set_aside(
                name,
                f"it is of another topic of that name, with the id {_id_text(found.topic_id)}; "
                f"this one has the id {_id_text(topic_id)}",
            )
        except StorageError as error:
            self._logs.failed(error)

    def _is_replaced(self, change: LeaderAndIsrPartition) -> bool:
        """Whether it names a topic id that a newer topic of the same name has replaced."""
        topic_id = change.topic_id
        return topic_id != ZERO_UUID and self._topic_ids.is_replaced(
            change.topic_partition.topic, topic_id
        )

    async def _remove_from_checkpoints(self, changes: Sequence[LeaderAndIsrPartition]) -> None:
        """Drop checkpointed offsets of earlier logs, so that they are not applied to new ones."""
        made = [o.topic_partition for o in changes if self._logs.get(o.topic_partition) is None]
        if made:
            dropped: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._logs.remove_from_checkpoints(made, partial(_settle, dropped, True))
            await dropped

    async def stop(
        self, changes: Sequence[StopReplicaPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Stop serving these partitions; delete the logs if asked. Returns the error of each."""
        outcome = {}
        async with self._state_change:
            pause = _Pause(self._clock)
            for change in changes:
                outcome[change.topic_partition] = self._stop(change)
                await pause.if_due()
            if any(change.delete for change in changes):
                # The controller drops the topic when it gets our response. A directory that came
                # back after a power failure would collide with the next topic of that name.
                flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                self._logs.flush_deletions(partial(_settle, flushed))
                if not await flushed:
                    deleted = (change.topic_partition for change in changes if change.delete)
                    outcome.update(dict.fromkeys(deleted, ErrorCode.KAFKA_STORAGE_ERROR))
        return outcome

    def _take_role(self, change: LeaderAndIsrPartition) -> ErrorCode:
        name = change.topic_partition
        if self._is_replaced(change):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        partition = self._partitions.get(name)
        if partition is not None:
            if partition.topic_id != change.topic_id:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            refusal = refuse_role(
                leader_epoch=change.state.leader_epoch,
                partition_epoch=change.state.partition_epoch,
                known_leader_epoch=partition.leader_epoch,
                known_partition_epoch=partition.partition_epoch,
            )
            if refusal is not ErrorCode.NONE:
                # The controller sends the request again when a directory failed, to learn which
                # replicas are offline; that error goes before the refusal of old epochs.
                lost = partition.error is ErrorCode.KAFKA_STORAGE_ERROR
                return ErrorCode.KAFKA_STORAGE_ERROR if lost else refusal
        settings = self._settings.topic(name.topic)
        if partition is None or partition.log is None:
            opened = self._open_log(change, settings)
            if isinstance(opened, ErrorCode):
                if opened is ErrorCode.KAFKA_STORAGE_ERROR:
                    self._hold_without_log(change, settings)
                return opened
            if partition is None:
                partition = self._hold(change, opened, settings)
            partition.log = opened
        self._assume(partition, change, settings)
        return ErrorCode.NONE

    def _open_log(self, change: LeaderAndIsrPartition, settings: TopicSettings) -> Log | ErrorCode:
        name = change.topic_partition
        opened = self._logs.get(name)
        if opened is None:
            if not change.is_new and self._logs.has_offline_dir:
                # The log may be in the failed directory. An empty log elsewhere would let the
                # controller elect this replica although it has lost its records.
                return ErrorCode.KAFKA_STORAGE_ERROR
            return self._logs.create(name, change.topic_id, settings.log_config)
        if opened.topic_id is None:
            opened.assign_topic_id(change.topic_id)
        elif opened.topic_id != change.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        elif self.refused_roles.refuses(opened, change.state.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        opened.update_config(settings.log_config)
        return opened

    def _hold(
        self, change: LeaderAndIsrPartition, opened: Log | None, settings: TopicSettings
    ) -> Partition:
        name = change.topic_partition
        partition = Partition(name, change.topic_id, opened, settings.rules)
        self._partitions[name] = partition
        self._topic_names[change.topic_id] = name.topic
        self._held[change.topic_id] += 1
        return partition

    def _hold_without_log(self, change: LeaderAndIsrPartition, settings: TopicSettings) -> None:
        if change.topic_partition not in self._partitions:
            partition = self._hold(change, None, settings)
            partition.error = ErrorCode.KAFKA_STORAGE_ERROR

    def _assume(
        self, partition: Partition, change: LeaderAndIsrPartition, settings: TopicSettings
    ) -> None:
        before = described(partition)
        partition.controller_epoch = change.controller_epoch
        partition.adding, partition.removing = change.adding, change.removing
        partition.throttle(settings.throttles)
        self.leave(partition)
        if change.state.leader == self._broker_id:
            self._warn_of_unclean_election(partition, change.state)
            partition.become_leader(
                change.state,
                change.replicas,
                own_id=self._broker_id,
                isr_min=settings.isr_min,
                lag_ms_max=self._lag_ms_max,
                live=self._live,
                monotonic_ms=self._clock.monotonic_ms(),
            )
        else:
            partition.become_follower(change.state, change.replicas)
            self.follow(partition)
        self._changed(partition, before)

    @staticmethod
    def _warn_of_unclean_election(partition: Partition, state: LeaderAndIsr) -> None:
        held = partition.log
        if (
            state.leader_recovery_state == RECOVERING
            and state.leader_epoch != partition.leader_epoch
            and held is not None
        ):
            log.warning(
                "%s is led here from outside the ISR, in leader epoch %d (unclean election): its "
                "log ends at %d, and committed records that only other replicas have are lost",
                partition.topic_partition,
                state.leader_epoch,
                held.leo,
            )

    def _stop(self, change: StopReplicaPartition) -> ErrorCode:
        name = change.topic_partition
        partition = self._partitions.get(name)
        if partition is not None:
            refusal = refuse_stop(
                leader_epoch=change.leader_epoch, known_leader_epoch=partition.leader_epoch
            )
            if refusal is not ErrorCode.NONE:
                return refusal
        try:
            if change.delete:
                if self._logs.get(name) is None and self._logs.has_offline_dir:
                    # The log may be in the failed directory and would be there again with the
                    # directory: the controller has to wait until it is online.
                    return ErrorCode.KAFKA_STORAGE_ERROR
                if partition is not None:
                    self.leave(partition)
                    self._drop(partition)
                self._logs.delete(name)
            elif partition is not None:
                before = described(partition)
                self.leave(partition)
                partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._changed(partition, before, "stopped")
        except StorageError as error:
            self._logs.failed(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _drop(self, partition: Partition) -> None:
        name, before = partition.topic_partition, described(partition)
        del self._partitions[name]
        self._held[partition.topic_id] -= 1
        if not self._held[partition.topic_id]:
            del self._held[partition.topic_id], self._topic_names[partition.topic_id]
        partition.removed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._changed(partition, before, "deleted")

    # --------------------------------------------------------------------- changes

    def storage_failed(self, error: StorageError) -> None:
        """Take the log directory of a failed disk access offline, with all its partitions."""
        self._logs.failed(error)

    def logs_lost(self, lost: Sequence[TopicPartition]) -> None:
        """Answer KAFKA_STORAGE_ERROR for these partitions: their log directory failed."""
        for name in lost:
            partition = self._partitions.get(name)
            if partition is not None:
                before = described(partition)
                self.leave(partition)
                partition.log = None
                partition.stop_serving(ErrorCode.KAFKA_STORAGE_ERROR)
                self._changed(partition, before)

    def topic_config_changed(self, topic: str) -> None:
        """Apply a topic's changed configuration to its partitions."""
        settings = self._settings.topic(topic)
        monotonic_ms = self._clock.monotonic_ms()
        for (name, _), partition in self._partitions.items():
            if name == topic:
                self._configure(partition, settings, monotonic_ms)

    def all_configs_changed(self) -> None:
        """Apply the broker's changed options, which topics inherit, to all partitions."""
        monotonic_ms = self._clock.monotonic_ms()
        for (name, _), partition in self._partitions.items():
            self._configure(partition, self._settings.topic(name), monotonic_ms)

    def _configure(
        self, partition: Partition, settings: TopicSettings, monotonic_ms: MonotonicMs
    ) -> None:
        if partition.log is not None:
            partition.log.update_config(settings.log_config)
            partition.throttle(settings.throttles)
            partition.config_changed(
                settings.rules, isr_min=settings.isr_min, monotonic_ms=monotonic_ms
            )

    def stop_all(self) -> None:
        """Answer every waiting request: the broker stops, and clients look for other leaders."""
        for partition in self._partitions.values():
            partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.role_changed(partition)


class _Pause:
    """Yields to the event loop when a slice of work has taken its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms = clock.monotonic_ms() + SLICE_MS

    async def if_due(self) -> None:
        if self._clock.monotonic_ms() >= self._until_ms:
            await asyncio.sleep(0)
            self._until_ms = self._clock.monotonic_ms() + SLICE_MS


def _id_text(topic_id: bytes | None) -> str:
    return "unknown" if topic_id is None else uuid_text(UUID(bytes=topic_id))


async def load(cold: ColdRead) -> None:
    """Read something into memory.

    Raises:
        StorageError: the read failed. No log directory is offline for that yet.
    """
    future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
    cold.load(partial(_settle, future))
    error = await future
    if error is not None:
        raise error


def _settle(future: asyncio.Future[T], outcome: T) -> None:
    if not future.done():  # otherwise the waiting task was cancelled
        future.set_result(outcome)
