"""Kafka's historic rules lose acknowledged records: in scenarios written by hand, and in seeds.

Each scenario (`odradek.sim.scenes.historic`) is played with the rule that holds now, when nothing
is lost, and with the historic one, when its last lines must fail. Then a seed has to find the loss
with the historic rule, and nothing without it.
"""

import pytest

from odradek.sim.clients.transactions import TransactionOptions
from odradek.sim.run.faults import Kind
from odradek.sim.run.simulation import Options, simulate
from odradek.sim.scenes import historic_rules as rules
from odradek.sim.scenes.historic import SCENARIOS
from odradek.sim.scenes.scene import LostError, play

named = pytest.mark.parametrize(
    ("rule", "story", "replicas"), SCENARIOS, ids=[rule.__name__ for rule, *_ in SCENARIOS]
)


@named
def test_with_the_present_rules_nothing_is_lost(rule, story, replicas):
    del rule
    play(story, replicas=replicas)


@named
def test_with_a_historic_rule_the_same_scenario_loses_records(monkeypatch, rule, story, replicas):
    rule(monkeypatch)
    with pytest.raises(LostError):
        play(story, replicas=replicas)


# Crashes, lost requests, and leader changes while all replicas are in sync.
STORM = (Kind.MOVE, Kind.CUT, Kind.KILL, Kind.NO_CONTROLLER_REQUESTS, Kind.ISOLATE, Kind.PAUSE)
BARE = frozenset()  # no traits
STORMY = Options(traits=BARE, brokers=3, kinds=STORM)
LATE_FENCED = Options(
    traits=BARE, brokers=3, kinds=(Kind.NO_CONTROLLER_REQUESTS, Kind.MOVE, Kind.POWER, Kind.KILL)
)
DEPOSED = Options(traits=BARE, brokers=3, kinds=(Kind.LATE_STOP_REPLICA, Kind.RESET, Kind.CLOCK))
# Fast leader changes of which some brokers get no LeaderAndIsr, and a slow link.
CHANGING = Options(
    traits=BARE,
    brokers=3,
    seconds=20.0,
    kinds=(Kind.NO_CONTROLLER_REQUESTS, Kind.FLAP, Kind.SLOW_LINK, Kind.LEADER_CHANGES),
)
# With four brokers, the controller is not always one of the replicas.
LOST_UPDATE = Options(
    traits=BARE, brokers=4, seconds=30.0, kinds=(Kind.LOST_ISR_UPDATE, Kind.CUT, Kind.KILL)
)
OF_TRANSACTIONS = Options(traits=BARE, brokers=3, seconds=40.0, transactions=TransactionOptions())
FOUND = [
    (rules.truncation_to_the_high_watermark, 37, STORMY),
    (rules.one_step_of_truncation, 21, STORMY),
    (rules.truncation_without_fencing, 53, CHANGING),
    (rules.no_leader_epoch_in_fetches, 24, CHANGING),
    (rules.no_broker_epoch, 6, LATE_FENCED),
    (rules.no_controller_fencing, 11, DEPOSED),
    (rules.high_watermark_by_the_stored_isr, 39, LOST_UPDATE),
    (rules.last_stable_offset_off_by_one, 0, OF_TRANSACTIONS),
]
SEEDS_MAX = 15  # from the recorded one on: what happens in a seed changes with the code


@pytest.mark.parametrize(
    ("rule", "seed", "options"), FOUND, ids=[rule.__name__ for rule, *_ in FOUND]
)
def test_a_seed_finds_it_and_finds_nothing_without_the_rule(monkeypatch, rule, seed, options):
    with monkeypatch.context() as historic:
        rule(historic)
        seeds = range(seed, seed + SEEDS_MAX)
        found = next((s for s in seeds if simulate(s, options).violations), None)
    assert found is not None, f"{SEEDS_MAX} seeds from {seed} on found nothing"
    outcome = simulate(found, options)
    assert not outcome.violations, outcome.replay
