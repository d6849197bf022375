"""One partition on this broker: its log, its role, and the requests that wait for it.

Every change of LEO, HW or role goes through this class, because it holds what such a change wakes:

    produces  acks=all requests, in the order of the offset they need; popped when the HW reaches it
    watches   fetchers that have this partition in their session; notified that it is ready

A change only *marks* the waiting fetches; they are read again in the loop's next turn
(`Purgatory.wake`), not inside the append. Losing leadership, deletion, a failed log directory and
the stop of the broker complete every waiting request with Kafka's error.
"""

from collections import deque
from functools import partial
from typing import NamedTuple, Protocol

from odradek.log.disk import StorageError
from odradek.log.flushing import FlushDone
from odradek.log.log import Log
from odradek.log.log_config import NEVER
from odradek.log.producer_state import NO_OFFSET
from odradek.log.slices import Appended, UnexpectedOffsetError
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.invariants import InvariantError, hold
from odradek.model.partition import NO_LEADER, LeaderAndIsr, TopicPartition
from odradek.record.batch import BatchHeader, CorruptBatchError
from odradek.record.conversion import holds_old_messages, upgraded
from odradek.record.validate import ValidationRules
from odradek.replica.fetch_session import SessionPartition
from odradek.replica.isr import Isr
from odradek.replica.leader import Follower, LeaderReplica
from odradek.replica.throttle import Throttles


class Sender(Protocol):
    """Where responses to one client are collected before they are written."""

    def release(self) -> None:
        """Write the responses that are ready, in one write."""


class WaitingProduce(Protocol):
    """A produce request that waits for the high watermark of some partitions."""

    done: bool

    def committed(self, slot: int) -> Sender | None:
        """What it wrote to its partition number `slot` is committed.

        Returns where its response leaves, if the request is complete now. The caller releases it
        after other requests of the same connection have been completed.
        """

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """The broker stops leading the partition before the write is known to be committed."""


class WaitingDeletion(Protocol):
    """A DeleteRecords request that waits until the low watermark reaches its offset."""

    done: bool
    offset: int

    def deleted(self, low_watermark: int) -> None:
        """The low watermark is at or above the offset: no registered replica has the records."""

    def failed(self, error: ErrorCode) -> None:
        """The broker stops leading the partition before the low watermark gets there."""


class FetchWatch(Protocol):
    """A fetcher that has this partition in its session."""

    follower_id: int  # -1 for a consumer

    def partition_ready(
        self, partition: SessionPartition, new_bytes: int, *, more_follow: bool = False
    ) -> None:
        """There may be something to read, about `new_bytes` more than before."""

    def partition_changed(self, partition: SessionPartition) -> None:
        """The waiting fetch has to be answered now: a new leader, an error, a new log start."""

    def high_watermark_moved(self, partition: SessionPartition) -> None:
        """The HW has changed, which the response to a follower's waiting Fetch has to contain.

        New records complete that Fetch; without new records it completes after a short delay.
        """


