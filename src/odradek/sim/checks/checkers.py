"""Checks of each broker's logs and disk, during the run and at its end.

    a process died          its logs hold at least what it had appended (with replicas: up to the
                            HW); a write in progress may be torn
    the power failed        they hold at least what was flushed (with replicas: up to the HW), and
                            have no gap up to their end
    a broker starts         each log ends where its complete batches end, with the leader epochs of
                            all of them; no torn batch is left. After a clean stop nothing needed
                            recovery
    while it runs           log start <= HW <= LEO, recovery point <= LEO
    at the end              store and broker agree; every acknowledged record can be read; the disk
                            is the same after another clean restart

The disk is read by a separate parser, which uses the file format and none of `odradek.log`'s state.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.coord import layout
from odradek.coord.memory import MemoryTree
from odradek.log.checkpoints import LOG_START_OFFSET_FILE, decode_offsets
from odradek.log.directories import Mark, parse_name
from odradek.log.log import Log
from odradek.log.partition_metadata import PARTITION_METADATA, decode_metadata
from odradek.log.repair.content import check_content
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.invariants import InvariantError
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition
from odradek.record.batch import OVERHEAD_BYTES, size_at
from odradek.sim.checks.history import (
    Facts,
    History,
    PartitionKey,
    read_batches,
    read_messages,
)
from odradek.sim.world.cluster import LOG_DIRS, ProcessState, SimulatedBroker
from odradek.sim.world.disk import Crash, SimulatedDisk
from odradek.sim.world.stored import Content

# An upper bound of a batch's records: how far a log may exceed the LEO of the dead broker.
BATCH_RECORDS_MAX: Final = 100
FETCH_RECORDS_MAX: Final = 20_000  # a follower appends more at once
_STEM_DIGITS: Final = 20


class Look(NamedTuple):
    """The offsets of one log in a broker's memory."""

    start: int
    high_watermark: int
    leo: int
    recovery_point: int


class BatchOnDisk(NamedTuple):
    """One batch on disk."""

    base_offset: int
    leader_epoch: int
    keys: tuple[bytes | None, ...]
    next_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogOnDisk:
    """One log on disk."""

    path: str
    partition: TopicPartition
    topic_id: bytes | None
    is_copy: bool  # a future replica, while it moves to another dir
    start: int
    end: int  # of the complete, valid batches without a gap
    batches: tuple[BatchOnDisk, ...]
    is_whole: bool  # the segments contain nothing else

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) in {len(self.batches)} batches, whole: {self.is_whole}"


