"""Three brokers under all kinds of faults, from a seed, while their partitions are reassigned.

`Outcome.shortfalls` defines which seeds count: a minute, twenty faults, a thousand acknowledged
records, elections, truncations, ISR changes and a change of the controller. Of each hundred seeds
the first ten that count are played, by as many processes as there are processors: of ten hundreds,
and of twenty with HYPOTHESIS_PROFILE=night.
`python -m odradek.sim --brokers 3 --seeds A..B --jobs N` searches further.
"""

import gc
import os
import pathlib
import subprocess
import sys
from dataclasses import replace

import pytest

from odradek.sim.run.search import play_until_counted, workers
from odradek.sim.run.simulation import Options, simulate
from odradek.sim.traits import Trait
from odradek.sim.world.cluster import SimulatedCluster

SOURCE = pathlib.Path(__file__).parents[2] / "src"
# These failures were found without traits; seeds with traits are played below.
BARE: frozenset[Trait] = frozenset()
THREE = Options(brokers=3, reassigns=True, traits=BARE)
UNMOVED = Options(brokers=3, traits=BARE)
IS_NIGHT = os.environ.get("HYPOTHESIS_PROFILE") == "night"
HUNDREDS = range(0, 2_000 if IS_NIGHT else 600, 100)
COUNTED = 10  # of each: sixty in all, two hundred at night
OF_REGISTRATIONS = ("exists", "multi")  # the one that reads, and the one that writes
ONCE_FAILED = {
    "a throttled follower made its leader answer 540 times a second": 1,
    "two logs exchanged an epoch without a record for ever": 2,
    "a broker led in one epoch before and after a restart": 4,
    "a request for an earlier registration was accepted": 10,
    "the last in-sync replica had lost its tail, and led": 12,
    "the clean shutdown file was there again after a power loss": 21,
    "after a truncation the recovery point was beyond the flushed records": 94,
}


@pytest.fixture(scope="module")
def played(request):
    """The futures of the outcomes, by the first seed of each hundred that is selected."""
    selected = [
        item.callspec.params["first"]
        for item in request.session.items
        if item.module is request.module and "first" in getattr(item, "fixturenames", ())
    ]
    with workers(os.cpu_count() or 1) as pool:
        yield {
            first: pool.submit(play_until_counted, range(first, first + 100), THREE, COUNTED)
            for first in selected
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("first", HUNDREDS)
def test_nothing_is_violated(played, first):
    outcomes = played[first].result()
    assert [outcome.replay for outcome in outcomes if outcome.violations] == []
    assert sum(outcome.counts for outcome in outcomes) == COUNTED
    assert len(outcomes) < 2 * COUNTED, "too few seeds count"


@pytest.mark.parametrize("seed", ONCE_FAILED.values(), ids=ONCE_FAILED.keys())
def test_nothing_is_violated_any_more(seed):
    outcome = simulate(seed, UNMOVED)
    assert not outcome.violations, outcome.replay


MOVED = {
    "a reassignment was cancelled when its new replica and one other were in sync": 108,
    "a partition waited for a broker that was not a replica any more": 155,
    "a replica was removed whose broker could not be notified": 115,
    "the log of a deleted topic blocked the next topic of its name": 1104,
}


@pytest.mark.parametrize("seed", MOVED.values(), ids=MOVED.keys())
def test_no_acknowledged_record_is_lost_while_replicas_are_moved(seed):
    outcome = simulate(seed, THREE)
    assert not outcome.violations, outcome.replay
    assert outcome.tally.reassignments


def test_a_retry_waits_for_a_lower_offset_than_the_requests_before_it():
    """Once it was not answered before they were."""
    outcome = simulate(703817, Options(brokers=3, reassigns=True))
    assert not outcome.violations, outcome.replay


def test_a_log_whose_truncation_is_lost_with_the_power_is_truncated_again():
    """Once its replica kept other records than were committed: its leader epochs were newer."""
    outcome = simulate(707666, Options(brokers=3, groups=True, reassigns=True))
    assert not outcome.violations, outcome.replay


def test_five_brokers():
    outcome = simulate(3, Options(brokers=5, reassigns=True))
    assert not outcome.violations, outcome.replay


@pytest.mark.parametrize(
    "options",
    [
        Options(brokers=3, reassigns=True, traits=frozenset({Trait.SHIPPED})),
        Options(brokers=3, groups=True, traits=frozenset(Trait)),
    ],
    ids=["usual", "groups"],
)
def test_a_run_of_a_cluster_depends_only_on_its_seed(options):
    digests = set()
    for hash_seed in "0", "1":
        command = [sys.executable, "-m", "odradek.sim", "--seed", "2", *options.words.split()]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        digests.add(done.stdout.partition("digest ")[2].partition(":")[0])
    digests.add(simulate(2, options).digest)
    # Objects that earlier runs left to the garbage collector must not affect a later run, whenever
    # they are collected; nor may their warnings appear in another test.
    gc.collect()
    gc.disable()
    try:
        digests.add(simulate(2, options).digest)
    finally:
        gc.enable()
        gc.collect()
    assert len(digests) == 1
    assert all(digests)


def answers_to_registrations_are_late(monkeypatch):
    """30 % of the answers to the operations of a registration take 60 ms."""
    usual = SimulatedCluster.fate
    chances = {}

    def fate(self, operation, broker=-1):
        drawn = usual(self, operation, broker)
        chance = chances.setdefault(id(self), self.randomness("late answers"))
        if operation in OF_REGISTRATIONS and chance.random() < 0.3:
            return replace(drawn, answer_delay_ms=60)
        return drawn

    monkeypatch.setattr(SimulatedCluster, "fate", fate)


@pytest.mark.parametrize("seed", [5_310_002, 5_310_003, 5_310_005])
def test_a_broker_serves_although_it_learns_of_its_registration_late(monkeypatch, seed):
    answers_to_registrations_are_late(monkeypatch)
    outcome = simulate(seed, Options(brokers=3, reassigns=True))
    assert not outcome.violations, outcome.replay
    assert outcome.acknowledged
