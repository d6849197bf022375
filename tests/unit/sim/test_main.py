"""The simulator's command line, and how it makes schedules smaller."""

import json

import pytest
from click.testing import CliRunner

import odradek.sim.run.search as searching
import odradek.sim.run.shrink as shrinking
from odradek.log.log import Log
from odradek.sim import __main__ as command_line
from odradek.sim.__main__ import main
from odradek.sim.run.faults import Fault, Kind
from odradek.sim.run.simulation import Options, Outcome, simulate

SHORT = ("--minutes", "0.1")


def run(*words):
    return CliRunner().invoke(main, words)


@pytest.fixture
def forgetful(monkeypatch):
    """A broker whose clean stop leaves everything in the page cache."""

    def close(self, done):
        self.recovery_point = self.leo
        done(None)

    monkeypatch.setattr(Log, "close", close)


def test_a_good_seed():
    done = run("--seed", "1", *SHORT)
    assert done.exit_code == 0
    assert done.output.startswith("seed 1: ok, digest ")
    assert "1 seeds, 0 failed" in done.output


def test_a_failing_seed_prints_the_violation_and_the_command_that_repeats_it(forgetful):
    done = run("--seeds", "1..2", *SHORT, "--kinds", "stop_and_power")
    assert done.exit_code == 1
    assert "VIOLATED" in done.output
    assert (
        "again: python -m odradek.sim --seed 1 --minutes 0.1 --kinds STOP_AND_POWER" in done.output
    )
    assert "2 seeds, 2 failed" in done.output


def test_a_search_by_several_processes_prints_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "SEEDS_OF_A_PROCESS", 1)  # they are replaced on the way
    kept = tmp_path / "soak.jsonl"
    search = ("--seeds", "4..6", *SHORT, "--brokers", "3")
    alone = run(*search)
    together = run(*search, "--jobs", "2", "--keep", str(kept))
    assert together.exit_code == alone.exit_code == 0
    without_cpu = [done.output.rpartition(",")[0] for done in (alone, together)]
    assert without_cpu[0] == without_cpu[1]
    assert without_cpu[0].startswith("3 seeds, 0 failed, 0 count; ")
    assert "3 less than 20 faults" in without_cpu[0]
    (line,) = kept.read_text().splitlines()
    found = json.loads(line)
    assert (found["first"], found["last"], found["seeds"], found["failed"]) == (4, 6, 3, [])
    assert found["options"] == "--minutes 0.1 --brokers 3"
    assert found["did_not_count"]["less than 20 faults"] == 3
    assert found["faults"] == sum(found["faults_by_kind"].values())


def test_an_interrupted_search_prints_how_to_continue(monkeypatch, tmp_path):
    def interrupted(seeds, options, *, jobs):
        yield from (Outcome(seed, options, violations=["bad"]) for seed in seeds[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "search", interrupted)
    done = run("--seeds", "5..9", "--keep", str(tmp_path / "kept"))
    assert "interrupted; --seeds 7..9 continues" in done.output
    found = json.loads((tmp_path / "kept").read_text())
    assert (found["first"], found["last"], found["failed"]) == (5, 6, [5, 6])


def test_a_trace():
    done = run("--seed", "1", "--trace", *SHORT)
    assert "0.000000 broker-0 starts process 1" in done.output


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "set --seed N or --seeds A..B"),
        (("--seed", "1", "--seeds", "1..2"), "set --seed N or --seeds A..B"),
        (("--seeds", "2..1"), "'2..1': must be A..B with numbers A <= B"),
        (("--seed", "1", "--only", "x"), "'x': must be `none` or numbers with commas"),
        (("--seed", "1", "--quotas", "--groups"), "--quotas cannot be combined with --groups"),
        (("--seed", "1", "--kinds", "rain"), "RAIN: must be one of KILL, "),
    ],
)
def test_what_it_does_not_take(words, problem):
    done = run(*words)
    assert done.exit_code == 2
    assert problem in " ".join(done.output.split())


def test_faults_can_be_left_out():
    all_of_them = simulate(3, Options(seconds=20))
    assert len(all_of_them.schedule) > 2
    some = simulate(3, Options(seconds=20, only=frozenset({1})))
    assert some.schedule == [all_of_them.schedule[1]]


@pytest.mark.parametrize("needed", [{3}, {3, 7}, {0, 5, 11}, set(range(12))])
def test_a_schedule_is_made_as_small_as_still_fails(monkeypatch, needed):
    def pretend(seed, options):
        left = options.only if options.only is not None else frozenset(range(12))
        schedule = [Fault(n, Kind.KILL, n, 1, 0, 0.5) for n in sorted(left)]
        return Outcome(seed, options, schedule, ["bad"] if needed <= left else [])

    monkeypatch.setattr(shrinking, "simulate", pretend)
    smallest = shrinking.shrink(pretend(1, Options()))
    assert {fault.number for fault in smallest.schedule} == needed
    assert smallest.violations
