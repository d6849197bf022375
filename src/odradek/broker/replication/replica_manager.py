"""The partitions of this broker, and the controller's orders about them (Kafka's name for it).

Who asks for a partition gets it, or the error that Kafka gives: a partition that the cluster has
but this broker does not lead is NOT_LEADER_OR_FOLLOWER, one that nobody knows is
UNKNOWN_TOPIC_OR_PARTITION, one whose directory failed is KAFKA_STORAGE_ERROR.

Orders are for thousands of partitions at once, so they are carried out in slices: between two
slices the loop serves everybody else. The next order waits until one is carried out.

A broker that was away when a replica was taken from it, or its topic deleted, has heard of neither
and still has the log. If the same topic comes back, the log is used: it is cut by leader epochs as
every follower's is. If another topic of that name comes, the log is set aside.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from odradek.broker.controller.journal import STATE_CHANGES
from odradek.broker.replication.partition import Partition
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
state_changes = logging.getLogger(STATE_CHANGES)
SLICE_MS = 5
_NONE = ErrorCode.NONE  # looked up by its class each time, it would be felt in every request


class TopicSettings(NamedTuple):
    """What a topic's configuration means for its partitions here."""

    log_config: LogConfig
    rules: ValidationRules
    isr_min: int
    throttles: Throttles = Throttles()


class Settings(Protocol):
    """Where the configuration of topics is known."""

    def topic(self, name: str) -> TopicSettings:
        """The present settings of a topic; the same object for all that have no own."""


