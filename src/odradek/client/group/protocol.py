"""Subscriptions and assignments of consumer groups, as bytes and as values. Pure.

Brokers do not interpret these bytes. The format is Java's, so that Java and Python members can
share a group: a version as int16, then the message in that version. Inside it is the user data of
the sticky assignors, which has no version:

    sticky               previous assignment, and its generation
    cooperative-sticky   the generation alone: the subscription contains the owned partitions
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import MalformedRequestError
from odradek.model.partition import TopicPartition, by_topic
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


class MemberSubscription(NamedTuple):
    """One member of a group, as its leader receives it."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION  # of the owned partitions
    instance_id: str | None = None
    user_data: bytes | None = None
    rack: str | None = None


def encode_subscription(member: MemberSubscription) -> bytes:
    """The metadata of a protocol in JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=[
            OwnedPartitions(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(sorted(member.owned)).items()
        ],
        generation_id=member.generation,
        rack_id=member.rack,
    )
    body = encoder(ConsumerProtocolSubscription, _VERSION_MAX)(message)
    return _SHORT.pack(_VERSION_MAX) + body


def decode_subscription(data: Buffer, instance_id: str | None = None) -> MemberSubscription:
    """The inverse of `encode_subscription`.

    Raises:
        MalformedRequestError: the bytes are not a subscription.
    """
    version, body = _version(data)
    message, _ = decoder(ConsumerProtocolSubscription, version)(body, 0)
    return MemberSubscription(
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
    """The assignment of one member in SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(sorted(partitions)).items()
        ]
    )
    body = encoder(ConsumerProtocolAssignment, _VERSION_MAX)(message)
    return _SHORT.pack(_VERSION_MAX) + body


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """The inverse of `encode_assignment`; no bytes mean no partitions.

    Raises:
        MalformedRequestError: the bytes are not an assignment.
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
    """The user data of the sticky assignor."""
    topics = by_topic(sorted(owned))
    out = bytearray(_INT.pack(len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += _SHORT.pack(len(name)) + name + _INT.pack(len(partitions))
        for partition in partitions:
            out += _INT.pack(partition)
    return bytes(out + _INT.pack(generation))


def decode_sticky(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """The inverse of `encode_sticky`; nothing owned if the bytes are invalid (as in Java)."""
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
        # Version 0 of the user data has no generation.
        generation = _INT.unpack_from(data, position)[0] if position < len(data) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return (), NO_GENERATION
    return tuple(owned), generation


def encode_generation(generation: int) -> bytes:
    """The user data of the cooperative-sticky assignor."""
    return _INT.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """The inverse of `encode_generation`; NO_GENERATION if there are too few bytes."""
    return _INT.unpack_from(data)[0] if data and len(data) >= _INT.size else NO_GENERATION


Members = Mapping[str, MemberSubscription]