class LogChecker:
    """Compares logs in brokers' memory, on their disks, and after a restart."""

    def __init__(
        self, history: History, violated: Callable[[str], None], *, is_alone: bool
    ) -> None:
        """`is_alone`: there is only one broker, whose logs grow only by its producers' batches."""
        self._is_alone = is_alone
        self._history = history
        self._violated = violated
        self._looks: dict[int, dict[TopicPartition, Look]] = {}
        self._expected: dict[int, dict[TopicPartition, LogOnDisk]] = {}
        self._clean: dict[int, list[str]] = {}  # the log directories that were shut down cleanly
        self._compared: dict[PartitionKey, set[BatchOnDisk]] = {}  # with the history

    # -------------------------------------------------------------------- births, deaths

    def dying(self, broker: SimulatedBroker) -> None:
        """Read the offsets from the broker's memory before the process ends."""
        self._clean[broker.id] = []
        self._looks[broker.id] = looks(broker)

    def stopped(self, broker: SimulatedBroker) -> None:
        """The broker has stopped by itself."""
        running = broker.running
        self._looks[broker.id] = looks(broker)
        self._clean[broker.id] = [
            path
            for path, directory in running.logs.directories.items()
            if directory.is_loaded and not directory.is_offline and not broker.gave_up
        ]
        self._compare(broker, Crash.PROCESS)

    def died(self, broker: SimulatedBroker, how: Crash) -> None:
        """Compare the disk with the memory before the crash."""
        self._compare(broker, how)

    def put_back(self, broker: SimulatedBroker) -> Collection[LogOnDisk]:
        """The logs on its disk now: what the start has to find. They may end anywhere."""
        self._looks.pop(broker.id, None)
        self._clean.pop(broker.id, None)
        pictures = read_disk(broker.disk)
        self._expected[broker.id] = fullest(pictures)
        for path, picture in pictures.items():
            self._compare_content(f"{broker.name}'s backup, in {path},", picture)
        return pictures.values()

    def _compare(self, broker: SimulatedBroker, how: Crash) -> None:
        pictures = read_disk(broker.disk)
        best = self._expected[broker.id] = fullest(pictures)
        for partition, look in self._looks.get(broker.id, {}).items():
            end = best[partition].end if partition in best else 0
            least = look.leo if how is Crash.PROCESS else look.recovery_point
            if not self._is_alone:  # it may have died during a truncation
                least = min(least, look.high_watermark)
            if look.start == look.leo and how is Crash.POWER:
                least = 0  # the log start offset is only checkpointed at times
            if end < least and not self._is_deleted(partition):
                self._violated(
                    f"{broker.name}: {partition} ends at {end} after {how.value}; {look}"
                )
            most = look.leo + (BATCH_RECORDS_MAX if self._is_alone else FETCH_RECORDS_MAX)
            if how is Crash.PROCESS and end > most:
                self._violated(f"{broker.name}: {partition} ends at {end}, far beyond {look}")
        if how is Crash.POWER:
            self._forget_what_is_lost(best)
        for path, picture in pictures.items():
            self._compare_content(f"{broker.name}'s disk, after {how.value}, in {path},", picture)
        for picture in best.values():
            self._compare_end(f"{broker.name}'s disk, after {how.value},", picture)

    def _is_deleted(self, partition: TopicPartition) -> bool:
        # The broker has renamed the directory, and the client has no response yet.
        topic = self._history.topics.get(partition.topic)
        return topic is None or topic.is_doomed

    def _facts(self, picture: LogOnDisk) -> Facts | None:
        if picture.topic_id is None:
            return None
        return self._history.facts.get((picture.topic_id, picture.partition.partition))

    def _compare_content(self, where: str, picture: LogOnDisk) -> None:
        facts = self._facts(picture)
        if facts is not None:
            compared = self._compared.setdefault((facts.topic.id, facts.index), set())
            for batch in picture.batches:
                if batch in compared:
                    continue
                if not self._is_alone:  # then the history never drops anything
                    compared.add(batch)
                for offset, key in enumerate(batch.keys, batch.base_offset):
                    self._history.on_disk(facts, offset, batch.leader_epoch, key, where)

    def _compare_end(self, where: str, picture: LogOnDisk) -> None:
        facts = self._facts(picture)
        if facts is None or facts.topic.is_doomed or facts.topic.replicas > 1:
            return
        lost = [offset for offset in facts.acked if offset >= picture.end]
        if lost:
            self._violated(
                f"{facts}: {where} ends at {picture.end}; acknowledged up to {max(lost)}"
            )

    def _forget_what_is_lost(self, best: dict[TopicPartition, LogOnDisk]) -> None:
        """Logs have no gap up to their end; offsets beyond it may be written again."""
        for facts in self._history.facts.values():
            if facts.topic.is_deleted or facts.topic.replicas > 1:
                continue
            picture = best.get(TopicPartition(facts.topic.name, facts.index))
            is_it = picture is not None and picture.topic_id in (None, facts.topic.id)
            self._history.cut(facts, picture.end if picture is not None and is_it else 0)

    def loaded(self, broker: SimulatedBroker) -> None:
        """Compare the opened logs with the disk that the broker has found."""
        running = broker.running
        now = read_disk(broker.disk)
        for path in self._clean.pop(broker.id, []):
            directory = running.logs.directories[path]
            if not directory.is_offline and not directory.was_clean:
                self._violated(f"{broker.name}: {path} was left cleanly, and recovered")
        for partition, picture in self._expected.pop(broker.id, {}).items():
            is_known = not running.logs.is_offline(picture.path.rpartition("/")[0])
            if picture.is_copy:  # it stays one while the other log may be in a failed directory
                is_known = not running.logs.has_offline_dir
            log = running.logs.get(partition)
            if log is not None and is_known:
                self._compare_log(broker, log, picture, now.get(log.directory))
            elif is_known and (picture.topic_id or picture.end):  # else half created
                self._violated(f"{broker.name}: {picture.path} was not loaded")

    def _compare_log(
        self, broker: SimulatedBroker, log: Log, before: LogOnDisk, after: LogOnDisk | None
    ) -> None:
        expected = max(before.end, log.log_start_offset)
        if log.leo != expected:
            self._violated(
                f"{broker.name}: {log.directory} ends at {log.leo} after the start; its whole "
                f"batches [{before.start}, {before.end}), log start {log.log_start_offset}"
            )
        elif after is None or not after.is_whole or after.end != log.leo:
            self._violated(f"{broker.name}: {log.directory} is not whole after the start")
        for batch in before.batches:
            known = log.epochs.epoch_at(batch.base_offset)
            # -1: below a log start offset that was not checkpointed before the crash.
            # Converted messages of an old format have no leader epoch.
            if batch.leader_epoch >= 0 and known not in (batch.leader_epoch, -1):
                self._violated(
                    f"{broker.name}: {log.directory} has a batch of leader epoch "
                    f"{batch.leader_epoch} at {batch.base_offset}, where it has {known}"
                )
                break

    # ------------------------------------------------------------------- while it runs

    def probe(self, broker: SimulatedBroker) -> None:
        """Check the offsets of all logs of a running broker."""
        if broker.broker is None:
            return
        for partition in broker.broker.replicas:
            log = partition.log
            if log is None:
                continue
            if not log.log_start_offset <= log.high_watermark <= log.leo >= log.recovery_point:
                self._violated(
                    f"{broker.name}: {log.partition}: log start {log.log_start_offset}, "
                    f"HW {log.high_watermark}, LEO {log.leo}, "
                    f"recovery point {log.recovery_point}"
                )
            self._history.topic_seen(partition.topic_id, f"{broker.name}'s memory")

    # ------------------------------------------------------------------------ at the end

    def end(
        self,
        broker: SimulatedBroker,
        tree: MemoryTree,
        may_be_left: Callable[[int, TopicPartition, bytes | None], bool],
    ) -> None:
        """After all faults have healed and clients are idle: store and broker agree.

        `may_be_left` returns whether a broker may still have a log that is not assigned to it.
        """
        running = broker.broker
        if running is None:
            self._violated(f"{broker.name} is down at the end: {broker.gave_up}")
            return
        assigned = _assigned(broker, tree)
        logs = {log.partition: log.topic_id for log in running.logs}
        left = {
            name
            for name, topic_id in logs.items()
            if name not in assigned and may_be_left(broker.id, name, topic_id)
        }
        led = [p.topic_partition for p in running.replicas if p.leader is not None]
        if not left.isdisjoint(led):
            self._violated(f"{broker.name} leads {_names(left.intersection(led))}, which it lost")
        logs = {name: topic_id for name, topic_id in logs.items() if name not in left}
        held = {p.topic_partition: p for p in running.replicas if p.topic_partition not in left}
        if logs != assigned:
            self._violated(f"{broker.name} has the logs {_names(logs)}, not {_names(assigned)}")
        if held.keys() != assigned.keys():
            self._violated(f"{broker.name} holds {_names(held)}, not {_names(assigned)}")
        self._check_content(broker.name, running.logs)
        for partition in held.values():
            follows = partition.leader is None and partition.leader_id in running.metadata.brokers
            if partition.error is not ErrorCode.NONE and not (
                follows and partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            ):
                self._violated(
                    f"{broker.name}: {partition.topic_partition} is not served: "
                    f"{partition.error.name}"
                )
        known = {topic.id for topic in self._history.topics.values()}
        maybe = self._history.being_made | INTERNAL_TOPICS
        stray = [n for n, i in assigned.items() if i not in known and n.topic not in maybe]
        if stray:
            self._violated(f"the store has {_names(stray)}, that no client has created")
        pictures = read_disk(broker.disk)
        for picture in pictures.values():
            self._compare_content(f"{broker.name}'s disk, at the end, in {picture.path},", picture)
        for picture in fullest(pictures).values():
            self._compare_end(f"{broker.name}'s disk, at the end,", picture)

    def _check_content(self, name: str, logs: Iterable[Log]) -> None:
        for log in logs:
            try:
                check_content(log)
            except (ApiError, InvariantError) as error:
                self._violated(f"{name}: {log.partition}: {error}")

    async def second_look(self, brokers: Sequence[SimulatedBroker]) -> None:
        """Stop all cleanly, fail the power, start, stop: the logs are unchanged."""
        for broker in brokers:
            await broker.stop()
        before = [fullest(read_disk(broker.disk)) for broker in brokers]
        for broker in brokers:
            broker.lose_power()
            broker.start()
        for _ in range(30):
            await asyncio.sleep(1)
            if all(broker.state is ProcessState.RUNNING for broker in brokers):
                break
        await asyncio.sleep(5)  # for requests of the controller, and work after a start
        for broker in brokers:
            await broker.stop()
        for broker, was in zip(brokers, before, strict=True):
            after = fullest(read_disk(broker.disk))
            for name in sorted(was.keys() | after.keys()):
                may_grow = name.topic == "__consumer_offsets"  # an offset may expire at any time
                if not _same(was.get(name), after.get(name), may_grow=may_grow):
                    self._violated(
                        f"{broker.name}: {name} is not what it was before a clean stop and start: "
                        f"{was.get(name)}, now {after.get(name)}"
                    )


