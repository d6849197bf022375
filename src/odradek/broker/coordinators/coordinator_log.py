"""A coordinator's log: one partition of an internal topic, and the state machine rebuilt from it.

The leader of a partition of `__consumer_offsets` or `__transaction_state` is the coordinator of
the keys that hash to it. It has a state machine (`odradek.group`, `odradek.txn`) for each such
partition and leader epoch:

    LOADING    leadership gained: the log is replayed in slices    COORDINATOR_LOAD_IN_PROGRESS
    SERVING    all of it is below the high watermark               the machine answers
    OVER       leadership lost: requests that wait are answered    NOT_COORDINATOR

All that a serving machine has is committed. (Apache Kafka serves when it has read to the end of the
log: what it then answers may be unknown to the next leader.)

Errors of the log are answered as the coordinator's:

    UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS(_AFTER_APPEND)    COORDINATOR_NOT_AVAILABLE
    NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR                       NOT_COORDINATOR

Other errors (REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, INVALID_PRODUCER_EPOCH ...) go to the machine as
they are: the two coordinators translate them differently. A corrupt record is logged with its
offset and skipped; if its length is not known, the rest of its segment is skipped.

A load that fails continues where it failed, after a pause that grows to 5 s, while this broker
leads. A failed disk takes its log directory offline, and so the leadership away. What remains to
retry is a shortage of descriptors or memory, or an internal error, which is logged each time.
(Apache Kafka logs any error and then serves without what it could not read:
`loadGroupsAndOffsets`.)
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_manager import ReplicaManager, load
from odradek.broker.serving.purgatory import Purgatory, Waiting
from odradek.broker.serving.tasks import Tasks
from odradek.broker.storage.housekeeping import in_slices
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.log_config import NEVER
from odradek.log.slices import ColdRead, LogSlice, OffsetOutOfRangeError
from odradek.model.clock import Clock, Now, read_clocks
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.trampoline import Machine, Trampoline
from odradek.record.batch import (
    CONTROL_BIT,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatchError,
    has_valid_crc,
    iter_batches,
    read_header,
)
from odradek.record.compression import Codec
from odradek.record.control import ControlType, read_marker
from odradek.record.coordinator import MarkerReplayed, Note, RecordSkipped, Replayed
from odradek.record.records import Record, build_batch, iter_records

log = logging.getLogger(__name__)

_RECORDS_A_STEP: Final = 32
_LOAD_BYTES: Final = 1 << 20
_RETRY_MS_MIN: Final = 100
_RETRY_MS_MAX: Final = 5_000
_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}

KeyAndValue = tuple[bytes, bytes | None]
Done = Callable[[ErrorCode], None]


M = TypeVar("M", bound=Machine[Any, Any])


class _Phase(Enum):
    LOADING = 1
    SERVING = 2
    OVER = 3


def coordinator_partition(key: str, count: int) -> int:
    """The partition, of `count`, that a group or transactional id belongs to."""
    return java_hash(key) % count


def java_hash(text: str) -> int:
    """The absolute value of Java's String.hashCode over UTF-16 code units; 0 for -2^31.

    Producers use another one for their partitions: the hash without its sign bit.
    """
    value = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value if value < 1 << 31 else -value & 0x7FFFFFFF


def retry_after_ms(failures: int) -> int | None:
    """The pause after so many failures of a load; None: no further attempt."""
    return min(_RETRY_MS_MIN << min(failures - 1, 16), _RETRY_MS_MAX)


class CoordinatorLog(Generic[M]):
    """One partition in one leader epoch of this broker: its machine, and how to append."""

    def __init__(self, topic: "CoordinatorTopic[M]", partition: Partition, machine: M) -> None:
        self.partition = partition
        self.index = partition.topic_partition.partition
        self.coordinator_epoch = partition.leader_epoch
        self.machine = machine  # for queries; events by `handle`
        self.phase = _Phase.LOADING
        self._topic = topic
        self._trampoline: Trampoline[Any, Any] = Trampoline(
            lambda event: machine.handle(event, topic.now())
        )

    def __str__(self) -> str:
        return f"{self.partition.topic_partition} in leader epoch {self.coordinator_epoch}"

    @property
    def is_loading(self) -> bool:
        """Whether the log is being replayed."""
        return self.phase is _Phase.LOADING

    @property
    def is_over(self) -> bool:
        """Whether this broker leads the partition no longer, or in another leader epoch."""
        return self.phase is _Phase.OVER

    def handle(self, event: object) -> None:
        """Give an event to the machine, and carry its effects out."""
        self._trampoline.run(event, partial(self._topic.carry_out, self))

    def append(
        self,
        records: Iterable[KeyAndValue],
        done: Done,
        *,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
    ) -> None:
        """Append with acks=all; in a transaction, if a producer is named.

        The sequence is written and not checked: a transaction takes any number of these batches.

        `done` is called once: with NONE when the records are committed (maybe before this method
        returns), with REQUEST_TIMED_OUT when that is not known in time, or with the error.
        """
        leader, log_of = self.partition.leader, self.partition.log
        if self.is_over or leader is None or log_of is None:
            done(ErrorCode.NOT_COORDINATOR)
            return
        if leader.is_under_min_isr:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        waiting = _Append(self._topic.purgatory, done)
        writer = _Writer(producer_id, producer_epoch, base_sequence)
        error = self._write(log_of, records, writer, waiting)
        if error is not ErrorCode.NONE:
            done(error)
            return
        required = log_of.leo
        if leader.high_watermark < required:
            self.partition.wait_for_commit(required, waiting, waiting.one_more())
        if waiting.pending:
            self._topic.purgatory.wait(waiting, timeout_ms)
        else:
            done(ErrorCode.NONE)

    def write(self, records: Iterable[KeyAndValue]) -> ErrorCode:
        """Append without waiting for replicas, as tombstones: the next leader may repeat it."""
        log_of = self.partition.log
        if self.is_over or self.partition.leader is None or log_of is None:
            return ErrorCode.NOT_COORDINATOR
        return self._write(log_of, records, _NO_WRITER, None)

    def _write(
        self,
        log_of: Log,
        records: Iterable[KeyAndValue],
        writer: "_Writer",
        waiting: "_Append | None",
    ) -> ErrorCode:
        topic, partition = self._topic, self.partition
        wall_ms = topic.clock.wall_ms()
        batch = build_batch(
            [Record(key, value, wall_ms) for key, value in records],
            codec=topic.codec(),
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            base_sequence=writer.base_sequence,
            transactional=writer.producer_id >= 0,
        )
        if len(batch) > partition.rules.message_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        flushes = log_of.config.flush_messages != NEVER and waiting is not None
        try:
            appended = partition.append(
                memoryview(batch),
                read_header(batch),
                monotonic_ms=topic.clock.monotonic_ms(),
                flushed=waiting.flushed if flushes and waiting is not None else None,
                from_client=False,
            )
        except ApiError as error:
            return _APPEND_ERRORS.get(error.code, error.code)
        except StorageError as error:
            topic.replicas.storage_failed(error)
            return _error_of(error)
        if waiting is not None and appended.flushes:
            waiting.one_more()
        return ErrorCode.NONE


class CoordinatorTopic(Generic[M]):
    """All partitions of one internal topic that this broker leads."""

    def __init__(  # noqa: PLR0913 - what all its partitions share
        self,
        topic: str,
        *,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
        partition_count: Callable[[], int],
        make: Callable[[], M],
        codec: Callable[[], Codec] = lambda: Codec.NONE,
    ) -> None:
        """`make` makes the machine of a partition; 0 partitions: the number is not known yet."""
        self.topic = topic
        self.replicas = replicas
        self.purgatory = purgatory
        self.clock = clock
        self.codec = codec
        # Set by the shell of the machines. Called in the turn of the loop in which it happens.
        self.loaded: Callable[[CoordinatorLog[M]], None] = lambda _log: None
        self.unloaded: Callable[[CoordinatorLog[M]], None] = lambda _log: None
        self.perform: Callable[[CoordinatorLog[M], Any], None] = lambda _log, _effect: None
        self.corrupt_records = 0  # found while loading
        self._tasks = tasks
        self._partition_count = partition_count
        self._make = make
        self._coordinators: dict[int, CoordinatorLog[M]] = {}
        self._turn = asyncio.Lock()  # one loads at a time: a slice for all, not for each

    def now(self) -> Now:
        """Both clocks."""
        return read_clocks(self.clock)

    def carry_out(self, coordinator: CoordinatorLog[M], effect: object) -> None:
        match effect:
            case Note(text):
                log.info("%s: %s", coordinator, text)
            case RecordSkipped(offset, reason):
                self.record_skipped(coordinator, offset, reason)
            case _:
                self.perform(coordinator, effect)

    def record_skipped(self, coordinator: CoordinatorLog[M], offset: int, reason: str) -> None:
        self.corrupt_records += 1
        log.error("%s: skipped a corrupt record at offset %d: %s", coordinator, offset, reason)

    # ------------------------------------------------------------------------ queries

    def find(self, key: str) -> CoordinatorLog[M] | ErrorCode:
        """The coordinator of a group or transactional id, or why it is not here."""
        count = self._partition_count()
        if not count:
            return ErrorCode.NOT_COORDINATOR
        return self.at(coordinator_partition(key, count))

    def at(self, index: int) -> CoordinatorLog[M] | ErrorCode:
        """The coordinator of a partition, or why it is not here."""
        coordinator = self._coordinators.get(index)
        if coordinator is None:
            return ErrorCode.NOT_COORDINATOR
        if coordinator.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return coordinator

    @property
    def serving(self) -> list[CoordinatorLog[M]]:
        """Coordinators that are loaded, in the order of their partitions."""
        return [
            self._coordinators[index]
            for index in sorted(self._coordinators)
            if not self._coordinators[index].is_loading
        ]

    @property
    def loading(self) -> list[CoordinatorLog[M]]:
        """Coordinators that are being loaded, in that order."""
        return [
            self._coordinators[index]
            for index in sorted(self._coordinators)
            if self._coordinators[index].is_loading
        ]

    @property
    def is_loading(self) -> bool:
        """Whether any coordinator is being loaded."""
        return bool(self.loading)

    # ----------------------------------------------------------------------- leadership

    def role_changed(self, partition: Partition) -> None:
        """The leader or leader epoch of a partition of any topic may have changed."""
        if partition.topic_partition.topic != self.topic:
            return
        index = partition.topic_partition.partition
        known = self._coordinators.get(index)
        if known is not None:
            if (
                known.partition is partition
                and partition.leader is not None
                and partition.leader_epoch == known.coordinator_epoch
            ):
                return  # the same leader epoch with another ISR
            del self._coordinators[index]
            known.phase = _Phase.OVER
            self.unloaded(known)
        if partition.leader is not None:
            coordinator = self._coordinators[index] = CoordinatorLog(self, partition, self._make())
            self._tasks.start(self._load(coordinator), f"load {partition.topic_partition}")

    async def _load(self, coordinator: CoordinatorLog[M]) -> None:
        started_ms = self.clock.monotonic_ms()
        replayer = _Replayer(self, coordinator)
        failures = 0
        while not await self._has_replayed(replayer):
            failures += 1
            pause_ms = retry_after_ms(failures)
            if coordinator.is_over or pause_ms is None:
                return
            log.warning("%s: loading continues in %d ms", coordinator, pause_ms)
            await asyncio.sleep(pause_ms / 1000)
        if coordinator.is_over:
            return
        coordinator.phase = _Phase.SERVING
        took_ms = self.clock.monotonic_ms() - started_ms
        log.info("loaded %s: %d records in %d ms", coordinator, replayer.records, took_ms)
        self.loaded(coordinator)

    async def _has_replayed(self, replayer: "_Replayer[M]") -> bool:
        """Replay to the end, and until all of it is committed; False if that failed."""
        coordinator = replayer.coordinator
        try:
            async with self._turn:
                await replayer.run()
            if not coordinator.is_over:
                await _committed(coordinator.partition)
            async with self._turn:
                await replayer.run()
        except StorageError as error:
            log.exception("%s cannot be loaded", coordinator)
            if not error.left_nothing:
                self.replicas.storage_failed(error)
            return False
        except Exception:
            log.exception("%s cannot be loaded", coordinator)
            return False
        return True


def _error_of(error: StorageError) -> ErrorCode:
    """The error of a failed append: whether this broker is still the coordinator.

    It is if the log directory stays online. A prepared transaction is then completed by another
    attempt, which a broker that is no longer the coordinator does not make.
    """
    stays = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return stays if error.left_nothing else ErrorCode.NOT_COORDINATOR


class _Writer(NamedTuple):
    """The producer of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


