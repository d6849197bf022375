"""ApiVersions (18), versions 0-4: the served APIs and their versions.

It is the first request of every client, so every client has to understand its errors.

Behaviour:
    * A version that is not served is answered in the layout of v0 with UNSUPPORTED_VERSION and
      one entry, ApiVersions itself: the client retries with a version from it (KIP-511).
    * From v3 on the client sends its name and version; characters that are not allowed in the name
      of a metric are INVALID_REQUEST.
    * DescribeState, which is our own, is listed for our own clients only: other clients and brokers
      get no key that they do not know.
    * Features: none, as in any ZooKeeper-mode cluster; but while every broker is an Odradek broker,
      `transaction.version` 2, and the versions that go with it (`odradek.broker.cluster.features`).

Versions:
    v1 throttle time    v3 flexible (the response's header stays v0), client software, features
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from odradek.broker.serving.session import Session
from odradek.coord.layout import Features
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import OWN_SOFTWARE, TRANSACTION_VERSION_2
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

TRANSACTION_VERSION: Final = "transaction.version"

_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


class ServedRange(NamedTuple):
    """An API and the versions of it that are advertised."""

    api_key: int
    first: int
    last: int


@lru_cache(maxsize=8)  # every connection asks, and the answers differ only in these
def _listed(ranges: tuple[ServedRange, ...], has_version_2: bool) -> list[ApiVersion]:
    beyond = TRANSACTION_VERSION_2 if has_version_2 else {}
    return [
        ApiVersion(
            api_key=api.api_key,
            min_version=api.first,
            max_version=beyond.get(api.api_key, api.last),
        )
        for api in ranges
    ]


def api_versions(
    session: Session,
    request: ApiVersionsRequest,
    api_version: int,
    *,
    served: Iterable[ServedRange],
    own: Iterable[ServedRange],
    features: Features,
) -> ApiVersionsResponse:
    """The APIs served on this listener; `own` are listed for our own clients only."""
    if api_version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _NAME.match(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        session.software_name = request.client_software_name
        session.software_version = request.client_software_version
    has_version_2 = features.transaction_version >= 2
    ranges = (*served, *(own if session.software_name == OWN_SOFTWARE else ()))
    response = ApiVersionsResponse(api_keys=_listed(ranges, has_version_2))
    if api_version >= 3:
        response.finalized_features_epoch = features.epoch
        if has_version_2:
            level = features.transaction_version
            response.supported_features = [
                SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=1, max_version=level)
            ]
            response.finalized_features = [
                FinalizedFeatureKey(
                    name=TRANSACTION_VERSION, min_version_level=level, max_version_level=level
                )
            ]
    return response
