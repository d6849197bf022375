"""What a fetch request reads: the ready partitions of its session, within its limits.

A `Fetcher` is a fetch session (KIP-227) that reads: it registers with its partitions, is notified
by them when they are ready, and waits in the purgatory when there is too little. A fetch without
session has a `Fetcher` too, for the duration of the request.

    read()      goes through the ready set, never all partitions; stops when the response is full.
                What did not fit stays ready, at the front, for the next request.
    waits       until about `min_bytes` are readable, or something has to be answered at once:
                an error, a diverging epoch, the end of a segment that is not the last. A follower
                gets a newer HW with the next records; if none arrive, a few milliseconds later.
                (Answered at once, each write to a busy partition would take two fetches.)
"""

from collections.abc import Callable, Iterable
from typing import Final, cast

from odradek.broker.replication.partition import Partition
from odradek.broker.serving.pipelining import GATHERED_BYTES
from odradek.broker.serving.purgatory import Purgatory, Waiting
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.segment import ColdError
from odradek.log.slices import ColdRead, DeferredRecords, LogSlice, OffsetOutOfRangeError
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.replica.fetch_session import (
    FetchSession,
    PartitionKey,
    RequestedPartition,
    SessionPartition,
)
from odradek.replica.leader import LeaderReplica
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    PartitionData,
)
from odradek.wire.schema import Buffer

READ_COMMITTED: Final = 1
# A response holds about so many bytes of records in memory; the rest is read while it is sent.
LATE_BYTES: Final = 1 << 20
LOAD_BYTES: Final = 128 << 10  # up to this of a partition is read at once
LATE_MAX: Final = 64  # slices of a response: each keeps a file open
_UNKNOWN: Final = -1

# Finds the partition of a key in a fetch session, for a follower id (-1: a consumer).
Find = Callable[[PartitionKey, int], "Partition | ErrorCode"]
# The follower that a consumer should read an offset from (KIP-392); None: this replica.
Nearest = Callable[[LeaderReplica, int], int | None]


class Fetcher(FetchSession):
    """A fetch session that reads. `follower_id` is -1 for a consumer."""

    __slots__ = (
        "_find",
        "_is_soon",
        "_missing_bytes",
        "_purgatory",
        "follower_epoch",
        "follower_id",
        "is_registered",
        "usual_request",
        "waiting",
    )

    def __init__(
        self,
        find: Find,
        purgatory: Purgatory,
        *,
        by_topic_id: bool,
        follower_id: int,
        monotonic_ms: MonotonicMs,
    ) -> None:
        super().__init__(
            session_id=0,
            by_topic_id=by_topic_id,
            privileged=follower_id >= 0,
            monotonic_ms=monotonic_ms,
        )
        self.follower_id = follower_id
        self.follower_epoch = -1  # the broker epoch of its latest fetch
        self.is_registered = True  # whether the follower of its latest fetch is
        self.waiting: Waiting | None = None
        self.usual_request: FetchRequest | None = None  # see `broker/apis/usual_fetch.py`
        self._find = find
        self._purgatory = purgatory
        self._missing_bytes = 0
        self._is_soon = False  # the waiting request is read again soon

    # ------------------------------------------------------- notified by partitions

    def partition_ready(
        self, partition: SessionPartition, new_bytes: int, *, more_follow: bool = False
    ) -> None:
        """There may be something to read, about `new_bytes` more than before.

        `more_follow`: the waiting fetch is answered a little later, or with `GATHERED_BYTES`.
        """
        self.ready.setdefault(partition.key, partition)
        waiting = self.waiting
        if waiting is not None:
            self._missing_bytes -= new_bytes
            if self._missing_bytes > 0:
                return
            if more_follow and self._missing_bytes > -GATHERED_BYTES:
                self.wake_soon(waiting)
            else:
                self._purgatory.wake(waiting)

    def partition_changed(self, partition: SessionPartition) -> None:
        """The waiting fetch has to be answered now."""
        self.ready.setdefault(partition.key, partition)
        if self.waiting is not None:
            self._purgatory.wake(self.waiting)

    def high_watermark_moved(self, partition: SessionPartition) -> None:
        """The waiting fetch may be answered a little later, with the new HW."""
        self.ready.setdefault(partition.key, partition)
        if self.waiting is not None:
            self.wake_soon(self.waiting)

    # ------------------------------------------------------------------ for the request

    def sleep(self, waiting: Waiting, missing_bytes: int) -> None:
        """Let a request wait until about `missing_bytes` more can be read."""
        self.waiting = waiting
        self._missing_bytes = missing_bytes
        self._is_soon = False

    def wake_soon(self, waiting: Waiting) -> None:
        """Answer the waiting request soon, unless something else answers it before."""
        if not waiting.patient:
            self._purgatory.wake(waiting)
        elif not self._is_soon:
            self._is_soon = True
            self._purgatory.wake_soon(waiting)

    def acknowledged(self, wanted: SessionPartition, partition: Partition) -> None:
        """The follower's fetch is acknowledged: leave the partition out if nothing is new in it.

        The request would read it once for nothing before it waits.
        """
        log, leader = partition.log, partition.leader
        if (
            log is not None
            and leader is not None
            and wanted.fetch_offset == log.leo
            and wanted.sent_high_watermark == log.high_watermark
            and wanted.sent_log_start_offset == log.log_start_offset
            and self.follower_id in leader.followers
        ):
            self.ready.pop(wanted.key, None)

    def leave(self, partitions: list[SessionPartition]) -> None:
        """Stop watching partitions that the session no longer has."""
        for wanted in partitions:
            if isinstance(wanted.target, Partition):
                wanted.target.unwatch(self)
            wanted.target = None

    def leave_all(self) -> None:
        """Stop watching all partitions: the session ends."""
        self.leave(list(self.partitions.values()))
        self.partitions.clear()
        self.ready.clear()

    def partition_of(self, wanted: SessionPartition) -> "Partition | ErrorCode":
        """The partition of a session's entry, looked up once and watched from then on."""
        target = wanted.target
        if isinstance(target, Partition):
            if not target.is_removed:
                return target
            target.unwatch(self)
            wanted.target = None
        found = self._find(wanted.key, self.follower_id)
        if isinstance(found, Partition):
            wanted.target = found
            found.watch(self, wanted)
        return found