_NO_WRITER: Final = _Writer(-1, -1, NO_SEQUENCE)


class _Append(Waiting):
    """Records that wait for all in-sync replicas, and for the flush of `flush.messages`."""

    __slots__ = ("_done", "_outcome", "_purgatory", "pending")

    def __init__(self, purgatory: Purgatory, done: Done) -> None:
        super().__init__()
        self._purgatory = purgatory
        self._done = done
        self._outcome: ErrorCode | None = None
        self.pending = 0

    def one_more(self) -> int:
        """Wait for one more thing."""
        self.pending += 1
        return 0

    def committed(self, slot: int) -> None:
        """The high watermark is above the records."""
        del slot
        self._settle(ErrorCode.NONE)

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """The leadership is lost: whether the records get committed is not known here."""
        del slot
        self._settle(_APPEND_ERRORS.get(error, error))

    def flushed(self, error: StorageError | None) -> None:
        """The records are flushed, or the flush failed."""
        self._settle(ErrorCode.NONE if error is None else _error_of(error))

    def expire(self) -> None:
        """The append was not replicated within `timeout_ms`."""
        if self._outcome is None:
            self._outcome = ErrorCode.REQUEST_TIMED_OUT
        self.look_again()

    def look_again(self) -> None:
        """Call `done`: at the end of the turn, not within the move of the high watermark."""
        assert self._outcome is not None
        self._purgatory.finish(self)
        self._done(self._outcome)

    def _settle(self, error: ErrorCode) -> None:
        self.pending -= 1
        if self.done or self._outcome is not None or (error is ErrorCode.NONE and self.pending):
            return
        self._outcome = error
        self._purgatory.wake(self)


