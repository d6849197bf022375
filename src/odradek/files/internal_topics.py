"""What stands in `__consumer_offsets` and `__transaction_state`, as rows.

A key's version tells its kind: 0 and 1 a committed offset, 2 a group's generation; in
`__transaction_state` 0, a transaction. A record of a kind or version that is not known here, or
that is damaged, is an `UnreadableRow` with the reason, and the reading goes on.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from odradek.files.segments import Batch
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
    """A record that says nothing here."""

    offset: int
    reason: str


class OffsetRow(NamedTuple):
    """A group's position in a partition; without a value it is forgotten."""

    offset: int
    group: str
    topic: str
    partition: int
    committed_offset: int | None
    leader_epoch: int
    metadata: str | None
    commit_timestamp: int


class GroupRow(NamedTuple):
    """A group's generation; without a value it is forgotten."""

    offset: int
    group: str
    value: GroupMetadataValue | None


class TransactionRow(NamedTuple):
    """A transaction's state; without a value the transactional id is forgotten."""

    offset: int
    transactional_id: str
    value: TransactionLogValue | TaggedTransactionLogValue | None

    @property
    def state(self) -> str | None:
        """The state by its name."""
        return None if self.value is None else state_name(self.value.transaction_status)


class UnreadableError(Exception):
    """Why a key or value cannot be read."""


def state_name(status: int) -> str:
    """A transaction's state, as Kafka calls it."""
    known = 0 <= status < len(TRANSACTION_STATES)
    return TRANSACTION_STATES[status] if known else f"Unknown({status})"


def version_of(data: bytes | None) -> int:
    """The version that a key or value begins with.

    Raises:
        UnreadableError: there is none.
    """
    if data is None or len(data) < VERSION_BYTES:
        raise UnreadableError("it has no version")
    return int.from_bytes(data[:VERSION_BYTES], "big", signed=True)


def decoded(message_class: type[M], data: bytes) -> tuple[M, int]:
    """A key or value with its version.

    Raises:
        UnreadableError: it is damaged, or of a version that is not known here.
    """
    version = version_of(data)
    first, last = message_class.SCHEMA.versions
    if not first <= version <= last:
        raise UnreadableError(f"version {version} is not known")
    try:
        message, _ = decoder(message_class, version)(memoryview(data), VERSION_BYTES)
    except MalformedRequestError as error:
        raise UnreadableError(str(error)) from None
    return message, version


def transaction_value(data: bytes) -> TransactionLogValue | TaggedTransactionLogValue:
    """The value of a transaction's record.

    Raises:
        UnreadableError: it is damaged, or of a version that is not known here.
    """
    if version_of(data) == _TAGGED:
        return decoded(TaggedTransactionLogValue, data)[0]
    return decoded(TransactionLogValue, data)[0]


def group_rows(batches: Iterable[Batch]) -> Iterator[OffsetRow | GroupRow | UnreadableRow]:
    """What the batches of `__consumer_offsets` say, markers left out."""
    for record in _records(batches):
        try:
            yield _group_row(record)
        except UnreadableError as error:
            yield UnreadableRow(record.offset, str(error))


def transaction_rows(batches: Iterable[Batch]) -> Iterator[TransactionRow | UnreadableRow]:
    """What the batches of `__transaction_state` say, markers left out."""
    for record in _records(batches):
        try:
            key, _ = decoded(TransactionLogKey, record.key or b"")
            value = None if record.value is None else transaction_value(record.value)
        except UnreadableError as error:
            yield UnreadableRow(record.offset, str(error))
        else:
            yield TransactionRow(record.offset, key.transactional_id, value)


def _records(batches: Iterable[Batch]) -> Iterator[Record]:
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
    raise UnreadableError(f"key version {version} is not known")
