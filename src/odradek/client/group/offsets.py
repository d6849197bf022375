"""OffsetFetch: the request for a group's committed offsets, and its response, in all versions."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from odradek.client.connection import Connection
from odradek.client.group.protocol import NO_GENERATION
from odradek.model.partition import TopicPartition, by_topic
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NO_LEADER_EPOCH: Final = -1
_STABLE_FROM: Final = 7
_MANY_GROUPS_FROM: Final = 8


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, or a committed one, with leader epoch and metadata."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """Group id, generation and member id: a transaction sends them with the group's offsets."""

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


def offset_fetch(
    connection: Connection,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    stable: bool,
) -> OffsetFetchRequest:
    """A request for the committed offsets of some partitions, or (None) of all.

    `stable`: UNSTABLE_OFFSET_COMMIT for a partition whose offset a transaction will change; brokers
    before 2.5 do not support it.
    """
    version = connection.version_of(ApiKey.OFFSET_FETCH)
    request = OffsetFetchRequest(require_stable=stable and version >= _STABLE_FROM)
    topics = None if partitions is None else by_topic(sorted(partitions))
    if version >= _MANY_GROUPS_FROM:
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        if topics is not None:
            group.topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        request.groups = [group]
        return request
    request.group_id, request.topics = group_id, None
    if topics is not None:
        request.topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    return request


def read_offsets(
    answer: OffsetFetchResponse,
) -> tuple[dict[TopicPartition, OffsetAndMetadata], list[int]]:
    """The committed offsets, and the error codes of the group and of its partitions."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    codes = [answer.error_code, *(group.error_code for group in answer.groups)]
    parts: list[tuple[str, Any]] = [(t.name, part) for t in answer.topics for part in t.partitions]
    for group in answer.groups:
        parts += [(topic.name, part) for topic in group.topics for part in topic.partitions]
    for name, part in parts:
        codes.append(part.error_code)
        if part.committed_offset >= 0 and not part.error_code:
            found[TopicPartition(name, part.partition_index)] = OffsetAndMetadata(
                part.committed_offset, part.committed_leader_epoch, part.metadata or ""
            )
    return found, [code for code in codes if code]
