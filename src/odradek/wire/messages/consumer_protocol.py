"""What consumers exchange through JoinGroup and SyncGroup: subscriptions and assignments.

The broker passes these on without decoding them, except for the topics of a subscription, which
OffsetDelete and offset expiration need. Each is preceded by its version as an int16; a reader
decodes a version newer than it has as the newest one it has.
"""

from odradek.wire.schema import (
    Buffer,
    Message,
    array,
    bytes_,
    int32,
    int32_array,
    string,
    string_array,
)


class OwnedPartitions(Message):
    topic: str = string("1+")
    partitions: list[int] = int32_array("1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """A member's metadata in JoinGroup."""

    topics: list[str] = string_array()
    user_data: Buffer | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[OwnedPartitions] = array(OwnedPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class AssignedPartitions(Message):
    topic: str = string()
    partitions: list[int] = int32_array()


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """A member's assignment, sent by the group's leader in SyncGroup."""

    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)
    user_data: Buffer | None = bytes_(nullable="0+", default=None)