def fullest(pictures: dict[str, LogOnDisk]) -> dict[TopicPartition, LogOnDisk]:
    """For each partition the log with most records: during a move it exists twice."""
    best: dict[TopicPartition, LogOnDisk] = {}
    for picture in pictures.values():
        known = best.get(picture.partition)
        if known is None or _holds_more(picture, known):
            best[picture.partition] = picture
    return best


def _holds_more(picture: LogOnDisk, known: LogOnDisk) -> bool:
    """Whether one log ends later; without batches only the end offset counts."""
    if picture.batches and known.batches:
        epoch, other = picture.batches[-1].leader_epoch, known.batches[-1].leader_epoch
        if epoch != other:
            return epoch > other
    return (picture.end, not picture.is_copy) > (known.end, not known.is_copy)


def _same(before: LogOnDisk | None, after: LogOnDisk | None, *, may_grow: bool) -> bool:
    """Whether a log is unchanged; segments below its start may be deleted."""
    if before is None or after is None:
        return False
    kept = tuple(batch for batch in before.batches if batch.base_offset >= after.start)
    now = after.batches
    if may_grow:
        now = tuple(batch for batch in now if batch.base_offset < before.end)
    elif before.end != after.end:
        return False
    return kept == now and before.topic_id == after.topic_id


