"""OffsetForLeaderEpoch (23), versions 0-4.

A follower (or a consumer) whose log may diverge asks where an epoch ends, and truncates to the
answer. It has replaced truncation to the high watermark (KIP-101).

Behaviour:
    * The requested epoch is the current one: it ends at the log end offset.
    * It is older: the largest epoch in the log that is not above it, and its end (KIP-279).
    * It is older than all epochs in the log: itself; it ends where the oldest one begins.
    * It is newer than the current one: epoch -1, offset -1.
    * Cluster ClusterAction, or Topic Describe for each; else TOPIC_AUTHORIZATION_FAILED.

Versions:
    v2  `current_leader_epoch`: a requester with another leader epoch is fenced
    v3  `replica_id` (-1 for a consumer)
    v4  flexible
"""

from odradek.broker.replication.partition import led
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(
    replicas: ReplicaManager, session: Session, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer each partition on its own."""
    response = OffsetForLeaderEpochResponse()
    is_broker = session.would_allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    for topic in request.topics:
        allowed = is_broker or session.authorize(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        answers = [
            _answer(replicas, topic.topic, asked)
            if allowed
            else EpochEndOffset(
                partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for asked in topic.partitions
        ]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response


def _answer(
    replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    found = led(replicas.find_led(topic, asked.partition, asked.current_leader_epoch))
    if isinstance(found, ErrorCode):
        return EpochEndOffset(partition=asked.partition, error_code=found)
    leader_epoch, end_offset = found.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=leader_epoch, end_offset=end_offset
    )
