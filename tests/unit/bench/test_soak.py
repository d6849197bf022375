"""What a soak of real processes calls lost, twice or growing."""

import importlib
import pathlib
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
from bench.kit.soak_plan import SPARED_S, spared
from bench.kit.soak_watch import CHECKED_S, SPANS, WARM_UP_S, Process, Sample, slope_of


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


def process(minutes, rss_mib):
    """A process of this age, with memory as a function of its age in hours."""
    found = Process("broker 1", 1)
    for age_s in range(0, minutes * 60, 5):
        found.samples.append(Sample(float(age_s), rss_mib(age_s / 3600), 40.0, 9.0))
    return found


def test_the_rise_of_a_young_process_is_reported_and_is_no_growth():
    found = process(70, lambda hours: 70 - 20 * 2 ** (-12 * hours)).growth()
    assert found["grows"] == []
    assert found["rss_mib of each 10 minutes"][0] < 60
    assert found["rss_mib"] > 69
    assert float(found["an hour, in the warm-up"]["rss_mib"].split()[0]) > 16
    assert float(found["an hour, after it"]["rss_mib"].split()[0]) < 2


def test_growth_after_the_warm_up_is_found_however_flat_it_was_before():
    found = process(70, lambda hours: 50 + 30 * max(0, hours - WARM_UP_S / 3600)).growth()
    assert found["grows"] == ["rss_mib"]
    assert found["an hour, in the warm-up"]["rss_mib"] == "+0.00 +- 0.00"


def test_a_process_that_ran_too_briefly_is_reported_as_not_checked():
    minutes = int(WARM_UP_S + CHECKED_S) // 60
    assert process(minutes - 1, lambda hours: 50 + 99 * hours).growth()["grows"] is None
    assert process(minutes + 1, lambda hours: 50 + 99 * hours).growth()["grows"] == ["rss_mib"]
    assert process(1, lambda hours: 50).growth()["an hour, after it"] == {}


@pytest.mark.parametrize(
    ("minutes", "turns"), [(20, [1]), (75, [1]), (120, [1, 2]), (180, [1, 2, 3]), (600, [1, 2, 3])]
)
def test_each_broker_that_is_spared_is_spared_for_an_hour_unless_the_run_is_shorter(minutes, turns):
    at_each_s = [spared([1, 2, 3], age_s, minutes * 60) for age_s in range(minutes * 60)]
    assert list(dict.fromkeys(at_each_s)) == turns
    assert at_each_s == sorted(at_each_s)
    assert min(at_each_s.count(n) for n in turns) >= min(SPARED_S, minutes * 60)


def test_a_fault_after_the_end_of_the_run_spares_the_last_broker():
    assert spared([1, 2, 3], 10_900, 10_800) == 3


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


def test_a_transactional_producer_with_a_fatal_error_is_replaced(monkeypatch):
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
    loads = importlib.import_module("kit.soak_loads")
    fatal = loads.KafkaException(loads.KafkaError(48, "Failed to end transaction", True))
    made = []

    class Fenced:
        def __init__(self, _settings):
            made.append(self)
            if len(made) == 2:
                ledger.ended.set()

        def init_transactions(self, _timeout_s):
            raise fatal

        def close(self):
            raise fatal

        def purge(self):
            pass

    monkeypatch.setattr(loads, "Producer", Fenced)
    ledger = loads.Ledger(Clients(""), "ledger", 8)
    ledger.run()

    assert len(made) == 2


def test_an_error_of_a_client_that_closes_is_raised():
    clients = Clients("")
    with pytest.raises(ZeroDivisionError):
        clients.close("consumer", lambda: 1 / 0)

    assert clients.abandoned == {}