def looks(broker: SimulatedBroker) -> dict[TopicPartition, Look]:
    """The offsets of a broker's logs in its memory."""
    if broker.broker is None:
        return {}
    return {
        log.partition: Look(log.log_start_offset, log.high_watermark, log.leo, log.recovery_point)
        for log in broker.broker.logs
        if not log.removed
    }


def _assigned(broker: SimulatedBroker, tree: MemoryTree) -> dict[TopicPartition, bytes | None]:
    """The partitions that the store assigns to a broker, with their topic ids."""
    assigned: dict[TopicPartition, bytes | None] = {}
    for name in tree.names(layout.TOPICS):
        topic = layout.decode_topic(name, tree.node(layout.topic_path(name)).data)
        topic_id = topic.topic_id.bytes if topic.topic_id else None
        for number, assignment in topic.assignments.items():
            if broker.id in assignment.replicas:
                assigned[TopicPartition(name, number)] = topic_id
    return assigned


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(map(str, partitions))) or "none"


# ------------------------------------------------------------------------------ reading disks


def read_disk(disk: SimulatedDisk) -> dict[str, LogOnDisk]:
    """Every log on a disk, by its directory."""
    with _without_errors(disk):
        return {
            picture.path: picture
            for log_dir in LOG_DIRS
            if disk.exists(log_dir)
            for picture in _read_log_dir(disk, log_dir)
        }


