"""Where a follower cuts its log: the cases of KIP-101 and KIP-279, and logs drawn at random."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.leader_epochs import LeaderEpochs
from odradek.replica.follower import (
    EpochEnd,
    OutOfRange,
    high_watermark,
    out_of_range,
    truncation_offset,
)


@pytest.mark.parametrize(
    ("told", "own", "leo", "cut"),
    [
        pytest.param((3, 10), (3, 14), 14, 10, id="the leader's epoch ended earlier"),
        pytest.param((3, 20), (3, 14), 14, 14, id="ours ended earlier: nothing to cut"),
        pytest.param((3, 20), (3, 14), 18, 14, id="what came after that epoch here goes"),
        pytest.param((3, 20), (2, 12), 18, 12, id="we lack the leader's epoch"),
        pytest.param((-1, 7), (-1, -1), 18, 7, id="the leader knows no epochs"),
        pytest.param((3, 7), (-1, -1), 18, 7, id="we know none"),
    ],
)
def test_truncation(told, own, leo, cut):
    assert truncation_offset(told=EpochEnd(*told), own=EpochEnd(*own), leo=leo) == cut


def test_a_follower_never_knows_more_committed_than_it_has():
    assert high_watermark(told=10, leo=7) == 7
    assert high_watermark(told=5, leo=7) == 5


def test_out_of_range():
    assert out_of_range(leo=10, leader_start=0, leader_end=7) == OutOfRange(7, None)
    assert out_of_range(leo=10, leader_start=12, leader_end=20) == OutOfRange(None, 12)
    assert out_of_range(leo=10, leader_start=10, leader_end=20) == OutOfRange(None, 10)
    assert out_of_range(leo=10, leader_start=7, leader_end=7) == OutOfRange(None, 7)
    assert out_of_range(leo=10, leader_start=3, leader_end=20) == OutOfRange(None, None)


# Logs as lists of the epochs of their records, growing as logs do.
RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=4)


def grown(prefix, runs):
    log = list(prefix)
    epoch = log[-1] if log else 0
    for skip, length in runs:
        epoch += skip
        log += [epoch] * length
    return log


def epochs_of(log):
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs


@given(RUNS, RUNS, RUNS)
def test_asking_again_and_again_makes_the_follower_a_prefix_of_the_leader(common, ours, theirs):
    prefix = grown([], common)
    # Two reigns never share an epoch: the follower's own have odd numbers, the leader's even.
    follower = prefix + [2 * e + 1001 for e in grown([], ours)]
    leader = prefix + [2 * e + 1000 for e in grown([], theirs)]
    told = epochs_of(leader)

    for _ in range(len(follower) + 1):
        own = epochs_of(follower)
        asked = own.latest_epoch
        epoch, end = told.end_offset_for(asked, len(leader)) if asked >= 0 else (asked, 0)
        if asked < 0 or (epoch == asked and end >= len(follower)):
            break
        answer = EpochEnd(epoch, end if epoch >= 0 else 0)
        local = EpochEnd(*own.end_offset_for(answer.epoch, len(follower)))
        cut = truncation_offset(told=answer, own=local, leo=len(follower))
        assert cut < len(follower), "every answer cuts something, or it would never end"
        assert cut >= 0
        del follower[cut:]

    assert leader[: len(follower)] == follower
    assert follower[: len(prefix)] == prefix[: len(follower)], "nothing shared was cut for nothing"
    assert len(follower) >= len(prefix) or not follower
