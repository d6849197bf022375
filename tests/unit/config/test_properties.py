"""The format of java.util.Properties, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.option import InvalidConfigError
from odradek.config.properties import parse, parse_overrides, render


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a : b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a= =b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("  a=b", {"a": "b"}),
        ("# a=b\n! c=d\n\n \t\f\ne=f", {"e": "f"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c\\\n# d", {"a": "bc# d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        (r"a=\t\n\r\f\x\"\\", {"a": '\t\n\r\fx"\\'}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"a=\uD83D\uDE00", {"a": "\U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
        ("\ufeffa=1\nb=\ufeff", {"a": "1", "b": "\ufeff"}),
        ("", {}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text, properties):
    assert parse(text) == properties


def test_a_malformed_escape_is_refused_with_its_line():
    with pytest.raises(InvalidConfigError, match="line 2: .*hexadecimal"):
        parse("a=b\nc=\\u12g4")


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_is_read_back(properties):
    text = render(properties)

    assert parse(text) == properties
    assert text.isascii()


def test_overrides_are_arguments_with_an_equals_sign():
    assert parse_overrides(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(InvalidConfigError, match="'broker.id': must have the form key=value"):
        parse_overrides(["broker.id"])
    with pytest.raises(InvalidConfigError):
        parse_overrides(["=1"])
