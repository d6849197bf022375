"""A group under faults: one owner for each partition, generations fence, no position goes back."""

import pytest

from odradek.sim.simulation import Options, simulate
from odradek.sim.transactions import KINDS


def play(seed, *, brokers):
    return simulate(seed, Options(seconds=40.0, brokers=brokers, kinds=KINDS, groups=True))


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_group_keeps_its_word_while_its_coordinator_moves(seed):
    outcome = play(seed, brokers=3)

    assert not outcome.violations, (outcome.replay, outcome.violations)
    assert outcome.book.commits > 20
    assert outcome.book.generations > 2
    assert outcome.lives > 3


@pytest.mark.parametrize("seed", range(101, 103))
def test_a_group_keeps_its_word_on_a_single_broker(seed):
    outcome = play(seed, brokers=1)

    assert not outcome.violations, (outcome.replay, outcome.violations)
    assert outcome.book.commits > 20
