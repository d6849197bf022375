"""Lag in seconds and its trend: golden values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.partition import TopicPartition
from odradek.web.groups.lag import (
    SAMPLES_MAX,
    EndSamples,
    LagSample,
    LagSource,
    lag_time,
    trend,
)
from odradek.web.groups.values import PartitionLag

P = TopicPartition("orders", 0)


def samples(*each):
    kept = EndSamples()
    for wall_ms, end in each:
        kept.add(wall_ms, end)
    return kept


def lag(committed, end=1_000):
    return PartitionLag(partition=P, committed=committed, end=end)


@pytest.mark.parametrize(
    ("offset", "passed_ms"),
    [(99, None), (100, 1_000), (150, 1_500), (199, 1_990), (200, 2_000), (300, 3_000), (400, None)],
)
def test_the_time_is_interpolated_between_two_samples(offset, passed_ms):
    assert samples((1_000, 100), (2_000, 200), (4_000, 400)).passed_ms(offset) == passed_ms


def test_while_nothing_was_written_the_time_is_that_of_the_next_record():
    kept = samples((1_000, 100), (2_000, 200), (3_000, 200), (9_000, 200), (10_000, 300))

    assert kept.passed_ms(200) == 9_000
    assert len(kept) == 4


def test_a_log_that_was_truncated_and_a_clock_that_went_back_drop_samples():
    truncated = samples((1_000, 100), (2_000, 200), (3_000, 150), (4_000, 250))
    set_back = samples((1_000, 100), (9_000, 200), (2_000, 210), (3_000, 310))

    assert truncated.passed_ms(175) == 3_250
    assert set_back.passed_ms(260) == 2_500


def test_samples_are_bounded_and_cover_the_whole_time():
    kept = samples(*((n * 1_000, n * 10) for n in range(1_000)))

    assert len(kept) <= SAMPLES_MAX
    assert kept.passed_ms(5_000) == 500_000
    assert kept.passed_ms(9_985) == 998_500


@given(st.lists(st.integers(0, 50), min_size=2, max_size=200), st.integers(0, 5_000))
def test_a_time_lies_between_the_samples_that_it_was_found_by(growth, offset):
    kept, end = EndSamples(), 0
    for n, more in enumerate(growth):
        end += more
        kept.add(n * 100, end)

    passed = kept.passed_ms(offset)

    assert len(kept) <= SAMPLES_MAX
    assert passed is None or 0 <= passed <= (len(growth) - 1) * 100


def test_without_lag_in_records_there_is_none_in_seconds():
    time = lag_time(lag(1_000), None, 10_000)

    assert (time.seconds, time.source) == (0.0, LagSource.NONE)


def test_samples_come_before_the_timestamp_of_the_record():
    kept = samples((1_000, 100), (2_000, 200))

    time = lag_time(lag(150), kept, 10_000, record_ms=5_000)

    assert (time.seconds, time.source) == (8.5, LagSource.SAMPLES)


def test_a_record_from_before_the_samples_has_its_timestamp():
    kept = samples((1_000, 100), (2_000, 200))

    time = lag_time(lag(50), kept, 10_000, record_ms=500)

    assert (time.seconds, time.source) == (9.5, LagSource.RECORD)
    assert "the producer's clock" in time.text


def test_what_is_not_known_has_its_reason():
    assert lag_time(lag(50), None, 1).source is LagSource.UNKNOWN
    assert lag_time(lag(None), None, 1).source is LagSource.UNCOMMITTED
    no_end = PartitionLag(partition=P, committed=5, error="LEADER_NOT_AVAILABLE")
    assert lag_time(no_end, None, 1).text == "LEADER_NOT_AVAILABLE"


@pytest.mark.parametrize(
    ("last", "direction", "text"),
    [
        ((1_500, 500, 2_000), "rising", "rising by 50.0 records/s"),
        ((1_500, 0, 1_500), "rising", "rising by 50.0 records/s; nothing is committed"),
        ((500, 1_500, 2_000), "falling", "falling by 50.0 records/s: without lag in 10 s"),
        ((1_000, 600, 1_600), "steady", "steady"),
        ((1_000, 0, 1_000), "steady", "steady: nothing is committed"),
    ],
)
def test_the_trend_of_a_lag(last, direction, text):
    shown = trend([LagSample(0, 1_000, 0, 1_000), LagSample(10_000, *last)])

    assert (shown.direction, shown.text) == (direction, text)


def test_what_was_before_the_last_half_minute_does_not_count():
    samples = [LagSample(n * 1_000, max(0, 1_000 - n * 50), n, n) for n in range(60)]

    assert trend(samples).direction == "steady"
    assert trend([LagSample(0, 900, 0, 900), LagSample(90_000, 0, 900, 900)]).over_s == 90.0


def test_a_short_time_has_no_trend():
    assert trend([LagSample(0, 10, 0, 10), LagSample(1_000, 20, 0, 20)]).direction == ""
