"""Varints: encodings at the limits, and malformed ones."""

import re

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.primitives import (
    encode_unsigned_varint,
    unsigned_varint,
)

VARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (1 << 21, "80808001"),
    (1 << 28, "8080808001"),
    ((1 << 32) - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "data"), VARINTS)
def test_a_varint_has_seven_bits_in_a_byte(value, data):
    encoded = bytes.fromhex(data)

    assert encode_unsigned_varint(value) == encoded
    assert unsigned_varint(memoryview(b"#" + encoded + b"#"), 1, "f") == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        ("", "f: the bytes end within a varint"),
        ("80", "f: the bytes end within a varint"),
        ("80808080", "f: the bytes end within a varint"),
        ("808080808001", "f: varint of more than 5 bytes"),
        ("ffffffff10", "f: varint 4563402751; must fit in 32 bits"),
    ],
)
def test_bytes_that_are_not_a_varint_are_refused(data, refusal):
    with pytest.raises(MalformedRequestError, match="^" + re.escape(refusal) + "$"):
        unsigned_varint(memoryview(bytes.fromhex(data)), 0, "f")
