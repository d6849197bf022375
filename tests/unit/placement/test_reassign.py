"""Which reassignments may be taken back: what was acknowledged must not be left on one broker."""

import pytest

from odradek.model.partition import Assignment
from odradek.placement.reassign import remainder_problem

NOBODY = "Nobody in sync would be left"
ONLY_ONE = "Of brokers [2, 3], which have everything, only 2 would be left"


@pytest.mark.parametrize(
    ("replicas", "isr", "left", "problem"),
    [
        pytest.param((1, 2), (1, 2, 3), (), None, id="the old ones are in sync"),
        pytest.param((1, 2), (3,), (), NOBODY, id="only the new one is"),
        pytest.param((1, 2), (2, 3), (), ONLY_ONE, id="one of the old ones, and the new one"),
        pytest.param((1, 2), (2,), (), None, id="there was but one before"),
        pytest.param((2,), (2, 3), (), None, id="there are to be no more"),
        pytest.param((1, 2, 4), (1, 2, 3, 4), (), None, id="enough are left"),
        pytest.param((1, 2), (2,), (3,), ONLY_ONE, id="the new one was in sync before"),
        pytest.param((1, 2), (2,), (1, 3), None, id="so was an old one"),
    ],
)
def test_who_has_to_be_left_in_sync(replicas, isr, left, problem):
    said = remainder_problem(Assignment(replicas=replicas), isr, {*isr, *left})
    assert said is None if problem is None else said.startswith(problem)
