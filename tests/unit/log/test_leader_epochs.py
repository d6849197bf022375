"""Where epochs begin and end; the long comparison with Kafka's is in tests/oracle."""

import pytest

from odradek.log.leader_epochs import UNKNOWN, LeaderEpochs

STARTS = [(2, 10), (4, 30), (5, 50)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(5, (5, 60), id="the latest ends at the log end"),
        pytest.param(4, (4, 50), id="an earlier one where the next begins"),
        pytest.param(3, (2, 30), id="an unknown one: the largest below it"),
        pytest.param(1, (1, 10), id="older than all: where the oldest begins"),
        pytest.param(6, UNKNOWN, id="newer than all"),
        pytest.param(-1, UNKNOWN, id="none asked for"),
    ],
)
def test_where_an_epoch_ended(asked, answer):
    assert LeaderEpochs(STARTS).end_offset_for(asked, leo=60) == answer


def test_nothing_is_known_without_epochs():
    epochs = LeaderEpochs()

    assert epochs.end_offset_for(0, leo=60) == UNKNOWN
    assert (epochs.latest_epoch, epochs.previous_epoch, epochs.epoch_at(3)) == (-1, -1, -1)


def test_the_epochs_at_offsets():
    epochs = LeaderEpochs(STARTS)

    assert [epochs.epoch_at(offset) for offset in (9, 10, 29, 30, 50, 99)] == [-1, 2, 2, 4, 5, 5]
    assert (epochs.latest_epoch, epochs.previous_epoch) == (5, 4)


@pytest.mark.parametrize(
    ("assigned", "starts"),
    [
        pytest.param((7, 60), [*STARTS, (7, 60)], id="a new one"),
        pytest.param((5, 60), STARTS, id="the latest goes on"),
        pytest.param((5, 50), STARTS, id="the latest, said again"),
        pytest.param((5, 40), [(2, 10), (4, 30), (5, 40)], id="the latest began earlier"),
        pytest.param((6, 30), [(2, 10), (6, 30)], id="what began there later goes"),
        pytest.param((3, 60), [(2, 10), (3, 60)], id="what is of a later epoch goes"),
        pytest.param((9, 0), [(9, 0)], id="all begin later"),
    ],
)
def test_an_epoch_begins(assigned, starts):
    epochs = LeaderEpochs(STARTS)

    changed = epochs.assign(*assigned)

    assert epochs.starts() == starts
    assert changed == (starts != STARTS)


@pytest.mark.parametrize(("leo", "kept"), [(51, 3), (50, 2), (31, 2), (30, 1), (10, 0), (0, 0)])
def test_a_shorter_log_forgets_epochs_that_have_no_batch(leo, kept):
    epochs = LeaderEpochs(STARTS)

    assert epochs.truncate_from_end(leo) == (kept < 3)
    assert epochs.starts() == STARTS[:kept]


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
def test_a_log_that_starts_later_keeps_the_epoch_it_starts_in(start, starts):
    epochs = LeaderEpochs(STARTS)

    assert epochs.truncate_from_start(start) == (starts != STARTS)
    assert epochs.starts() == starts


def test_what_is_encoded_comes_back():
    epochs = LeaderEpochs(STARTS)

    assert LeaderEpochs.decode(epochs.encode()).starts() == STARTS
    assert epochs.clear()
    assert not epochs.clear()
    assert epochs.encode() == b"0\n0\n"
