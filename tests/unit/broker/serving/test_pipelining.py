"""How far a producer is ahead of its acknowledgements, and whether more of it is waited for."""

import pytest

from odradek.broker.serving.pipelining import GATHERED_BYTES, LARGE_BYTES, Pipelining

LARGE = LARGE_BYTES


def waits(pipelining, *in_flight, size_bytes=LARGE):
    return [pipelining.more_follow(size_bytes, each) for each in in_flight]


def trusted(*in_flight):
    """What is known of a producer that has always sent its requests like this."""
    pipelining = Pipelining()
    for _ in range(20):
        waits(pipelining, *in_flight)
    return pipelining


def test_a_producer_that_waits_for_each_acknowledgement_is_never_waited_for():
    assert not any(waits(Pipelining(), *[0] * 100))


def test_nothing_is_waited_for_before_a_producer_has_done_several_times_what_it_was_expected_to():
    pipelining = Pipelining()
    assert waits(pipelining, *(0, 1, 2) * 4) == [False] * 12
    assert any(waits(pipelining, *(0, 1, 2) * 2))


def test_as_many_are_waited_for_as_came_the_time_before():
    pipelining = trusted(0, 1, 2)
    assert waits(pipelining, 0, 1, 2, 3) == [True, True, False, False]
    assert waits(pipelining, 0, 1, 2, 3) == [True, True, True, False]


def test_what_is_acknowledged_in_between_does_not_count_twice():
    pipelining = trusted(0, 1, 1, 2)
    assert waits(pipelining, 0, 1, 1, 2) == [True, True, True, False]


def test_one_that_gets_less_far_ahead_is_waited_for_once_in_vain():
    pipelining = trusted(0, 1, 2, 3, 4)
    assert waits(pipelining, 0, 0, 0) == [True, False, False]


def test_one_that_is_expected_in_vain_every_second_time_is_not_waited_for():
    pipelining = trusted(0, 1, 2)
    for _ in range(5):
        waits(pipelining, 0, 1, 0)
    assert not any(waits(pipelining, *(0, 1, 0) * 20))


def test_one_that_is_expected_in_vain_now_and_then_is_waited_for_all_the_same():
    pipelining = trusted(0, 1, 2, 3)
    for _ in range(10):
        waits(pipelining, *(0, 1, 2, 3) * 4, 0)
    assert waits(pipelining, 0, 1, 2, 3) == [False] * 4, "nothing followed the latest one"
    assert waits(pipelining, 0, 1, 2, 3) == [True, True, True, False]


@pytest.mark.parametrize("others", [(0,), (0, 1, 2)])
def test_small_requests_are_neither_waited_for_nor_counted(others):
    pipelining = trusted(*others)
    waits(pipelining, *others)
    assert not any(waits(pipelining, 0, 1, 2, 3, 0, 1, size_bytes=LARGE - 1))
    assert waits(pipelining, 0) == [len(others) > 1]


def test_what_is_worth_an_answer_of_its_own_is_counted_and_does_not_wait():
    pipelining = trusted(0, 1, 2)
    assert waits(pipelining, 0, size_bytes=GATHERED_BYTES) == [False]
    assert waits(pipelining, 1, size_bytes=GATHERED_BYTES - 1) == [True]
