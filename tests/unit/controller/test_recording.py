"""A recording of a controller replays what it did, and shows where a replay differs."""

import json

import pytest

from odradek.controller.controller import Controller
from odradek.controller.events import BrokersLoaded, LoadingFinished, TopicsLoaded
from odradek.controller.recording import (
    Ended,
    Handled,
    ReplayError,
    Term,
    TermReplay,
    kinds,
    to_line,
)
from odradek.model.clock import MonotonicMs, Now, WallMs
from odradek.model.cluster import Broker
from odradek.model.plain import NotPlainError

NOW = Now(MonotonicMs(5), WallMs(1_000))
BROKER = Broker(id=1, end_points=(), broker_epoch=7)
EVENTS = BrokersLoaded((BROKER,)), TopicsLoaded((), {}), LoadingFinished()


def recorded(*events):
    controller = Controller(controller_epoch=3, deletion_enabled=False)
    lines = [to_line(Term(3, deletion_enabled=False, broker=1, version="1.2"))]
    lines += [to_line(Handled(event, kinds(controller.handle(event)), NOW)) for event in events]
    return controller, lines


def test_a_recording_replays_to_the_same_state():
    controller, lines = recorded(*EVENTS)
    replay = TermReplay(lines)
    assert replay.term == Term(3, deletion_enabled=False, broker=1, version="1.2")
    assert [(entry.event, entry.now) for entry, _ in replay] == [(each, NOW) for each in EVENTS]
    assert replay.controller.context == controller.context
    assert replay.controller.deletion_enabled is False
    assert replay.ended is None


def test_the_state_can_be_seen_after_each_event():
    replay = TermReplay(recorded(*EVENTS)[1])
    seen = [replay.controller.context.is_loaded for _ in replay]
    assert seen == [False, False, True]


def test_the_reason_why_a_recording_ended_can_be_read():
    ended = Ended("the broker stops", NOW)
    replay = TermReplay([*recorded(*EVENTS)[1], to_line(ended)])
    list(replay)
    assert replay.ended == ended


def test_a_last_line_that_was_cut_off_is_left_out():
    _, lines = recorded(*EVENTS)
    replay = TermReplay([*lines[:-1], lines[-1][:20]])
    assert [entry.event for entry, _ in replay] == [*EVENTS[:2]]


def test_a_controller_that_decides_otherwise_than_recorded_is_noticed():
    _, lines = recorded(*EVENTS)
    entry = json.loads(lines[1])
    entry["effects"] = ["Resign"]
    replay = TermReplay([lines[0], json.dumps(entry) + "\n"])
    with pytest.raises(ReplayError, match=r"line 2: BrokersLoaded .*Resign.*version 1.2"):
        list(replay)


@pytest.mark.parametrize("first", [[], [to_line(Ended("x", NOW))]])
def test_a_recording_begins_with_a_term(first):
    with pytest.raises(NotPlainError, match="does not begin a recording"):
        TermReplay(first)
