"""How long a plan takes, and when it never completes."""

import pytest

from odradek.model.partition import TopicPartition
from odradek.plan.duration import predict
from odradek.plan.movement import MovementPlan

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def plan(before, after, sizes):
    return MovementPlan(before, after, sizes, 0, 0.0, 0.0, 0.0)


def test_the_broker_that_gets_most_takes_longest():
    made = plan({P0: (0,), P1: (0,)}, {P0: (1,), P1: (2,)}, {P0: 1000, P1: 3000})
    found = predict(made, 100, {})

    assert (found.broker, found.seconds) == (2, 30)


def test_records_written_meanwhile_are_counted():
    made = plan({P0: (0,)}, {P0: (1,)}, {P0: 1000})

    assert predict(made, 100, {P0: 50}).seconds == 20
    assert predict(made, 100, {P0: 100}).seconds == float("inf")


def test_nothing_to_copy_takes_no_time():
    made = plan({P0: (0, 1)}, {P0: (1, 0)}, {P0: 1000})

    assert predict(made, 100, {P0: 500}) == pytest.approx((0, -1, 0))