class Reading:
    """One pass over the ready partitions: the answers, and whether they must be sent at once."""

    may_leave_in_file = True  # the records are sent as they are

    __slots__ = (
        "_drained",
        "_fetcher",
        "_left_bytes",
        "_loaded_bytes",
        "_may_follow",
        "_may_read",
        "_nearest",
        "_read_committed",
        "_storage_failed",
        "_straight",
        "_wait",
        "_waits",
        "answers",
        "bytes",
        "cold",
        "late",
        "new_high_watermark",
        "urgent",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - what is read, and for which client
        self,
        fetcher: Fetcher,
        *,
        bytes_max: int,
        read_committed: bool,
        may_read: Callable[[str], bool],
        storage_failed: Callable[[StorageError], None],
        wait: bool,
        nearest: "Nearest | None" = None,
        may_follow: bool = False,
        waits: Callable[[Partition], bool] | None = None,
        straight: bool = False,
    ) -> None:
        """`wait`: read from disk what is not in memory; it was just asked to load it.

        `nearest` redirects a consumer to a closer replica; `may_follow`: it may read where this
        broker follows; `waits`: a throttled follower gets no records of this partition for now.
        `straight`: many records stay in their file, to be sent from there to the socket.
        """
        self._nearest = nearest
        self._waits = waits
        self._may_follow = may_follow
        self._fetcher = fetcher
        self._may_read = may_read
        self._storage_failed = storage_failed
        self._wait = wait
        self._drained: list[SessionPartition] = []  # read to their end
        self._left_bytes = bytes_max
        # For followers it takes no less: what was just written is in the processor's caches.
        self._straight = straight and fetcher.follower_id < 0 and self.may_leave_in_file
        self._read_committed = read_committed
        self.answers: list[tuple[SessionPartition, PartitionData]] = []
        self.bytes = 0
        self._loaded_bytes = 0
        self.late: list[DeferredRecords] = []
        self.urgent = False
        self.new_high_watermark = False  # a follower has to get a new HW
        self.cold: ColdRead | None = None  # data that has to be read into memory first

    def read_ready(self) -> None:
        """Read the ready partitions, in the order in which they became ready."""
        for wanted in list(self._fetcher.ready.values()):
            if self.bytes and self._left_bytes <= 0:
                return  # the first batch is read whatever the limit, even if it is 0
            answer = self._read(wanted)
            if self.cold is not None:
                return
            if answer is not None:
                self.answers.append((wanted, answer))

    def describe_rest(self) -> None:
        """Add the partitions without records: a full response names every partition."""
        named = {wanted.key for wanted, _ in self.answers}
        for wanted in self._fetcher.partitions.values():
            if wanted.key not in named:
                partition = self._checked(wanted)
                self.answers.append(
                    (
                        wanted,
                        _failure(wanted, partition)
                        if isinstance(partition, ErrorCode)
                        else _state(wanted, partition),
                    )
                )

    def sent(self) -> list[tuple[SessionPartition, PartitionData]]:
        """The answers; their HW and log start are recorded in the session as sent.

        What was read stays ready, behind the others: a fetcher that does not advance its offset
        reads it again. What did not fit stays ready, too.
        """
        ready = self._fetcher.ready
        for wanted, answer in self.answers:
            if answer.error_code == ErrorCode.NONE:
                wanted.sent_high_watermark = answer.high_watermark
                wanted.sent_log_start_offset = answer.log_start_offset
                if answer.records:
                    ready.pop(wanted.key, None)
                    ready[wanted.key] = wanted
        for wanted in self._drained:
            self._fetcher.answered(wanted)
        return self.answers

    def _checked(self, wanted: SessionPartition) -> "Partition | ErrorCode":
        topic = wanted.key[0]
        if isinstance(topic, str) and not self._may_read(topic):
            # Checked first: the response must not show whether the topic exists.
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = self._fetcher.partition_of(wanted)
        if isinstance(partition, ErrorCode):
            return partition
        if not self._may_read(partition.topic_partition.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if partition.error is not ErrorCode.NONE and not (self._may_follow and partition.follows):
            return partition.error
        error = partition.check_epoch(wanted.current_leader_epoch)
        follower_id, leader = self._fetcher.follower_id, partition.leader
        if (
            error is ErrorCode.NONE
            and follower_id >= 0
            and leader is not None
            and not (self._fetcher.is_registered and follower_id in leader.followers)
        ):
            error = _refusal_of_non_replica(wanted)
        return error or partition

    def _read(self, wanted: SessionPartition) -> PartitionData | None:
        partition = self._checked(wanted)
        if isinstance(partition, ErrorCode):
            self.urgent = True
            return _failure(wanted, partition)
        try:
            answer = self._read_log(wanted, partition)
        except ApiError as error:  # such as OFFSET_OUT_OF_RANGE
            self.urgent = True
            return _failure(wanted, error.code)
        except StorageError as error:
            self._storage_failed(error)
            self.urgent = True
            return _failure(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        if self.cold is not None:
            return None
        if (
            answer.records
            or answer.diverging_epoch
            or answer.preferred_read_replica >= 0
            or self._has_moved(wanted, answer)
        ):
            return answer
        if self._drained and self._drained[-1] is wanted:
            self._fetcher.answered(wanted)
        return None

    def _read_log(self, wanted: SessionPartition, partition: Partition) -> PartitionData:
        log = partition.log
        if log is None:
            raise ApiError(partition.error or ErrorCode.KAFKA_STORAGE_ERROR)
        answer = _state(wanted, partition)
        if self._nearest is not None and partition.leader is not None:
            preferred = self._nearest(partition.leader, wanted.fetch_offset)
            if preferred is not None:
                self.urgent = True
                answer.preferred_read_replica = preferred
                return answer
        answer.diverging_epoch = divergence(log, wanted)
        if answer.diverging_epoch is not None:
            self.urgent = True
            return answer
        if self._fetcher.follower_id >= 0:
            end = log.leo
        elif self._read_committed:
            end = log.last_stable_offset
        else:
            end = log.high_watermark
        if wanted.fetch_offset != end and not (self._waits and self._waits(partition)):
            self._read_records(wanted, log, answer, end)
        if wanted.fetch_offset >= end:
            self._drained.append(wanted)
        return answer

    def _read_records(
        self, wanted: SessionPartition, log: Log, answer: PartitionData, end: int
    ) -> None:
        bytes_max = max(0, min(wanted.max_bytes, self._left_bytes))
        is_late = self._straight or bytes_max > LATE_BYTES or self._loaded_bytes >= LATE_BYTES
        found = log.read(
            wanted.fetch_offset,
            bytes_max,
            end_offset=end,
            minimum_one_message=not self.bytes,
            wait=self._wait,
            load=not is_late,
        )
        if isinstance(found, ColdRead):
            self.cold = found
            return
        if found is None:
            return
        if not is_late:
            answer.records = found.data
            self._loaded_bytes += found.size
        elif not self._take_late(found, log, answer):
            return
        if found.segment is not log.active_segment:
            # More records follow in the next segment, which this answer cannot contain.
            self.urgent = True
        self.bytes += found.size
        self._left_bytes -= found.size
        if self._read_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset)
                for t in log.aborted_transactions(wanted.fetch_offset, log.end_offset_of(found))
            ]

    def _take_late(self, found: LogSlice, log: Log, answer: PartitionData) -> bool:
        """Leave the records in their file until they are sent, if there are many."""
        if found.size > LOAD_BYTES or self._loaded_bytes >= LATE_BYTES:
            late = DeferredRecords(
                found, lambda error: None if log.removed else self._storage_failed(error)
            )
            answer.records = cast("Buffer", late)  # a response asks for its length, no more
            self.late.append(late)
            if len(self.late) >= LATE_MAX:
                self._left_bytes = found.size  # nothing more after this
            return True
        try:
            answer.records = found.segment.read(found.position, found.size, wait=self._wait)
        except ColdError as cold:
            self.cold = ColdRead(cold.file, cold.position, cold.length)
            return False
        self._loaded_bytes += found.size
        return True

    def close(self) -> None:
        """Close the files of a response that is not sent."""
        for late in self.late:
            late.close()
        self.late.clear()

    def _has_moved(self, wanted: SessionPartition, answer: PartitionData) -> bool:
        """Whether HW or log start has to be answered without records (KIP-227)."""
        moved = wanted.sent_high_watermark != answer.high_watermark
        cut = wanted.sent_log_start_offset != answer.log_start_offset
        if self._fetcher.follower_id >= 0 and wanted.sent_high_watermark >= 0:
            self.new_high_watermark |= moved
            self.urgent |= cut
        return moved or cut


