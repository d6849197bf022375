"""DescribeProducers (61), version 0: the producers in a replica's state, leader or follower.

Behaviour:
    * Each partition on its own: TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION,
      UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (there is no replica here).
    * It shows a hanging transaction: open here since an offset, but not known to its coordinator.
"""

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.session import Session
from odradek.log.producer_state import ActiveProducer
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.names import topic_name_problem
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(
    replicas: ReplicaManager, session: Session, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        refusal = _refusal(session, topic.name)
        response.topics.append(
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(replicas, topic.name, index)
                    if refusal is ErrorCode.NONE
                    else PartitionResponse(partition_index=index, error_code=refusal)
                    for index in topic.partition_indexes
                ],
            )
        )
    return response


def _refusal(session: Session, topic: str) -> ErrorCode:
    if not session.authorize(AclOperation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_name_problem(topic) else ErrorCode.NONE


def _describe(replicas: ReplicaManager, topic: str, index: int) -> PartitionResponse:
    found = replicas.find(topic, index)
    if isinstance(found, ErrorCode):
        return PartitionResponse(partition_index=index, error_code=found)
    if found.log is None:
        return PartitionResponse(partition_index=index, error_code=found.error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[_state(producer) for producer in found.log.active_producers()],
    )


def _state(producer: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )
