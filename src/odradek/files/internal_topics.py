"""The records of `__consumer_offsets` and `__transaction_state` as rows.

The version of a key is its kind: 0 and 1 a committed offset, 2 the metadata of a group; in
`__transaction_state` 0 a transaction. A record of an unknown kind or version, or a damaged one, is
an `UnreadableRow` with the reason, and reading continues.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from odradek.files.segments import FileBatch
from odradek.model.errors import MalformedRequestError
from odradek.record.records import Record
from odradek.wire.codec import decoder
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.messages.transaction_state import TransactionLogKey, TransactionLogValue
from odradek.wire.messages.transaction_version_2 import TaggedTransactionLogValue
from odradek.wire.schema import Message

M = TypeVar("M", bound=Message)

VERSION_BYTES: Final = 2
OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
_TAGGED: Final = 1
TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class UnreadableRow(NamedTuple):
    """A record that cannot be decoded."""

    offset: int
    reason: str


class OffsetRow(NamedTuple):
    """A group's committed offset in a partition; without a value: a tombstone."""

    offset: int
    group: str
    topic: str
    partition: int
    committed_offset: int | None
    leader_epoch: int
    metadata: str | None
    commit_timestamp: int


class GroupRow(NamedTuple):
    """A group's metadata; without a value: a tombstone."""

    offset: int
    group: str
    value: GroupMetadataValue | None


class TransactionRow(NamedTuple):
    """A transaction's state; without a value: a tombstone of the transactional id."""

    offset: int
    transactional_id: str
    value: TransactionLogValue | TaggedTransactionLogValue | None

    @property
    def state(self) -> str | None:
        return None if self.value is None else state_name(self.value.transaction_status)


class UnreadableError(Exception):
    """A key or value cannot be decoded; the message says why."""


def state_name(status: int) -> str:
    """The name of a transaction's state in Kafka."""
    known = 0 <= status < len(TRANSACTION_STATES)
    return TRANSACTION_STATES[status] if known else f"Unknown({status})"


def version_of(data: bytes | None) -> int:
    """The version at the beginning of a key or value.

    Raises:
        UnreadableError: there are no two bytes.
    """
    if data is None or len(data) < VERSION_BYTES:
        raise UnreadableError("it has no version")
    return int.from_bytes(data[:VERSION_BYTES], "big", signed=True)


def decoded(message_class: type[M], data: bytes) -> tuple[M, int]:
    """Decode a key or value. Returns it and its version.

    Raises:
        UnreadableError: damaged, or of an unknown version.
    """
    version = version_of(data)
    first, last = message_class.SCHEMA.versions
    if not first <= version <= last:
        raise UnreadableError(f"version {version} is unknown")
    try:
        message, _ = decoder(message_class, version)(memoryview(data), VERSION_BYTES)
    except MalformedRequestError as error:
        raise UnreadableError(str(error)) from None
    return message, version


def transaction_value(data: bytes) -> TransactionLogValue | TaggedTransactionLogValue:
    """Decode the value of a transaction's record.

    Raises:
        UnreadableError: damaged, or of an unknown version.
    """
    if version_of(data) == _TAGGED:
        return decoded(TaggedTransactionLogValue, data)[0]
    return decoded(TransactionLogValue, data)[0]


def group_rows(batches: Iterable[FileBatch]) -> Iterator[OffsetRow | GroupRow | UnreadableRow]:
    """The records of batches of `__consumer_offsets`, without markers."""
    for record in _records(batches):
        try:
            yield _group_row(record)
        except UnreadableError as error:
            yield UnreadableRow(record.offset, str(error))


def transaction_rows(batches: Iterable[FileBatch]) -> Iterator[TransactionRow | UnreadableRow]:
    """The records of batches of `__transaction_state`, without markers."""
    for record in _records(batches):
        try:
            key, _ = decoded(TransactionLogKey, record.key or b"")
            value = None if record.value is None else transaction_value(record.value)
        except UnreadableError as error:
            yield UnreadableRow(record.offset, str(error))
        else:
            yield TransactionRow(record.offset, key.transactional_id, value)


def _records(batches: Iterable[FileBatch]) -> Iterator[Record]:
    for batch in batches:
        if not batch.header.is_control:
            yield from batch.records()


def _group_row(record: Record) -> OffsetRow | GroupRow:
    version = version_of(record.key)
    key_bytes = record.key or b""
    if version in OFFSET_KEYS:
        key, _ = decoded(OffsetCommitKey, key_bytes)
        if record.value is None:
            return OffsetRow(record.offset, key.group, key.topic, key.partition, None, -1, None, -1)
        value, _ = decoded(OffsetCommitValue, record.value)
        return OffsetRow(
            record.offset,
            key.group,
            key.topic,
            key.partition,
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
        )
    if version == GROUP_KEY:
        group, _ = decoded(GroupMetadataKey, key_bytes)
        found = None if record.value is None else decoded(GroupMetadataValue, record.value)[0]
        return GroupRow(record.offset, group.group, found)
    raise UnreadableError(f"key version {version} is unknown")