class _Replayer(Generic[M]):
    """Replays one log, to its end."""

    def __init__(self, topic: CoordinatorTopic[M], coordinator: CoordinatorLog[M]) -> None:
        self._topic = topic
        self.coordinator = coordinator
        self._offset = 0
        self.records = 0

    async def run(self) -> None:
        """Replay from where the last call ended, or failed, to the end of the log.

        Raises:
            StorageError: a read failed; another call continues.
        """
        wait = False
        while self.coordinator.is_loading:
            replica = self.coordinator.partition.log
            if replica is None:
                return  # its log directory failed; `role_changed` follows
            found = self._read(replica, wait)
            if found is None:
                return
            wait = False
            if isinstance(found, ColdRead):
                await load(found)
                wait = True
                continue
            await in_slices(self._replay(found, replica), self._topic.clock)
            await asyncio.sleep(0)

    def _read(self, replica: Log, wait: bool) -> LogSlice | ColdRead | None:
        while self._offset < replica.leo:
            try:
                return replica.read(self._offset, _LOAD_BYTES, end_offset=replica.leo, wait=wait)
            except OffsetOutOfRangeError:  # retention removes records meanwhile
                self._offset = max(self._offset, replica.log_start_offset)
            except CorruptBatchError as error:
                self._skip_segment(replica, self._offset, error)
        return None

    def _replay(self, found: LogSlice, replica: Log) -> Iterator[None]:
        assert found.data is not None
        data = memoryview(found.data)
        before = self._offset
        try:
            for position, header in iter_batches(data):
                following = header.next_offset
                if following > self._offset:  # else the batch ends before the log start offset
                    yield from self._batch(data[position : position + header.size_bytes], header)
                    self._offset = following
                if not self.coordinator.is_loading:
                    return
        except CorruptBatchError as error:
            self._skip_segment(replica, found.segment.base_offset, error)
            return
        if self._offset == before:
            nothing = CorruptBatchError(f"no whole batch in {len(data)} bytes")
            self._skip_segment(replica, found.segment.base_offset, nothing)

    def _batch(self, batch: memoryview, header: BatchHeader) -> Iterator[None]:
        if not has_valid_crc(batch, 0, header):
            self._corrupt(header.base_offset, "the checksum is wrong")
            return
        transactional = header.attributes & TRANSACTIONAL_BIT
        producer_id = header.producer_id if transactional else -1
        offset = header.base_offset
        records: list[Record] = []
        damage: ApiError | None = None
        try:
            if header.attributes & CONTROL_BIT:
                marker = read_marker(batch)
                if marker is not None:
                    committed = marker.type is ControlType.COMMIT
                    self.coordinator.handle(MarkerReplayed(header.producer_id, committed))
                yield
                return
            for record in iter_records(batch):
                offset = record.offset
                records.append(record)
                if len(records) == _RECORDS_A_STEP:
                    self._replayed(records, producer_id)
                    records = []
                    yield
        except ApiError as error:
            damage = error
        if records:
            self._replayed(records, producer_id)
            yield
        if damage is not None:
            self._corrupt(offset, f"the rest of its batch is damaged: {damage}")

    def _replayed(self, records: list[Record], producer_id: int) -> None:
        self.records += len(records)
        self.coordinator.handle(Replayed(tuple(records), producer_id))

    def _corrupt(self, offset: int, reason: str) -> None:
        self._topic.record_skipped(self.coordinator, offset, reason)

    def _skip_segment(self, replica: Log, within: int, error: ApiError) -> None:
        self._corrupt(self._offset, f"{error}; the rest of its segment is skipped")
        behind = (s.base_offset for s in replica.segments if s.base_offset > within)
        self._offset = max(self._offset, next(behind, replica.leo))


async def _committed(partition: Partition) -> None:
    """Return when the high watermark reaches the current end, or the leadership is lost."""
    leader, replica = partition.leader, partition.log
    if leader is None or replica is None or leader.high_watermark >= replica.leo:
        return
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = _Reached(reached)
    partition.wait_for_commit(replica.leo, waiting, 0)
    try:
        await reached
    finally:
        waiting.done = True


class _Reached:
    """Waits for an offset without a time-out; the loss of the leadership ends it."""

    def __init__(self, reached: "asyncio.Future[None]") -> None:
        self.done = False
        self._settle = partial(_settle, reached)

    def committed(self, slot: int) -> None:
        del slot
        self._settle()

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        del slot, error
        self._settle()


def _settle(reached: "asyncio.Future[None]") -> None:
    if not reached.done():
        reached.set_result(None)
