"""Which replica a consumer reads from (KIP-392)."""

import pytest

from odradek.model.cluster import Broker
from odradek.replica.isr import Isr
from odradek.replica.leader import Follower, LeaderReplica
from odradek.replica.selector import nearest

BROKERS = {
    1: Broker(id=1, end_points=(), rack="a"),
    2: Broker(id=2, end_points=(), rack="b"),
    3: Broker(id=3, end_points=(), rack="c"),
    4: Broker(id=4, end_points=(), rack="c"),
}


def chosen(rack, offset=50, *, isr=(1, 2, 3, 4), brokers=BROKERS, leader_rack="a", **progress):
    """Broker 1 leads, and the others follow with this progress: log end, caught up, log start."""
    progress = {"b2": (90, 5, 10), "b3": (100, 5, 10), "b4": (100, 9, 10), **progress}
    leader = LeaderReplica(
        leo=100,
        high_watermark=80,
        followers={
            int(name[1:]): Follower(leo, caught_up_ms, log_start_offset=start)
            for name, (leo, caught_up_ms, start) in progress.items()
        },
        isr=Isr(isr, partition_epoch=0),
        isr_min=1,
        lag_ms_max=100,
    )
    return nearest(leader, offset, brokers=brokers, leader_rack=leader_rack, client_rack=rack)


@pytest.mark.parametrize(
    ("rack", "follower"),
    [
        pytest.param("", None, id="a client without a rack"),
        pytest.param("a", None, id="the leader is in the rack"),
        pytest.param("b", 2, id="a follower is in the rack"),
        pytest.param("c", 4, id="the one that caught up last"),
        pytest.param("d", None, id="no replica is in the rack"),
    ],
)
def test_the_nearest_replica(rack, follower):
    assert chosen(rack) == follower


def test_the_follower_with_the_highest_log_end_offset_is_chosen():
    assert chosen("c", b3=(91, 1, 10), b4=(90, 9, 10)) == 3


def test_of_two_equal_followers_the_lower_id_is_chosen():
    assert chosen("c", b3=(91, 1, 10), b4=(91, 1, 10)) == 3


def test_a_follower_that_is_not_in_sync_is_not_chosen():
    assert chosen("c", isr=(1, 2, 3)) == 3
    assert chosen("b", isr=(1, 3)) is None


def test_a_follower_that_is_not_registered_is_not_chosen():
    assert chosen("b", brokers={1: BROKERS[1], 3: BROKERS[3]}) is None


@pytest.mark.parametrize(("offset", "follower"), [(9, None), (10, 2), (90, 2), (91, None)])
def test_a_follower_has_the_offset_between_its_log_start_and_its_log_end(offset, follower):
    assert chosen("b", offset) == follower


def test_an_empty_rack_matches_no_rack():
    brokers = {**BROKERS, 2: Broker(id=2, end_points=(), rack=None)}
    assert chosen("a", brokers=brokers, leader_rack=None) is None
