"""The events of the coordinators in a run with faults, recorded as JSON and replayed."""

import json
from enum import Enum

import pytest

from odradek.group.effects import Effect as GroupEffect
from odradek.group.events import Event as GroupEvent
from odradek.group.machine import GroupMachine
from odradek.model.clock import Now
from odradek.model.plain import from_plain, to_plain
from odradek.sim.run.simulation import Options, TransactionOptions, simulate
from odradek.txn.effects import Effect as TransactionEffect
from odradek.txn.events import Event as TransactionEvent
from odradek.txn.machine import TransactionMachine

GROUPS = Options(brokers=3, seconds=8.0, groups=True)
TRANSACTIONS = Options(brokers=3, seconds=8.0, transactions=TransactionOptions(version=2))


class Recording:
    """A state machine with its events and effects."""

    def __init__(self, machine, arguments):
        self.machine, self.arguments = machine, arguments
        self.lines = []  # (event, now, effects) as JSON


def recorded(monkeypatch, kind, options):
    """The recordings of all state machines of a kind in a run."""
    recordings = {}
    start, handle = kind.__init__, kind.handle

    def started(self, *arguments):
        start(self, *arguments)
        recordings[id(self)] = Recording(self, arguments)

    def handled(self, event, now):
        event_line = json.dumps(to_plain(event))
        effects = handle(self, event, now)
        effects_line = json.dumps([to_plain(effect) for effect in effects])
        recordings[id(self)].lines.append((event_line, json.dumps(now), effects_line))
        return effects

    with monkeypatch.context() as patched:
        patched.setattr(kind, "__init__", started)
        patched.setattr(kind, "handle", handled)
        assert not simulate(1, options).violations
    return list(recordings.values())


def state_of(value):
    """The state of a machine, as a tree that can be compared."""
    attributes = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    if isinstance(value, Enum):
        return value
    if isinstance(value, dict):
        return [(state_of(key), state_of(item)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(state_of, value)]
    if isinstance(value, set | frozenset):
        return sorted(map(state_of, value), key=repr)
    if attributes or hasattr(value, "__dict__"):
        held = {name: getattr(value, name) for name in attributes} | getattr(value, "__dict__", {})
        return [type(value).__name__, state_of(held)]
    return value


@pytest.mark.parametrize(
    ("kind", "event_type", "effect_type", "options"),
    [
        (GroupMachine, GroupEvent, GroupEffect, GROUPS),
        (TransactionMachine, TransactionEvent, TransactionEffect, TRANSACTIONS),
    ],
    ids=["groups", "transactions"],
)
def test_recorded_events_give_the_same_effects_and_the_same_state(
    monkeypatch, kind, event_type, effect_type, options
):
    recordings = recorded(monkeypatch, kind, options)
    assert sum(len(recording.lines) for recording in recordings) > 200
    for recording in recordings:
        again = kind(*recording.arguments)
        for event_line, now_line, effects_line in recording.lines:
            event = from_plain(event_type, json.loads(event_line))
            effects = again.handle(event, Now(*json.loads(now_line)))
            assert effects == [from_plain(effect_type, each) for each in json.loads(effects_line)]
        assert state_of(again) == state_of(recording.machine)
