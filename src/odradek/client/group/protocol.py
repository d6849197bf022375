"""What members of a consumer group say to each other, as bytes and as values. Pure.

The broker passes these on unread. They are Java's, so that members of both kinds share a group:
a version as int16, and the message of that version; inside it the data of the sticky assignors,
which have no version at all:

    sticky               previous assignment, and the generation it belongs to
    cooperative-sticky   the generation alone: the partitions owned stand in the subscription
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import MalformedRequestError
from odradek.model.partition import TopicPartition
from odradek.wire.codec import decoder, encoder
from odradek.wire.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from odradek.wire.schema import Buffer

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_VERSION_MAX: Final = 3
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")


class Member(NamedTuple):
    """One member, as the leader of its group sees it."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION  # in which it owned these
    instance_id: str | None = None
    user_data: bytes | None = None
    rack: str | None = None


def encode_subscription(member: Member) -> bytes:
    """What a member brings to JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=[
            OwnedPartitions(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(member.owned).items()
        ],
        generation_id=member.generation,
        rack_id=member.rack,
    )
    body = encoder(ConsumerProtocolSubscription, _VERSION_MAX)(message)
    return _SHORT.pack(_VERSION_MAX) + body


def decode_subscription(data: Buffer, instance_id: str | None = None) -> Member:
    """The inverse.

    Raises:
        MalformedRequestError: it is none.
    """
    version, body = _version(data)
    message, _ = decoder(ConsumerProtocolSubscription, version)(body, 0)
    return Member(
        topics=tuple(message.topics),
        owned=tuple(
            TopicPartition(part.topic, partition)
            for part in message.owned_partitions
            for partition in part.partitions
        ),
        generation=message.generation_id,
        instance_id=instance_id,
        user_data=None if message.user_data is None else bytes(message.user_data),
        rack=message.rack_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader hands to SyncGroup for one member."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    )
    body = encoder(ConsumerProtocolAssignment, _VERSION_MAX)(message)
    return _SHORT.pack(_VERSION_MAX) + body


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """The inverse; no bytes at all are no partitions.

    Raises:
        MalformedRequestError: it is none.
    """
    if not len(data):
        return []
    version, body = _version(data)
    message, _ = decoder(ConsumerProtocolAssignment, version)(body, 0)
    return [
        TopicPartition(part.topic, partition)
        for part in message.assigned_partitions
        for partition in part.partitions
    ]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions gathered under their topics, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _version(data: Buffer) -> tuple[int, memoryview]:
    view = memoryview(data)
    if len(view) < _SHORT.size:
        raise MalformedRequestError(f"consumer protocol: {len(view)} bytes have no version")
    (version,) = _SHORT.unpack_from(view)
    if version < 0:
        raise MalformedRequestError(f"consumer protocol: version {version}")
    return min(version, _VERSION_MAX), view[_SHORT.size :]


# ------------------------------------------------------------- data of the sticky assignors


def encode_sticky(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """What the sticky assignor of a member tells that of the leader."""
    topics = by_topic(owned)
    out = bytearray(_INT.pack(len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += _SHORT.pack(len(name)) + name + _INT.pack(len(partitions))
        for partition in partitions:
            out += _INT.pack(partition)
    return bytes(out + _INT.pack(generation))


def decode_sticky(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """The inverse; nothing owned, if it is none (Java does so, too)."""
    if not data:
        return (), NO_GENERATION
    owned = []
    try:
        (count,) = _INT.unpack_from(data)
        position = _INT.size
        for _ in range(count):
            (length,) = _SHORT.unpack_from(data, position)
            position += _SHORT.size
            topic = data[position : position + length].decode()
            position += length
            (partitions,) = _INT.unpack_from(data, position)
            position += _INT.size
            for _ in range(partitions):
                owned.append(TopicPartition(topic, *_INT.unpack_from(data, position)))
                position += _INT.size
        # The first version of it had no generation.
        generation = _INT.unpack_from(data, position)[0] if position < len(data) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return (), NO_GENERATION
    return tuple(owned), generation


def encode_generation(generation: int) -> bytes:
    """The data of the cooperative-sticky assignor."""
    return _INT.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """The inverse."""
    return _INT.unpack_from(data)[0] if data and len(data) >= _INT.size else NO_GENERATION


Members = Mapping[str, Member]
