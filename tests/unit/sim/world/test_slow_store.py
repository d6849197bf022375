"""How late answers of the store are drawn, and whom they delay."""

import random

import pytest

from odradek.coord.memory import RequestFate
from odradek.sim.run.faults import Kind
from odradek.sim.run.schedule import draw_slow_stores
from odradek.sim.run.simulation import Options, simulate
from odradek.sim.traits import Trait
from odradek.sim.world.slow_store import DELAYS_MS, OPERATIONS, SlowStore, draw_slow_store


def test_every_operation_of_brokers_and_of_all_is_drawn_on_both_ways():
    drawn = [draw_slow_store(random.Random(number), 1) for number in range(500)]
    alone = {
        operation for slow in drawn if len(slow.operations) == 1 for operation in slow.operations
    }
    assert alone == set(OPERATIONS)
    assert {slow.broker for slow in drawn} == {1, None}
    ways = {(slow.delays_requests, slow.delays_answers) for slow in drawn}
    assert ways == {(True, False), (False, True), (True, True)}
    assert {slow.delay_ms for slow in drawn} >= set(DELAYS_MS)


@pytest.mark.parametrize(
    ("slow", "operation", "broker", "late"),
    [
        (SlowStore(delay_ms=(5, 5)), "get", 2, (1, 7)),
        (SlowStore(delay_ms=(5, 5), delays_requests=True), "get", -1, (6, 7)),
        (SlowStore(delay_ms=(5, 5), broker=1), "get", 2, (1, 2)),
        (SlowStore(delay_ms=(5, 5), broker=1), "get", 1, (1, 7)),
        (SlowStore(delay_ms=(5, 5), operations=frozenset({"multi"})), "get", 2, (1, 2)),
        (SlowStore(delay_ms=(5, 5), share=0.0), "get", 2, (1, 2)),
    ],
)
def test_a_delay_is_for_its_broker_its_operations_and_its_way(slow, operation, broker, late):
    usual = RequestFate(request_delay_ms=1, answer_delay_ms=2)
    fate = slow.delay(usual, random.Random(1), operation, broker)
    assert (fate.request_delay_ms, fate.answer_delay_ms) == late


def test_with_the_trait_the_store_is_slow_from_the_start_in_addition_to_other_faults():
    drawn = draw_slow_stores(random.Random(1), seconds=60.0, brokers=3, first=40)
    assert {fault.kind for fault in drawn} == {Kind.SLOW_STORE}
    assert [fault.number for fault in drawn] == list(range(40, 40 + len(drawn)))
    assert drawn[0].at_s < 0.2
    assert len(drawn) >= 4

    with_it, without = (
        simulate(1, Options(seconds=10.0, traits=traits))
        for traits in (frozenset({Trait.SLOW_STORE}), frozenset())
    )
    kept = [fault for fault in with_it.schedule if fault.kind is not Kind.SLOW_STORE]
    assert kept == without.schedule
    assert len(with_it.schedule) > len(kept)
    assert not with_it.violations
    assert with_it.digest != without.digest
