"""Rules of the ISR and the high watermark which were once learnt the hard way."""

from odradek.replica.isr import Isr
from odradek.replica.leader import Follower, LeaderReplica

LAG_MS = 30_000


def leader(*, leo=0, isr=(2, 3), isr_min=1):
    followers = {2: Follower(leo, caught_up_ms=0), 3: Follower(leo, caught_up_ms=0)}
    return LeaderReplica(
        leo=leo,
        high_watermark=leo,
        followers=followers,
        isr=Isr((1, *isr), 0),
        isr_min=isr_min,
        lag_ms_max=LAG_MS,
    )


def test_the_high_watermark_waits_for_the_slowest_in_sync():
    replica = leader()
    replica.appended(10, now_ms=1)
    replica.fetched(2, offset=10, now_ms=2)

    assert replica.fetched(3, offset=7, now_ms=2) == 7


def test_a_follower_without_its_tail_does_not_take_the_high_watermark_back():
    replica = leader(leo=10)

    assert replica.fetched(2, offset=6, now_ms=1) == 10


def test_steady_appends_do_not_expel_a_follower_that_keeps_pace():
    replica = leader()
    for second in range(1, 120):
        replica.appended(replica.leo + 100, now_ms=second * 1000)
        for follower in (2, 3):  # each fetch asks for what was the end one second ago
            replica.fetched(follower, offset=(second - 1) * 100, now_ms=second * 1000)

    assert replica.fallen_behind(now_ms=120_000) == frozenset()


def test_a_silent_follower_falls_behind():
    replica = leader()
    replica.appended(1, now_ms=1)

    assert replica.fallen_behind(now_ms=LAG_MS + 1) == frozenset()
    assert replica.fallen_behind(now_ms=LAG_MS + 2) == {2, 3}


def test_a_follower_about_to_join_holds_the_high_watermark():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=10, now_ms=1)
    replica.appended(20, now_ms=2)

    assert replica.fetched(2, offset=20, now_ms=3) == 10
    assert replica.fetched(3, offset=20, now_ms=4) == 20


def test_a_fetch_of_a_life_that_is_over_acknowledges_nothing():
    replica = leader()
    replica.appended(10, now_ms=1)
    replica.fetched(3, offset=10, now_ms=2)
    replica.fetched(2, offset=0, now_ms=2, broker_epoch=200)

    assert replica.fetched(2, offset=10, now_ms=3, broker_epoch=100) == 0
    assert replica.fetched(2, offset=10, now_ms=4, broker_epoch=200) == 10


def test_too_few_in_sync_freeze_the_high_watermark():
    replica = leader(isr=(), isr_min=2)
    assert replica.is_under_min_isr

    assert replica.appended(5, now_ms=LAG_MS + 2) == 0
    assert replica.isr_min_changed(1, now_ms=LAG_MS + 2) == 5


def test_a_topic_does_not_need_more_in_sync_than_it_has_replicas():
    alone = LeaderReplica(
        leo=0,
        high_watermark=0,
        followers={},
        isr=Isr((1,), 0),
        isr_min=2,
        lag_ms_max=LAG_MS,
    )

    assert not alone.is_under_min_isr
    assert alone.appended(3, now_ms=1) == 3


def test_an_idle_follower_is_not_behind_because_nothing_happened():
    replica = leader(leo=10)
    replica.appended(11, now_ms=10 * LAG_MS)

    assert replica.fallen_behind(now_ms=11 * LAG_MS) == frozenset()
    assert replica.fallen_behind(now_ms=11 * LAG_MS + 1) == {2, 3}


def test_a_follower_that_has_caught_up_is_asked_for_once():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=9, now_ms=1)
    assert replica.expansion(3) is None

    replica.fetched(3, offset=10, now_ms=2)
    assert replica.expansion(3) == (1, 2, 3)
    assert replica.expansion(3) is None, "it is on its way"
    replica.isr_refused()
    assert replica.missed_expansion() == (1, 2, 3)


def test_a_follower_that_reached_the_end_while_another_joined_is_not_forgotten():
    replica = leader(leo=10, isr=())
    replica.fetched(3, offset=10, now_ms=1)
    assert replica.expansion(3) == (1, 3)
    replica.fetched(2, offset=10, now_ms=2)
    assert replica.expansion(2) is None, "one change at a time"

    replica.isr_stored((1, 3), 1, now_ms=3)
    assert replica.missed_expansion() == (1, 3, 2)


def test_a_follower_that_is_silent_since_it_left_is_not_asked_for_again():
    replica = leader(isr_min=2)
    replica.appended(5, now_ms=1)
    replica.isr_stored(replica.shrinkage(LAG_MS + 2), 1, now_ms=LAG_MS + 3)
    assert replica.high_watermark == 0, "too few are in sync, so they have reached it still"

    assert replica.missed_expansion() is None


def test_a_follower_that_is_refused_keeps_no_other_out():
    replica = leader(leo=10, isr=())
    assert replica.missed_expansion() == (1, 2)
    replica.isr_refused()

    assert replica.missed_expansion() == (1, 3)


def test_the_high_watermark_waits_for_a_member_that_is_on_its_way_in_or_out():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=10, now_ms=1)
    replica.expansion(3)
    late_ms = 5 * LAG_MS
    replica.appended(20, now_ms=2)
    assert replica.fetched(2, offset=20, now_ms=late_ms) == 10, "3 may be in the stored ISR"

    assert replica.isr_stored((1, 2), 1, now_ms=late_ms) == 20


def test_those_who_have_fallen_behind_are_to_leave_and_count_until_it_is_stored():
    replica = leader()
    replica.appended(5, now_ms=1)
    replica.fetched(2, offset=5, now_ms=LAG_MS + 2)
    assert replica.shrinkage(LAG_MS + 2) == (1, 2)
    assert replica.shrinkage(LAG_MS + 2) is None, "it is on its way"
    assert replica.high_watermark == 0

    assert replica.isr_stored((1, 2), 1, now_ms=LAG_MS + 3) == 5


def test_the_dead_hold_up_nobody():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=10, now_ms=1)
    replica.appended(12, now_ms=2)
    assert replica.fetched(2, offset=12, now_ms=3) == 10, "3 is about to join"

    assert replica.brokers_changed(frozenset({1, 2}), now_ms=4) == 12
    assert replica.expansion(3) is None
