"""Text that others have chosen can be printed without acting on a terminal or a log."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("orders", "orders"),
        ("p\u0159\u00edklad \u65e5\u672c", "p\u0159\u00edklad \u65e5\u672c"),
        ("x\x1b[2J\x07", "x\\x1b[2J\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x7f\x9b31m", "\\u007f\\u009b31m"),
        ("a\u202eb\u200bc\u2028", "a\\u202eb\\u200bc\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_what_is_not_printable_becomes_an_escape(text, form):
    assert printable(text) == form


@given(st.text())
def test_the_form_has_no_control_or_format_character(text):
    form = printable(text)

    assert not {unicodedata.category(each) for each in form} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable(form) == form


def test_lines_and_tabs_of_our_own_stay():
    assert printable_lines("a\n\tb\x1b\r") == "a\n\tb\\x1b\\r"
