"""What consumers tell each other through JoinGroup and SyncGroup: subscription and assignment.

The broker passes these on unread, but for the topics of a subscription: they tell
OffsetDelete and offset expiration what a group still reads. Each is preceded by its version
as an int16; a reader takes a newer one than it knows for the newest it does.
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
    """In `owned_partitions`."""

    topic: str = string("1+")
    partitions: list[int] = int32_array("1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a member brings to JoinGroup."""

    topics: list[str] = string_array()
    user_data: Buffer | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[OwnedPartitions] = array(OwnedPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class AssignedPartitions(Message):
    """In `assigned_partitions`."""

    topic: str = string()
    partitions: list[int] = int32_array()


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What the leader hands to SyncGroup for each member."""

    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)
    user_data: Buffer | None = bytes_(nullable="0+", default=None)
