"""Which segments retention deletes."""

from dataclasses import dataclass

import pytest

from odradek.log.log_config import LogConfig
from odradek.log.retention import Expired, expired_segments

NOW = 100_000


@dataclass
class Segment:
    base_offset: int
    size: int
    age_timestamp_ms: int


def segments(*ages, size=100):
    """Segments of ten offsets, with timestamps of these ages."""
    return [Segment(10 * n, size, NOW - age) for n, age in enumerate(ages)]


def expired(found, *, high_watermark=None, log_start_offset=0, leo=None, **options):
    leo = 10 * len(found) if leo is None else leo
    return expired_segments(
        found,
        LogConfig(**{"retention_ms": -1, **options}),
        leo=leo,
        high_watermark=leo if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        wall_ms=NOW,
    )


@pytest.mark.parametrize(
    ("ages", "retention_ms", "removed"),
    [
        pytest.param((50, 30, 10), 40, 1, id="older ones are deleted"),
        pytest.param((50, 30, 10), 30, 1, id="exactly as old is not older"),
        pytest.param((50, 10, 50), 40, 1, id="the first that stays keeps all later ones"),
        pytest.param((50, 50, 50), 40, 3, id="all, the active one included"),
        pytest.param((-50, 50, 50), 40, 0, id="a timestamp in the future stays"),
        pytest.param((50, 30, 10), -1, 0, id="no limit"),
        pytest.param((50, 30, 10), 0, 3, id="nothing is kept"),
    ],
)
def test_by_age(ages, retention_ms, removed):
    assert expired(segments(*ages), retention_ms=retention_ms) == Expired(by_age=removed)


@pytest.mark.parametrize(
    ("retention_bytes", "removed"),
    [
        pytest.param(300, 0, id="all fits"),
        pytest.param(299, 0, id="less than a segment too much"),
        pytest.param(200, 1, id="a segment too much"),
        pytest.param(0, 3, id="nothing is kept"),
        pytest.param(-1, 0, id="no limit"),
    ],
)
def test_by_size(retention_bytes, removed):
    found = expired(segments(1, 1, 1), retention_bytes=retention_bytes)

    assert found == Expired(by_size=removed)


@pytest.mark.parametrize(
    ("log_start_offset", "removed"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 2)]
)
def test_by_log_start_offset_except_the_active_one(log_start_offset, removed):
    assert expired(segments(1, 1, 1), log_start_offset=log_start_offset) == Expired(removed)


@pytest.mark.parametrize(("high_watermark", "removed"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_no_segment_above_the_high_watermark_is_deleted(high_watermark, removed):
    found = expired(segments(9, 9, 9), retention_ms=1, high_watermark=high_watermark)

    assert found.segments == removed


def test_an_empty_active_segment_stays():
    found = segments(9, 9)
    found[1].size = 0

    assert expired(found, retention_ms=1, leo=10).segments == 1


def test_size_is_checked_before_age():
    assert expired(segments(9, 9, 1), retention_ms=5, retention_bytes=200) == Expired(
        by_size=1, by_age=1
    )


def test_a_compacted_topic_loses_only_segments_below_its_log_start_offset():
    found = expired(
        segments(9, 9, 9),
        retention_ms=1,
        retention_bytes=0,
        log_start_offset=10,
        cleanup_policy=frozenset({"compact"}),
    )

    assert found == Expired(by_log_start=1)


def test_a_topic_with_both_policies_loses_segments_by_age():
    both = frozenset({"compact", "delete"})

    assert expired(segments(9, 1), retention_ms=5, cleanup_policy=both) == Expired(by_age=1)
