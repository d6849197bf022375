"""Text, JSON or hexadecimal, by what the bytes are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.web.messages.content import content_of, indented, moment


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b"plain text\n", "text", "plain text\n"),
        ("caf\u00e9".encode(), "text", "caf\u00e9"),
        (b"7", "text", "7"),
        (b'{"a":1.10,"b":[]}', "json", '{\n  "a": 1.10,\n  "b": []\n}'),
        (b'[1, {"a":"},"}]', "json", '[\n  1,\n  {\n    "a": "},"\n  }\n]'),
        (b"{not json}", "text", "{not json}"),
        (b"\x00\x01", "hex", "00 01"),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"a\x1b[31m", "hex", "61 1b 5b 33 31 6d"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
    ],
)
def test_the_bytes_decide(data, kind, text):
    content = content_of(data, len(data or b""))

    assert (content.kind, content.text, content.schema_id) == (kind, text, None)


def test_the_framing_of_a_schema_registry_is_named():
    content = content_of(b'\x00\x00\x00\x00\x07{"a":1}', 12)

    assert (content.kind, content.schema_id, content.bytes) == ("json", 7, 12)


def test_binary_behind_a_zero_byte_is_shown_whole():
    content = content_of(b"\x00\x00\x00\x00\x07\xff", 6)

    assert (content.kind, content.text, content.schema_id) == ("hex", "00 00 00 00 07 ff", None)


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_character_that_is_cut_does_not_make_text_binary(cut):
    whole = "text \U0001f600".encode()

    content = content_of(whole[:-cut], len(whole))

    assert (content.kind, content.text, content.plain()["cut"]) == ("text", "text ", cut)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_indenting_keeps_the_document(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    assert json.loads(indented(text)) == value


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_767_225_600_007, "2026-01-01T00:00:00.007Z"), (-1, ""),
     (1 << 62, "")],
)  # fmt: skip
def test_a_moment(timestamp_ms, text):
    assert moment(timestamp_ms) == text
