"""How fast connections may be made (KIP-612)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.quota.connections import UNLIMITED, ConnectionRates


def test_connections_above_the_rate_are_served_one_after_the_other():
    rates = ConnectionRates()
    delays_ms = [rates.delay_ms(None, 10, 0) for _ in range(110)]
    assert delays_ms[:100] == [0] * 100
    # After what all windows but one allow: ten a second.
    assert delays_ms[100:] == pytest.approx([100 * n for n in range(1, 11)], abs=10)


def test_a_connection_waits_one_window_at_most_for_the_one_before_it():
    rates = ConnectionRates()
    delays_ms = [rates.delay_ms(None, 1, 0) for _ in range(14)]
    assert delays_ms == [0] * 10 + [1_000, 2_000, 3_000, 4_000]


def test_listeners_and_the_broker_have_rates_of_their_own():
    rates = ConnectionRates()
    for _ in range(12):
        rates.delay_ms("A", 1, 0)
    assert rates.delay_ms("A", 1, 0) == 3_000
    assert rates.delay_ms("B", 1, 0) == 0
    assert rates.delay_ms("A", UNLIMITED, 0) == 0
    assert rates.delay_ms("A", 1, 0) == 0


def test_an_address_above_its_rate_is_refused_and_others_are_not():
    rates = ConnectionRates()
    rates.set_address_limits({None: 2.0, "10.0.0.7": 1.0}, whole=True)
    assert [rates.refused_ms("10.0.0.7", 0) for _ in range(12)] == [0] * 10 + [1_000] * 2
    assert [rates.refused_ms("10.0.0.8", 0) for _ in range(21)] == [0] * 20 + [500]
    rates.set_address_limits({"10.0.0.7": None}, whole=False)
    assert [rates.refused_ms("10.0.0.7", 0) for _ in range(11)] == [0] * 10 + [500]


def test_without_limits_no_address_is_counted():
    rates = ConnectionRates()
    assert rates.refused_ms("10.0.0.7", 0) == 0
    rates.set_address_limits({"10.0.0.7": 1.0}, whole=True)
    assert rates.refused_ms("10.0.0.8", 0) == 0
    rates.set_address_limits({}, whole=True)
    assert all(rates.refused_ms("10.0.0.7", 0) == 0 for _ in range(50))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=200), st.integers(2, 20))
def test_the_rate_of_connections_served_stays_within_the_limit(pauses_ms, limit):
    rates, now_ms, served_ms = ConnectionRates(), 0, []
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        served_ms.append(now_ms + rates.delay_ms(None, limit, now_ms))
    assert served_ms == sorted(served_ms)
    for index, first_ms in enumerate(served_ms):
        within = sum(1 for at_ms in served_ms[index:] if at_ms < first_ms + 11_000)
        assert within <= 11 * limit + 1
