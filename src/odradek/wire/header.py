"""The headers of requests and responses.

A request's header contains:

    v0   API key, version, correlation id: only ControlledShutdown v0 has it
    v1   also the client id
    v2   also a tagged section: with every flexible version of an API

The client id stays a plain nullable string in v2, so that a broker can read the header of
an ApiVersions request that is newer than itself.

A response repeats the correlation id (v0), with flexible versions followed by a tagged
section (v1). ApiVersions is always answered in v0: the client does not have our versions yet.
"""

import struct
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import MalformedRequestError
from odradek.wire.api_keys import APIS, FOREIGN_APIS, ApiKey
from odradek.wire.primitives import skip_tags

_KEY_TO_CLIENT_ID: Final = Struct(">hhih").unpack_from
_KEY_TO_CORRELATION: Final = Struct(">hhi")
_CORRELATION: Final = Struct(">i")
_CORRELATION_AND_TAGS: Final = Struct(">ix")
_CORRELATION_AND_TAG_COUNT: Final = Struct(">iB").unpack_from
_PACK_TO_CLIENT_ID: Final = Struct(">hhih").pack
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs
_NEVER: Final = 1 << 15
_FLEXIBLE_FROM: Final = {
    int(key): _NEVER if api.flexible_from is None else api.flexible_from
    for key, api in APIS.items()
}
# Brokers use only the former; clients also send the APIs of KRaft.
_CLIENT_FLEXIBLE_FROM: Final = {
    **_FLEXIBLE_FROM,
    **{key: api.flexible_from for key, api in FOREIGN_APIS.items()},
}
_RESPONSE_TAGS_FROM: Final = {**_CLIENT_FLEXIBLE_FROM, int(ApiKey.API_VERSIONS): _NEVER}


class RequestHeader(NamedTuple):
    """The fields of a request's header, in the order of the wire."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(view: memoryview, position: int = 0) -> tuple[RequestHeader, int]:
    """Read a request's header. Returns it and the position of the body.

    Raises:
        MalformedRequestError: it is not a header, or its API key is unknown. An unknown version
            is left to the caller, because ApiVersions is answered even then.
    """
    try:
        api_key, api_version, correlation_id, length = _KEY_TO_CLIENT_ID(view, position)
        if api_version == 0 and api_key == ApiKey.CONTROLLED_SHUTDOWN:
            return _decode_short(view, position)
        flexible_from = _FLEXIBLE_FROM.get(api_key)
        if flexible_from is None:
            raise _refused(f"api key {api_key}; no such API here")
        position += 10
        client_id = None
        if length != -1:
            end = position + length
            if not position <= end <= len(view):
                raise _refused(f"client id of {length} bytes; {len(view) - position} are left")
            client_id = view[position:end].tobytes().decode()
            position = end
        if api_version >= flexible_from:
            tag_count = view[position]
            position += 1
            if tag_count:
                position = skip_tags(view, position, tag_count, "request header")
    except struct.error:
        return _decode_short(view, position)
    except IndexError:
        raise _refused("the bytes end before its tagged fields") from None
    except UnicodeDecodeError as error:
        raise _refused(f"client id {error.object[:40]!r}; must be UTF-8") from None
    return _new(RequestHeader, (api_key, api_version, correlation_id, client_id)), position


def _decode_short(view: memoryview, position: int) -> tuple[RequestHeader, int]:
    """Header v0, or too few bytes for any header."""
    if len(view) - position >= _KEY_TO_CORRELATION.size:
        api_key, api_version, correlation_id = _KEY_TO_CORRELATION.unpack_from(view, position)
        if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
            header = RequestHeader(api_key, api_version, correlation_id, None)
            return header, position + _KEY_TO_CORRELATION.size
    raise _refused(f"only {len(view) - position} bytes are left")


def _refused(why: str) -> MalformedRequestError:
    return MalformedRequestError(f"request header: {why}")


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Write a request's header, in the version that goes with the API's version."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return _KEY_TO_CORRELATION.pack(api_key, api_version, correlation_id)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= _CLIENT_FLEXIBLE_FROM[api_key] else b""
    return _PACK_TO_CLIENT_ID(api_key, api_version, correlation_id, length) + name + tags


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Write a response's header, in the version that goes with the API's version."""
    if api_version >= _RESPONSE_TAGS_FROM[api_key]:
        return _CORRELATION_AND_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def decode_response_header(
    view: memoryview, position: int, api_key: int, api_version: int
) -> tuple[int, int]:
    """Read a response's header. Returns the correlation id and the position of the body."""
    try:
        if api_version < _RESPONSE_TAGS_FROM[api_key]:
            return _CORRELATION.unpack_from(view, position)[0], position + _CORRELATION.size
        correlation_id, tag_count = _CORRELATION_AND_TAG_COUNT(view, position)
    except struct.error:
        raise MalformedRequestError(f"response header: only {len(view) - position} bytes") from None
    position += _CORRELATION_AND_TAGS.size
    if tag_count:
        position = skip_tags(view, position, tag_count, "response header")
    return correlation_id, position
