"""Fetch sessions: partitions are kept, changed ones are ready, epochs are checked."""

from odradek.model.errors import ErrorCode
from odradek.replica.fetch_session import (
    NO_SESSION,
    PARTITIONS_MAX,
    FetchSession,
    FetchSessionCache,
    RequestedPartition,
    next_epoch,
)

HOUR_MS = 3_600_000


def session(*names, monotonic_ms=0, privileged=False):
    new = FetchSession(
        session_id=0, by_topic_id=False, privileged=privileged, monotonic_ms=monotonic_ms
    )
    new.update([requested(name) for name in names])
    return new


def requested(name, offset=0):
    return RequestedPartition((name, 0), offset, 1000, -1, -1, -1)


def test_a_requested_partition_is_ready_until_it_is_answered():
    fetcher = session("a", "b")
    fetcher.answered(fetcher.partitions["a", 0])

    assert list(fetcher.ready) == [("b", 0)]


def test_a_partition_that_is_requested_again_moves_to_the_end():
    fetcher = session("a", "b", "c")
    fetcher.update([requested("a", offset=5)])

    assert [name for name, _ in fetcher.ready] == ["b", "c", "a"]
    assert fetcher.partitions["a", 0].fetch_offset == 5


def test_a_dropped_partition_is_not_ready():
    fetcher = session("a", "b")

    assert [dropped.key for dropped in fetcher.drop([("a", 0), ("never", 1)])] == [("a", 0)]
    assert list(fetcher.ready) == [("b", 0)]


def test_session_epochs_must_be_consecutive():
    cache = FetchSessionCache(slots=2)
    fetcher = session("a")
    cache.admit(fetcher, session_id=7, monotonic_ms=0)

    def resume(session_id, epoch, *, by_topic_id=False):
        return cache.resume(session_id, epoch, by_topic_id=by_topic_id, monotonic_ms=1)

    assert resume(8, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert resume(7, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert resume(7, 1, by_topic_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert resume(7, 1) is fetcher
    assert resume(7, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert resume(7, 2) is fetcher


def test_the_epoch_after_the_largest_is_1():
    cache = FetchSessionCache(slots=1)
    fetcher = session("a")
    cache.admit(fetcher, session_id=7, monotonic_ms=0)
    fetcher.epoch = 2**31 - 1

    assert cache.resume(7, 2**31 - 1, by_topic_id=False, monotonic_ms=1) is fetcher
    assert fetcher.epoch == 1
    # And a follower, which counts its own requests by this function.
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1)] == [1, 2, 1]


def test_a_full_cache_adds_no_session_while_all_are_recent():
    cache = FetchSessionCache(slots=1)
    cache.admit(session("a"), session_id=7, monotonic_ms=0)
    late = session("b", monotonic_ms=1000)

    assert cache.admit(late, session_id=8, monotonic_ms=1000) is None
    assert late.id == 0


def test_the_least_recently_used_session_is_evicted_first():
    cache = FetchSessionCache(slots=1)
    old = session("a")
    cache.admit(old, session_id=7, monotonic_ms=0)
    new = session("b", monotonic_ms=HOUR_MS)

    assert cache.admit(new, session_id=8, monotonic_ms=HOUR_MS) is old
    assert new.id == 8
    assert cache.evictions == 1


def test_a_follower_evicts_the_session_of_a_consumer():
    cache = FetchSessionCache(slots=1)
    consumer = session("a")
    cache.admit(consumer, session_id=7, monotonic_ms=0)

    assert cache.admit(session("b", privileged=True), session_id=8, monotonic_ms=1) is consumer


def test_a_session_id_in_use_is_not_given_twice():
    cache = FetchSessionCache(slots=2)
    first, second = session("a"), session("b")
    cache.admit(first, session_id=7, monotonic_ms=0)
    cache.admit(second, session_id=7, monotonic_ms=0)

    assert {first.id, second.id} == {7, 8}


def test_limits_on_partitions_of_all_sessions_and_of_one():
    cache = FetchSessionCache(slots=10)
    half = session(*range(PARTITIONS_MAX // 2))
    small, another, too_large = session("a"), session("a"), session(*range(PARTITIONS_MAX // 2))
    for number, each in enumerate((half, small, too_large, another), 1):
        assert cache.admit(each, session_id=number, monotonic_ms=0) is None

    assert [each.id for each in (half, small, too_large, another)] == [1, 2, NO_SESSION, 4]
    assert (half.partitions_max, small.partitions_max) == (PARTITIONS_MAX + 1_000, 1_002)
