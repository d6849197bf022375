"""Rules of the ISR and the high watermark, several of them from bugs that Kafka has fixed."""

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
    replica.appended(10, monotonic_ms=1)
    replica.fetched(2, offset=10, monotonic_ms=2)

    assert replica.fetched(3, offset=7, monotonic_ms=2) == 7


def test_a_follower_with_a_shorter_log_does_not_lower_the_high_watermark():
    replica = leader(leo=10)

    assert replica.fetched(2, offset=6, monotonic_ms=1) == 10


def test_under_steady_appends_a_follower_that_keeps_up_stays_in_the_isr():
    replica = leader()
    for second in range(1, 120):
        replica.appended(replica.leo + 100, monotonic_ms=second * 1000)
        for follower in (2, 3):  # each fetch is from the log end of one second ago
            replica.fetched(follower, offset=(second - 1) * 100, monotonic_ms=second * 1000)

    assert replica.fallen_behind(monotonic_ms=120_000) == frozenset()


def test_a_follower_that_does_not_fetch_falls_behind():
    replica = leader()
    replica.appended(1, monotonic_ms=1)

    assert replica.fallen_behind(monotonic_ms=LAG_MS + 1) == frozenset()
    assert replica.fallen_behind(monotonic_ms=LAG_MS + 2) == {2, 3}


def test_a_follower_that_has_caught_up_holds_back_the_high_watermark():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=10, monotonic_ms=1)
    replica.appended(20, monotonic_ms=2)

    assert replica.fetched(2, offset=20, monotonic_ms=3) == 10
    assert replica.fetched(3, offset=20, monotonic_ms=4) == 20


def test_a_fetch_of_an_earlier_registration_acknowledges_nothing():
    replica = leader()
    replica.appended(10, monotonic_ms=1)
    replica.fetched(3, offset=10, monotonic_ms=2)
    replica.fetched(2, offset=0, monotonic_ms=2, broker_epoch=200)

    assert replica.fetched(2, offset=10, monotonic_ms=3, broker_epoch=100) == 0
    assert replica.fetched(2, offset=10, monotonic_ms=4, broker_epoch=200) == 10


def test_too_few_in_sync_freeze_the_high_watermark():
    replica = leader(isr=(), isr_min=2)
    assert replica.is_under_min_isr

    assert replica.appended(5, monotonic_ms=LAG_MS + 2) == 0
    assert replica.isr_min_changed(1, monotonic_ms=LAG_MS + 2) == 5


def test_no_more_in_sync_replicas_are_needed_than_there_are_replicas():
    alone = LeaderReplica(
        leo=0,
        high_watermark=0,
        followers={},
        isr=Isr((1,), 0),
        isr_min=2,
        lag_ms_max=LAG_MS,
    )

    assert not alone.is_under_min_isr
    assert alone.appended(3, monotonic_ms=1) == 3


def test_a_follower_of_an_idle_partition_stays_in_the_isr():
    replica = leader(leo=10)
    replica.appended(11, monotonic_ms=10 * LAG_MS)

    assert replica.fallen_behind(monotonic_ms=11 * LAG_MS) == frozenset()
    assert replica.fallen_behind(monotonic_ms=11 * LAG_MS + 1) == {2, 3}


def test_one_isr_change_is_requested_for_a_follower_that_has_caught_up():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=9, monotonic_ms=1)
    assert replica.expansion(3) is None

    replica.fetched(3, offset=10, monotonic_ms=2)
    assert replica.expansion(3) == (1, 2, 3)
    assert replica.expansion(3) is None, "it is in flight"
    replica.isr_refused()
    assert replica.missed_expansion() == (1, 2, 3)


def test_a_follower_that_caught_up_while_another_joined_joins_next():
    replica = leader(leo=10, isr=())
    replica.fetched(3, offset=10, monotonic_ms=1)
    assert replica.expansion(3) == (1, 3)
    replica.fetched(2, offset=10, monotonic_ms=2)
    assert replica.expansion(2) is None, "one change at a time"

    replica.isr_stored((1, 3), 1, monotonic_ms=3)
    assert replica.missed_expansion() == (1, 3, 2)


def test_a_follower_that_has_not_fetched_since_it_left_is_not_added():
    replica = leader(isr_min=2)
    replica.appended(5, monotonic_ms=1)
    replica.isr_stored(replica.shrinkage(LAG_MS + 2), 1, monotonic_ms=LAG_MS + 3)
    assert replica.high_watermark == 0, "too few are in sync, so the high watermark stays"

    assert replica.missed_expansion() is None


def test_a_follower_that_is_refused_does_not_keep_others_out():
    replica = leader(leo=10, isr=())
    assert replica.missed_expansion() == (1, 2)
    replica.isr_refused()

    assert replica.missed_expansion() == (1, 3)


def test_the_high_watermark_waits_for_a_member_that_is_being_added_or_removed():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=10, monotonic_ms=1)
    replica.expansion(3)
    late_ms = 5 * LAG_MS
    replica.appended(20, monotonic_ms=2)
    assert replica.fetched(2, offset=20, monotonic_ms=late_ms) == 10, "3 may be in the stored ISR"

    assert replica.isr_stored((1, 2), 1, monotonic_ms=late_ms) == 20


def test_followers_that_have_fallen_behind_count_until_the_isr_is_stored():
    replica = leader()
    replica.appended(5, monotonic_ms=1)
    replica.fetched(2, offset=5, monotonic_ms=LAG_MS + 2)
    assert replica.shrinkage(LAG_MS + 2) == (1, 2)
    assert replica.shrinkage(LAG_MS + 2) is None, "it is in flight"
    assert replica.high_watermark == 0

    assert replica.isr_stored((1, 2), 1, monotonic_ms=LAG_MS + 3) == 5


def test_the_high_watermark_does_not_wait_for_an_unregistered_broker():
    replica = leader(leo=10, isr=(2,))
    replica.fetched(3, offset=10, monotonic_ms=1)
    replica.appended(12, monotonic_ms=2)
    assert replica.fetched(2, offset=12, monotonic_ms=3) == 10, "3 is about to join"

    assert replica.brokers_changed(frozenset({1, 2}), monotonic_ms=4) == 12
    assert replica.expansion(3) is None
