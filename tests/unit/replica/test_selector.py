"""Which replica a consumer reads from (KIP-392)."""

import pytest

from odradek.replica.selector import ReplicaView, nearest

FOLLOWERS = (ReplicaView(2, "b", 90, 5), ReplicaView(3, "c", 100, 5), ReplicaView(4, "c", 100, 9))


@pytest.mark.parametrize(
    ("rack", "chosen"),
    [
        pytest.param("", None, id="a client without a rack"),
        pytest.param("a", None, id="the leader is in the rack"),
        pytest.param("b", 2, id="a follower is in the rack"),
        pytest.param("c", 4, id="the one that caught up last"),
        pytest.param("d", None, id="no replica is in the rack"),
    ],
)
def test_the_nearest_replica(rack, chosen):
    assert nearest(FOLLOWERS, leader_rack="a", client_rack=rack) == chosen


def test_the_follower_with_the_highest_log_end_offset_is_chosen():
    followers = (ReplicaView(2, "b", 90, 9), ReplicaView(3, "b", 91, 1), ReplicaView(4, "b", 91, 1))
    assert nearest(followers, leader_rack="a", client_rack="b") == 3


def test_an_empty_rack_matches_no_rack():
    followers = (ReplicaView(2, None, 90, 9),)
    assert nearest(followers, leader_rack=None, client_rack="a") is None
