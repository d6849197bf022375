"""The guard between what a coordinator says and the first batch of a transaction (KIP-890)."""

import pytest
from tests.unit.log.test_producer_state import NOW, ends, header, wrote

from odradek.log.producer_state import ProducerState
from odradek.model.errors import ApiError, ErrorCode

HOUR_MS = 3_600_000


def begin(state, *, epoch=0, sequence=0):
    return state.begin_verification(1, epoch, sequence, now_ms=NOW)


def verdict(state, verification, *, begins_at_0=False, **fields):
    batch = header(**{"transactional": True, **fields})
    try:
        state.check_verified(batch, verification, begins_at_0=begins_at_0)
    except ApiError as refused:
        return refused.code
    return ErrorCode.NONE


def test_what_was_verified_may_be_appended():
    state = ProducerState()
    assert verdict(state, begin(state)) is ErrorCode.NONE


def test_a_marker_in_between_takes_it_back():
    state = ProducerState()
    verification = begin(state)
    ends(state, 0)
    assert verdict(state, verification) is ErrorCode.INVALID_TXN_STATE
    assert verdict(state, begin(state)) is ErrorCode.NONE


def test_who_was_verified_together_is_appended_one_after_the_other():
    state = ProducerState()
    first = begin(state)
    second = begin(state, sequence=1)
    assert first is second
    assert verdict(state, second, sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wrote(state, header(transactional=True))
    assert verdict(state, second, sequence=1) is ErrorCode.NONE


def test_a_refused_batch_is_waited_for_by_the_one_behind_it():
    """Its verification failed for a moment, and it comes again."""
    state = ProducerState()
    begin(state)
    later = begin(state, sequence=1)
    assert verdict(state, later, sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(state, begin(state), sequence=0) is ErrorCode.NONE


def test_a_new_epoch_is_verified_anew():
    state = ProducerState()
    begin(state, sequence=5)
    verification = begin(state, epoch=1)
    assert (verification.epoch, verification.lowest_sequence) == (1, 0)
    assert begin(state, epoch=0, sequence=9).lowest_sequence == 0
    assert verdict(state, verification, epoch=1) is ErrorCode.NONE


def test_a_producer_of_which_nothing_is_known_begins_at_0_in_version_2():
    state = ProducerState()
    verification = begin(state, sequence=7)
    assert verdict(state, verification, sequence=7) is ErrorCode.NONE
    refused = verdict(state, verification, sequence=7, begins_at_0=True)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_stands_there_already_is_no_matter():
    state = ProducerState()
    wrote(state, header(transactional=True))
    verification = begin(state)
    ends(state, 1)
    assert verdict(state, verification) is ErrorCode.NONE  # answered with its old offset


@pytest.mark.parametrize("epoch", [0, 2])
def test_an_open_transaction_is_one_of_its_epoch(epoch):
    state = ProducerState()
    wrote(state, header(transactional=True, epoch=1))
    assert state.has_open_transaction(1, 1)
    assert not state.has_open_transaction(1, epoch)
    assert not state.has_open_transaction(2, 1)


def test_what_is_never_appended_is_forgotten():
    state = ProducerState()
    verification = begin(state)
    state.expire(now_ms=NOW + HOUR_MS - 1, expiration_ms=HOUR_MS)
    assert state.is_verified(1, verification)
    state.expire(now_ms=NOW + HOUR_MS, expiration_ms=HOUR_MS)
    assert not state.is_verified(1, verification)


def test_the_first_batch_ends_the_verification():
    state = ProducerState()
    verification = begin(state)
    wrote(state, header(transactional=True))
    assert not state.is_verified(1, verification)
    begin(state)
    state.clear()
    assert not state.is_verified(1, verification)
