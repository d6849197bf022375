"""Where a follower truncates: the cases of KIP-101 and KIP-279, and random logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.leader_epochs import LeaderEpochs
from odradek.replica.follower import (
    EpochEnd,
    OutOfRange,
    out_of_range,
    truncation_offset,
)


@pytest.mark.parametrize(
    ("leader", "own", "leo", "cut"),
    [
        pytest.param((3, 10), (3, 14), 14, 10, id="the leader's epoch ended earlier"),
        pytest.param((3, 20), (3, 14), 14, 14, id="the follower's ended earlier: no truncation"),
        pytest.param((3, 20), (3, 14), 18, 14, id="later epochs of the follower are truncated"),
        pytest.param((3, 20), (2, 12), 18, 12, id="the follower lacks the leader's epoch"),
        pytest.param((-1, 7), (-1, -1), 18, 7, id="the leader has no epochs"),
        pytest.param((3, 7), (-1, -1), 18, 7, id="the follower has no epochs"),
    ],
)
def test_truncation(leader, own, leo, cut):
    assert truncation_offset(leader=EpochEnd(*leader), own=EpochEnd(*own), leo=leo) == cut


def test_out_of_range():
    assert out_of_range(leo=10, leader_start=0, leader_end=7) == OutOfRange(7, None)
    assert out_of_range(leo=10, leader_start=12, leader_end=20) == OutOfRange(None, 12)
    assert out_of_range(leo=10, leader_start=10, leader_end=20) == OutOfRange(None, 10)
    assert out_of_range(leo=10, leader_start=7, leader_end=7) == OutOfRange(None, 7)
    assert out_of_range(leo=10, leader_start=3, leader_end=20) == OutOfRange(None, None)


# A log is a list of the leader epochs of its records.
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
def test_repeated_truncation_makes_the_follower_a_prefix_of_the_leader(common, ours, theirs):
    prefix = grown([], common)
    # No two leaders share an epoch: the follower's own are odd, the leader's even.
    follower = prefix + [2 * e + 1001 for e in grown([], ours)]
    leader = prefix + [2 * e + 1000 for e in grown([], theirs)]
    result = epochs_of(leader)

    for _ in range(len(follower) + 1):
        own = epochs_of(follower)
        asked = own.latest_epoch
        epoch, end = result.end_offset_for(asked, len(leader)) if asked >= 0 else (asked, 0)
        if asked < 0 or (epoch == asked and end >= len(follower)):
            break
        answer = EpochEnd(epoch, end if epoch >= 0 else 0)
        local = EpochEnd(*own.end_offset_for(answer.epoch, len(follower)))
        cut = truncation_offset(leader=answer, own=local, leo=len(follower))
        assert cut < len(follower), "every step truncates, so the loop ends"
        assert cut >= 0
        del follower[cut:]

    assert leader[: len(follower)] == follower
    assert follower[: len(prefix)] == prefix[: len(follower)], (
        "no shared record was truncated without need"
    )
    assert len(follower) >= len(prefix) or not follower
