"""OffsetDelete (47), version 0: committed positions of a group go (KIP-496).

Behaviour:
    * A group without members: all that is asked for. A group of consumers: what none of them
      subscribes to; the others are GROUP_SUBSCRIBED_TO_TOPIC. Any other group: NON_EMPTY_GROUP.
    * A group that nobody knows: GROUP_ID_NOT_FOUND.
    * Group Delete, or GROUP_AUTHORIZATION_FAILED; Topic Read, or TOPIC_AUTHORIZATION_FAILED;
      partitions that are not there are UNKNOWN_TOPIC_OR_PARTITION.
"""

from collections.abc import Mapping

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.offsets import Place
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def offset_delete(
    groups: GroupShell, cache: MetadataCache, session: Session, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Forget positions."""
    group_id = request.group_id
    if not session.authorize(AclOperation.DELETE, ResourceType.GROUP, group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors: dict[Place, ErrorCode] = {}
    for topic in request.topics:
        allowed = session.authorize(AclOperation.READ, ResourceType.TOPIC, topic.name)
        for part in topic.partitions:
            place = (topic.name, part.partition_index)
            if not allowed:
                errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif cache.partition(*place) is None:
                errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                errors[place] = ErrorCode.NONE
    led = groups.find(group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return OffsetDeleteResponse(error_code=led)
    places = [place for place, error in errors.items() if error is ErrorCode.NONE]
    error, outcome, effects = led.mind.delete_offsets(group_id, places)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    groups.perform(led, effects)
    return _response(request, {**errors, **outcome})


def _response(
    request: OffsetDeleteRequest, errors: Mapping[Place, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=errors[topic.name, part.partition_index],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
