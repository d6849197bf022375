"""OffsetFetch (9), versions 0-9: committed offsets of a group, from v8 on of several groups.

Behaviour:
    * A partition without a committed offset, and a group that does not exist: offset -1, no error.
    * v0 reads the coordination store (`odradek.broker.coordinators.stored_offsets`). There a
      partition without an offset, or that does not exist, is UNKNOWN_TOPIC_OR_PARTITION.
    * Null instead of topics (v2): all offsets of the group.
    * `require_stable` (v7): UNSTABLE_OFFSET_COMMIT while a commit or a transaction is in progress.
    * Group Describe, or GROUP_AUTHORIZATION_FAILED for that group; Topic Describe, or
      TOPIC_AUTHORIZATION_FAILED, and with all offsets of a group they are left out.

Versions:
    v0 from the store    v2 all topics, an error for the group    v5 leader epochs    v6 flexible
    v7 require_stable    v8 many groups
"""

from collections.abc import Awaitable, Iterable
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.coordinators.stored_offsets import StoredOffsets
from odradek.broker.serving.session import Session
from odradek.group.machine import GroupMachine
from odradek.group.records import CommittedOffset
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_ERROR_OF_GROUP_SINCE: Final = 2
_MANY_SINCE: Final = 8
_NO_OFFSET: Final = CommittedOffset(-1, -1, "", -1)

Asked = list[tuple[str, list[int]]]


def offset_fetch(
    groups: GroupShell,
    stored: StoredOffsets,
    cache: MetadataCache,
    session: Session,
    request: OffsetFetchRequest,
    api_version: int,
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Answer with the committed offsets."""
    if api_version == 0:
        return _from_store(stored, cache, session, request)
    stable = request.require_stable
    if api_version >= _MANY_SINCE:
        return OffsetFetchResponse(
            groups=[
                _group(groups, session, group.group_id, _asked(group.topics), stable=stable)
                for group in request.groups
            ]
        )
    asked = _asked(request.topics)
    found = _group(groups, session, request.group_id, asked, stable=stable)
    if found.error_code and api_version < _ERROR_OF_GROUP_SINCE:
        found.topics = _everywhere(asked or [], ErrorCode(found.error_code))
    return _of_one_group(found)


async def _from_store(
    stored: StoredOffsets, cache: MetadataCache, session: Session, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    asked = _asked(request.topics) or []
    answer = OffsetFetchResponseGroup()
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        answer.topics = _everywhere(asked, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _of_one_group(answer)
    for topic, partitions in asked:
        if not session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            answer.topics += _everywhere(
                [(topic, partitions)], ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            continue
        there = [TopicPartition(topic, each) for each in partitions if cache.partition(topic, each)]
        offsets = await stored.fetch(request.group_id, there)
        parts = []
        for partition in partitions:
            found = offsets.get(
                TopicPartition(topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if isinstance(found, ErrorCode):
                parts.append(_part(partition, _NO_OFFSET, found))
            else:
                committed = _NO_OFFSET._replace(offset=found)
                parts.append(_part(partition, committed, ErrorCode.NONE))
        answer.topics.append(OffsetFetchResponseTopics(name=topic, partitions=parts))
    return _of_one_group(answer)


def _of_one_group(found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The same in the fields of the versions for one group."""
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=part.partition_index,
                        committed_offset=part.committed_offset,
                        committed_leader_epoch=part.committed_leader_epoch,
                        metadata=part.metadata,
                        error_code=part.error_code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


def _asked(topics: Iterable[object] | None) -> Asked | None:
    if topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in topics]  # type: ignore[attr-defined]


def _group(
    groups: GroupShell, session: Session, group_id: str, asked: Asked | None, *, stable: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=group_id)
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    coordinator = groups.find(group_id, may_be_empty=True)
    if isinstance(coordinator, ErrorCode):
        answer.error_code = coordinator
        return answer
    machine = coordinator.machine
    everything = asked is None
    if asked is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in machine.committed_offsets(group_id):
            by_topic.setdefault(topic, []).append(partition)
        asked = list(by_topic.items())
    may = session.would_allow if everything else session.authorize
    for topic, partitions in asked:
        if may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            answer.topics.append(_topic(machine, group_id, topic, partitions, stable=stable))
        elif not everything:
            answer.topics += _everywhere(
                [(topic, partitions)], ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
    return answer


def _topic(
    machine: GroupMachine, group_id: str, topic: str, partitions: list[int], *, stable: bool
) -> OffsetFetchResponseTopics:
    offsets = machine.committed_offsets(group_id)
    parts = []
    for partition in partitions:
        which = TopicPartition(topic, partition)
        if stable and machine.is_unstable(group_id, which):
            parts.append(_part(partition, _NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            parts.append(_part(partition, offsets.get(which, _NO_OFFSET), ErrorCode.NONE))
    return OffsetFetchResponseTopics(name=topic, partitions=parts)


def _everywhere(asked: Asked, error: ErrorCode) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic, partitions=[_part(partition, _NO_OFFSET, error) for partition in partitions]
        )
        for topic, partitions in asked
    ]


def _part(
    partition: int, committed: CommittedOffset, error: ErrorCode
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
