"""LeaderAndIsr (4), versions 0-7, from the controller: lead or follow these partitions.

Behaviour:
    * A former controller, or a request for an earlier registration of this broker: refused.
    * Each partition changes only for a newer leader epoch, or a newer partition epoch in the same
      leader epoch; the others are answered STALE_CONTROLLER_EPOCH.
    * An invalid topic name, a leader outside the ISR, the same replica twice: INVALID_REQUEST for
      that partition.
    * A partition whose log directory has failed is KAFKA_STORAGE_ERROR: the controller marks the
      replica offline.

Versions:
    v2 broker epoch    v3 adding, removing    v4 flexible    v5 topic ids, type
    v6 leader recovery state    v7 KRaft controllers
"""

import logging

from odradek.broker.replication.replica_manager import LeaderAndIsrPartition, ReplicaManager
from odradek.model.errors import ErrorCode
from odradek.model.names import topic_name_problem
from odradek.model.partition import LeaderAndIsr, TopicPartition
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

log = logging.getLogger(__name__)


async def leader_and_isr(
    replicas: ReplicaManager, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """Change the roles; the caller has checked controller epoch and broker epoch.

    A state that cannot be, such as one that somebody has written into the store of an Apache Kafka
    controller, is refused alone: the controller sends a refused request again and again, with all
    other partitions in it.
    """
    roles = []
    names = {}
    refused = {}
    for topic in request.topic_states:
        names[topic.topic_name] = topic.topic_id
        for state in topic.partition_states:
            problem = topic_name_problem(topic.topic_name) or _problem(state)
            if problem is None:
                roles.append(_role(topic.topic_name, topic.topic_id, state))
            else:
                name = TopicPartition(topic.topic_name, state.partition_index)
                log.error("%s: no role is taken: %s", name, problem)
                refused[name] = ErrorCode.INVALID_REQUEST
    outcome = {**await replicas.take_roles(roles), **refused}
    errors: dict[str, LeaderAndIsrTopicError] = {}
    for partition, error in outcome.items():
        topic_errors = errors.setdefault(
            partition.topic, LeaderAndIsrTopicError(topic_id=names[partition.topic])
        )
        topic_errors.partition_errors.append(
            LeaderAndIsrPartitionError(partition_index=partition.partition, error_code=error)
        )
    return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=list(errors.values()))


def _role(topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic_partition=TopicPartition(topic, state.partition_index),
        topic_id=bytes(topic_id),
        state=LeaderAndIsr(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=tuple(state.isr),
            partition_epoch=state.partition_epoch,
            leader_recovery_state=state.leader_recovery_state,
        ),
        controller_epoch=state.controller_epoch,
        replicas=tuple(state.replicas),
        is_new=state.is_new,
        adding=tuple(state.adding_replicas),
        removing=tuple(state.removing_replicas),
    )


def _problem(state: LeaderAndIsrPartitionState) -> str | None:
    """Why the state is invalid; None if it is valid."""
    if min(state.partition_index, state.leader_epoch, state.partition_epoch) < 0:
        return "partition, leader epoch and partition epoch must not be negative"
    if not state.isr or len(set(state.isr)) < len(state.isr):
        return f"isr {state.isr}: must be some replicas, each once"
    if state.leader >= 0 and state.leader not in state.isr:
        return f"leader {state.leader}: must be in sync, that is one of {state.isr}"
    if len(set(state.replicas)) < len(state.replicas):
        return f"replicas {state.replicas}: must differ"
    return None
