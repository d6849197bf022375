"""kill -9 during writes, and damage of the files before the next start.

ODRADEK_KILL_ROUNDS=500 pytest tests/cluster/test_kill.py     more of it
"""

import os
import pathlib
import random
import threading
import time
from collections.abc import Callable

from attack import existing_topics
from brokers import BrokerProcess
from control import wait_for
from ledger import OFFSETS_KEPT, Ledger, Load, Stream, new_producer_id
from peers import Peer

from odradek.record.batch import HEADER_BYTES, iter_batches
from odradek.record.records import Record, build_batch
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

ROUNDS = int(os.environ.get("ODRADEK_KILL_ROUNDS", "20"))
TOPIC, PARTITIONS = "written", 3
SEGMENT_BYTES = 16 * 1024
# So small that rolls are frequent; recovery points and the like are written all the time.
OPTIONS = {
    "log.segment.bytes": SEGMENT_BYTES,
    "log.index.interval.bytes": 512,
    "log.index.size.max.bytes": 4096,
    "log.retention.ms": -1,
    "log.flush.offset.checkpoint.interval.ms": 50,
    "log.flush.start.offset.checkpoint.interval.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 50,
}


# -------------------------------------------------------------------------- what disks may do


class Files:
    """The files of one partition while its broker does not run."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory

    def of(self, suffix: str) -> list[pathlib.Path]:
        return sorted(self.directory.glob(f"*{suffix}"))

    @property
    def active(self) -> pathlib.Path:
        return self.of(".log")[-1]

    def batches(self) -> list[tuple[int, int, int]]:
        """Of each batch in the active segment: position, position behind it, base offset."""
        data = self.active.read_bytes()
        return [
            (position, position + header.size_bytes, header.base_offset)
            for position, header in iter_batches(data)
        ]


def append_garbage(files: Files, rng: random.Random) -> int | None:
    """What an interrupted write may leave after the last batch."""
    batch = bytearray(build_batch([Record(b"torn", rng.randbytes(200))], base_offset=1 << 40))
    batch[-1] ^= 1  # so that not even a whole one is one
    with files.active.open("ab") as file:
        file.write(
            rng.choice((bytes(rng.randrange(1, 5_000)), rng.randbytes(rng.randrange(1, 500)),
                        bytes(batch), bytes(batch[: rng.randrange(1, len(batch))])))
        )  # fmt: skip
    return None


def cut_segment(files: Files, rng: random.Random) -> int | None:
    """The end of the active segment never reached the disk. Returns the first offset lost."""
    batches = files.batches()
    if not batches:
        return None
    at = rng.randrange(batches[-1][1])
    os.truncate(files.active, at)
    return next(offset for _, end, offset in batches if end > at)


def garble_batch(files: Files, rng: random.Random) -> int | None:
    """A sector of the active segment has other bytes. Returns the first offset lost."""
    batches = files.batches()
    if not batches:
        return None
    begin, end, offset = rng.choice(batches)
    with files.active.open("r+b") as file:
        file.seek(rng.randrange(begin + HEADER_BYTES, end))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte ^ 0x55,)))
    return offset


def lose_indexes(files: Files, rng: random.Random) -> int | None:
    """Indexes are missing, empty, truncated or filled with other bytes."""
    for path in files.of("index"):
        spoil(path, rng)
    return None


def lose_small_files(files: Files, rng: random.Random) -> int | None:
    """So are producer snapshots, leader epochs, and the checkpoints of the whole directory."""
    checkpoints = list(files.directory.parent.glob("*-checkpoint"))
    for path in (*files.of(".snapshot"), *files.of("leader-epoch-checkpoint"), *checkpoints):
        spoil(path, rng)
    return None


def spoil(path: pathlib.Path, rng: random.Random) -> None:
    match rng.randrange(5):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(b"")
        case 2:
            path.write_bytes(rng.randbytes(path.stat().st_size))
        case 3:
            os.truncate(path, rng.randrange(path.stat().st_size + 1))
        case _:
            pass


def leave_alone(files: Files, rng: random.Random) -> int | None:
    return None


DAMAGES: tuple[Callable[[Files, random.Random], int | None], ...] = (
    leave_alone, leave_alone, append_garbage, append_garbage, cut_segment, garble_batch,
    lose_indexes, lose_small_files,
)  # fmt: skip


# -------------------------------------------------------------------------------- the admin


class Admin:
    """Creates and deletes topics and records all the time; keeps the responses."""

    def __init__(self, port: int, round_number: int) -> None:
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self._prefix = f"round-{round_number}-"
        self._port = port
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            with Peer(self._port) as peer:
                for number in range(10_000):
                    self._turn(peer, number)
        except OSError:
            return
        except BaseException as error:
            self._failure = error

    def _turn(self, peer: Peer, number: int) -> None:
        name = f"{self._prefix}{number}"
        peer.create_topic(name, 2)
        assert peer.produce(name, 1, build_batch([Record(None, name.encode())])).error_code == 0
        self.created.add(name)
        if number % 3:
            victim = f"{self._prefix}{number - 1}"
            self.created.discard(victim)  # from here on it may be deleted
            peer.delete_topic(victim)
            self.deleted.add(victim)
        partition = number % PARTITIONS
        peer.delete_records(TOPIC, partition, peer.offset(TOPIC, partition) - OFFSETS_KEPT)

    def check(self, peer: Peer, data: pathlib.Path) -> None:
        """What was acknowledged holds."""
        there = existing_topics(peer)
        assert self.created <= there, self.created - there
        assert not self.deleted & there, self.deleted & there
        for name in self.created:
            peer.wait_until_led(name, 2)
            ((_, batch),) = peer.read(name, 1, 0, 1)
            assert name.encode() in batch
        for name in self.deleted:
            assert not list(data.glob(f"{name}-[0-9]")), name
        for name in sorted(there):
            if name.startswith(self._prefix):
                peer.delete_topic(name)


# --------------------------------------------------------------------------------- the tests


def make_ledgers(broker: BrokerProcess, seed: str) -> list[Ledger]:
    """A topic, and for each of its partitions an idempotent producer and one that is not."""
    with Peer(broker.port) as peer:
        peer.create_topic(TOPIC, PARTITIONS)
        return [
            Ledger(
                TOPIC,
                partition,
                [
                    Stream(TOPIC, partition, -1, f"{seed}/a{partition}", new_producer_id(peer)),
                    Stream(TOPIC, partition, 1, f"{seed}/b{partition}"),
                ],
            )
            for partition in range(PARTITIONS)
        ]


def streams_of(ledgers: list[Ledger]) -> list[Stream]:
    return [stream for ledger in ledgers for stream in ledger.streams]


def check_all(broker: BrokerProcess, ledgers: list[Ledger]) -> None:
    with Peer(broker.port) as peer:
        peer.wait_until_led(TOPIC, PARTITIONS)
        for ledger in ledgers:
            ledger.check(peer)
            for stream in ledger.streams:
                if stream.producer_id >= 0:
                    stream.resume(peer)
            ledger.check(peer)


def test_acknowledged_records_survive_kill_9_and_damage_is_contained(make_broker):
    broker = make_broker(OPTIONS).start()
    ledgers = make_ledgers(broker, "kill")
    rng = random.Random("kill")
    acknowledged = 0
    history: list[str] = []  # for pytest --showlocals
    for number in range(ROUNDS):
        load = Load(broker.port, streams_of(ledgers))
        admin = Admin(broker.port, number)
        time.sleep(rng.uniform(0.01, 0.3))
        broker.kill()
        load.stop()
        admin.join()
        for ledger in ledgers:
            files = Files(broker.data / f"{TOPIC}-{ledger.partition}")
            damage = rng.choice(DAMAGES)
            history.append(f"{number}: {files.directory.name} {damage.__name__}")
            lost = damage(files, rng)
            if lost is not None:
                ledger.lost_from(lost)
        broker.start()
        check_all(broker, ledgers)
        with Peer(broker.port) as peer:
            admin.check(peer, broker.data)
            acknowledged += sum(ledger.shorten(peer) for ledger in ledgers)
        if number % 5 == 4:  # a clean stop between the kills
            restart_cleanly(broker)
            check_all(broker, ledgers)

    assert broker.traces() == []
    assert acknowledged > 20 * ROUNDS


def restart_cleanly(broker):
    assert broker.stop() == 0
    broker.start()


def test_a_broker_that_is_killed_while_it_recovers_recovers_at_the_next_start(make_broker):
    broker = make_broker(OPTIONS).start()
    ledgers = make_ledgers(broker, "again")
    load = Load(broker.port, streams_of(ledgers))
    streams = [stream for ledger in ledgers for stream in ledger.streams]
    wait_for(lambda: all(stream.acknowledged for stream in streams))
    broker.kill()
    load.stop()
    for ledger in ledgers:
        append_garbage(Files(broker.data / f"{TOPIC}-{ledger.partition}"), random.Random(1))
    for delay_s in (0.05, 0.15, 0.2, 0.25, 0.3):
        os.close(broker.start_without_waiting())
        time.sleep(delay_s)
        broker.kill()
    broker.start()
    check_all(broker, ledgers)


def test_times_are_found_through_rebuilt_indexes(make_broker):
    broker = make_broker(OPTIONS).start()
    with Peer(broker.port) as peer:
        peer.create_topic("t")
        for n in range(200):
            batch = build_batch([Record(None, bytes(500), timestamp=1_000 * (n + 1))])
            assert peer.produce("t", 0, batch).base_offset == n
    broker.kill()
    files = Files(broker.data / "t-0")
    assert len(files.of(".log")) > 3
    for path in files.of("index"):
        path.unlink()
    broker.start()
    with Peer(broker.port) as peer:
        peer.wait_until_led("t")
        for n in (0, 1, 57, 130, 199):
            wanted = ListOffsetsPartition(partition_index=0, timestamp=1_000 * n + 1)
            topic = ListOffsetsTopic(name="t", partitions=[wanted])
            request = ListOffsetsRequest(replica_id=-1, topics=[topic])
            answer = peer.request(request, ListOffsetsResponse).topics[0].partitions[0]
            assert (answer.offset, answer.timestamp) == (n, 1_000 * (n + 1))
            assert peer.fetch("t", 0, n).records[:8] == n.to_bytes(8, "big")
    assert all(path.stat().st_size > 0 for path in files.of(".index")[:-1])
