"""ElectLeaders (43), versions 0-2: elect the preferred replica, or one that is out of sync.

Behaviour:
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED, for each partition named as well.
    * Only the controller's broker can: NOT_CONTROLLER elsewhere, for each.
    * PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica can be elected.
    * ELECTION_NOT_NEEDED: it leads already; not listed if the request is for all partitions.
    * Answered when this broker's metadata has the elected leaders; REQUEST_TIMED_OUT
      for partitions where it does not in time.

Versions:
    v1  unclean election, a code for the request as a whole    v2  flexible
"""

from typing import Final

from odradek.broker.admin.topics import TopicAdmin
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.serving.session import Session
from odradek.controller.answers import ElectionsAnswer
from odradek.controller.events import ElectionKind, ElectionsRequested
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted",
}
# Kafka's names for the rule by which no leader was found.
_STRATEGIES: Final = {
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "PreferredReplicaPartitionLeaderElectionStrategy",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "OfflinePartitionLeaderElectionStrategy(true)",
}


async def elect_leaders(
    controller: ControllerShell,
    admin: TopicAdmin,
    session: Session,
    request: ElectLeadersRequest,
    api_version: int,
) -> ElectLeadersResponse:
    """Have the controller elect, and wait until the metadata has the outcome."""
    names = None
    if request.topic_partitions is not None:
        named = (TopicPartition(t.topic, n) for t in request.topic_partitions for n in t.partitions)
        names = tuple(dict.fromkeys(named))
    if not session.authorize(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        errors = dict.fromkeys(names or (), refusal)
        return _response(errors, refusal if api_version else ErrorCode.NONE)
    try:
        kind = ElectionKind(request.election_type) if api_version else ElectionKind.PREFERRED
    except ValueError:
        return _response({}, ErrorCode.INVALID_REQUEST)
    deadline_ms = admin.deadline_ms(request.timeout_ms)
    try:
        admin.check_term()
        answer = await controller.ask(ElectionsRequested(kind, names), ElectionsAnswer)
    except ApiError as error:
        # v0 has no error for the whole request: without a list it would look like success.
        every = names if names is not None else _all_of(admin.metadata)
        return _response(dict.fromkeys(every, error.code), ErrorCode.NONE)
    errors = dict(answer.errors)
    if names is None:
        needless = ErrorCode.ELECTION_NOT_NEEDED
        errors = {name: error for name, error in errors.items() if error is not needless}
    await _wait_for(admin.metadata, answer, errors, deadline_ms)
    return _response(errors, ErrorCode.NONE)


async def _wait_for(
    metadata: MetadataCache,
    answer: ElectionsAnswer,
    errors: dict[TopicPartition, ErrorCode],
    deadline_ms: int,
) -> None:
    waiting = dict(answer.leaders)

    def all_show() -> bool:
        for name, leader in list(waiting.items()):
            shown = metadata.partition(name.topic, name.partition)
            if (
                shown is None
                or shown.leader_epoch > leader.leader_epoch
                or ((shown.leader, shown.leader_epoch) == (leader.leader, leader.leader_epoch))
            ):
                del waiting[name]  # it leads, or another leader was elected after it
        return not waiting

    if not await metadata.wait_until(all_show, deadline_ms):
        errors.update(dict.fromkeys(waiting, ErrorCode.REQUEST_TIMED_OUT))


def _all_of(metadata: MetadataCache) -> list[TopicPartition]:
    return [TopicPartition(t.name, n) for t in metadata.topics.values() for n in t.partitions]


def _message(name: TopicPartition, error: ErrorCode) -> str | None:
    strategy = _STRATEGIES.get(error)
    if strategy is None:
        return _MESSAGES.get(error)
    return f"Failed to elect leader for partition {name} under strategy {strategy}"


def _response(
    errors: dict[TopicPartition, ErrorCode], everywhere: ErrorCode
) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for name, error in errors.items():
        topic = topics.setdefault(name.topic, ReplicaElectionResult(topic=name.topic))
        topic.partition_result.append(
            PartitionResult(
                partition_id=name.partition,
                error_code=error,
                error_message=_message(name, error),
            )
        )
    return ElectLeadersResponse(
        error_code=everywhere, replica_election_results=list(topics.values())
    )
