"""What always holds of a replica: each rule is broken once, and the violation is reported."""

import random

import pytest

from odradek.broker.replication.partition import Partition
from odradek.log.log import Log
from odradek.log.log_config import LogConfig, LogHost
from odradek.model.errors import ErrorCode
from odradek.model.invariants import InvariantError
from odradek.model.partition import LeaderAndIsr, TopicPartition
from odradek.record.batch import read_header
from odradek.record.records import Record, build_batch
from odradek.record.validate import ValidationRules
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.disk import SimulatedDisk

T0 = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
LED = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=7)
FOLLOWED = LeaderAndIsr(leader=2, leader_epoch=6, isr=(1, 2), partition_epoch=9)


class Produce:
    done = False

    def __init__(self):
        self.slots = []  # those that are committed

    def committed(self, slot):
        self.slots.append(slot)

    def failed_at(self, slot, error):
        pass


def later(delay_s, callback):
    """The disk's completions are not needed here."""


@pytest.fixture
def led():
    """Broker 1 leads, with two records below the high watermark and one above it."""
    disk = SimulatedDisk(random.Random(1), later)
    disk.mkdir("/data")
    clock = SimulatedClock(lambda: 0.0)
    host = LogHost(disk=disk, clock=clock, call_later=later, failed=pytest.fail)
    log = Log.create(T0, "/data/t-0", LogConfig(), host, topic_id=bytes(16))
    partition = Partition(T0, bytes(16), log, ValidationRules())
    partition.validate()
    partition.become_leader(
        LED, REPLICAS, own_id=1, isr_min=1, lag_ms_max=1, live=frozenset(REPLICAS), monotonic_ms=9
    )
    for _ in range(3):
        batch = memoryview(build_batch([Record(None, b"x", 5)]))
        partition.append(batch, read_header(batch), monotonic_ms=9)
    partition.follower_fetched(2, 2, 9)
    partition.wait_for_commit(3, Produce(), 0)
    return partition


def test_a_replica_keeps_the_invariants(led):
    led.validate()
    led.follower_fetched(2, 3, 9)
    led.validate()
    led.isr_stored((1, 2, 3), 8, monotonic_ms=9)
    led.validate()
    led.become_follower(FOLLOWED, REPLICAS)
    led.validate()
    led.removed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    led.validate()


def answer_like_a_follower(partition):
    partition.error = ErrorCode.NOT_LEADER_OR_FOLLOWER


def remove_with_log(partition):
    partition.is_removed = True


def break_log(partition):
    partition.log.recovery_point = 9


def wait_at_a_follower(partition):
    partition.become_follower(FOLLOWED, REPLICAS)
    partition.wait_for_commit(4, Produce(), 0)


def end_beyond_the_log(partition):
    partition.leader.leo = 4


def commit_beyond_the_end(partition):
    partition.leader.high_watermark = 4


def keep_another_high_watermark(partition):
    partition.log.set_high_watermark(1)


def replace_a_replica(partition):
    partition.replicas = (1, 2, 4)


def leave_the_isr(partition):
    partition.leader.isr.committed = (2, 3)


def join_without_assignment(partition):
    partition.leader.isr.expand(4)


def wait_for_what_is_committed(partition):
    partition.follower_fetched(2, 3, 9)
    partition.wait_for_commit(3, Produce(), 0)


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (answer_like_a_follower, "t-0: it is served if and only if it is led here"),
        (remove_with_log, "it is removed, and has a log"),
        (break_log, "the recovery point 9 is above the LEO 3"),
        (wait_at_a_follower, "a produce request waits for a broker that follows"),
        (end_beyond_the_log, "the leader has HW 2, LEO 4"),
        (commit_beyond_the_end, "the leader has HW 4, LEO 3"),
        (keep_another_high_watermark, "HW 2 is 1 in the log"),
        (replace_a_replica, r"1 leads \[2, 3\] of \(1, 2, 4\)"),
        (leave_the_isr, r"committed=\(2, 3\)"),
        (join_without_assignment, r"proposed=\(1, 2, 4\)"),
        (wait_for_what_is_committed, "a produce request waits for offset 3"),
    ],
)
def test_a_contradiction_is_reported(led, break_it, what):
    break_it(led)
    with pytest.raises(InvariantError, match=what):
        led.validate()


def test_a_retry_is_answered_when_its_batch_is_committed(led):
    """The retry, slot 2, waits for the same offset as the first attempt, slot 0."""
    led.isr_stored((1, 2, 3), 8, monotonic_ms=9)
    for _ in range(2):
        batch = memoryview(build_batch([Record(None, b"x", 5)]))
        led.append(batch, read_header(batch), monotonic_ms=9)
    produce = Produce()
    for slot, required in enumerate((4, 5, 4)):
        led.wait_for_commit(required, produce, slot)
    led.validate()

    for follower in (2, 3):
        led.follower_fetched(follower, 4, 9)

    assert produce.slots == [0, 2]
    led.validate()
