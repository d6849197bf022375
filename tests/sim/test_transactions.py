"""Transactions under faults: all or nothing, once, and what was meant; and the hole of version 1.

Retries of EndTxn that were on the way for long arrive when the next transaction is open. In
version 1 they end it (KAFKA-17754, found by Jepsen in 2024); version 2 (KIP-890) is the cure.
"""

import pytest

from odradek.sim.simulation import Options, simulate
from odradek.sim.transactions import KINDS, Fate, TransactionOptions

SEEDS = range(1, 7)


def play(seed, *, version, late_copies, brokers=3, kinds=KINDS):
    return simulate(
        seed,
        Options(
            seconds=40.0,
            brokers=brokers,
            kinds=kinds,
            transactions=TransactionOptions(version=version, late_copies=late_copies),
        ),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_in_version_2_readers_see_all_or_nothing_and_once(seed):
    outcome = play(seed, version=2, late_copies=True)
    assert not outcome.violations, outcome.replay
    assert outcome.ledger.count(Fate.COMMITTED) > 10
    assert outcome.ledger.count(Fate.ABORTED) > 10
    assert outcome.lives > 3


@pytest.mark.parametrize("seed", range(101, 103))
def test_a_single_broker_keeps_its_word_too(seed):
    outcome = play(seed, version=2, late_copies=True, brokers=1)
    assert not outcome.violations, outcome.replay
    assert outcome.ledger.count(Fate.COMMITTED) > 10


@pytest.mark.parametrize("seed", [1, 3])
def test_version_1_shows_what_jepsen_found_in_kafka(seed):
    """The same clients, the same faults, the same late copies."""
    outcome = play(seed, version=1, late_copies=True)
    assert any(
        "never asked to commit" in said or "are gone" in said for said in outcome.violations
    ), outcome.violations
    assert not play(seed, version=2, late_copies=True).violations


@pytest.mark.parametrize("seed", range(201, 203))
def test_version_1_is_right_as_long_as_nothing_comes_late(seed):
    """Without copies, and on a network that loses no time."""
    kinds = tuple(kind for kind in KINDS if kind.name in {"KILL", "STOP", "EXPIRE"})
    outcome = play(seed, version=1, late_copies=False, kinds=kinds)
    assert not outcome.violations, outcome.replay
    assert outcome.ledger.count(Fate.COMMITTED) > 10


def test_a_run_of_transactions_is_a_function_of_its_seed():
    digests = {play(7, version=2, late_copies=True).digest for _ in range(2)}
    assert len(digests) == 1
