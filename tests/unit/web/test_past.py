"""What the page keeps of the last minutes is bounded."""

from typing import NamedTuple

from odradek.web.facts.past import UNKNOWN_BYTES, Past


class Value(NamedTuple):
    at_ms: int
    text: str


def test_the_value_of_a_moment_is_the_last_one_that_was_collected_until_then():
    past = Past()
    for at_ms in (10, 20, 30):
        past.add("a", Value(at_ms, str(at_ms)))

    assert past.at("a", 9) is None
    assert past.at("b", 99) is None
    assert [past.at("a", at_ms).text for at_ms in (10, 29, 30, 99)] == ["10", "20", "30", "30"]
    assert past.begins_ms("a") == 10


def test_values_of_the_largest_key_are_dropped_when_there_are_too_many_bytes():
    past = Past(bytes_max=100_000)
    for at_ms in range(100):
        past.add("small", Value(at_ms, "x"))
        past.add("large", Value(at_ms, "x" * 10_000))

    assert past.bytes <= 100_000
    assert past.begins_ms("small") == 0
    assert past.begins_ms("large") > 85


def test_one_value_is_kept_however_large_it_is():
    past = Past(bytes_max=1)
    past.add("a", Value(1, "x" * 100))
    past.add("a", Value(2, "x" * 100))

    assert past.begins_ms("a") == 2


def test_the_keys_that_were_not_added_to_for_the_longest_time_are_dropped():
    past = Past(keys_max=2)
    assert past.add("a", Value(1, "")) == []
    assert past.add("b", Value(1, "")) == []
    assert past.add("a", Value(2, "")) == []
    assert past.add("c", Value(2, "")) == ["b"]


def test_what_cannot_be_pickled_has_an_assumed_weight():
    past = Past()
    past.add("a", Value(1, lambda: None))

    assert past.bytes == UNKNOWN_BYTES
