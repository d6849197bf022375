"""Searching, shrinking and reporting, with runs that are made up."""

from random import Random

import pytest

from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.incidents import (
    FaultKind,
    Incident,
    draw_incidents,
    kinds_of,
)
from odradek.testkit.simulation.outcome import Event, RunOptions, RunOutcome
from odradek.testkit.simulation.report import failure_text, options_of, words_of
from odradek.testkit.simulation.runs.search import TWICE_EVERY, search, shrink


def incident(number):
    return Incident(number, FaultKind.PROGRAM_KILLED, 1.0 + number, 0.5, "shop-1", 0.25)


class Runs:
    """Fails with these seeds, if these faults are there."""

    def __init__(
        self,
        failing,
        needed=(),
        count=8,
        jobs=2,
        digest=lambda options: f"of {options.instances_max}",
    ):
        self.failing = failing
        self.needed = frozenset(needed)
        self.incidents = [incident(number) for number in range(count)]
        self.jobs = jobs
        self.digest = digest
        self.played = []

    def play(self, asked):
        for options in asked:
            self.played.append(options)
            there = options.only if options.only is not None else frozenset(range(8))
            fails = options.seed in self.failing and self.needed <= there
            yield RunOutcome(
                options,
                failures=["1 of 9 lost: 'b'"] if fails else [],
                incidents=[each for each in self.incidents if each.number in there],
                events=[Event(100.0, "shop-1", "starts"), Event(103.1, "shop-1", "got: 'a'")],
                trace=["same\n", f"{self.digest(options)}\n"],
                digest=self.digest(options),
            )


def asked(count):
    return [RunOptions(seed) for seed in range(count)]


def test_a_search_without_failure_plays_all_seeds():
    found = search(Runs(failing=()), asked(250))
    assert (found.seeds, found.failing, found.first) == (250, [], None)


def test_some_seeds_are_played_twice():
    runs = Runs(failing=())
    search(runs, asked(2 * TWICE_EVERY + 1))
    again = [o.seed for o in set(runs.played) if runs.played.count(o) == 2]
    assert sorted(again) == [0, TWICE_EVERY, 2 * TWICE_EVERY]


def test_runs_of_a_seed_that_differ_are_reported_with_the_first_difference():
    counted = iter(range(100))
    runs = Runs(failing=(), digest=lambda _: f"clock {next(counted) // 2}")
    found = search(runs, asked(10))
    text = failure_text(found, name="test_it", repeat="pytest it")
    assert "two runs of one seed differ" in text
    assert "clock" in text


def test_a_search_ends_with_the_first_failing_seed_and_shrinks_it():
    said = []
    runs = Runs(failing={7, 9}, needed={2, 5})
    found = search(runs, asked(20), say=said.append)
    assert found.failing == [7]
    assert found.seeds == 8
    assert [each.number for each in found.smallest.incidents] == [2, 5]
    assert found.smallest.options.instances_max == 1
    assert said[0] == "seed 7 fails: 1 of 9 lost: 'b'"


@pytest.mark.parametrize("needed", [(), (0,), (7,), (0, 7), (1, 2, 3, 6), range(8)])
@pytest.mark.parametrize("jobs", [1, 3])
def test_shrinking_keeps_what_is_needed_and_nothing_else(needed, jobs):
    runs = Runs(failing={1}, needed=needed, jobs=jobs)
    (failed,) = runs.play([RunOptions(1)])
    smallest, count = shrink(runs, failed, say=lambda _: None)
    assert [each.number for each in smallest.incidents] == [*needed]
    assert count == len(runs.played) - 1


def test_one_instance_is_said_only_if_there_were_more():
    runs = Runs(failing={1}, digest=lambda _: "same")
    (failed,) = runs.play([RunOptions(1)])
    assert shrink(runs, failed, say=lambda _: None)[0].options.instances_max is None


def test_shrinking_ends_in_time():
    runs = Runs(failing={1})
    (failed,) = runs.play([RunOptions(1)])
    assert shrink(runs, failed, say=lambda _: None, seconds=0.0) == (failed, 0)


def test_a_report_has_what_one_needs_to_repeat_the_failure():
    found = search(Runs(failing={7}, needed={2}), asked(20))
    text = failure_text(found, name="test_it", repeat="pytest test_shop.py::test_it")
    assert "test_it fails with seed 7 (8 seeds tried" in text
    assert "1 of 9 lost: 'b'" in text
    assert "Of 8 faults, 1 are needed:" not in text
    assert "Of 8 faults, 1 is needed:" in text
    assert "[2] 3.000 s: program killed, shop-1 (0.5 s)" in text
    assert "3.100 s  shop-1  got: 'a'" in text
    assert "pytest test_shop.py::test_it --kafka-seed 7:2x1" in text
    assert "pytest test_shop.py::test_it --kafka-seed 7\n" in f"{text}\n"


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(17),
        RunOptions(17, frozenset({3, 5})),
        RunOptions(17, frozenset()),
        RunOptions(17, frozenset({3}), 1),
        RunOptions(17, None, 2),
    ],
)
def test_a_run_is_named_by_its_words(options):
    assert options_of(words_of(options)) == options
    assert RunOptions.decode(options.encode()) == options


def test_an_outcome_passes_the_pipe_unchanged():
    (outcome,) = Runs(failing={1}).play([RunOptions(1, frozenset({1, 2}))])
    assert RunOutcome.decode(outcome.encode()) == outcome


def drawn(seed, **options):
    given = {"kinds": tuple(FaultKind), "instances": ["shop-1", "shop-2"], "brokers": 3}
    return draw_incidents(Random(seed), seconds=60.0, **given | options)


def test_faults_are_drawn_from_the_seed_and_all_kinds_occur():
    assert drawn(1) == drawn(1) != drawn(2)
    kinds = {each.kind for seed in range(40) for each in drawn(seed)}
    assert kinds == set(FaultKind)
    assert all(1.0 <= each.at_s < 60.0 for each in drawn(3))


def test_only_what_is_there_has_faults():
    alone = {each.kind for seed in range(40) for each in drawn(seed, brokers=1)}
    assert FaultKind.BROKER_KILLED in alone
    assert FaultKind.LEADERS_MOVED not in alone
    without = {each.target for seed in range(10) for each in drawn(seed, instances=[])}
    assert without == {"broker-0", "broker-1", "broker-2"}
    assert drawn(1, kinds=()) == []


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do():
    assert kinds_of(["broker killed"]) == (FaultKind.BROKER_KILLED,)
    with pytest.raises(SimulationError, match="'earthquake' is no kind of fault: such are"):
        kinds_of(["earthquake"])
