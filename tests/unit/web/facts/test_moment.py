"""The replicas of a picture are of one moment, or say how far apart they are."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.web.facts.moment import replicas_at_one_moment


def leads(broker, leo, high, followers, *, epoch=5, partition=0):
    """The report of a leader; `followers` are (broker, LEO of its last fetch or None)."""
    return {
        "partition": partition,
        "role": "leader",
        "leader": broker,
        "leader_epoch": epoch,
        "log_start_offset": 0,
        "leo": leo,
        "high_watermark": high,
        "last_stable_offset": high,
        "isr": [broker, *(id_ for id_, _ in followers)],
        "followers": [
            {
                "broker": id_,
                "leo": -1 if fetched is None else fetched,
                "caught_up_ms_ago": 7,
                "fetched_ms_ago": None if fetched is None else 3,
            }
            for id_, fetched in followers
        ],
    }


def follows(leo, high, *, epoch=5, partition=0):
    return {
        "partition": partition,
        "role": "follower",
        "leader_epoch": epoch,
        "log_start_offset": 0,
        "leo": leo,
        "high_watermark": high,
        "last_stable_offset": high,
    }


def joined(replicas, received_ms=None, epoch=5):
    reports = {broker: {"replicas": [replica]} for broker, replica in replicas.items()}
    return replicas_at_one_moment(
        reports, received_ms or dict.fromkeys(replicas, 1_000), {0: epoch}
    )


def test_a_follower_that_reports_later_is_not_ahead_of_its_leader():
    found = joined({1: leads(1, 100, 95, [(2, 97)]), 2: follows(120, 115)}).offsets

    follower = found[0, 2]
    assert (follower["leo"], follower["high_watermark"]) == (97, 95)
    assert (follower["fetched_ms_ago"], follower.get("apart_ms")) == (3, None)


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 50),
    st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_no_follower_is_ahead_of_the_leader_whatever_it_reports(high, behind, ahead, reported):
    fetched, leo = high + behind, high + behind + ahead
    found = joined({1: leads(1, leo, high, [(2, fetched)]), 2: follows(*reported)}).offsets

    for name in ("leo", "high_watermark", "last_stable_offset"):
        assert found[0, 2][name] <= found[0, 1][name]
    assert found[0, 2]["high_watermark"] <= found[0, 2]["leo"]
    assert found[0, 2]["log_start_offset"] <= found[0, 2]["leo"]


def test_a_follower_that_has_not_fetched_has_its_own_report_and_its_distance_in_time():
    replicas = {1: leads(1, 100, 95, [(2, None)]), 2: follows(120, 95)}

    found = joined(replicas, {1: 1_000, 2: 1_400}).offsets

    assert (found[0, 2]["leo"], found[0, 2]["apart_ms"]) == (120, 400)
    assert (found[0, 2]["fetched_ms_ago"], found[0, 2]["caught_up_ms_ago"]) == (None, None)


def test_the_leader_and_the_isr_are_those_of_the_leaders_report():
    joined_now = joined({1: leads(1, 9, 9, [(2, 9)], epoch=6), 2: leads(2, 9, 9, [], epoch=5)})

    assert joined_now.leaders[0].broker == 1
    assert joined_now.leaders[0].isr == (1, 2)


def test_the_report_of_a_replaced_leader_is_one_of_a_replica_among_others():
    replicas = {1: leads(1, 100, 95, [(2, 97)], epoch=5), 2: follows(120, 95, epoch=5)}

    found = joined(replicas, {1: 1_000, 2: 1_010}, epoch=6)

    assert found.leaders == {}
    assert (found.offsets[0, 2]["leo"], found.offsets[0, 2]["apart_ms"]) == (120, 0)
    assert found.offsets[0, 1]["apart_ms"] == -10


def test_what_a_leader_has_of_a_follower_that_does_not_answer_is_shown():
    found = joined({1: leads(1, 100, 95, [(2, 97)])}).offsets

    assert (found[0, 2]["leo"], found[0, 2].get("high_watermark")) == (97, None)
