"""One partition on this broker: its log, its role, and who waits for it.

Everything that changes LEO, HW or role goes through here, because here stand those who wait:

    produces  acks=all, in the order of the offset they need; popped when the HW gets there
    watches   the fetchers that hold this partition in their session; told that it is ready

A movement only *marks* the waiting fetches; they are looked at again at the end of the turn
(`Purgatory.wake`), not inside the append. Losing leadership, deletion, a failed directory and
the stop of the broker complete every waiting request with Kafka's error.
"""

from collections import deque
from functools import partial
from typing import Protocol

from odradek.log.disk import StorageError
from odradek.log.flushing import FlushDone
from odradek.log.log import Log
from odradek.log.log_config import NEVER
from odradek.log.producer_state import NO_OFFSET
from odradek.log.slices import Appended, UnexpectedOffsetError
from odradek.model.clock import MonotonicMs, WallMs
from odradek.model.errors import ErrorCode
from odradek.model.partition import NO_LEADER, LeaderAndIsr, TopicPartition
from odradek.record.batch import BatchHeader
from odradek.record.validate import ValidationRules
from odradek.replica.fetch_session import SessionPartition
from odradek.replica.follower import high_watermark as committed_here
from odradek.replica.isr import Isr
from odradek.replica.leader import Follower, LeaderReplica
from odradek.replica.throttle import Throttles


class Sender(Protocol):
    """Where answers leave."""

    def release(self) -> None:
        """Let those go that are there, in one write."""


class WaitingProduce(Protocol):
    """A produce request that waits for the high watermark of some partitions."""

    done: bool

    def committed(self, slot: int) -> Sender | None:
        """What it wrote to its partition number `slot` is on all replicas in sync.

        Returns where its answer leaves, if that is ready now: more may be, for the same peer.
        """

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """It never will be, as far as this broker can say."""


class WaitingDeletion(Protocol):
    """A deletion of records that waits for all replicas that are there."""

    done: bool
    offset: int

    def gone(self, low_watermark: int) -> None:
        """They have let go what was to go."""

    def failed(self, error: ErrorCode) -> None:
        """Whether they will, another has to say."""


class FetchWatch(Protocol):
    """A fetcher that holds this partition in its session."""

    follower_id: int  # -1 for a consumer

    def partition_ready(self, partition: SessionPartition, new_bytes: int) -> None:
        """There may be something to read, about so much more than before."""

    def partition_changed(self, partition: SessionPartition) -> None:
        """There is something to say that cannot wait."""

    def high_watermark_moved(self, partition: SessionPartition) -> None:
        """A follower is owed another high watermark: with the next records, or soon."""


