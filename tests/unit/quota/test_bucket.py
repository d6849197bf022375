"""Token buckets for changes to topics (KIP-599)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.quota.bucket import TokenBucket
from odradek.quota.usage import BucketCount


def test_a_full_bucket_has_what_arrives_in_all_windows():
    bucket = TokenBucket(windows=11, window_ms=1_000)
    assert bucket.tokens(5, 77) == 55
    bucket.take(60, 5, 77)
    assert bucket.tokens(5, 77) == -5
    assert bucket.throttle_ms(5, 77) == 1_000
    assert bucket.throttle_ms(5, 1_077) == 0
    assert bucket.tokens(5, 100_000) == 55
    assert bucket.is_unused(5, 100_000)


def test_an_overdrawn_bucket_refuses_a_strict_request_only():
    count = BucketCount(windows=2, window_ms=1_000)
    assert count.take(3, 1, 0, strict=True) == (True, 0)
    assert count.take(1, 1, 0, strict=True) == (False, 1_000)
    assert count.take(1, 1, 0, strict=False) == (True, 2_000)
    assert count.take(1, 1, 2_000, strict=True) == (True, 0)


def test_a_limit_that_is_not_positive_admits_nothing():
    bucket = TokenBucket(windows=11, window_ms=1_000)
    bucket.take(1, 0, 0)
    assert bucket.throttle_ms(0, 100_000) == 11_000


class NaiveBucket:
    """The tokens themselves, refilled in one step for each call."""

    def __init__(self, limit, burst):
        self.limit, self.burst, self.tokens, self.at_ms = limit, burst, burst, 0

    def take(self, tokens, now_ms):
        self.tokens = min(self.burst, self.tokens + self.limit * (now_ms - self.at_ms) / 1_000)
        self.tokens, self.at_ms = self.tokens - tokens, now_ms
        return self.tokens


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 100)), max_size=40),
    st.integers(1, 20),
)
def test_the_tokens_are_those_of_a_naive_bucket(taken, limit):
    bucket = TokenBucket(windows=11, window_ms=1_000)
    naive, now_ms = NaiveBucket(limit, limit * 11), 0
    for later_ms, tokens in taken:
        now_ms += later_ms
        bucket.take(tokens, limit, now_ms)
        assert bucket.tokens(limit, now_ms) == pytest.approx(naive.take(tokens, now_ms), abs=1e-6)
