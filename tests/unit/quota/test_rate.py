"""Rates averaged over windows, and throttle times, as Kafka's `Rate` and `QuotaUtils` give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.quota.rate import THROTTLE_MS_MAX, Rate, burst

WINDOWS, WINDOW_MS = 11, 1_000


def rate(**more):
    return Rate(**{"windows": WINDOWS, "window_ms": WINDOW_MS, **more})


def test_what_all_windows_but_one_allow_may_be_used_at_once():
    used = rate()
    used.record(burst(1_000, windows=WINDOWS, window_ms=WINDOW_MS), 5)
    assert used.throttle_ms(1_000, 5) == 0
    used.record(1, 5)
    assert used.throttle_ms(1_000, 5) == 1


def test_the_throttle_time_lasts_until_the_average_is_the_limit():
    used = rate()
    used.record(12_000, 0)
    assert used.throttle_ms(1_000, 0) == 2_000
    # Ten windows count as elapsed in any case, and the rest of the eleventh after them.
    assert used.per_second(500) == pytest.approx(12_000 / 10.5)
    used = rate()
    for second in range(11):
        used.record(2_000, second * 1_000)
    assert used.throttle_ms(1_000, 10_000) == 12_000


def test_what_was_used_before_the_windows_does_not_count():
    used = rate()
    used.record(50_000, 0)
    assert used.throttle_ms(1_000, 10_999) > 0
    assert not used.is_unused(10_999)
    assert used.throttle_ms(1_000, 11_000) == 0
    assert used.is_unused(11_000)


def test_what_is_taken_back_does_not_count():
    used = rate()
    used.record(8_000, 0)
    used.record(9_000, 100)
    used.record(-9_000, 100)
    assert used.total(100) == 8_000


def test_a_limit_that_is_not_positive_allows_nothing():
    used = rate()
    assert used.throttle_ms(0, 0) == 0
    used.record(1, 0)
    assert used.throttle_ms(0, 0) == used.throttle_ms(-1, 0) == WINDOWS * WINDOW_MS


def test_a_throttle_time_fits_into_its_field():
    used = rate()
    used.record(1e12, 0)
    assert used.throttle_ms(1, 0) == THROTTLE_MS_MAX


@st.composite
def uses(draw):
    now_ms, made = draw(st.integers(0, 10**9)), []
    for _ in range(draw(st.integers(1, 40))):
        now_ms += draw(st.sampled_from((0, 1, 250, 999, 1_000, 3_000, 9_999, 11_000, 40_000)))
        made.append((now_ms, draw(st.integers(0, 5_000))))
    return made


class NaiveRate:
    """Keeps every use, grouped by windows that begin with their first use."""

    def __init__(self, windows, window_ms):
        self.windows, self.window_ms, self.groups = windows, window_ms, []

    def measure(self, now_ms, amount):
        if not self.groups or now_ms - self.groups[-1][0][0] >= self.window_ms:
            self.groups.append([])
        self.groups[-1].append((now_ms, amount))
        oldest_ms = now_ms - self.windows * self.window_ms
        counted = [group for group in self.groups if group[-1][0] > oldest_ms]
        elapsed_ms = now_ms - counted[0][0][0]
        while elapsed_ms // self.window_ms < self.windows - 1:
            elapsed_ms += self.window_ms
        return sum(amount for group in counted for _, amount in group), max(1, elapsed_ms)


@given(uses(), st.integers(1, 5), st.integers(1, 3_000))
def test_the_average_is_that_of_a_naive_count(made, windows, limit):
    used, naive = rate(windows=windows), NaiveRate(windows, WINDOW_MS)
    for now_ms, amount in made:
        used.record(amount, now_ms)
        total, elapsed_ms = naive.measure(now_ms, amount)
        assert used.total(now_ms) == total
        average = total * 1_000 / elapsed_ms
        assert used.per_second(now_ms) == pytest.approx(average)
        expected_ms = max(0.0, (average / limit - 1) * elapsed_ms)
        assert used.throttle_ms(limit, now_ms) == pytest.approx(expected_ms, abs=1)


@given(st.integers(100, 100_000), st.lists(st.floats(0, 1), min_size=5, max_size=60))
def test_a_client_that_waits_as_long_as_it_is_throttled_gets_its_limit(limit, shares):
    """Of larger requests, each worth seconds, it gets more, as in Kafka: while it waits for so
    long, its samples become obsolete, and it may use the windows' worth at once again.
    """
    sizes = [1 + int(share * limit) for share in shares]
    used, now_ms, total = rate(), 0, 0
    for size in sizes:
        used.record(size, now_ms)
        total += size
        now_ms += used.throttle_ms(limit, now_ms) + 1
    allowed = limit * now_ms / 1_000
    assert total <= allowed + burst(limit, windows=WINDOWS, window_ms=WINDOW_MS) + max(sizes)
