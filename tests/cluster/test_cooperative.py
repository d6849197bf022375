"""Cooperative rebalancing while members and the coordinator's broker are killed.

everything is read      every record of the topic, by some member
nothing twice           but what was not committed when its partition changed hands
nothing is revoked      members that stay keep their partitions, and continue to read them
"""

import json
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import member
import pytest
from control import ThreeBrokers, wait_for

TOPIC, GROUP, PARTITIONS = "t", "g", 6
KINDS = ["ours", "librdkafka"]


class Member:
    """A member's process and its recorded events."""

    def __init__(self, kind: str, bootstrap: str, file: pathlib.Path) -> None:
        command = [sys.executable, member.__file__, kind, bootstrap, GROUP, TOPIC, str(file)]
        self._file = file
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def notes(self) -> list[dict]:
        # The last line of a killed member may be incomplete.
        text = self._file.read_text() if self._file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def holds(self) -> set[int]:
        """The partitions that it has now."""
        held: set[int] = set()
        for note in self.notes():
            if note["what"] == "assigned":
                held.update(note["partitions"])
            elif note["what"] in ("revoked", "lost"):
                held.difference_update(note["partitions"])
        return held

    def given_up_since(self, at: int) -> set[int]:
        """The partitions revoked from it."""
        return {
            partition
            for note in self.notes()
            if note["what"] in ("revoked", "lost") and note["at"] > at
            for partition in note["partitions"]
        }

    def has_read_since(self, at: int) -> set[int]:
        """The partitions it has read from."""
        return {n["partition"] for n in self.notes() if n["what"] == "read" and n["at"] > at}


class Writer:
    """Writes to all partitions, without rest, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(0.01):
            number += 1
            self._producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        at = message.partition()
        self.ends[at] = max(self.ends[at], message.offset() + 1)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


class GroupUnderTest:
    """A group of members on three brokers."""

    def __init__(self, three: ThreeBrokers, folder: pathlib.Path, kinds: list[str]) -> None:
        self.three = three
        self.members: list[Member] = []
        self._folder = folder
        self._kinds = kinds
        ports = [broker.port for broker in three.brokers.values()]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)

    def join(self) -> Member:
        number = len(self.members)
        kind = self._kinds[number % len(self._kinds)]
        self.members.append(Member(kind, self.bootstrap, self._folder / f"member-{number}"))
        return self.members[-1]

    def running(self) -> list[Member]:
        return [each for each in self.members if each.is_alive]

    def settled(self) -> None:
        """Wait until running members share all partitions evenly, and each reads all it has."""
        fair = PARTITIONS // len(self.running())

        def is_shared() -> bool:
            held = [each.holds() for each in self.running()]
            return [len(each) for each in held] == [fair] * len(held) and set().union(*held) == set(
                range(PARTITIONS)
            )

        wait_for(is_shared, within_s=60)
        since = time.monotonic_ns()
        wait_for(
            lambda: all(each.holds() <= each.has_read_since(since) for each in self.running()),
            within_s=60,
        )

    def coordinator(self) -> int:
        return wait_for(lambda: self.three.partition("__consumer_offsets")).leader_id

    def end(self) -> None:
        for each in self.running():
            each.kill()


@pytest.fixture
def three(make_broker, tmp_path) -> ThreeBrokers:
    return ThreeBrokers(
        make_broker,
        tmp_path,
        offsets_topic_replication_factor=3,
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=1_000,
    )


@pytest.fixture(params=[["ours"], ["librdkafka"], KINDS], ids=["ours", "librdkafka", "both"])
def group(request, three, tmp_path) -> Iterator[GroupUnderTest]:
    three.create(TOPIC, *([[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2), min_insync_replicas="2")
    group = GroupUnderTest(three, tmp_path, request.param)
    yield group
    group.end()


def test_a_group_that_loses_members_and_its_coordinator_reads_everything_and_revokes_little(group):
    with closing(Writer(group.bootstrap)) as writer:
        for _ in range(3):
            group.join()
        group.settled()

        kept = {each: each.holds() for each in group.members}
        killed_ns = time.monotonic_ns()
        group.members[1].kill()  # its two partitions go to the others
        wait_for(
            lambda: sum(len(each.holds()) for each in group.running()) == PARTITIONS, within_s=60
        )
        for each in group.running():
            assert not each.given_up_since(killed_ns) & kept[each]
        group.settled()

        joined_ns = time.monotonic_ns()
        newcomer = group.join()  # each of the two gives one up
        group.settled()
        given_up = [each.given_up_since(joined_ns) for each in group.running()]
        assert set().union(*given_up) == newcomer.holds()
        assert sum(map(len, given_up)) == PARTITIONS // 3

        broker_ns = time.monotonic_ns()
        coordinator = group.coordinator()
        group.three.brokers[coordinator].kill()  # no membership ends with it
        wait_for(lambda: group.coordinator() != coordinator)
        group.settled()
        assert not any(each.given_up_since(broker_ns) for each in group.running())
        group.three.brokers[coordinator].start()
        wait_for(lambda: len(group.three.partition("__consumer_offsets").isr_nodes) == 3)

        coordinator = group.coordinator()
        group.running()[0].kill()  # both at once
        group.three.brokers[coordinator].kill()
        group.settled()
    wait_for(lambda: not unread(group, writer.ends), within_s=60)
    group.end()
    assert all(writer.ends.values())
    for partition in range(PARTITIONS):
        check(group, partition)


def unread(group: GroupUnderTest, ends: dict[int, int]) -> set[tuple[int, int]]:
    """The records that no member has read yet."""
    there = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    for each in group.members:
        there -= {(n["partition"], n["offset"]) for n in each.notes() if n["what"] == "read"}
    return there


def check(group: GroupUnderTest, partition: int) -> None:
    """A new owner begins at the committed offset or after it, and reads in order."""
    committed = sorted(
        (note["at"], note["ends"][str(partition)])
        for each in group.members
        for note in each.notes()
        if note["what"] == "committed" and str(partition) in note["ends"]
    )
    wrong = []
    for each in group.members:
        following = None
        floor = -1
        for note in each.notes():
            if note["what"] == "assigned" and partition in note["partitions"]:
                following = None
                floor = max((o for at, o in committed if at < note["at"]), default=0)
            elif note["what"] == "read" and note["partition"] == partition:
                offset = note["offset"]
                if offset < floor or following not in (None, offset):
                    wrong.append((partition, offset, floor, following, note))
                following = offset + 1
    assert not wrong
