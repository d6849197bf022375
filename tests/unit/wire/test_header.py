"""Which header belongs to which version, and which bytes are not a header."""

import re

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.api_keys import ApiKey
from odradek.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

REQUESTS = [
    pytest.param(ApiKey.FETCH, 11, "a", "0001 000b 00000007 0001 61", id="v1"),
    pytest.param(ApiKey.FETCH, 12, "a", "0001 000c 00000007 0001 61 00", id="v2 when flexible"),
    pytest.param(ApiKey.FETCH, 12, None, "0001 000c 00000007 ffff 00", id="without client id"),
    pytest.param(ApiKey.FETCH, 11, "", "0001 000b 00000007 0000", id="empty client id"),
    pytest.param(ApiKey.API_VERSIONS, 3, "a", "0012 0003 00000007 0001 61 00", id="ApiVersions"),
    pytest.param(ApiKey.SASL_HANDSHAKE, 1, "a", "0011 0001 00000007 0001 61", id="never flexible"),
    pytest.param(ApiKey.CONTROLLED_SHUTDOWN, 0, None, "0007 0000 00000007", id="v0"),
    pytest.param(ApiKey.CONTROLLED_SHUTDOWN, 1, "a", "0007 0001 00000007 0001 61", id="not v0"),
]


@pytest.mark.parametrize(("key", "version", "client_id", "data"), REQUESTS)
def test_a_request_header_goes_with_the_version_of_its_api(key, version, client_id, data):
    encoded = encode_request_header(key, version, 7, client_id)

    assert encoded == bytes.fromhex(data)
    for body in (b"", b"body of the request"):
        header, position = decode_request_header(memoryview(b"##" + encoded + body), 2)
        assert header == RequestHeader(key, version, 7, client_id)
        assert position == 2 + len(encoded)


def test_an_unknown_version_still_has_a_header():
    data = bytes.fromhex("0012 0063 00000007 0001 61 00")

    assert decode_request_header(memoryview(data))[0] == RequestHeader(18, 99, 7, "a")


def test_tagged_fields_of_a_header_are_skipped():
    data = bytes.fromhex("0001 000c 00000007 0001 61 02 0001ff 0502abcd")

    assert decode_request_header(memoryview(data)) == (RequestHeader(1, 12, 7, "a"), len(data))


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        ("", "request header: only 0 bytes are left"),
        ("0001 000b 00000007 00", "request header: only 9 bytes are left"),
        ("03e7 0000 00000007 ffff", "request header: api key 999; no such API here"),
        ("ffff 0000 00000007 ffff", "request header: api key -1; no such API here"),
        ("0001 000b 00000007 fffe", "request header: client id of -2 bytes; 0 are left"),
        ("0001 000b 00000007 0003 6161", "request header: client id of 3 bytes; 2 are left"),
        ("0001 000b 00000007 0001 ff", r"request header: client id b'\xff'; must be UTF-8"),
        ("0001 000c 00000007 0001 61", "request header: the bytes end before its tagged fields"),
        ("0001 000c 00000007 0001 61 01", "request header: the bytes end within a varint"),
        ("0001 000c 00000007 ffff 01 00 05 61", "request header: tag 0 of 5 bytes; 1 are left"),
        ("0001 000c 00000007 ffff 02 01 00 01 00", "request header: tag 1 after tag 1"),
        ("0007 0000 000000", "request header: only 7 bytes are left"),
    ],
)
def test_bytes_that_are_not_a_header_are_refused(data, refusal):
    with pytest.raises(MalformedRequestError, match="^" + re.escape(refusal)):
        decode_request_header(memoryview(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("key", "version", "data"),
    [
        pytest.param(ApiKey.FETCH, 11, "00000007", id="v0"),
        pytest.param(ApiKey.FETCH, 12, "00000007 00", id="v1 when flexible"),
        pytest.param(ApiKey.API_VERSIONS, 3, "00000007", id="ApiVersions never has tags"),
        pytest.param(ApiKey.SASL_HANDSHAKE, 1, "00000007", id="never flexible"),
        pytest.param(ApiKey.CONTROLLED_SHUTDOWN, 3, "00000007 00", id="ControlledShutdown"),
    ],
)
def test_a_response_header_goes_with_the_version_of_its_api(key, version, data):
    encoded = encode_response_header(key, version, 7)

    assert encoded == bytes.fromhex(data)
    assert decode_response_header(memoryview(b"#" + encoded), 1, key, version) == (
        7,
        1 + len(encoded),
    )


def test_tagged_fields_of_a_response_header_are_skipped():
    data = memoryview(bytes.fromhex("00000007 01 0001ff 63"))

    assert decode_response_header(data, 0, ApiKey.FETCH, 12) == (7, 8)


@pytest.mark.parametrize(("version", "data"), [(11, "000000"), (12, "00000007")])
def test_a_short_response_header_is_refused(version, data):
    with pytest.raises(MalformedRequestError, match="response header: only"):
        decode_response_header(memoryview(bytes.fromhex(data)), 0, ApiKey.FETCH, version)
