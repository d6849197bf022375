"""What is said of records and offsets that are not as expected."""

import pytest

from odradek.testkit.compare import Found, not_exactly_once, wrong_offsets, wrong_records


def found(*values):
    return [
        Found(0, offset, *(value if isinstance(value, tuple) else (None, value)))
        for offset, value in enumerate(values)
    ]


def wrong(values, expected, *, in_order=True):
    return wrong_records("t", found(*values), expected, in_order=in_order)


def test_nothing_is_wrong_with_what_is_expected():
    assert wrong([b"a", b"b"], ["a", b"b"]) is None
    assert wrong([(b"k", b"a"), (None, None)], [("k", "a"), (None, None)]) is None
    assert wrong([b"b", b"a"], ["a", "b"], in_order=False) is None
    assert wrong([], []) is None
    assert not_exactly_once("t", found(b"b", b"a"), ["a", "b"]) is None


def test_what_is_missing_repeated_and_too_much():
    assert wrong([b"a", b"b", b"b", b"x"], ["a", "b", "c"]) == (
        "topic t has 4 records, expected 3\n"
        "  missing: 'c'\n"
        "  'b' is there 2 times, expected 1: 0:1, 0:2\n"
        "  not expected: 'x' at 0:3"
    )


def test_the_first_place_of_another_order():
    assert wrong([b"a", b"c", b"b"], ["a", "b", "c"]) == (
        "topic t has 3 records, expected 3\n  in another order: at 0:1 is 'c', expected 'b'"
    )


def test_keys_count_if_they_are_expected():
    assert wrong([(b"k", b"a")], ["a"]) is None
    assert wrong([(b"k", b"a")], [("other", "a")]) == (
        "topic t has 1 record, expected 1\n"
        "  missing: 'other' = 'a'\n"
        "  not expected: 'k' = 'a' at 0:0"
    )
    with pytest.raises(TypeError, match="not both"):
        wrong([], ["a", ("k", "b")])


def test_many_differences_are_cut_short():
    text = wrong([], map(str, range(1000)))
    assert text == (
        "topic t has 0 records, expected 1000\n  missing: '0', '1', '2', '3', '4' and 995 more"
    )
    lines = wrong([b"%d" % n for n in range(100)], []).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 90 more differences"


def test_bytes_that_are_no_text_are_shown_as_bytes():
    assert "missing: b'\\xff'" in wrong([], [b"\xff"])


def test_committed_offsets():
    assert wrong_offsets("g", "t", {0: 5, 1: 7}, {0: 5}) is None
    assert wrong_offsets("g", "t", {0: 5, 1: -1}, {0: 4, 1: 2}) == (
        "group g has other committed offsets in t\n  t-0: 5, expected 4\n  t-1: none, expected 2"
    )