class RoleOrder(NamedTuple):
    """One partition of a LeaderAndIsr request."""

    topic_partition: TopicPartition
    topic_id: bytes
    state: LeaderAndIsr
    controller_epoch: int
    replicas: tuple[int, ...]
    is_new: bool
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class StopOrder(NamedTuple):
    """One partition of a StopReplica request."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


def _ignore(partition: Partition) -> None:
    del partition


class ReplicaManager:
    """All replicas that this broker holds."""

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
        """`knows` answers whether the metadata cache has such a partition.

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
        self._order = asyncio.Lock()
        self.ask_for_isr = ask_for_isr
        self.follow = follow
        self.leave = leave
        self.role_changed = role_changed
        self._live: frozenset[int] = frozenset()

    # -------------------------------------------------------------------- questions

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def logs(self) -> Logs:
        """The logs that lie here, held or not."""
        return self._logs

    def get(self, topic: str, index: int) -> Partition | None:
        """A partition held here, whatever its role."""
        return self._partitions.get((topic, index))

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """A partition held here, or why not."""
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        if self._knows(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_led(self, topic: str, index: int, leader_epoch: int = -1) -> Partition | ErrorCode:
        """A partition led here in the reign that the asker believes in, or why not."""
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
        """The name of a topic of which something is held here."""
        return self._topic_names.get(topic_id)

    async def loaded(self, cold: ColdRead) -> None:
        """Have something brought into memory.

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
        """A follower's fetch acknowledges, and may bring it into the ISR."""
        isr = partition.follower_fetched(
            follower, offset, monotonic_ms, broker_epoch, log_start_offset
        )
        if isr is not None:
            self.ask_for_isr(partition, isr)

    def isr_stored(self, partition: Partition, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller stored an ISR that was asked for: ask for the next follower, if any."""
        partition.isr_stored(isr, partition_epoch, self._clock.monotonic_ms())
        leader = partition.leader
        # Others may have caught up while this change was in flight, and an idle partition
        # brings no further fetch.
        proposed = leader.missed_expansion() if leader is not None else None
        if proposed is not None:
            self.ask_for_isr(partition, proposed)

    def brokers_changed(self, live: frozenset[int]) -> None:
        """These brokers are registered now, as the controller says."""
        if live == self._live:
            return
        self._live = live
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions.values():
            partition.brokers_changed(live, now_ms)

    def review_isrs(self) -> None:
        """Have those leave the ISR that have fallen behind, and those join whose turn was missed.

        A follower joins when it fetches what brings it to the end; if the controller refused it
        then (it did not know the broker yet), an idle partition brings no second occasion.
        """
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._partitions.values()):
            leader = partition.leader
            if leader is not None and leader.followers:
                isr = leader.shrinkage(now_ms) or leader.missed_expansion()
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

    def told_of(self, topics: Iterable[UpdateMetadataTopicState]) -> None:
        """What the controller says of all partitions: of some that are held here, others are held.

        The order to let a replica go is lost if the controller dies before this broker has it, and
        the next one gives it no more. Who leads on, for those who have not heard of it, takes
        records that nobody will ever read. The log stays, for whatever comes.
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
                    self._rest(partition)
                    log.info(
                        "%s is on brokers %s by now, and not here: it is served no longer; its "
                        "log stays until it is to be deleted, or comes back",
                        name,
                        ",".join(map(str, state.replicas)),
                    )

    def topic_is_gone(self, partition: Partition) -> None:
        """The controller, asked by its leader for another ISR, does not know its topic.

        Who was away while it was deleted, and was no replica any more, is not told.
        """
        self._rest(partition)
        log.info(
            "%s: the controller knows no topic with its id: it is led no longer; its log stays",
            partition.topic_partition,
        )

    def _rest(self, partition: Partition) -> None:
        before = _described(partition)
        self.leave(partition)
        partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.leader_id = NO_LEADER
        self._changed(partition, before, "stopped")

    def _changed(self, partition: Partition, before: str, after: str = "") -> None:
        """Notify of another role, and write it to the state-change log with the one `before`."""
        self.role_changed(partition)
        if before:
            after = after or _described(partition)
            state_changes.debug("%s: %s -> %s", partition.topic_partition, before, after)

    # ----------------------------------------------------------------------- orders

    async def take_roles(self, orders: Sequence[RoleOrder]) -> Mapping[TopicPartition, ErrorCode]:
        """Become leader or follower of these partitions. Returns the outcome for each."""
        outcome = {}
        async with self._order:
            pause = _Pause(self._clock)
            for order in orders:
                self._make_room(order)
                await pause.if_due()
            await self._remove_from_checkpoints(orders)
            for order in orders:
                outcome[order.topic_partition] = self._take_role(order)
                await pause.if_due()
        return outcome

    def _make_room(self, order: RoleOrder) -> None:
        """Set aside what is here of a former topic of that name."""
        name, topic_id = order.topic_partition, order.topic_id
        if topic_id == ZERO_UUID or self._is_past(order):
            return
        partition = self._partitions.get(name)
        if partition is not None and partition.topic_id != topic_id:
            self.leave(partition)
            self._forget(partition)
        found = self._logs.get(name)
        if found is None or found.topic_id == topic_id:
            return
        # Without an id it is from before there were any, unless the replica is a new one: then
        # the power failed before the id was written.
        if found.topic_id is None and not (order.is_new and found.leo):
            return
        was = found.directory
        try:
            path = self._logs.set_aside(name)
        except StorageError as error:
            self._logs.failed(error)
            return
        if path is not None:
            log.warning(
                "%s: the log in %s is of another topic of that name, with the id %s; this one has "
                "the id %s. It is set aside as %s. Nothing reads or removes it any more: remove "
                "it when nobody needs its records",
                name,
                was,
                _id_text(found.topic_id),
                _id_text(topic_id),
                path,
            )

    def _is_past(self, order: RoleOrder) -> bool:
        """Whether it names a topic that another of its name has followed: it is late."""
        topic_id = order.topic_id
        return topic_id != ZERO_UUID and self._topic_ids.is_replaced(
            order.topic_partition.topic, topic_id
        )

    async def _remove_from_checkpoints(self, orders: Sequence[RoleOrder]) -> None:
        """Nothing that checkpoints say of former logs may be taken for what the new ones hold."""
        made = [o.topic_partition for o in orders if self._logs.get(o.topic_partition) is None]
        if made:
            forgotten: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._logs.remove_from_checkpoints(made, partial(_settle, forgotten, True))
            await forgotten

    async def stop(self, orders: Sequence[StopOrder]) -> Mapping[TopicPartition, ErrorCode]:
        """Hold these partitions no longer, or not for now. Returns the outcome for each."""
        outcome = {}
        async with self._order:
            pause = _Pause(self._clock)
            for order in orders:
                outcome[order.topic_partition] = self._stop(order)
                await pause.if_due()
            if any(order.delete for order in orders):
                # The controller forgets the topic when it hears of it: should the directories
                # come back after a power loss, they would stand in the way of the next of its name.
                flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                self._logs.flush_deletions(partial(_settle, flushed))
                if not await flushed:
                    deleted = (order.topic_partition for order in orders if order.delete)
                    outcome.update(dict.fromkeys(deleted, ErrorCode.KAFKA_STORAGE_ERROR))
        return outcome

    def _take_role(self, order: RoleOrder) -> ErrorCode:
        name = order.topic_partition
        if self._is_past(order):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        partition = self._partitions.get(name)
        if partition is not None:
            if partition.topic_id != order.topic_id:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            refusal = refuse_role(
                leader_epoch=order.state.leader_epoch,
                partition_epoch=order.state.partition_epoch,
                known_leader_epoch=partition.leader_epoch,
                known_partition_epoch=partition.partition_epoch,
            )
            if refusal is not ErrorCode.NONE:
                # Asked again what it has, for a directory failed: what is lost is what matters.
                lost = partition.error is ErrorCode.KAFKA_STORAGE_ERROR
                return ErrorCode.KAFKA_STORAGE_ERROR if lost else refusal
        settings = self._settings.topic(name.topic)
        try:
            if partition is None or partition.log is None:
                opened = self._open_log(order, settings)
                if isinstance(opened, ErrorCode):
                    if opened is ErrorCode.KAFKA_STORAGE_ERROR:
                        self._hold_without_log(order, settings)
                    return opened
                if partition is None:
                    partition = self._hold(order, opened, settings)
                partition.log = opened
            self._assume(partition, order, settings)
        except StorageError as error:
            self._logs.failed(error)
            self._hold_without_log(order, settings)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _open_log(self, order: RoleOrder, settings: TopicSettings) -> Log | ErrorCode:
        name = order.topic_partition
        opened = self._logs.get(name)
        if opened is None:
            if not order.is_new and self._logs.has_offline_dir:
                # It may well be in the directory that failed: an empty one beside it would
                # make the others believe that the records are gone.
                return ErrorCode.KAFKA_STORAGE_ERROR
            return self._logs.create(name, order.topic_id, settings.log_config)
        if opened.topic_id is None:
            opened.assign_topic_id(order.topic_id)
        elif opened.topic_id != order.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        opened.update_config(settings.log_config)
        return opened

    def _hold(self, order: RoleOrder, opened: Log | None, settings: TopicSettings) -> Partition:
        name = order.topic_partition
        partition = Partition(name, order.topic_id, opened, settings.rules)
        self._partitions[name] = partition
        self._topic_names[order.topic_id] = name.topic
        self._held[order.topic_id] += 1
        return partition

    def _hold_without_log(self, order: RoleOrder, settings: TopicSettings) -> None:
        if order.topic_partition not in self._partitions:
            partition = self._hold(order, None, settings)
            partition.error = ErrorCode.KAFKA_STORAGE_ERROR

    def _assume(self, partition: Partition, order: RoleOrder, settings: TopicSettings) -> None:
        before = _described(partition)
        partition.controller_epoch = order.controller_epoch
        partition.adding, partition.removing = order.adding, order.removing
        partition.throttle(settings.throttles)
        self.leave(partition)
        if order.state.leader == self._broker_id:
            self._warn_of_unclean_election(partition, order.state)
            partition.become_leader(
                order.state,
                order.replicas,
                own_id=self._broker_id,
                isr_min=settings.isr_min,
                lag_ms_max=self._lag_ms_max,
                live=self._live,
                monotonic_ms=self._clock.monotonic_ms(),
            )
        else:
            partition.become_follower(order.state, order.replicas)
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

    def _stop(self, order: StopOrder) -> ErrorCode:
        name = order.topic_partition
        partition = self._partitions.get(name)
        if partition is not None:
            refusal = refuse_stop(
                leader_epoch=order.leader_epoch, known_leader_epoch=partition.leader_epoch
            )
            if refusal is not ErrorCode.NONE:
                return refusal
        try:
            if order.delete:
                if self._logs.get(name) is None and self._logs.has_offline_dir:
                    # It may well be in the directory that failed, and would be there again
                    # with the directory: the controller has to wait for that.
                    return ErrorCode.KAFKA_STORAGE_ERROR
                if partition is not None:
                    self.leave(partition)
                    self._forget(partition)
                self._logs.delete(name)
            elif partition is not None:
                before = _described(partition)
                self.leave(partition)
                partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._changed(partition, before, "stopped")
        except StorageError as error:
            self._logs.failed(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _forget(self, partition: Partition) -> None:
        name, before = partition.topic_partition, _described(partition)
        del self._partitions[name]
        self._held[partition.topic_id] -= 1
        if not self._held[partition.topic_id]:
            del self._held[partition.topic_id], self._topic_names[partition.topic_id]
        partition.removed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._changed(partition, before, "deleted")

    # --------------------------------------------------------------------- changes

    def storage_failed(self, error: StorageError) -> None:
        """A disk refused: its directory goes offline, and with it all that is in there."""
        self._logs.failed(error)

    def logs_lost(self, lost: Sequence[TopicPartition]) -> None:
        """Their directory failed: nobody can be served from them."""
        for name in lost:
            partition = self._partitions.get(name)
            if partition is not None:
                before = _described(partition)
                self.leave(partition)
                partition.log = None
                partition.stop_serving(ErrorCode.KAFKA_STORAGE_ERROR)
                self._changed(partition, before)

    def topic_config_changed(self, topic: str) -> None:
        """A topic has other settings now."""
        settings = self._settings.topic(topic)
        now_ms = self._clock.monotonic_ms()
        for (name, _), partition in self._partitions.items():
            if name == topic:
                self._configure(partition, settings, now_ms)

    def all_configs_changed(self) -> None:
        """The broker's own options, which all topics inherit, are others now."""
        now_ms = self._clock.monotonic_ms()
        for (name, _), partition in self._partitions.items():
            self._configure(partition, self._settings.topic(name), now_ms)

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
        """The broker stops: every waiting request is answered, clients go elsewhere."""
        for partition in self._partitions.values():
            partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.role_changed(partition)


class _Pause:
    """Lets the loop go round when a slice of work is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms = clock.monotonic_ms() + SLICE_MS

    async def if_due(self) -> None:
        if self._clock.monotonic_ms() >= self._until_ms:
            await asyncio.sleep(0)
            self._until_ms = self._clock.monotonic_ms() + SLICE_MS


def _described(partition: Partition) -> str:
    """A replica's role, for the state-change log; nothing while that is not written."""
    if not state_changes.isEnabledFor(logging.DEBUG):
        return ""
    log, leader = partition.log, partition.leader
    if log is None:
        return "offline"
    if partition.leader_epoch < 0:
        return "new"
    if leader is not None:
        isr = ",".join(map(str, leader.isr.committed))
        role = f"leader, ISR {isr}"
    elif partition.leader_id == NO_LEADER:
        role = "without a leader"
    else:
        role = f"follower of {partition.leader_id}"
    return (
        f"{role}, leader epoch {partition.leader_epoch}, partition epoch "
        f"{partition.partition_epoch}, log end {log.leo}, high watermark {log.high_watermark}"
    )


def _id_text(topic_id: bytes | None) -> str:
    return "unknown" if topic_id is None else uuid_text(UUID(bytes=topic_id))


async def load(cold: ColdRead) -> None:
    """Have something brought into memory.

    Raises:
        StorageError: the disk refused. Nothing is offline for that yet.
    """
    future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
    cold.load(partial(_settle, future))
    error = await future
    if error is not None:
        raise error


def _settle(future: asyncio.Future[T], outcome: T) -> None:
    if not future.done():  # else who waited was cancelled
        future.set_result(outcome)
