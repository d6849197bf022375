"""From which replica a consumer had best read."""

import pytest

from odradek.replica.selector import Candidate, nearest

FOLLOWERS = (Candidate(2, "b", 90, 5), Candidate(3, "c", 100, 5), Candidate(4, "c", 100, 9))


@pytest.mark.parametrize(
    ("rack", "chosen"),
    [
        pytest.param("", None, id="a client that does not say where it is"),
        pytest.param("a", None, id="the leader is there"),
        pytest.param("b", 2, id="somebody else is there"),
        pytest.param("c", 4, id="who has caught up last"),
        pytest.param("d", None, id="nobody is there"),
    ],
)
def test_the_nearest_replica(rack, chosen):
    assert nearest(FOLLOWERS, leader_rack="a", client_rack=rack) == chosen


def test_who_reaches_furthest():
    followers = (Candidate(2, "b", 90, 9), Candidate(3, "b", 91, 1), Candidate(4, "b", 91, 1))
    assert nearest(followers, leader_rack="a", client_rack="b") == 3


def test_racks_that_nobody_has_said_are_no_racks():
    followers = (Candidate(2, None, 90, 9),)
    assert nearest(followers, leader_rack=None, client_rack="a") is None