@contextmanager
def _without_errors(disk: SimulatedDisk) -> Iterator[None]:
    """Without the disk's faults and its limit of open files, for the checker's own reads."""
    faults, disk.faults = disk.faults, []
    descriptors, disk.descriptors = disk.descriptors, None
    opened, disk.opened = disk.opened, {}
    try:
        yield
    finally:
        disk.faults, disk.descriptors, disk.opened = faults, descriptors, opened


def _read_log_dir(disk: SimulatedDisk, log_dir: str) -> Iterator[LogOnDisk]:
    for entry in disk.list(log_dir):
        found = parse_name(entry.name)
        if entry.is_dir and found is not None and found.mark in (Mark.NONE, Mark.FUTURE):
            path = f"{log_dir}/{entry.name}"
            yield _read_log(disk, path, found.partition, is_copy=found.mark is Mark.FUTURE)


def _read_log(
    disk: SimulatedDisk, path: str, partition: TopicPartition, *, is_copy: bool
) -> LogOnDisk:
    metadata = disk.read_file(f"{path}/{PARTITION_METADATA}")
    topic_id = decode_metadata(metadata, path) if metadata else None
    names = [
        entry.name
        for entry in disk.list(path)
        if entry.name.endswith(".log") and len(entry.name) == _STEM_DIGITS + len(".log")
    ]
    batches: list[BatchOnDisk] = []
    start = end = int(names[0][:_STEM_DIGITS]) if names else _log_start(disk, path, partition)
    is_whole = True
    for name in names:
        if int(name[:_STEM_DIGITS]) != end or not is_whole:
            is_whole = False
            break
        segment = disk.content(f"{path}/{name}")
        found = _batches_in(segment)
        without_gap = 0
        for batch in found:
            if batch.base_offset != end:
                break
            end = batch.next_offset
            without_gap += 1
        batches += found[:without_gap]
        is_whole = without_gap == len(found) and segment.known_bytes == len(segment.data)
    return LogOnDisk(path, partition, topic_id, is_copy, start, end, tuple(batches), is_whole)


def _batches_in(segment: Content) -> list[BatchOnDisk]:
    """The complete batches at the beginning of a file; parses only what is new."""
    known = segment.known
    if known is None:
        known = segment.known = []
    assert isinstance(known, list)
    with memoryview(segment.data) as data:
        more = True
        while more:
            before = segment.known_bytes
            for header, keys in read_batches(data[before:]):
                base, end, size = header.base_offset, header.next_offset, header.size_bytes
                known.append(BatchOnDisk(base, header.leader_epoch, keys, end, size))
                segment.known_bytes += size
            message = _old_message_at(data, segment.known_bytes)
            if message is not None:
                known.append(message)
                segment.known_bytes += message.size_bytes
            more = message is not None
    return known


def _old_message_at(data: memoryview, position: int) -> BatchOnDisk | None:
    """A whole message of format v0 or v1, or what is wrapped in one."""
    if len(data) - position < OVERHEAD_BYTES:
        return None
    size = size_at(data, position)
    with suppress(ApiError):
        found = list(read_messages(data[position : position + size]))
        if found:
            keys = tuple(key for _, key in found)
            return BatchOnDisk(found[0][0], -1, keys, found[-1][0] + 1, size)
    return None


def _log_start(disk: SimulatedDisk, path: str, partition: TopicPartition) -> int:
    log_dir = path.rpartition("/")[0]
    data = disk.read_file(f"{log_dir}/{LOG_START_OFFSET_FILE}") or b""
    return decode_offsets(data).get(partition, 0)
