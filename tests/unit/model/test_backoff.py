from odradek.model.backoff import Backoff


def pauses_s(first_ms, max_ms, drawn):
    backoff = Backoff(first_ms, max_ms, lambda: drawn)
    return [backoff.pause_s(failures) for failures in range(7)]


def test_a_pause_doubles_with_each_failure_up_to_a_limit():
    assert pauses_s(100, 1000, 0.5) == [0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert Backoff(1, 50, lambda: 0.5).pause_s(10**9) == 0.05


def test_the_number_drawn_spreads_a_pause_by_20_percent():
    assert pauses_s(100, 1000, 0.0)[1:3] == [0.08, 0.16]


def test_without_a_first_pause_there_are_none_but_a_number_is_drawn_for_each():
    drawn = iter(range(3))
    backoff = Backoff(0, 50, lambda: next(drawn))

    assert [backoff.pause_s(failures) for failures in range(3)] == [0, 0, 0]
    assert next(drawn, None) is None
