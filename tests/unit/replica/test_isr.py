"""The ISR: one change at a time, and the high watermark waits for every possible member."""

import pytest

from odradek.replica.isr import Isr, IsrState, may_join


def isr(*members, epoch=5):
    return Isr(members, epoch)


def test_a_replica_that_is_being_added_counts_at_once():
    stored = isr(1, 2)
    assert stored.expand(3) == (1, 2, 3)

    assert stored.maximal == {1, 2, 3}
    assert stored.committed == (1, 2)


def test_a_replica_that_is_being_removed_still_counts():
    stored = isr(1, 2, 3)
    assert stored.shrink(frozenset({3})) == (1, 2)

    assert stored.maximal == {1, 2, 3}


def test_members_are_in_the_order_in_which_they_joined():
    stored = isr(3, 1)
    assert stored.expand(2) == (3, 1, 2)
    stored.stored((3, 1, 2), 6)

    assert stored.shrink(frozenset({3})) == (1, 2)


def test_a_response_ends_the_change():
    stored = isr(1, 2)
    stored.expand(3)

    assert stored.stored((1, 2, 3), 6)
    assert stored == isr(1, 2, 3, epoch=6)


def test_a_response_with_an_older_partition_epoch_changes_nothing():
    stored = isr(1, 2)
    stored.expand(3)
    stored.stored((1,), 8)

    assert not stored.stored((1, 2, 3), 6)
    assert stored.committed == (1,)


def test_a_refusal_keeps_the_stored_isr():
    stored = isr(1, 2)
    stored.expand(3)
    stored.refused()

    assert stored.maximal == {1, 2}
    assert stored.state is IsrState.COMMITTED


def test_only_one_change_is_in_flight():
    stored = isr(1, 2)
    stored.expand(3)

    with pytest.raises(AssertionError):
        stored.shrink(frozenset({2}))


@pytest.mark.parametrize(
    ("leo", "joins"), [(9, False), (10, False), (12, True), (13, True)], ids=str
)
def test_joining_needs_the_high_watermark_and_the_start_of_the_epoch(leo, joins):
    assert may_join(replica_leo=leo, high_watermark=10, epoch_start_offset=12) is joins
