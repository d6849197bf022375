"""What a soak of real processes calls lost, twice or growing."""

import random
import threading

import pytest
from bench.kit.soak_checks import (
    ABORTED,
    COMMITTED,
    UNSURE,
    broken_transactions,
    difference,
    never_read,
)
from bench.kit.soak_pace import Clients, Pace
from bench.kit.soak_watch import SPANS, slope_of


def test_a_lost_a_doubled_and_a_moved_record_are_found():
    assert difference([1, 2, 3], [1, 2, 3]) is None
    assert "number 1 is 3, not 2" in (difference([1, 2, 3], [1, 3]) or "")
    assert "number 2 is 2, not 3" in (difference([1, 2, 3], [1, 2, 2, 3]) or "")
    assert "number 3 is 4, not None" in (difference([1, 2, 3], [1, 2, 3, 4]) or "")
    assert "number 2 is None, not 3" in (difference([1, 2, 3], [1, 2]) or "")


@pytest.mark.parametrize(
    ("outcome", "counts", "is_right"),
    [
        (COMMITTED, (1, 1), True),
        (COMMITTED, (1, 0), False),
        (COMMITTED, (1, 2), False),
        (COMMITTED, (0, 0), False),
        (ABORTED, (0, 0), True),
        (ABORTED, (0, 1), False),
        (UNSURE, (0, 0), True),
        (UNSURE, (1, 1), True),
        (UNSURE, (1, 0), False),
    ],
)
def test_a_transaction_is_read_whole_or_not_at_all(outcome, counts, is_right):
    seen = {(0, part): count for part, count in enumerate(counts)}
    assert (broken_transactions([2], [outcome], seen) == []) is is_right


def test_a_record_that_no_member_has_read_is_found():
    assert never_read(bytearray(b"\1\0\1"), [0, 2]) == []
    assert never_read(bytearray(b"\1\0\1"), [0, 1, 2, 3]) == [1, 3]


def test_a_slope_is_found_in_noise_with_an_error_that_covers_it():
    rng = random.Random(1)
    grows = [(5.0 * n, 100 + 12 * n * 5 / 3600 + rng.gauss(0, 1)) for n in range(1440)]
    rests = [(5.0 * n, 100 + rng.gauss(0, 1)) for n in range(1440)]
    assert abs(slope_of(grows).by_hour - 12) < 4 * slope_of(grows).error < 2
    assert abs(slope_of(rests).by_hour) < 4 * slope_of(rests).error < 2


def test_too_few_points_have_no_slope():
    with pytest.raises(ValueError, match="too few"):
        slope_of([(float(n), 1.0) for n in range(SPANS - 1)])


def test_a_pace_is_kept_by_a_poll_that_returns_early():
    now_s, polls = 0.0, []

    def poll(timeout_s):
        nonlocal now_s
        polls.append(timeout_s)
        now_s += min(timeout_s, 0.03)  # as if a record was delivered

    pace = Pace(8, clock_s=lambda: now_s)
    for _ in range(80):
        pace.serve(poll)

    assert now_s == pytest.approx(80 / 8)
    assert len(polls) > 80


def test_a_client_that_does_not_close_is_abandoned_and_counted():
    clients, never, closed = Clients("", close_s=0.01), threading.Event(), []
    clients.close("consumer", never.wait)
    Clients("").close("producer", lambda: closed.append(True))
    never.set()

    assert clients.abandoned == {"consumer": 1}
    assert closed == [True]


def test_an_error_of_a_client_that_closes_is_raised():
    clients = Clients("")
    with pytest.raises(ZeroDivisionError):
        clients.close("consumer", lambda: 1 / 0)

    assert clients.abandoned == {}
