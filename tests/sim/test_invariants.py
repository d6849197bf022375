"""A seed checks the invariants of a whole state with some events only, and finds what breaks one.

Each rule here keeps an invariant. While it is switched off, a seed reports the invariant itself,
and not only what clients see of it.
"""

from dataclasses import replace

import pytest

from odradek.group.group import Group
from odradek.log.producer_state import ProducerState
from odradek.sim.clients.transactions import TransactionOptions
from odradek.sim.run.faults import Kind
from odradek.sim.run.simulation import Options, simulate

MEMBERS = Options(brokers=1, seconds=10.0, groups=True, traits=frozenset(), kinds=(Kind.KILL,))
PRODUCERS = replace(MEMBERS, groups=False, transactions=TransactionOptions(version=2))


def ended_transactions_hold_back_the_last_stable_offset(monkeypatch):
    monkeypatch.setattr(ProducerState, "high_watermark_advanced", lambda *_: None)


def joining_members_are_not_counted(monkeypatch):
    def await_join(self, member, request):
        member.join_request = request

    monkeypatch.setattr(Group, "await_join", await_join)


@pytest.mark.parametrize(
    ("rule", "options", "what"),
    [
        (ended_transactions_hold_back_the_last_stable_offset, PRODUCERS, "holds back the LSO"),
        (joining_members_are_not_counted, MEMBERS, "members wait, not 0"),
    ],
)
def test_a_seed_reports_a_broken_invariant(monkeypatch, rule, options, what):
    with monkeypatch.context() as switched_off:
        rule(switched_off)
        violations = simulate(1, options).violations
    assert any(what in violation for violation in violations), violations
    assert not simulate(1, options).violations