class Partition:
    """One replica that this broker holds."""

    __slots__ = (
        "_deletions",
        "_new_bytes",
        "_produces",
        "adding",
        "controller_epoch",
        "error",
        "follower_throttled",
        "is_removed",
        "leader",
        "leader_epoch",
        "leader_id",
        "leader_throttled",
        "log",
        "partition_epoch",
        "removing",
        "replicas",
        "rules",
        "topic_id",
        "topic_partition",
        "watches",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: Log | None,
        rules: ValidationRules,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log  # None: its log directory has failed
        self.rules = rules
        self.leader: LeaderReplica | None = None  # set while this broker leads
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()  # the replicas that a reassignment adds
        self.removing: tuple[int, ...] = ()  # and the ones that it removes
        self.is_removed = False  # deleted here, or replaced by another topic of the same name
        # The error for requests that only a leader can serve.
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._produces: deque[tuple[int, WaitingProduce, int]] | None = None
        # Fetches of followers and consumers that wait for it; None: none does.
        self.watches: dict[FetchWatch, SessionPartition] | None = None
        self._deletions: list[WaitingDeletion] | None = None
        self.leader_throttled = self.follower_throttled = False
        self._new_bytes = 0  # appended and not yet below the high watermark

    @property
    def is_under_replicated(self) -> bool:
        """Led here, with fewer in-sync replicas than replicas, not counting those being added."""
        if self.leader is None:
            return False
        return len(self.leader.isr.committed) < len(self.replicas) - len(self.adding)

    def validate(self) -> None:
        """Check what holds between two requests, of this replica and of its log.

        The logs of in-sync followers are on other brokers: a leader that has just been elected, or
        whose follower has lost its disk, does not know where they end.

        Raises:
            InvariantError: something does not hold.
        """
        name, log, leader = self.topic_partition, self.log, self.leader
        if log is not None and not log.removed:
            log.validate()
        leads = self.error is ErrorCode.NONE
        hold(leads is (leader is not None), name, "it is served if and only if it is led here")
        hold(not self.is_removed or log is None, name, "it is removed, and has a log")
        if leader is None:
            hold(not self._produces, name, "a produce request waits for a broker that follows")
            return
        isr = leader.isr
        if log is None or not leader.high_watermark <= leader.leo <= log.leo:
            raise InvariantError(
                f"{name}: the leader has HW {leader.high_watermark}, LEO {leader.leo}"
            )
        if log.high_watermark != leader.high_watermark:
            raise InvariantError(
                f"{name}: HW {leader.high_watermark} is {log.high_watermark} in the log"
            )
        if {*self.replicas} - leader.followers.keys() != {self.leader_id}:
            raise InvariantError(
                f"{name}: {self.leader_id} leads {[*leader.followers]} of {self.replicas}"
            )
        if self.leader_id not in isr.committed or not isr.maximal.issubset(self.replicas):
            raise InvariantError(f"{name}: {isr} of the leader {self.leader_id} of {self.replicas}")
        if self._produces and self._produces[0][0] <= leader.high_watermark:
            raise InvariantError(
                f"{name}: a produce request waits for offset {self._produces[0][0]}"
            )
        required = [offset for offset, _, _ in self._produces or ()]
        hold(required == sorted(required), name, "produce requests wait in another order")

    def held_log(self) -> Log:
        """The log.

        Raises:
            ApiError: it is deleted, or its log directory has failed.
        """
        if self.log is None:
            raise ApiError(self.error or ErrorCode.KAFKA_STORAGE_ERROR)
        return self.log

    # ------------------------------------------------------------------------ roles

    def become_leader(  # noqa: PLR0913 - the state of a leader at the start of its epoch
        self,
        state: LeaderAndIsr,
        replicas: tuple[int, ...],
        *,
        own_id: int,
        isr_min: int,
        lag_ms_max: int,
        live: frozenset[int],
        monotonic_ms: MonotonicMs,
    ) -> None:
        """Lead from now on, or continue to lead in the same leader epoch with another ISR."""
        log = self.held_log()
        new_epoch = self.leader is None or state.leader_epoch != self.leader_epoch
        if new_epoch:
            log.assign_epoch(state.leader_epoch, log.leo)
        before = None if new_epoch else self.leader
        # A leader that has just started does not know which part of its log is flushed. With
        # followers, that part counts for the HW once it is flushed; a single replica must not
        # take back what consumers may have read, so all of its log counts at once.
        counts_all = new_epoch and len(replicas) == 1
        self.leader = LeaderReplica(
            leo=log.leo if counts_all else max(log.counted_end, log.high_watermark),
            high_watermark=log.high_watermark,
            followers={
                # An in-sync follower that has not fetched yet gets replica.lag.time.max.ms to do
                # so; a follower outside the ISR does not hold back the HW.
                replica: (before and before.followers.get(replica))
                or Follower(
                    leo=-1,
                    caught_up_ms=monotonic_ms - (0 if replica in state.isr else lag_ms_max + 1),
                )
                for replica in replicas
                if replica != own_id
            },
            isr=Isr(state.isr, state.partition_epoch),
            isr_min=isr_min,
            lag_ms_max=lag_ms_max,
            epoch_start_offset=before.epoch_start_offset if before else log.leo,
            live=live,
        )
        self._take_over(state, replicas)
        self.error = ErrorCode.NONE
        moved = self.leader.isr_stored(state.isr, state.partition_epoch, monotonic_ms=monotonic_ms)
        self._high_watermark_may_move(moved)
        if self.leader.leo < log.leo:  # what is not flushed counts as soon as it is
            log.flush_rest(partial(self._flushed, monotonic_ms, None))
        if new_epoch:
            self._notify_watches()  # their fetchers use the former leader epoch

    def become_follower(self, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        """Follow from now on; waiting requests are answered with NOT_LEADER_OR_FOLLOWER."""
        self.leader = None
        self._take_over(state, replicas)
        self.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop_serving(self, error: ErrorCode) -> None:
        """Complete every waiting request with this error, and answer with it from now on."""
        self.error = error
        self.leader = None
        produces, self._produces = self._produces, None
        for _, produce, slot in produces or ():
            produce.failed_at(slot, error)
        self._low_watermark_may_move()
        self._notify_watches()

    def removed(self, error: ErrorCode) -> None:
        """Answer `error` from now on: the replica is no longer on this broker."""
        self.is_removed = True
        self.stop_serving(error)
        self.watches = None
        self.log = None

    def _take_over(self, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = replicas

    # ------------------------------------------------------------------ produce and fetch

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        monotonic_ms: MonotonicMs,
        *,
        flushed: FlushDone | None = None,
        more_follow: bool = False,
        from_client: bool = True,
    ) -> Appended:
        """Append a validated batch of a producer. Returns its offsets.

        `more_follow`: the producer is about to send more, and the followers may wait for it.
        `flushed`, `from_client`: see `Log.append_as_leader`.

        Raises:
            ApiError: the producer's epoch or sequence is wrong, or this replica does not lead.
            StorageError: the disk failed.
        """
        log, leader = self.log, self.leader
        if log is None or leader is None:
            raise ApiError(self.error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        is_flushed = log.config.flush_messages != NEVER
        if is_flushed:
            flushed = partial(self._flushed, monotonic_ms, flushed)
        appended = log.append_as_leader(batch, header, self.leader_epoch, flushed, from_client)
        if appended.duplicate:
            return appended
        old = leader.high_watermark
        end = max(leader.leo, log.counted_end) if is_flushed else log.leo
        high_watermark = leader.appended(end, monotonic_ms)
        if self.watches is None and self._produces is None:  # no request waits for this partition
            if high_watermark != old:
                log.set_high_watermark(high_watermark)
            return appended
        self._new_bytes += len(batch)
        if self.watches is not None and leader.followers:
            self._log_grew(len(batch), more_follow)
        if high_watermark != old:
            self._high_watermark_may_move(high_watermark)
        return appended

    def _flushed(
        self, monotonic_ms: MonotonicMs, also: FlushDone | None, error: StorageError | None
    ) -> None:
        """Count records that were appended at `monotonic_ms` and are on the disk now."""
        leader, log = self.leader, self.log
        if error is None and leader is not None and log is not None:
            end = max(leader.leo, log.counted_end)
            self._high_watermark_may_move(leader.appended(end, monotonic_ms))
        if also is not None:
            also(error)

    def follow(self, batches: memoryview, *, high_watermark: int, log_start_offset: int) -> bool:
        """Append what the leader sent and take over its HW. Returns whether LEO or log start moved.

        Raises:
            CorruptBatchError, UnexpectedOffsetError: nothing was appended.
            ApiError: there is no log, because its log directory has failed.
            StorageError: the disk failed.
        """
        if (log := self.log) is None:
            raise ApiError(self.error or ErrorCode.KAFKA_STORAGE_ERROR)
        before, size_bytes = log.leo, len(batches)
        if size_bytes:
            try:
                _append(log, batches)
            except UnexpectedOffsetError as error:
                if log.leo > max(log.log_start_offset, log_start_offset) or not (
                    error.first_offset < log.leo <= error.last_offset
                ):
                    raise
                # The leader's log starts within a batch (DeleteRecords). This log is empty or has
                # only deleted records, so it has to begin where the batch does.
                log.truncate_fully_and_start_at(error.first_offset)
                _append(log, batches)
        old = log.high_watermark
        log.set_high_watermark(high_watermark)  # at most the own log end offset
        if self.watches is not None and log.high_watermark != old:
            for watch, wanted in self.watches.items():  # consumers that read from this follower
                watch.partition_ready(wanted, size_bytes or 1)
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            log.advance_log_start(log_start_offset)
            return True  # the leader waits for the new log start (DeleteRecords)
        return log.leo != before

    def check_epoch(self, asked_leader_epoch: int) -> ErrorCode:
        """Fence a requester with another leader epoch; -1 means that it sent none."""
        if asked_leader_epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        if asked_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def follower_fetched(
        self,
        follower: int,
        offset: int,
        monotonic_ms: MonotonicMs,
        broker_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> tuple[int, ...] | None:
        """A follower's fetch acknowledges everything below its offset.

        Returns the ISR to propose, if the follower has caught up and is not in the ISR.
        """
        leader = self.leader
        if leader is None or follower not in leader.followers:
            return None
        progress = leader.followers[follower]
        if progress.log_start_offset != log_start_offset:
            progress.log_start_offset = log_start_offset
            self._low_watermark_may_move()
        high_watermark = leader.fetched(
            follower, offset=offset, monotonic_ms=monotonic_ms, broker_epoch=broker_epoch
        )
        if self.log is not None and high_watermark != self.log.high_watermark:
            self._high_watermark_may_move(high_watermark)
        return leader.expansion(follower)

    def isr_stored(
        self, isr: tuple[int, ...], partition_epoch: int, monotonic_ms: MonotonicMs
    ) -> None:
        """Take over an ISR that the controller has stored."""
        if self.leader is not None and partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._high_watermark_may_move(
                self.leader.isr_stored(isr, partition_epoch, monotonic_ms=monotonic_ms)
            )

    def brokers_changed(self, live: frozenset[int], monotonic_ms: MonotonicMs) -> None:
        """Recompute HW and low watermark for another set of registered brokers."""
        if self.leader is not None and self.leader.followers:
            self._high_watermark_may_move(
                self.leader.brokers_changed(live, monotonic_ms=monotonic_ms)
            )
            self._low_watermark_may_move()

    def isr_refused(self) -> None:
        """Drop the proposed ISR: the controller has refused it."""
        if self.leader is not None:
            self.leader.isr_refused()

    def wait_for_commit(self, required_offset: int, produce: WaitingProduce, slot: int) -> None:
        """Call `produce.committed(slot)` when the high watermark has reached the offset.

        It may be below the offsets that others wait for: a producer retries a batch that is in the
        log already, and not committed.
        """
        produces = self._produces
        if produces is None:
            produces = self._produces = deque()
        while produces and produces[0][1].done:  # it timed out before it was committed
            produces.popleft()
        at = len(produces)
        while at and produces[at - 1][0] > required_offset:
            at -= 1
        produces.insert(at, (required_offset, produce, slot))

    @property
    def follows(self) -> bool:
        """Whether another broker leads, and there is a log here to follow with."""
        return self.leader is None and self.log is not None and self.leader_id != NO_LEADER

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the registered replicas, as far as they reported it."""
        if self.leader is None or self.log is None:
            return -1
        return self.leader.low_watermark(self.log.log_start_offset)

    def delete_records(self, offset: int, deletion: "WaitingDeletion") -> None:
        """Advance the log start; `deletion` is completed when the low watermark gets there.

        Raises:
            OffsetOutOfRangeError: it is not committed yet.
            ApiError: there is no log, because its log directory has failed.
        """
        if self.held_log().advance_log_start(offset):
            for watch, wanted in list((self.watches or {}).items()):
                if watch.follower_id >= 0:
                    watch.partition_changed(wanted)  # followers get the new log start at once
        if self._deletions is None:
            self._deletions = []
        self._deletions = [waiting for waiting in self._deletions if not waiting.done]
        self._deletions.append(deletion)
        self._low_watermark_may_move()

    def _low_watermark_may_move(self) -> None:
        deletions = self._deletions
        if deletions is None:
            return
        low_watermark = self.low_watermark
        waiting = []
        for deletion in deletions:
            if self.leader is None:
                deletion.failed(self.error)
            elif low_watermark >= deletion.offset:
                deletion.deleted(low_watermark)
            else:
                waiting.append(deletion)
        self._deletions = waiting or None

    def watch(self, watch: FetchWatch, wanted: SessionPartition) -> None:
        """Notify this fetcher when there may be something new to read."""
        if self.watches is None:
            self.watches = {}
        self.watches[watch] = wanted

    def unwatch(self, watch: FetchWatch) -> None:
        """Stop notifying this fetcher."""
        if self.watches is not None:
            self.watches.pop(watch, None)
            if not self.watches:
                self.watches = None

    def throttle(self, throttles: Throttles) -> None:
        """Set whether replicating this partition counts against the replication quotas."""
        index = self.topic_partition.partition
        self.leader_throttled = throttles.throttles_leader(index)
        self.follower_throttled = throttles.throttles_follower(index)

    def config_changed(
        self, rules: ValidationRules, *, isr_min: int, monotonic_ms: MonotonicMs
    ) -> None:
        """Apply the topic's changed configuration."""
        self.rules = rules
        if self.leader is not None:
            self._high_watermark_may_move(
                self.leader.isr_min_changed(isr_min, monotonic_ms=monotonic_ms)
            )

    def _notify_watches(self) -> None:
        for watch, wanted in list((self.watches or {}).items()):
            watch.partition_changed(wanted)

    def _log_grew(self, new_bytes: int, more_follow: bool) -> None:
        """Notify followers: they read up to the end of the log."""
        for watch, wanted in (self.watches or {}).items():
            if watch.follower_id >= 0:
                watch.partition_ready(wanted, new_bytes, more_follow=more_follow)

    def _high_watermark_may_move(self, high_watermark: int) -> None:
        log = self.log
        if log is None or high_watermark == log.high_watermark:
            return
        was_unstable = log.producers.first_unstable_offset != NO_OFFSET
        stable = log.last_stable_offset if was_unstable else high_watermark
        log.set_high_watermark(high_watermark)
        produces = self._produces
        senders: dict[Sender, None] = {}
        if produces is not None:
            _notify_committed(produces, high_watermark, senders)
            if not produces:
                self._produces = None
        if self.watches is not None:
            new_bytes, self._new_bytes = self._new_bytes, 0
            if was_unstable:
                # The marker that ends a transaction is only the last and smallest part of what
                # became readable.
                new_bytes += log.bytes_between(stable, log.last_stable_offset)
            for watch, wanted in self.watches.items():
                if watch.follower_id < 0:
                    watch.partition_ready(wanted, new_bytes)
                else:
                    watch.high_watermark_moved(wanted)
        else:
            self._new_bytes = 0
        for sender in senders:
            sender.release()


class Led(NamedTuple):
    """A partition that is led here, with what only a leader is sure to have."""

    partition: Partition
    leader: LeaderReplica
    log: Log

    def high_watermark_is_behind_epoch(self) -> bool:
        """Right after an election the HW may still be below what consumers could read before."""
        return self.log.high_watermark < self.leader.epoch_start_offset


def led(found: Partition | ErrorCode) -> Led | ErrorCode:
    """What `ReplicaManager.find_led` found, with leader and log; the data path does without."""
    if isinstance(found, ErrorCode):
        return found
    if found.leader is None or found.log is None:
        return found.error or ErrorCode.KAFKA_STORAGE_ERROR
    return Led(found, found.leader, found.log)


def _notify_committed(
    produces: deque[tuple[int, WaitingProduce, int]],
    high_watermark: int,
    senders: dict[Sender, None],
) -> None:
    """Complete the produce requests below the HW, and collect where their responses leave."""
    while produces and produces[0][0] <= high_watermark:
        _, produce, slot = produces.popleft()
        sender = produce.committed(slot)
        if sender is not None:
            senders[sender] = None


def _append(log: Log, batches: memoryview) -> None:
    """Append what a leader sent; a leader of Apache Kafka may send old formats among batches."""
    try:
        log.append_as_follower(batches)
    except CorruptBatchError:
        if not holds_old_messages(batches):
            raise
        log.append_as_follower(upgraded(batches))
