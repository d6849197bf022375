"""UpdateMetadata (6), versions 0-8, from the controller: brokers, leaders, deleted topics.

Behaviour:
    * A former controller, or a request for an earlier registration of this broker: refused.
    * A partition with leader -2 is being deleted and disappears.

Versions:
    v5 broker epoch    v6 flexible    v7 topic ids    v8 KRaft controllers
"""

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.model.errors import ErrorCode
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def update_metadata(
    cache: MetadataCache, request: UpdateMetadataRequest
) -> tuple[UpdateMetadataResponse, list[str]]:
    """Update the cache; the caller has checked controller epoch and broker epoch.

    Returns the answer, and the names of deleted topics.
    """
    deleted = cache.update(request)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE), deleted
