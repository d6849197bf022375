"""Recordings of the controllers of a simulated cluster under faults, replayed."""

from odradek.controller.controller import Controller
from odradek.controller.recording import Handled, Term, TermReplay, kinds, to_line
from odradek.model.clock import Now
from odradek.sim.run.simulation import Options, simulate


def record(monkeypatch) -> dict[Controller, list]:
    """Watch the public `handle` of all controllers there are from now on: lines and effects."""
    handle, recordings = Controller.handle, {}

    def recorded(controller, event):
        entries = recordings.get(controller)
        if entries is None:
            term = Term(controller.context.controller_epoch)
            entries = recordings[controller] = [(to_line(term), [])]
        effects = handle(controller, event)
        now = Now(len(entries), len(entries))
        entries.append((to_line(Handled(event, kinds(effects), now)), effects))
        return effects

    monkeypatch.setattr(Controller, "handle", recorded)
    return recordings


def test_each_controller_of_a_run_with_faults_replays_to_its_effects_and_its_state(monkeypatch):
    with monkeypatch.context() as watched:
        recordings = record(watched)
        outcome = simulate(4, Options(brokers=3, reassigns=True))
    assert not outcome.violations
    assert len(recordings) > 3
    assert sum(map(len, recordings.values())) > 1_000
    for recorded, entries in recordings.items():
        replay = TermReplay(line for line, _ in entries)
        replayed = list(replay)
        assert [to_line(entry) for entry, _ in replayed] == [line for line, _ in entries[1:]]
        assert [effects for _, effects in replayed] == [effects for _, effects in entries[1:]]
        assert replay.controller.context == recorded.context
