"""Verification of the first batch of a transaction by its coordinator (KIP-890)."""

import pytest
from tests.unit.log.test_producer_state import NOW, ends, header, wrote

from odradek.log.producer_state import ProducerState
from odradek.model.errors import ApiError, ErrorCode

HOUR_MS = 3_600_000


def begin(state, *, epoch=0, sequence=0):
    return state.begin_verification(1, epoch, sequence, wall_ms=NOW)


def verdict(state, verification, *, begins_at_0=False, **fields):
    batch = header(**{"transactional": True, **fields})
    try:
        state.check_verified(batch, verification, begins_at_0=begins_at_0)
    except ApiError as refused:
        return refused.code
    return ErrorCode.NONE


def test_a_verified_batch_may_be_appended():
    state = ProducerState()
    assert verdict(state, begin(state)) is ErrorCode.NONE


def test_a_marker_in_between_invalidates_the_verification():
    state = ProducerState()
    verification = begin(state)
    ends(state, 0)
    assert verdict(state, verification) is ErrorCode.INVALID_TXN_STATE
    assert verdict(state, begin(state)) is ErrorCode.NONE


def test_batches_verified_together_are_appended_in_order():
    state = ProducerState()
    first = begin(state)
    second = begin(state, sequence=1)
    assert first is second
    assert verdict(state, second, sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wrote(state, header(transactional=True))
    assert verdict(state, second, sequence=1) is ErrorCode.NONE


def test_the_next_batch_is_refused_until_a_refused_one_is_retried():
    """Its verification failed, and the producer retries it."""
    state = ProducerState()
    begin(state)
    later = begin(state, sequence=1)
    assert verdict(state, later, sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(state, begin(state), sequence=0) is ErrorCode.NONE


def test_a_new_epoch_is_verified_again():
    state = ProducerState()
    begin(state, sequence=5)
    verification = begin(state, epoch=1)
    assert (verification.epoch, verification.lowest_sequence) == (1, 0)
    assert begin(state, epoch=0, sequence=9).lowest_sequence == 0
    assert verdict(state, verification, epoch=1) is ErrorCode.NONE


def test_a_producer_id_without_state_begins_at_0_in_transaction_version_2():
    state = ProducerState()
    verification = begin(state, sequence=7)
    assert verdict(state, verification, sequence=7) is ErrorCode.NONE
    refused = verdict(state, verification, sequence=7, begins_at_0=True)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_needs_no_verification():
    state = ProducerState()
    wrote(state, header(transactional=True))
    verification = begin(state)
    ends(state, 1)
    assert verdict(state, verification) is ErrorCode.NONE  # answered with its old offset


@pytest.mark.parametrize("epoch", [0, 2])
def test_an_open_transaction_belongs_to_its_producer_epoch(epoch):
    state = ProducerState()
    wrote(state, header(transactional=True, epoch=1))
    assert state.has_open_transaction(1, 1)
    assert not state.has_open_transaction(1, epoch)
    assert not state.has_open_transaction(2, 1)


def test_a_verification_without_an_append_expires():
    state = ProducerState()
    verification = begin(state)
    state.expire(wall_ms=NOW + HOUR_MS - 1, expiration_ms=HOUR_MS)
    assert state.is_verified(1, verification)
    state.expire(wall_ms=NOW + HOUR_MS, expiration_ms=HOUR_MS)
    assert not state.is_verified(1, verification)


def test_the_first_batch_ends_the_verification():
    state = ProducerState()
    verification = begin(state)
    wrote(state, header(transactional=True))
    assert not state.is_verified(1, verification)
    begin(state)
    state.clear()
    assert not state.is_verified(1, verification)
