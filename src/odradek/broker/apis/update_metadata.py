"""UpdateMetadata (6), versions 0-8, from the controller: brokers, leaders, deleted topics.

Behaviour:
    * An older controller, or a message for an earlier life of this broker: refused whole.
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
    """Take the controller's word; the caller has checked its and the broker's epoch.

    Returns the answer, and the topics that are gone.
    """
    gone = cache.update(request)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE), gone
