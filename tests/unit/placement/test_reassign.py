"""Which reassignments may be cancelled: acknowledged records must not stay on one broker only."""

import pytest

from odradek.model.partition import Assignment
from odradek.placement.reassign import remainder_problem

NONE_IN_SYNC = "No in-sync replica would be left"
ONLY_ONE = "Of brokers [2, 3], which have all records, only 2 would be left"


@pytest.mark.parametrize(
    ("replicas", "isr", "left", "problem"),
    [
        pytest.param((1, 2), (1, 2, 3), (), None, id="the old ones are in sync"),
        pytest.param((1, 2), (3,), (), NONE_IN_SYNC, id="only the new one is in sync"),
        pytest.param((1, 2), (2, 3), (), ONLY_ONE, id="one of the old ones, and the new one"),
        pytest.param((1, 2), (2,), (), None, id="there was only one before"),
        pytest.param((2,), (2, 3), (), None, id="the target has no more"),
        pytest.param((1, 2, 4), (1, 2, 3, 4), (), None, id="enough are left"),
        pytest.param((1, 2), (2,), (3,), ONLY_ONE, id="the new one was in sync before"),
        pytest.param((1, 2), (2,), (1, 3), None, id="so was an old one"),
    ],
)
def test_which_replicas_must_stay_in_sync(replicas, isr, left, problem):
    text = remainder_problem(Assignment(replicas=replicas), isr, {*isr, *left})
    assert text is None if problem is None else text.startswith(problem)
