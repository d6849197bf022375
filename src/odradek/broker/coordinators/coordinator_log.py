"""A coordinator's log: what it decided stands in a partition of an internal topic.

Who leads a partition of `__consumer_offsets` or `__transaction_state` is the coordinator of the
keys that hash to it. For each such partition there is a *mind* (the machine of `odradek.group`
or `odradek.txn`), rebuilt from the log when leadership is gained, dropped when it is lost:

    leadership gained    LOADING    the log is replayed in slices    COORDINATOR_LOAD_IN_PROGRESS
    all is replayed      SERVING    and below the high watermark     the mind answers
    leadership lost      OVER       whoever waits is told            NOT_COORDINATOR

A mind serves when everything that it knows is committed. (Apache Kafka serves when it has read
to the end of the log: what it then tells may be unknown to the next leader.)

What the log answers becomes what a coordinator says:

    UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS(_AFTER_APPEND)    COORDINATOR_NOT_AVAILABLE
    NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR                       NOT_COORDINATOR

All else (REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, INVALID_PRODUCER_EPOCH ...) is handed on as it is,
for the coordinators differ in what they make of it. A corrupt record is reported with its offset
and skipped; where not even its length can be trusted, the rest of its segment is.

A load that fails goes on where it failed, after a pause that grows to 5 s, while this broker leads.
A disk that fails takes its log directory offline, and so the leadership away; what is left to retry
is a shortage of descriptors or memory, or an error of ours, which is logged each time. (Apache
Kafka logs any error and then serves without what it could not read: `loadGroupsAndOffsets`.)
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_manager import ReplicaManager, load
from odradek.broker.serving.purgatory import Purgatory, Waiting
from odradek.broker.serving.tasks import Tasks
from odradek.broker.storage.housekeeping import in_slices
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.log_config import NEVER
from odradek.log.slices import ColdRead, LogSlice, OffsetOutOfRangeError
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
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
from odradek.record.records import Record, build_batch, iter_records

log = logging.getLogger(__name__)

_RECORDS_A_STEP: Final = 32
_LOAD_BYTES: Final = 1 << 20
_RETRY_MS_MIN: Final = 100
_RETRY_MS_MAX: Final = 5_000
_TOLD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}

KeyAndValue = tuple[bytes, bytes | None]
Done = Callable[[ErrorCode], None]


class Mind(Protocol):
    """What is rebuilt from a log, in its order."""

    def replay(self, record: Record, producer_id: int) -> None:
        """Take a record in. The producer's id is -1 outside of a transaction.

        Raises:
            InvalidRecordError, MalformedRequestError: it is damaged; nothing was taken.
        """

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A producer's transaction ended here."""


M = TypeVar("M", bound=Mind)


class _Phase(Enum):
    LOADING = 1
    SERVING = 2
    OVER = 3


def coordinator_partition(key: str, count: int) -> int:
    """The partition of an internal topic of `count` that minds this group or transactional id."""
    return java_hash(key) % count


def java_hash(text: str) -> int:
    """The absolute value of Java's String.hashCode over UTF-16 code units; 0 for -2^31.

    Not the hash without its sign bit, which is what producers take for their partitions.
    """
    value = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value if value < 1 << 31 else -value & 0x7FFFFFFF


def retry_after_ms(failures: int) -> int | None:
    """How long a load that has failed so many times pauses; None: it is given up."""
    return min(_RETRY_MS_MIN << min(failures - 1, 16), _RETRY_MS_MAX)