def _refusal_of_non_replica(wanted: SessionPartition) -> ErrorCode:
    """The error for a broker that is no registered replica, or not yet in this leader's state."""
    if wanted.current_leader_epoch < 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_LEADER_EPOCH  # the follower retries


def divergence(log: Log, wanted: SessionPartition) -> EpochEndOffset | None:
    """Where a fetcher's log diverges from this one; None if it does not, or sent no epoch.

    Raises:
        OffsetOutOfRangeError: the offset is below the log start, or its epoch is not known here.
    """
    fetched_epoch, offset = wanted.last_fetched_epoch, wanted.fetch_offset
    if fetched_epoch < 0:
        return None
    leader_epoch, end_offset = log.end_offset_for_epoch(fetched_epoch)
    if leader_epoch < 0 or offset < log.log_start_offset:
        raise OffsetOutOfRangeError(offset, log.log_start_offset, log.leo)
    if leader_epoch < fetched_epoch or end_offset < offset:
        return EpochEndOffset(epoch=leader_epoch, end_offset=end_offset)
    return None


def has_what_it_says(partition: Partition, wanted: SessionPartition) -> bool:
    """Whether a follower's log below its offset is the leader's; only then it is acknowledged."""
    log = partition.log
    if log is None or not log.log_start_offset <= wanted.fetch_offset <= log.leo:
        return False
    try:
        return divergence(log, wanted) is None
    except OffsetOutOfRangeError:
        return False


