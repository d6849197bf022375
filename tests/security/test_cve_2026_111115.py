"""CVE-2026-111115: the count of tagged fields in a request's header was not limited.

Two bytes of a frame made the broker do the work of one field, before authentication.
"""

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import decoder
from odradek.wire.header import decode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.primitives import TAGS_MAX

HEADER = bytes.fromhex("0012 0003 00000007 ffff")  # ApiVersions version 3, no client id


def varint(number):
    data = b""
    while number > 0x7F:
        data += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return data + bytes((number,))


def tags(count):
    return varint(count) + b"".join(varint(tag) + b"\0" for tag in range(count))


@pytest.mark.parametrize("count", [TAGS_MAX + 1, 127, 128, 100_000])
def test_a_header_with_many_tagged_fields_is_refused_before_they_are_read(count):
    with pytest.raises(MalformedRequestError, match="request header: more than 64 tagged fields"):
        decode_request_header(memoryview(HEADER + tags(count)))


def test_a_count_without_the_fields_is_refused():
    frame = memoryview(HEADER + varint(2**31 - 1))
    with pytest.raises(MalformedRequestError, match="more than 64 tagged fields"):
        decode_request_header(frame)


def test_a_few_unknown_tagged_fields_are_skipped():
    header, position = decode_request_header(memoryview(HEADER + tags(TAGS_MAX) + b"body"))

    assert header.api_key == 18
    assert position == len(HEADER + tags(TAGS_MAX))


@pytest.mark.parametrize(
    ("message", "version", "begin"),
    [(ApiVersionsRequest, 3, b"\2a\2b"), (MetadataRequest, 12, b"\0\1\0")],
)
def test_so_are_those_of_a_body(message, version, begin):
    decode = decoder(message, version)
    decode(memoryview(begin + tags(TAGS_MAX)), 0)
    with pytest.raises(MalformedRequestError, match="more than 64 tagged fields"):
        decode(memoryview(begin + tags(TAGS_MAX + 1)), 0)