class CoordinatorLog(Generic[M]):
    """One partition in one reign of this broker: the mind, and the way to write."""

    def __init__(self, topic: "CoordinatorTopic[M]", partition: Partition, mind: M) -> None:
        self.partition = partition
        self.index = partition.topic_partition.partition
        self.coordinator_epoch = partition.leader_epoch
        self.mind = mind
        self.phase = _Phase.LOADING
        self._topic = topic

    def __str__(self) -> str:
        return f"{self.partition.topic_partition} in leader epoch {self.coordinator_epoch}"

    @property
    def is_loading(self) -> bool:
        """The mind does not know everything yet."""
        return self.phase is _Phase.LOADING

    @property
    def is_over(self) -> bool:
        """Another leads by now, or this broker again in another reign."""
        return self.phase is _Phase.OVER

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

        The sequence is written and never looked at: a transaction takes any number of these.

        `done` is told once: NONE when it is committed (that may be at once, before this
        returns), REQUEST_TIMED_OUT when that is not known in time, or why it was not appended.
        """
        leader = self.partition.leader
        if self.is_over or leader is None:
            done(ErrorCode.NOT_COORDINATOR)
            return
        if leader.is_under_min_isr:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        waiting = _Append(self._topic.purgatory, done)
        error = self._write(records, _Writer(producer_id, producer_epoch, base_sequence), waiting)
        if error is not ErrorCode.NONE:
            done(error)
            return
        assert self.partition.log is not None
        required = self.partition.log.leo
        if leader.high_watermark < required:
            self.partition.wait_for_commit(required, waiting, waiting.one_more())
        if waiting.pending:
            self._topic.purgatory.wait(waiting, timeout_ms)
        else:
            done(ErrorCode.NONE)

    def write(self, records: Iterable[KeyAndValue]) -> ErrorCode:
        """Append what nobody waits for, as tombstones are: who leads next can do it again."""
        if self.is_over or self.partition.leader is None:
            return ErrorCode.NOT_COORDINATOR
        return self._write(records, _NO_WRITER, None)

    def _write(
        self,
        records: Iterable[KeyAndValue],
        writer: "_Writer",
        waiting: "_Append | None",
    ) -> ErrorCode:
        topic, partition = self._topic, self.partition
        assert partition.log is not None
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
        flushes = partition.log.config.flush_messages != NEVER and waiting is not None
        try:
            appended = partition.append(
                memoryview(batch),
                read_header(batch)._replace(base_sequence=NO_SEQUENCE),
                now_ms=topic.clock.monotonic_ms(),
                wall_ms=wall_ms,
                flushed=waiting.flushed if flushes and waiting is not None else None,
            )
        except ApiError as error:
            return _TOLD.get(error.code, error.code)
        except StorageError as error:
            topic.replicas.storage_failed(error)
            return ErrorCode.NOT_COORDINATOR
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
        make: Callable[[int, int], M],
        codec: Callable[[], Codec] = lambda: Codec.NONE,
    ) -> None:
        """`make` makes the mind of a partition in a leader epoch; 0 partitions: not known yet."""
        self.topic = topic
        self.replicas = replicas
        self.purgatory = purgatory
        self.clock = clock
        self.codec = codec
        # Set by whoever runs the minds. Told within the turn in which it happens.
        self.loaded: Callable[[CoordinatorLog[M]], None] = lambda _log: None
        self.unloaded: Callable[[CoordinatorLog[M]], None] = lambda _log: None
        self.corrupt_records = 0  # met while loading
        self._tasks = tasks
        self._partition_count = partition_count
        self._make = make
        self._led: dict[int, CoordinatorLog[M]] = {}
        self._turn = asyncio.Lock()  # one loads at a time: a slice for all, not for each

    # ------------------------------------------------------------------------ questions

    def find(self, key: str) -> CoordinatorLog[M] | ErrorCode:
        """Who minds this group or transactional id, or why nobody here does."""
        count = self._partition_count()
        if not count:
            return ErrorCode.NOT_COORDINATOR
        return self.at(coordinator_partition(key, count))

    def at(self, index: int) -> CoordinatorLog[M] | ErrorCode:
        """Who minds this partition, or why nobody here does."""
        led = self._led.get(index)
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        if led.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return led

    @property
    def serving(self) -> list[CoordinatorLog[M]]:
        """Those that are loaded, in the order of their partitions."""
        return [self._led[index] for index in sorted(self._led) if not self._led[index].is_loading]

    @property
    def loading(self) -> list[CoordinatorLog[M]]:
        """Those that are not, in that order."""
        return [self._led[index] for index in sorted(self._led) if self._led[index].is_loading]

    @property
    def is_loading(self) -> bool:
        """Whether some do not know everything yet."""
        return bool(self.loading)

    # ----------------------------------------------------------------------- leadership

    def role_changed(self, partition: Partition) -> None:
        """Somebody leads this partition, of whatever topic, in whatever epoch (see there)."""
        if partition.topic_partition.topic != self.topic:
            return
        index = partition.topic_partition.partition
        known = self._led.get(index)
        if known is not None:
            if (
                known.partition is partition
                and partition.leader is not None
                and partition.leader_epoch == known.coordinator_epoch
            ):
                return  # the same reign with another ISR
            del self._led[index]
            known.phase = _Phase.OVER
            self.unloaded(known)
        if partition.leader is not None:
            mind = self._make(index, partition.leader_epoch)
            led = self._led[index] = CoordinatorLog(self, partition, mind)
            self._tasks.start(self._load(led), f"load {partition.topic_partition}")

    async def _load(self, led: CoordinatorLog[M]) -> None:
        started_ms = self.clock.monotonic_ms()
        replayer = _Replayer(self, led)
        failures = 0
        while not await self._has_replayed(replayer):
            failures += 1
            pause_ms = retry_after_ms(failures)
            if led.is_over or pause_ms is None:
                return
            log.warning("%s: loading goes on in %d ms", led, pause_ms)
            await asyncio.sleep(pause_ms / 1000)
        if led.is_over:
            return
        led.phase = _Phase.SERVING
        took_ms = self.clock.monotonic_ms() - started_ms
        log.info("loaded %s: %d records in %d ms", led, replayer.records, took_ms)
        self.loaded(led)

    async def _has_replayed(self, replayer: "_Replayer[M]") -> bool:
        """Replay to the end, and until all of it is committed; False if that failed."""
        led = replayer.led
        try:
            async with self._turn:
                await replayer.run()
            if not led.is_over:
                await _committed(led.partition)
            async with self._turn:
                await replayer.run()
        except StorageError as error:
            log.exception("%s cannot be loaded", led)
            if not error.is_shortage:
                self.replicas.storage_failed(error)
            return False
        except Exception:
            log.exception("%s cannot be loaded", led)
            return False
        return True


class _Writer(NamedTuple):
    """In whose name something is appended."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


