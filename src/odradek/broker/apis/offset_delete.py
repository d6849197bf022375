"""OffsetDelete (47), version 0: removes committed offsets of a group (KIP-496).

Behaviour:
    * A group without members: all that are named. A group of consumers: topics to which no member
      subscribes; the others are GROUP_SUBSCRIBED_TO_TOPIC. Any other group: NON_EMPTY_GROUP.
    * A group that does not exist: GROUP_ID_NOT_FOUND.
    * Group Delete, or GROUP_AUTHORIZATION_FAILED; Topic Read, or TOPIC_AUTHORIZATION_FAILED;
      partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION.
"""

from collections.abc import Mapping

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import PartitionsAnswer
from odradek.group.events import DeleteOffsets
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def offset_delete(
    groups: GroupShell, cache: MetadataCache, session: Session, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Remove committed offsets, and answer for each partition."""
    group_id = request.group_id
    if not session.authorize(AclOperation.DELETE, ResourceType.GROUP, group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        allowed = session.authorize(AclOperation.READ, ResourceType.TOPIC, topic.name)
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if not allowed:
                errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif cache.partition(*partition) is None:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                errors[partition] = ErrorCode.NONE
    coordinator = groups.find(group_id, may_be_empty=True)
    if isinstance(coordinator, ErrorCode):
        return OffsetDeleteResponse(error_code=coordinator)
    partitions = tuple(each for each, error in errors.items() if error is ErrorCode.NONE)
    answer = groups.ask_now(
        coordinator, lambda number: DeleteOffsets(number, group_id, partitions), PartitionsAnswer
    )
    if answer.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=answer.error)
    return _response(request, {**errors, **answer.partitions})


def _response(
    request: OffsetDeleteRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=errors[TopicPartition(topic.name, part.partition_index)],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
