"""The events of a controller's terms are recorded in bounded files."""

import random

import pytest

from odradek.broker.controller.event_recorder import EventRecorder
from odradek.controller.causes import Cause, CauseKind
from odradek.controller.controller import Controller
from odradek.controller.events import BrokersLoaded, LoadingFinished, Stored, TopicsLoaded
from odradek.controller.proposals import Accepted, Proposal, Purpose
from odradek.controller.recording import Ended, Handled, read
from odradek.model.partition import LeaderAndIsr, TopicPartition
from odradek.sim.world.disk import DiskFault, SimulatedDisk

LOADED = BrokersLoaded(()), TopicsLoaded((), {}), LoadingFinished()


class Clock:
    def wall_ms(self):
        return 1_000

    def monotonic_ms(self):
        return 5


class Recorder:
    def __init__(self, bytes_max=1 << 20):
        self.disk = SimulatedDisk(random.Random(1), lambda *_: None)
        self.disk.mkdir("/data")
        self.notes = []
        self.recorder = EventRecorder(
            self.disk, "/data", Clock(), broker_id=1, bytes_max=bytes_max, note=self.notes.append
        )

    def begin(self, epoch=1):
        return self.recorder.begin(Controller(controller_epoch=epoch))

    @property
    def names(self):
        return [entry.name for entry in self.disk.list("/data")]

    def entries(self, name="controller-events-0000000001.jsonl"):
        text = self.disk.read_file(f"/data/{name}").decode()
        return list(read(text.splitlines(keepends=True)))


def test_each_event_is_a_line_and_the_last_line_has_the_reason_of_the_end():
    r = Recorder()
    handle = r.begin()
    for event in LOADED:
        handle(event)
    r.recorder.end("the broker stops")
    term, *handled, ended = r.entries()
    assert (term.controller_epoch, term.broker, term.deletion_enabled) == (1, 1, True)
    assert tuple(entry.event for entry in handled) == LOADED
    assert {(entry.now.monotonic_ms, entry.now.wall_ms) for entry in handled} == {(5, 1_000)}
    assert ended.reason == "the broker stops"
    assert not r.notes


def test_an_event_that_raises_an_error_is_recorded_too():
    r = Recorder()
    handle = r.begin()
    state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
    cause = Cause(CauseKind.TOPIC_CREATED)
    unknown = Proposal(TopicPartition("t", 0), state, Purpose.FIRST_LEADER, cause)
    with pytest.raises(AssertionError):
        handle(Stored((Accepted(unknown, 0),)))
    *_, entry = r.entries()
    assert isinstance(entry, Handled)
    assert entry.effects is None


def test_the_files_of_two_terms_are_kept():
    r = Recorder()
    for epoch in (8, 9, 10, 11):
        r.begin(epoch)
        r.recorder.end("over")
    assert r.names == ["controller-events-0000000010.jsonl", "controller-events-0000000011.jsonl"]


def test_a_file_that_has_reached_its_limit_says_so_and_the_controller_goes_on():
    r = Recorder(bytes_max=4_000)
    handle = r.begin()
    handle(BrokersLoaded(()))
    for _ in range(100):
        handle(TopicsLoaded((), {}))
    assert len(r.disk.read_file("/data/controller-events-0000000001.jsonl")) <= 4_000
    *_, ended = r.entries()
    assert isinstance(ended, Ended)
    assert "odradek.controller.events.max.bytes=4000 is reached" in ended.reason
    assert len(r.notes) == 1
    assert "is reached" in r.notes[0]


@pytest.mark.parametrize("operation", ["create", "write", "list"])
def test_a_disk_error_ends_the_recording_and_not_the_term(operation):
    r = Recorder()
    r.disk.faults.append(DiskFault(operation, "/data"))
    handle = r.begin()
    for event in LOADED:
        handle(event)
    assert len(r.notes) == 1
    assert "the events of this term are not recorded" in r.notes[0]


def test_nothing_is_recorded_unless_it_is_switched_on():
    r = Recorder(bytes_max=0)
    handle = r.begin()
    for event in LOADED:
        handle(event)
    r.recorder.end("the broker stops")
    assert r.names == []