_NO_WRITER: Final = _Writer(-1, -1, NO_SEQUENCE)


class _Append(Waiting):
    """Records on their way to all replicas in sync, and to the disk where that was asked for."""

    __slots__ = ("_done", "_outcome", "_purgatory", "pending")

    def __init__(self, purgatory: Purgatory, done: Done) -> None:
        super().__init__()
        self._purgatory = purgatory
        self._done = done
        self._outcome: ErrorCode | None = None
        self.pending = 0

    def one_more(self) -> int:
        """Another thing has to come true."""
        self.pending += 1
        return 0

    def committed(self, slot: int) -> None:
        """The high watermark has passed it."""
        del slot
        self._settle(ErrorCode.NONE)

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """Whether it will be committed is not for this broker to say any more."""
        del slot
        self._settle(_TOLD.get(error, error))

    def flushed(self, error: StorageError | None) -> None:
        """It is durable, or never will be."""
        self._settle(ErrorCode.NONE if error is None else ErrorCode.NOT_COORDINATOR)

    def expire(self) -> None:
        """The time is up."""
        if self._outcome is None:
            self._outcome = ErrorCode.REQUEST_TIMED_OUT
        self.look_again()

    def look_again(self) -> None:
        """Tell who waits: at the end of the turn, not inside of what moved the high watermark."""
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
    """Goes through one log, to its end."""

    def __init__(self, topic: CoordinatorTopic[M], led: CoordinatorLog[M]) -> None:
        self._topic = topic
        self.led = led
        self._offset = 0
        self.records = 0

    async def run(self) -> None:
        """Replay from where this last ended, or failed. When it returns, the log's end is reached.

        Raises:
            StorageError: the disk refused; to go on, call it again.
        """
        wait = False
        while self.led.is_loading:
            replica = self.led.partition.log
            if replica is None:
                return  # its directory failed, and we shall hear of it
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
            except OffsetOutOfRangeError:  # old records go while we read
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
                if following > self._offset:  # else it ends before the log begins
                    yield from self._batch(data[position : position + header.size_bytes], header)
                    self._offset = following
                if not self.led.is_loading:
                    return
        except CorruptBatchError as error:
            self._skip_segment(replica, found.segment.base_offset, error)
            return
        if self._offset == before:
            nothing = CorruptBatchError(f"no whole batch in {len(data)} bytes")
            self._skip_segment(replica, found.segment.base_offset, nothing)

    def _batch(self, batch: memoryview, header: BatchHeader) -> Iterator[None]:
        mind = self.led.mind
        if not has_valid_crc(batch, 0, header):
            self._corrupt(header.base_offset, "the checksum is wrong")
            return
        transactional = header.attributes & TRANSACTIONAL_BIT
        producer_id = header.producer_id if transactional else -1
        offset = header.base_offset
        try:
            if header.attributes & CONTROL_BIT:
                marker = read_marker(batch)
                if marker is not None:
                    mind.replay_marker(
                        header.producer_id, committed=marker.type is ControlType.COMMIT
                    )
                yield
                return
            for number, record in enumerate(iter_records(batch)):
                offset = record.offset
                self.records += 1
                try:
                    mind.replay(record, producer_id)
                except (ApiError, MalformedRequestError) as error:
                    self._corrupt(offset, str(error))
                if number % _RECORDS_A_STEP == 0:
                    yield
        except ApiError as error:
            self._corrupt(offset, f"the rest of its batch is damaged: {error}")

    def _corrupt(self, offset: int, why: str) -> None:
        self._topic.corrupt_records += 1
        log.error("%s: skipped a corrupt record at offset %d: %s", self.led, offset, why)

    def _skip_segment(self, replica: Log, within: int, error: ApiError) -> None:
        self._corrupt(self._offset, f"{error}; the rest of its segment is skipped")
        behind = (s.base_offset for s in replica.segments if s.base_offset > within)
        self._offset = max(self._offset, next(behind, replica.leo))


async def _committed(partition: Partition) -> None:
    """Return when the high watermark has reached the present end, or it never will here."""
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
    """Waits for an offset without a limit; losing the leadership ends it."""

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
