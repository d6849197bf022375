"""The rate at which throttled replicas may be copied (KIP-73)."""

import pytest

from odradek.replica.throttle import ReplicationQuota, Throttles, throttled_here


def quota(rate=1000):
    return ReplicationQuota(windows=11, window_ms=1_000, rate=rate)


def test_an_unused_quota_is_not_exceeded():
    assert not quota(0).is_exceeded(5_000)


def test_a_quota_is_exceeded_until_the_average_is_below_the_rate():
    slow = quota()
    slow.record(3_000, 10_000)
    assert slow.is_exceeded(10_000)
    assert slow.is_exceeded(12_999)
    assert not slow.is_exceeded(13_000)


def test_a_steady_stream_at_the_rate_does_not_exceed_the_quota():
    steady = quota()
    for second in range(60):
        steady.record(1_000, second * 1_000)
        assert not steady.is_exceeded(second * 1_000 + 1_000), second


def test_bytes_before_the_windows_do_not_count():
    slow = quota(1)
    slow.record(1_000_000, 0)
    assert slow.is_exceeded(10_999)
    assert not slow.is_exceeded(11_000)


def test_a_burst_counts_within_its_window():
    slow = quota()
    slow.record(400, 100)
    slow.record(400, 200)
    assert not slow.is_exceeded(200)
    slow.record(400, 300)
    assert slow.is_exceeded(300)


def test_without_a_rate_the_quota_is_never_exceeded():
    free = ReplicationQuota(windows=11, window_ms=1_000)
    free.record(1 << 50, 0)
    assert not free.is_exceeded(0)
    free.rate = 1
    assert free.is_exceeded(0)


@pytest.mark.parametrize(
    ("words", "throttled"),
    [((), set()), (("0:1", "2:1", "1:2"), {0, 2}), (("*",), None), (("0:11",), set())],
)
def test_which_partitions_are_throttled_on_this_broker(words, throttled):
    assert throttled_here(words, 1) == throttled


def test_all_or_listed_partitions_are_throttled():
    throttles = Throttles(led=frozenset({1}), followed=None)
    assert [throttles.throttles_leader(n) for n in (0, 1)] == [False, True]
    assert throttles.throttles_follower(7)
    assert not Throttles().throttles_follower(7)
