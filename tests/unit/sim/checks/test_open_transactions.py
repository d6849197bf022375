"""What the simulator takes for a transaction that was left open."""

import pytest

from odradek.log.producer_state import NO_OFFSET, ActiveProducer
from odradek.sim.checks.open_transactions import is_left_open
from odradek.txn.transaction import State, Transaction


def producer(*, epoch, first_offset=7):
    return ActiveProducer(
        producer_id=1,
        producer_epoch=epoch,
        last_sequence=0,
        last_offset=9,
        last_timestamp=0,
        coordinator_epoch=0,
        transaction_first_offset=first_offset,
    )


def coordinated(state, *, epoch):
    return Transaction(
        transactional_id="x",
        producer_id=1,
        producer_epoch=epoch,
        timeout_ms=1,
        state=state,
        updated_ms=0,
    )


@pytest.mark.parametrize("state", [State.COMPLETE_COMMIT, State.COMPLETE_ABORT, State.ONGOING])
def test_an_epoch_that_its_coordinator_has_left_must_not_be_open(state):
    assert is_left_open(producer(epoch=4), coordinated(state, epoch=5))


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_while_its_markers_are_written_it_may_be(state):
    assert not is_left_open(producer(epoch=4), coordinated(state, epoch=5))


def test_so_may_the_one_that_is_going_on():
    assert not is_left_open(producer(epoch=5), coordinated(State.ONGOING, epoch=5))


def test_a_coordinator_that_has_lost_leadership_does_not_count():
    assert not is_left_open(producer(epoch=5), coordinated(State.COMPLETE_COMMIT, epoch=5))


def test_a_producer_without_a_transaction_has_left_none_open():
    ended = producer(epoch=4, first_offset=NO_OFFSET)
    assert not is_left_open(ended, coordinated(State.COMPLETE_COMMIT, epoch=5))
