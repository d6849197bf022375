"""Committed offsets in the coordination store, where consumers of Kafka 0.8 keep them.

OffsetCommit v0 writes the node `/consumers/GROUP/offsets/TOPIC/PARTITION`, OffsetFetch v0 reads it;
later versions use `__consumer_offsets`. The two do not see each other's offsets, as in Kafka 3.9
(`KafkaApis.commitOffsetsToZookeeper`). The consumer of 0.8 writes the same nodes itself. Nothing
expires here, and tools do not list these groups.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.coord.layout import consumer_offset_path
from odradek.coord.store import (
    MultiError,
    NodeExistsError,
    NoNodeError,
    SetData,
    Store,
    StoreError,
)
from odradek.coord.tree import check_path
from odradek.coord.znode import CorruptNodeError, parse_long
from odradek.group.records import CommittedOffset
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

_LIMIT: Final = 1 << 63


class StoredOffsets:
    """Reads and writes offsets of groups in the store."""

    def __init__(self, store: Store, metadata_chars_max: int) -> None:
        self._store = store
        self._metadata_chars_max = metadata_chars_max

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, ErrorCode]:
        """Write each offset, without its metadata. Returns the error of each, or NONE.

        UNKNOWN_SERVER_ERROR: the store refuses it, for example because the group id is not valid
        in a path, or the store does not answer.
        """
        errors = dict.fromkeys(offsets, ErrorCode.NONE)
        writes: list[tuple[TopicPartition, SetData]] = []
        for each, committed in offsets.items():
            if len(committed.metadata) > self._metadata_chars_max:
                errors[each] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                path = consumer_offset_path(group_id, each)
                writes.append((each, SetData(path, str(committed.offset).encode())))
        try:
            results = await self._store.multi_many([[write] for _, write in writes])
        except StoreError:
            return errors | {each: ErrorCode.UNKNOWN_SERVER_ERROR for each, _ in writes}
        for (each, write), result in zip(writes, results, strict=True):
            if isinstance(result, MultiError):
                errors[each] = await self._create(write.path, write.data, result.cause)
        return errors

    async def _create(self, path: str, data: bytes | None, why: StoreError) -> ErrorCode:
        """Write an offset that could not be set: its node does not exist yet, or it is refused."""
        if not isinstance(why, NoNodeError):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            try:
                await self._store.create(path, data, make_parents=True)
            except NodeExistsError:  # another commit has created it meanwhile
                await self._store.set_data(path, data)
        except StoreError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | ErrorCode]:
        """The offset of each partition; UNKNOWN_TOPIC_OR_PARTITION where none is stored."""
        paths = [consumer_offset_path(group_id, each) for each in partitions]
        try:
            for path in paths[:1]:  # the group id is the same in all of them
                check_path(path)
            nodes = await self._store.get_many(paths)
        except StoreError:
            return dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
        found: dict[TopicPartition, int | ErrorCode] = {}
        for each, path, node in zip(partitions, paths, nodes, strict=True):
            found[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if node is not None and node[0] is not None:
                found[each] = _offset(path, node[0])
        return found


def _offset(path: str, data: bytes) -> int | ErrorCode:
    try:
        offset = parse_long(path, data)
    except CorruptNodeError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return offset if -_LIMIT <= offset < _LIMIT else ErrorCode.UNKNOWN_SERVER_ERROR
