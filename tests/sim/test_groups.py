"""A group under faults: one owner for each partition, fencing, no committed offset goes back."""

from collections import Counter
from functools import cache

import pytest

from odradek.sim.run.simulation import Options, simulate

# Of the seeds 1 to 44, some have too few commits or generations: 6, 29, 34 and 37.
SEEDS = (*range(30, 34), 35, 36, *range(38, 42))
ALONE = range(101, 105)
DURABLE = range(201, 207)
BLACKOUTS = (305, 311, 316)  # 302 and 308 have hardly any commits


@cache
def played(seed, brokers, durable=False):
    """The violations of a run, the counts of what happened, its commits and generations."""
    options = Options(
        seconds=40.0,
        brokers=brokers,
        groups=True,
        durable=durable,
    )
    outcome = simulate(seed, options)
    happened = outcome.happened + outcome.kinds_played
    violations = [outcome.replay, *outcome.violations] if outcome.violations else []
    return violations, happened, outcome.book.commits, outcome.book.generations


@pytest.mark.parametrize("seed", SEEDS)
def test_no_committed_offset_of_a_group_is_lost_while_its_coordinator_moves(seed):
    violations, _, commits, generations = played(seed, 3)
    assert not violations
    assert commits > 5
    assert generations > 2


@pytest.mark.parametrize("seed", ALONE)
def test_no_committed_offset_of_a_group_is_lost_on_a_single_broker(seed):
    violations, _, commits, _ = played(seed, 1)
    assert not violations
    assert commits > 20


@pytest.mark.parametrize("seed", DURABLE)
def test_a_single_broker_that_flushes_first_loses_no_committed_offset_with_its_power(seed):
    violations, _, commits, _ = played(seed, 1, durable=True)
    assert not violations
    assert commits > 5


@pytest.mark.parametrize("seed", BLACKOUTS)
def test_three_brokers_that_flush_first_may_lose_power_all_at_once(seed):
    violations, _, commits, _ = played(seed, 3, durable=True)
    assert not violations
    assert commits > 5


@pytest.mark.parametrize(
    ("seeds", "brokers", "durable", "at_least"),
    [
        (
            SEEDS,
            3,
            False,
            {
                "answers lost": 200,
                "members paused": 15,
                "members removed": 20,
                "group coordinators loaded": 100,
                "offsets not stable": 1,
                "power loss": 2,
                "pause": 2,
            },
        ),
        (BLACKOUTS, 3, True, {"power loss of all brokers at once": 5}),
        (
            DURABLE,
            1,
            True,
            {"members removed": 5, "group coordinators loaded": 20, "power loss": 2},
        ),
    ],
)
def test_these_seeds_have_the_events_that_a_group_has_to_survive(seeds, brokers, durable, at_least):
    happened = sum((played(seed, brokers, durable)[1] for seed in seeds), Counter())
    assert {what: happened[what] for what in at_least if happened[what] < at_least[what]} == {}
