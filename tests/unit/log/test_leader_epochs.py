"""Where epochs begin and end; the long comparison with Kafka's is in tests/oracle."""

import pytest

from odradek.log.leader_epochs import UNKNOWN, LeaderEpochs

STARTS = [(2, 10), (4, 30), (5, 50)]


def latest_of(starts):
    return starts[-1][0] if starts else -1


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(5, (5, 60), id="the latest one ends at the LEO"),
        pytest.param(4, (4, 50), id="an earlier one ends where the next begins"),
        pytest.param(3, (2, 30), id="an unknown one: the largest below it"),
        pytest.param(1, (1, 10), id="below all: where the oldest begins"),
        pytest.param(6, UNKNOWN, id="above all"),
        pytest.param(-1, UNKNOWN, id="no epoch requested"),
    ],
)
def test_the_end_offset_of_an_epoch(asked, answer):
    assert LeaderEpochs(STARTS).end_offset_for(asked, leo=60) == answer


def test_without_epochs_the_answer_is_unknown():
    epochs = LeaderEpochs()

    assert epochs.end_offset_for(0, leo=60) == UNKNOWN
    assert (epochs.latest_epoch, epochs.epoch_at(3)) == (-1, -1)


def test_the_epochs_at_offsets():
    epochs = LeaderEpochs(STARTS)

    assert [epochs.epoch_at(offset) for offset in (9, 10, 29, 30, 50, 99)] == [-1, 2, 2, 4, 5, 5]
    assert epochs.latest_epoch == 5


@pytest.mark.parametrize(
    ("assigned", "starts"),
    [
        pytest.param((7, 60), [*STARTS, (7, 60)], id="a new one"),
        pytest.param((5, 60), STARTS, id="the latest one again, later"),
        pytest.param((5, 50), STARTS, id="the latest one again"),
        pytest.param((5, 40), [(2, 10), (4, 30), (5, 40)], id="the latest began earlier"),
        pytest.param(
            (6, 30), [(2, 10), (6, 30)], id="epochs that start there or later are removed"
        ),
        pytest.param((3, 60), [(2, 10), (3, 60)], id="later epochs are removed"),
        pytest.param((9, 0), [(9, 0)], id="all start later"),
    ],
)
def test_assigning_an_epoch(assigned, starts):
    epochs = LeaderEpochs(STARTS)

    changed = epochs.assign(*assigned)

    assert epochs.starts() == starts
    assert epochs.latest_epoch == latest_of(starts)
    assert changed == (starts != STARTS)


@pytest.mark.parametrize(("leo", "kept"), [(51, 3), (50, 2), (31, 2), (30, 1), (10, 0), (0, 0)])
def test_truncation_removes_epochs_without_a_batch(leo, kept):
    epochs = LeaderEpochs(STARTS)

    assert epochs.truncate_from_end(leo) == (kept < 3)
    assert epochs.starts() == STARTS[:kept]
    assert epochs.latest_epoch == latest_of(STARTS[:kept])


@pytest.mark.parametrize(
    ("start", "starts"),
    [
        (5, STARTS),
        (10, STARTS),
        (11, [(2, 11), (4, 30), (5, 50)]),
        (30, [(4, 30), (5, 50)]),
        (99, [(5, 99)]),
    ],
)
def test_a_higher_log_start_keeps_the_epoch_at_the_start(start, starts):
    epochs = LeaderEpochs(STARTS)

    assert epochs.truncate_from_start(start) == (starts != STARTS)
    assert epochs.starts() == starts
    assert epochs.latest_epoch == 5


def test_encoded_epochs_are_decoded():
    epochs = LeaderEpochs(STARTS)

    assert LeaderEpochs.decode(epochs.encode()).starts() == STARTS
    assert epochs.clear()
    assert not epochs.clear()
    assert epochs.latest_epoch == -1
    assert epochs.encode() == b"0\n0\n"