class Partition:
    """A replica that this broker holds."""

    __slots__ = (
        "_deletions",
        "_new_bytes",
        "_produces",
        "_watches",
        "adding",
        "controller_epoch",
        "error",
        "follower_throttled",
        "is_gone",
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
        self.log = log  # None: its directory has failed
        self.rules = rules
        self.leader: LeaderReplica | None = None  # while this broker leads
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()  # those that a reassignment brings
        self.removing: tuple[int, ...] = ()  # and takes
        self.is_gone = False  # deleted here, or replaced by another of its name
        # What a client is told that wants something only a leader can do.
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._produces: deque[tuple[int, WaitingProduce, int]] | None = None
        self._watches: dict[FetchWatch, SessionPartition] | None = None
        self._deletions: list[WaitingDeletion] | None = None
        self.leader_throttled = self.follower_throttled = False
        self._new_bytes = 0  # appended and not yet below the high watermark

    @property
    def is_under_replicated(self) -> bool:
        """Led here, with fewer in sync than it has replicas, not counting those that are added."""
        if self.leader is None:
            return False
        return len(self.leader.isr.committed) < len(self.replicas) - len(self.adding)

    # ------------------------------------------------------------------------ roles

    def become_leader(  # noqa: PLR0913 - what a reign begins with
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
        """Lead from now on, or go on leading with another ISR."""
        log = self.log
        assert log is not None
        new_reign = self.leader is None or state.leader_epoch != self.leader_epoch
        if new_reign:
            log.assign_epoch(state.leader_epoch, log.leo)
        before = None if new_reign else self.leader
        # Whoever has started does not know what of its log is flushed. With others it counts when
        # it does; who holds the partition alone may not take back what it has shown.
        counts_all = new_reign and len(replicas) == 1
        self.leader = LeaderReplica(
            leo=log.leo if counts_all else max(log.counted_end, log.high_watermark),
            high_watermark=log.high_watermark,
            followers={
                # One in sync and not heard of yet gets the time of a full lag to show that it is
                # there; one out of sync holds up nobody.
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
        if self.leader.leo < log.leo:  # what is not on the disk comes to count when it is
            log.flush_rest(partial(self._flushed, monotonic_ms, None))
        if new_reign:
            self._tell_watches()  # who believes in the old one has to be told

    def become_follower(self, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        """Follow from now on; whoever waits for the leader has to ask another."""
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
        self._tell_watches()

    def removed(self, error: ErrorCode) -> None:
        """Stop holding it: this broker does not hold it any longer."""
        self.is_gone = True
        self.stop_serving(error)
        self._watches = None
        self.log = None

    def _take_over(self, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = replicas

    # ------------------------------------------------------------------ data's way

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        monotonic_ms: MonotonicMs,
        wall_ms: WallMs,
        flushed: FlushDone | None = None,
    ) -> Appended:
        """Append what a producer sent and validation let pass. Returns where it stands.

        `flushed` is called only if this reached `flush.messages`, when it is durable.

        Raises:
            ApiError: the producer's epoch or sequence is wrong.
            StorageError: the disk failed.
        """
        log, leader = self.log, self.leader
        assert log is not None
        assert leader is not None
        is_flushed = log.config.flush_messages != NEVER
        if is_flushed:
            flushed = partial(self._flushed, monotonic_ms, flushed)
        appended = log.append_as_leader(
            batch, header, leader_epoch=self.leader_epoch, wall_ms=wall_ms, flushed=flushed
        )
        if appended.duplicate:
            return appended
        old = leader.high_watermark
        end = max(leader.leo, log.counted_end) if is_flushed else log.leo
        high_watermark = leader.appended(end, monotonic_ms=monotonic_ms)
        if self._watches is None and self._produces is None:
            if high_watermark != old:
                log.set_high_watermark(high_watermark)
            return appended
        self._new_bytes += len(batch)
        if self._watches is not None and leader.followers:
            self._log_grew(len(batch))
        if high_watermark != old:
            self._high_watermark_may_move(high_watermark)
        return appended

    def _flushed(
        self, monotonic_ms: MonotonicMs, also: FlushDone | None, error: StorageError | None
    ) -> None:
        """Batches appended at `monotonic_ms` are on disk: now they count."""
        leader, log = self.leader, self.log
        if error is None and leader is not None and log is not None:
            end = max(leader.leo, log.counted_end)
            self._high_watermark_may_move(leader.appended(end, monotonic_ms=monotonic_ms))
        if also is not None:
            also(error)

    def follow(
        self, batches: memoryview, *, high_watermark: int, log_start_offset: int, wall_ms: WallMs
    ) -> bool:
        """Append what the leader sent, and believe it what is committed. Whether an end moved.

        Raises:
            CorruptBatchError, UnexpectedOffsetError: nothing was appended.
            StorageError: the disk failed.
        """
        log = self.log
        assert log is not None
        before = log.leo
        if len(batches):
            try:
                log.append_as_follower(batches, wall_ms=wall_ms)
            except UnexpectedOffsetError as error:
                if log.leo > max(log.log_start_offset, log_start_offset) or not (
                    error.first_offset < log.leo <= error.last_offset
                ):
                    raise
                # The leader's log starts within a batch (DeleteRecords): ours, which is empty,
                # or holds but what is deleted there, has to begin where the batch does.
                log.truncate_fully_and_start_at(error.first_offset)
                log.append_as_follower(batches, wall_ms=wall_ms)
        old = log.high_watermark
        log.set_high_watermark(committed_here(leader_high_watermark=high_watermark, leo=log.leo))
        if self._watches is not None and log.high_watermark != old:
            for watch, wanted in self._watches.items():  # consumers that read here
                watch.partition_ready(wanted, len(batches) or 1)
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            log.advance_log_start(log_start_offset)
            return True  # the leader waits to hear of it (DeleteRecords)
        return log.leo != before

    def check_epoch(self, asked_leader_epoch: int) -> ErrorCode:
        """Fence an asker that believes in another leader; -1 does not ask to be checked."""
        if asked_leader_epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        if asked_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def high_watermark_is_behind_epoch(self) -> bool:
        """Just elected: the high watermark may still lie below what was readable before."""
        log = self.log
        assert log is not None
        assert self.leader is not None
        return log.high_watermark < self.leader.epoch_start_offset

    def follower_fetched(
        self,
        follower: int,
        offset: int,
        monotonic_ms: MonotonicMs,
        broker_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> tuple[int, ...] | None:
        """A follower's fetch is its acknowledgement of everything before its offset.

        Returns the ISR to ask for, if it has caught up and is not in it.
        """
        leader = self.leader
        if leader is None or follower not in leader.followers:
            return None
        progress = leader.followers[follower]
        if progress.log_start_offset != log_start_offset:
            progress.log_start_offset = log_start_offset
            self._low_watermark_may_move()
        self._high_watermark_may_move(
            leader.fetched(
                follower, offset=offset, monotonic_ms=monotonic_ms, broker_epoch=broker_epoch
            )
        )
        return leader.expansion(follower)

    def isr_stored(
        self, isr: tuple[int, ...], partition_epoch: int, monotonic_ms: MonotonicMs
    ) -> None:
        """The controller stored an ISR that was asked for."""
        if self.leader is not None and partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._high_watermark_may_move(
                self.leader.isr_stored(isr, partition_epoch, monotonic_ms=monotonic_ms)
            )

    def brokers_changed(self, live: frozenset[int], monotonic_ms: MonotonicMs) -> None:
        """Other brokers are registered now."""
        if self.leader is not None and self.leader.followers:
            self._high_watermark_may_move(
                self.leader.brokers_changed(live, monotonic_ms=monotonic_ms)
            )
            self._low_watermark_may_move()

    def isr_refused(self) -> None:
        """The controller did not take the ISR that was asked for."""
        if self.leader is not None:
            self.leader.isr_refused()

    def wait_for_commit(self, required_offset: int, produce: WaitingProduce, slot: int) -> None:
        """Tell this produce when the high watermark has reached the offset."""
        produces = self._produces
        if produces is None:
            produces = self._produces = deque()
        while produces and produces[0][1].done:  # its time was up before it was committed
            produces.popleft()
        produces.append((required_offset, produce, slot))

    @property
    def follows(self) -> bool:
        """Whether there is a leader, elsewhere, and a log here that follows it."""
        return self.leader is None and self.log is not None and self.leader_id != NO_LEADER

    @property
    def low_watermark(self) -> int:
        """Below it no replica that is there has anything left, as far as was heard."""
        if self.leader is None or self.log is None:
            return -1
        return self.leader.low_watermark(self.log.log_start_offset)

    def delete_records(self, offset: int, deletion: "WaitingDeletion") -> None:
        """Let everything before an offset go, and tell when it is gone on every replica.

        Raises:
            OffsetOutOfRangeError: it is not committed yet.
        """
        assert self.log is not None
        if self.log.advance_log_start(offset):
            for watch, wanted in list((self._watches or {}).items()):
                if watch.follower_id >= 0:
                    watch.partition_changed(wanted)  # followers are told at once
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
                deletion.gone(low_watermark)
            else:
                waiting.append(deletion)
        self._deletions = waiting or None

    def watch(self, watch: FetchWatch, wanted: SessionPartition) -> None:
        """Tell this fetcher when there may be something new."""
        if self._watches is None:
            self._watches = {}
        self._watches[watch] = wanted

    def unwatch(self, watch: FetchWatch) -> None:
        """No more."""
        if self._watches is not None:
            self._watches.pop(watch, None)
            if not self._watches:
                self._watches = None

    def throttle(self, throttles: Throttles) -> None:
        """Whether copying it counts against the quotas of replication."""
        index = self.topic_partition.partition
        self.leader_throttled = throttles.throttles_leader(index)
        self.follower_throttled = throttles.throttles_follower(index)

    def config_changed(
        self, rules: ValidationRules, *, isr_min: int, monotonic_ms: MonotonicMs
    ) -> None:
        """The topic's configuration is another one."""
        self.rules = rules
        if self.leader is not None:
            self._high_watermark_may_move(
                self.leader.isr_min_changed(isr_min, monotonic_ms=monotonic_ms)
            )

    def _tell_watches(self) -> None:
        for watch, wanted in list((self._watches or {}).items()):
            watch.partition_changed(wanted)

    def _log_grew(self, new_bytes: int) -> None:
        """Followers read up to the end of the log."""
        for watch, wanted in (self._watches or {}).items():
            if watch.follower_id >= 0:
                watch.partition_ready(wanted, new_bytes)

    def _high_watermark_may_move(self, high_watermark: int) -> None:
        log = self.log
        if log is None or high_watermark == log.high_watermark:
            return
        was_unstable = log.producers.first_unstable_offset != NO_OFFSET
        stable = log.last_stable_offset
        log.set_high_watermark(high_watermark)
        produces = self._produces
        senders: dict[Sender, None] = {}
        if produces is not None:
            _tell_committed(produces, high_watermark, senders)
            if not produces:
                self._produces = None
        if self._watches is not None:
            new_bytes, self._new_bytes = self._new_bytes, 0
            if was_unstable:
                # Of all that a transaction wrote, its end is the last and the least.
                new_bytes += log.bytes_between(stable, log.last_stable_offset)
            for watch, wanted in self._watches.items():
                if watch.follower_id < 0:
                    watch.partition_ready(wanted, new_bytes)
                else:
                    watch.high_watermark_moved(wanted)
        else:
            self._new_bytes = 0
        for sender in senders:
            sender.release()


def _tell_committed(
    produces: deque[tuple[int, WaitingProduce, int]],
    high_watermark: int,
    senders: dict[Sender, None],
) -> None:
    """Tell those who waited for that, and note where answers are ready."""
    while produces and produces[0][0] <= high_watermark:
        _, produce, slot = produces.popleft()
        sender = produce.committed(slot)
        if sender is not None:
            senders[sender] = None
