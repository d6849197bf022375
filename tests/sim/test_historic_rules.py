"""The rules by which Kafka once replicated, and lost records: each is switched on and caught.

The rules that hold now are patched away here, not switched off by an option: nothing of this
ships. The seeds are those that caught each of them first.
"""

import pytest

from odradek.broker import fetching, orders
from odradek.broker.apis import fetch
from odradek.broker.partition import Partition
from odradek.controller import isr_changes
from odradek.sim.simulation import Options, simulate


def no_divergence(monkeypatch):
    """A leader that does not compare logs."""
    monkeypatch.setattr(fetching, "divergence", lambda log, wanted: None)
    monkeypatch.setattr(fetch, "divergence", lambda log, wanted: None)


def truncate_to_the_high_watermark(monkeypatch):
    """Up to 0.10: a follower cuts to what it believes committed (KIP-101 tells why not)."""
    become_follower = Partition.become_follower

    def become(self, state, replicas):
        if self.log is not None:
            self.log.truncate_to(self.log.high_watermark)
        become_follower(self, state, replicas)

    monkeypatch.setattr(Partition, "become_follower", become)
    no_divergence(monkeypatch)


def no_broker_epoch(monkeypatch):
    """Up to 2.1: an order meant for the life before is obeyed (KIP-380)."""
    refuse = orders.refuse_request

    def obey(**epochs):
        return refuse(**{**epochs, "broker_epoch": -1, "own_broker_epoch": 0})

    monkeypatch.setattr(orders, "refuse_request", obey)
    judge = isr_changes._judge_isr
    monkeypatch.setattr(
        isr_changes,
        "_judge_isr",
        lambda context, broker, partition, change: judge(
            context, broker, partition, type(change)(change.partition, change.wanted, {})
        ),
    )


RULES = {
    truncate_to_the_high_watermark: 2,
    no_broker_epoch: 1,
}
SEEDS_MAX = 20  # from the recorded one on: what happens in a seed changes with the code


@pytest.mark.parametrize(("rule", "seed"), RULES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_historic_rule_is_caught(monkeypatch, rule, seed):
    rule(monkeypatch)
    seeds = range(seed, seed + SEEDS_MAX)
    assert any(simulate(seed, Options(brokers=3)).violations for seed in seeds)
