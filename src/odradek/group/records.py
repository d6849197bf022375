"""Keys and values of `__consumer_offsets`, in the versions that Kafka 3.9 writes.

    key      i16 1, group, topic, partition       the committed offset of a group in a partition
             i16 2, group                         a group
    value    i16 3: offset, leader epoch, metadata, commit timestamp
             i16 1: the same without epoch, with an expire timestamp, where a client set one
             i16 3: a generation of a group and its members
    null     a tombstone

All older versions are read, and version 4 of Kafka 4. There are many offsets for each group, so
they are encoded here; groups are encoded by `odradek.wire`.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import Final, NamedTuple

from odradek.model.errors import MalformedRequestError
from odradek.record.records import InvalidRecordError
from odradek.wire.codec import decoder, encoder
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitValue,
)

NO_TIMESTAMP: Final = -1
OFFSET_KEY_VERSIONS: Final = (0, 1)
GROUP_KEY_VERSION: Final = 2
# The longest string that fits into a record.
STRING_BYTES_MAX: Final = 0x7FFF

_VERSION: Final = Struct(">h")
_NEWEST: Final = 4
_WRITTEN: Final = 3
_PARTITION: Final = Struct(">i")
_OFFSET_HEAD: Final = Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_WITHOUT_EPOCH: Final = Struct(">hqh")
_TIMESTAMP: Final = Struct(">q")
_TWO_TIMESTAMPS: Final = Struct(">qq")


class CommittedOffset(NamedTuple):
    """A committed offset, and its order among the commits of its log."""

    offset: int
    leader_epoch: int  # -1: not in the request
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # only where an old client set one
    order: int = -1

    def at(self, order: int) -> "CommittedOffset":
        """The same with this order: `_replace` takes twice as long."""
        offset, leader_epoch, metadata, committed_ms, expires_ms, _ = self
        return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms, order)


class OffsetKey(NamedTuple):
    """The group and partition of a committed offset."""

    group_id: str
    topic: str
    partition: int


def is_too_long(text: str) -> bool:
    """Whether a string does not fit into a record; a short one need not be encoded for that."""
    return len(text) > STRING_BYTES_MAX // 4 and len(text.encode()) > STRING_BYTES_MAX


def key_version(key: bytes | None) -> int:
    """The version of a key, which says what it is the key of.

    Raises:
        InvalidRecordError: it has no version.
    """
    if key is None or len(key) < _VERSION.size:
        raise InvalidRecordError("a record without a key")
    version: int = _VERSION.unpack_from(key)[0]
    if version < 0:
        raise InvalidRecordError(f"key version {version}")
    return version


# ---------------------------------------------------------------------------------- offsets


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join(
        (
            b"\x00\x01",
            _VERSION.pack(len(group)),
            group,
            _VERSION.pack(len(name)),
            name,
            _PARTITION.pack(partition),
        )
    )


def encode_offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, text, committed_ms, expires_ms, _ = committed
    metadata = text.encode()
    if expires_ms != NO_TIMESTAMP:
        head = _WITHOUT_EPOCH.pack(1, offset, len(metadata))
        return head + metadata + _TWO_TIMESTAMPS.pack(committed_ms, expires_ms)
    head = _OFFSET_HEAD.pack(_WRITTEN, offset, leader_epoch, len(metadata))
    return head + metadata + _TIMESTAMP.pack(committed_ms)


def decode_offset_key(key: bytes) -> OffsetKey:
    """Decode the key of a committed offset.

    Raises:
        InvalidRecordError: it is damaged.
    """
    try:
        end = 4 + _VERSION.unpack_from(key, 2)[0]
        group = key[4:end]
        begin, end = end + 2, end + 2 + _VERSION.unpack_from(key, end)[0]
        topic = key[begin:end]
        (partition,) = _PARTITION.unpack_from(key, end)
        if end < begin or begin < 6 or end + _PARTITION.size != len(key):
            raise InvalidRecordError(f"the key of an offset has {len(key)} bytes")
        return OffsetKey(group.decode(), topic.decode(), partition)
    except (StructError, UnicodeDecodeError) as error:
        raise InvalidRecordError(f"the key of an offset is damaged: {error}") from None


def decode_offset_value(value: bytes, order: int) -> CommittedOffset:
    """Decode the value of a committed offset.

    Raises:
        InvalidRecordError, MalformedRequestError: it is damaged.
    """
    if len(value) < _OFFSET_HEAD.size or value[1] != _WRITTEN or value[0]:
        return _decode_other_version(value, order)
    _, offset, leader_epoch, length = _OFFSET_HEAD.unpack_from(value)
    end = _OFFSET_HEAD.size + length
    if length < 0 or end + _TIMESTAMP.size != len(value):
        raise InvalidRecordError(
            f"the value of an offset has {len(value)} bytes, its metadata {length}"
        )
    metadata = ""
    if length:
        try:
            metadata = value[_OFFSET_HEAD.size : end].decode()
        except UnicodeDecodeError as error:
            raise InvalidRecordError(f"metadata of an offset: {error}") from None
    return CommittedOffset(
        offset, leader_epoch, metadata, _TIMESTAMP.unpack_from(value, end)[0], order=order
    )


def _decode_other_version(value: bytes, order: int) -> CommittedOffset:
    found, _ = decoder(OffsetCommitValue, _value_version(value))(memoryview(value), 2)
    return CommittedOffset(
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
        order,
    )


def _value_version(value: bytes) -> int:
    if len(value) < _VERSION.size:
        raise InvalidRecordError(f"a value of {len(value)} bytes")
    version: int = _VERSION.unpack_from(value)[0]
    if not 0 <= version <= _NEWEST:
        raise InvalidRecordError(f"value version {version}; 0 to {_NEWEST} are supported")
    return version


# ----------------------------------------------------------------------------------- groups


def encode_group_key(group_id: str) -> bytes:
    return b"\x00\x02" + encoder(GroupMetadataKey, GROUP_KEY_VERSION)(
        GroupMetadataKey(group=group_id)
    )


def encode_group_value(value: GroupMetadataValue) -> bytes:
    return b"\x00\x03" + encoder(GroupMetadataValue, _WRITTEN)(value)


def decode_group_key(key: bytes) -> str:
    """The group's id.

    Raises:
        InvalidRecordError, MalformedRequestError: it is damaged.
    """
    found, end = decoder(GroupMetadataKey, GROUP_KEY_VERSION)(memoryview(key), 2)
    if end != len(key):
        raise InvalidRecordError(f"the key of a group has {len(key)} bytes")
    return found.group


def decode_group_value(value: bytes) -> GroupMetadataValue:
    """Decode the value of a group.

    Raises:
        InvalidRecordError, MalformedRequestError: it is damaged.
    """
    version = _value_version(value)
    found, end = decoder(GroupMetadataValue, version)(memoryview(value), 2)
    if end != len(value):
        raise MalformedRequestError(f"the value of a group has {len(value)} bytes, not {end}")
    return found
