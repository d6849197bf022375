"""Recordings of all controllers of a simulated cluster with faults are replayed."""

from odradek.controller.controller import Controller
from odradek.controller.recording import Handled, Term, read, to_line
from odradek.sim.run.simulation import Options, simulate


def record(monkeypatch) -> dict[Controller, list[str]]:
    """Record the events and effects of all controllers."""
    handle, recordings = Controller.handle, {}

    def recorded(controller, event):
        lines = recordings.get(controller)
        if lines is None:
            term = Term(controller.context.controller_epoch)
            lines = recordings[controller] = [to_line(term)]
        effects = handle(controller, event)
        lines.append(to_line(Handled(event, tuple(effects))))
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
    for recorded, lines in recordings.items():
        term, entries = read(lines)
        controller = term.begin()
        for number, entry in enumerate(entries, 1):
            assert to_line(entry) == lines[number]
            assert tuple(controller.handle(entry.event)) == entry.effects
        assert controller.context == recorded.context
