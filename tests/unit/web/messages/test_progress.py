"""What was not searched, and the cursor that carries it."""

import base64
import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.web.messages.progress import (
    CursorError,
    PartitionProgress,
    SearchProgress,
    UnsearchedRange,
    from_cursor,
    to_cursor,
)

PARTITION = PartitionProgress(start=10, end=100, position=60)


def test_what_is_left_was_not_searched():
    damaged = PARTITION.with_ranges(
        undecodable=[UnsearchedRange(20, 25, "damaged")],
        expired=[UnsearchedRange(10, 12, "deleted")],
    )

    assert damaged.not_searched() == [
        (10, 12, "deleted"), (20, 25, "damaged"), (60, 100, "not read yet"),
    ]  # fmt: skip


def test_a_partition_with_an_error_is_done_and_names_it_as_the_reason():
    broken = PartitionProgress(start=10, end=100, position=60, error="no leader")

    assert broken.is_done
    assert broken.not_searched() == [(60, 100, "no leader")]


def test_neighbouring_ranges_with_one_reason_are_one():
    joined = PARTITION.with_ranges(
        undecodable=[UnsearchedRange(20, 25, "a"), UnsearchedRange(25, 30, "a")]
    )

    assert joined.undecodable == ((20, 30, "a"),)


def test_many_ranges_are_joined_and_cover_all_of_them():
    ranges = [UnsearchedRange(n, n + 1, "a") for n in range(0, 1_000, 3)]

    joined = PARTITION.with_ranges(undecodable=ranges).undecodable

    assert len(joined) == 20
    assert all(any(j.start <= r.start and r.end <= j.end for j in joined) for r in ranges)


@given(
    st.dictionaries(
        st.integers(0, 10_000),
        st.builds(
            lambda start, read, left, counts: PartitionProgress(
                start=start,
                position=start + read,
                end=start + read + left,
                records=counts,
                undecodable=(UnsearchedRange(start, start + 1, "damaged"),),
            ),
            st.integers(0, 1 << 60),
            st.integers(0, 1 << 60),
            st.integers(0, 1 << 60),
            st.integers(0, 1 << 60),
        ),
        max_size=20,
    )
)
def test_a_cursor_carries_everything(partitions):
    progress = SearchProgress("digest", 1_234, partitions)

    assert from_cursor(to_cursor(progress), "digest") == progress


def test_a_cursor_of_300_partitions_fits_into_a_url():
    partitions = {
        n: PartitionProgress(start=n * 977, end=n * 1_979 + 5, position=n * 1_009, records=n * 31)
        for n in range(300)
    }

    assert len(to_cursor(SearchProgress("digest", 1, partitions))) < 8_000


def damaged(partition):
    """A partition with a damaged batch here and there, unlike those of all others."""
    draw = random.Random(partition)
    starts = sorted(draw.sample(range(0, 10_000_000, 10), 20))
    ranges = [UnsearchedRange(n, n + draw.randint(1, 9), "damaged") for n in starts]
    state = PartitionProgress(start=0, end=10_000_000, position=9_999_999, records=starts[3])
    return state.with_ranges(undecodable=ranges)


def test_a_cursor_with_many_ranges_is_shortened_and_hides_nothing():
    partitions = {n: damaged(n) for n in range(400)}

    text = to_cursor(SearchProgress("digest", 1, partitions))

    assert len(text) < 16_000
    for n, each in from_cursor(text, "digest").partitions.items():
        (whole,) = each.undecodable
        before = partitions[n].undecodable
        assert (whole.start, whole.end) == (before[0].start, before[-1].end)


def packed(content):
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(content).encode())).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!!",
        "AAAA",
        packed({}),
        packed([1, "digest", 1]),
        packed([2, "digest", 1, []]),
        packed([1, "digest", -1, []]),
        packed([1, "digest", 1, [[0]]]),
        packed([1, "digest", 1, [[0, 5, 10, 4, 0, 0, 0, 0, 0, 0, [], [], ""]]]),
        packed([1, "digest", 1, [[0, 0, 10, 4, 0, 0, 0, 0, 0, 1.5, [], [], ""]]]),
        packed([1, "digest", 1, [[0, 0, 10, 4, 0, 0, 0, 0, 0, 0, [[1]], [], ""]]]),
        packed("x" * (2 << 20)),
        packed([1, "other", 1, []]),
    ],
)
def test_what_is_no_cursor_of_this_search_is_refused(text):
    with pytest.raises(CursorError):
        from_cursor(text, "digest")