def requested(request: FetchRequest, *, by_topic_id: bool) -> list[RequestedPartition]:
    """The partitions that a request names, as its session keeps them."""
    return [
        RequestedPartition(
            (topic.topic_id if by_topic_id else topic.topic, asked.partition),
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        for topic in request.topics
        for asked in topic.partitions
    ]


def _state(wanted: SessionPartition, partition: Partition) -> PartitionData:
    log = partition.log
    if log is None:
        return _failure(wanted, partition.error or ErrorCode.KAFKA_STORAGE_ERROR)
    return PartitionData(
        partition_index=wanted.key[1],
        aborted_transactions=None,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
    )


def _failure(wanted: SessionPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.key[1],
        error_code=error,
        aborted_transactions=None,
        high_watermark=_UNKNOWN,
        last_stable_offset=_UNKNOWN,
        log_start_offset=_UNKNOWN,
    )


def last_fetches(sessions: Iterable[FetchSession]) -> dict[int, MonotonicMs]:
    """When each follower with one of these sessions sent its last fetch, by broker."""
    last: dict[int, MonotonicMs] = {}
    for session in sessions:
        if isinstance(session, Fetcher) and session.privileged:
            known = last.get(session.follower_id, session.last_used_ms)
            last[session.follower_id] = max(known, session.last_used_ms)
    return last
