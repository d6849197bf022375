"""Responses that the request loop sends as they are, whatever API they belong to."""

from typing import NamedTuple

from odradek.model.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse


class Encoded(NamedTuple):
    """A response body that is encoded already. Its first field is the throttle time."""

    body: bytes


def unsupported_api_versions(first: int, last: int) -> ApiVersionsResponse:
    """The response, to be encoded as v0, to a version of ApiVersions that is not served."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=first, max_version=last)],
    )
