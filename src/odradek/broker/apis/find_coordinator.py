"""FindCoordinator (10), versions 0-6: the coordinator of a group or transactional id.

The coordinator is the leader of one partition of an internal topic, chosen by the hash of the
key (Java's string hash). The internal topic is created when it is first needed.

Behaviour:
    * COORDINATOR_NOT_AVAILABLE while the topic is being created or its partition has no leader.
    * An unknown type of key is INVALID_REQUEST.
    * A response waits as a Metadata response about the partitions of its coordinators does: first
      until their leaders have answered this broker, then while a newer leader is expected, at most
      for `odradek.metadata.hold.ms` (`broker/cluster/expected_leaders.py`).

Versions:
    v1 key types    v3 flexible    v4 many keys at once
"""

from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.broker.coordinators.coordinator_log import coordinator_partition
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP: Final = 0
_TRANSACTION: Final = 1
_TOPICS: Final = {_GROUP: GROUP_TOPIC, _TRANSACTION: TRANSACTION_TOPIC}
_RESOURCES: Final = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_REFUSALS: Final = {
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NOWHERE: Final = (-1, "", -1)


def find_coordinator(  # noqa: PLR0913 - what the handler of an API needs
    cache: MetadataCache,
    counts: CoordinatorCounts,
    session: Session,
    request: FindCoordinatorRequest,
    api_version: int,
    *,
    make_topic: Callable[[str], None],
    probe: Callable[[Set[int]], Awaitable[object] | None],
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """Answer one key, or from v4 on many. `make_topic` begins to create an internal topic.

    `probe` waits for leaders to answer, or to be lost; None: it need not wait
    (`ReplicaFetchers.probe`).
    """
    keys = request.coordinator_keys if api_version >= 4 else [request.key]

    def answer() -> FindCoordinatorResponse:
        return _response(
            [_find(cache, counts, session, request.key_type, key, make_topic) for key in keys],
            api_version,
        )

    async def answer_when_led(probed: Awaitable[object] | None) -> FindCoordinatorResponse:
        if probed is not None:
            await probed
        await cache.wait_for_leaders_of(partitions)
        return answer()

    partitions = _partitions(counts, request.key_type, keys) if cache.expected.hold_ms else set()
    known = (cache.partition(*partition) for partition in partitions)
    probed = probe({partition.leader for partition in known if partition is not None})
    return answer() if probed is None and not cache.expected else answer_when_led(probed)


def _partitions(
    counts: CoordinatorCounts, key_type: int, keys: Iterable[str]
) -> set[tuple[str, int]]:
    """The partitions whose leaders are the coordinators of these keys, where they are known."""
    topic_name = _TOPICS.get(key_type, "")
    count = counts.of(topic_name) if topic_name else 0
    return {(topic_name, coordinator_partition(key, count)) for key in keys if count}


def _response(found: list[Coordinator], api_version: int) -> FindCoordinatorResponse:
    if api_version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(
    cache: MetadataCache,
    counts: CoordinatorCounts,
    session: Session,
    key_type: int,
    key: str,
    make_topic: Callable[[str], None],
) -> Coordinator:
    topic_name = _TOPICS.get(key_type)
    if topic_name is None:
        return _refusal(key, ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
    if not session.authorize(AclOperation.DESCRIBE, _RESOURCES[key_type], key):
        return _refusal(key, _REFUSALS[key_type], None)
    if cache.topic(topic_name) is None:
        make_topic(topic_name)
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    count = counts.of(topic_name)
    if not count:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    partition = cache.partition(topic_name, coordinator_partition(key, count))
    leader = cache.brokers.get(partition.leader) if partition else None
    point = leader.end_point(session.listener) if leader else None
    if leader is None or point is None:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    return Coordinator(key=key, node_id=leader.id, host=point.host, port=point.port)


def _refusal(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    node_id, host, port = _NOWHERE
    return Coordinator(
        key=key, error_code=error, error_message=message, node_id=node_id, host=host, port=port
    )
