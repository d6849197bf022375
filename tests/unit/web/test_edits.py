"""Which words of a changed part are pushed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.web.live.edits import Edit, edits


def edited(text: str, found: list[Edit]) -> str:
    """As `static/page.js` does it."""
    pieces = re.split(r"([ \n])", text)
    for index, count, words in reversed(found):
        pieces[index : index + count] = [words]
    return "".join(pieces)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("a b c", "a b c", []),
        ("LEO 9, HW 8", "LEO 10, HW 8", [Edit(2, 1, "10,")]),
        ("a b c d", "x y c z", [Edit(0, 3, "x y"), Edit(6, 1, "z")]),
        ("a b\nc d", "a b\nc e", [Edit(6, 1, "e")]),
        # One more word in the first line does not change what is in the second.
        ("a b\nc d", "a new b\nc e", [Edit(2, 1, "new b"), Edit(6, 1, "e")]),
        ("a\nb\nc", "a\nc", [Edit(2, 3, "c")]),
        ("a\nb", "a\nb\nc", [Edit(2, 1, "b\nc")]),
        ("", "a b", [Edit(0, 1, "a b")]),
    ],
)
def test_only_words_that_differ_are_edited(before, after, found):
    assert edits(before, after) == found
    assert edited(before, found) == after


TEXTS = st.text(alphabet="ab \n", max_size=30)


@given(TEXTS, TEXTS)
def test_the_edits_of_two_texts_make_one_from_the_other(before, after):
    assert edited(before, edits(before, after)) == after
