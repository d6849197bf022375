"""All state machines are run in one order, at once or with pauses."""

import pytest

from odradek.model.trampoline import Trampoline

# What each event brings; OUTCOMES has what each effect reports.
EFFECTS = {"start": ["A", "B"], "a1": ["C", "d"], "a2": ["e"], "b1": ["f"], "c1": ["g", "h"]}
OUTCOMES = {"A": ["a1", "a2"], "B": ["b1"], "C": ["c1"]}
ORDER = ["A", "C", "g", "h", "d", "e", "B", "f"]


class Machine:
    def __init__(self, failing=()):
        self.failing = failing
        self.handled = []

    def handle(self, event):
        self.handled.append(event)
        if event in self.failing:
            raise ValueError(event)
        return EFFECTS[event]


def run_at_once(machine, failing=()):
    done = []

    def perform(effect):
        done.append(effect)
        for outcome in OUTCOMES.get(effect, ()):
            trampoline.run(outcome, perform)
        if effect in failing:
            raise ValueError(effect)

    trampoline = Trampoline(machine.handle)
    return done, lambda: trampoline.run("start", perform)


def test_outcomes_of_an_effect_are_handled_before_the_next_effect():
    machine = Machine()
    done, run = run_at_once(machine)
    run()
    assert done == ORDER
    assert machine.handled == ["start", "a1", "c1", "a2", "b1"]


def test_with_pauses_the_order_is_the_same_and_each_event_that_follows_is_behind_a_pause():
    machine = Machine()
    trampoline = Trampoline(machine.handle)
    done = []
    for effect in trampoline.settle("start"):
        done.append(effect)
        trampoline.report(*OUTCOMES.get(effect, ()))
    assert [effect for effect in done if effect is not None] == ORDER
    assert done.count(None) == len(machine.handled) - 1


def test_an_event_that_fails_does_not_keep_the_others_from_being_handled():
    machine = Machine(failing=("a1",))
    done, run = run_at_once(machine)
    with pytest.raises(ValueError, match="a1"):
        run()
    assert done == ["A", "e", "B", "f"]


def test_an_effect_that_fails_ends_its_event_after_its_outcomes_and_no_other():
    machine = Machine()
    done, run = run_at_once(machine, failing=("C", "B"))
    with pytest.raises(ExceptionGroup) as failure:
        run()
    assert [str(error) for error in failure.value.exceptions] == ["C", "B"]
    assert done == ["A", "C", "g", "h", "e", "B", "f"]


def test_after_an_error_the_next_event_is_handled_as_usual():
    done, run = run_at_once(Machine(), failing=("f",))
    with pytest.raises(ValueError, match="f"):
        run()
    done.clear()
    with pytest.raises(ValueError, match="f"):
        run()
    assert done == ORDER
