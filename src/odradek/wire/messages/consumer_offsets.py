"""Keys and values in `__consumer_offsets`.

Each is preceded by its version as an int16. The version of a key is also its kind: 0 and 1
are offset commits, 2 is a group's metadata.
"""

from odradek.wire.schema import Buffer, Message, array, bytes_, int32, int64, string


class OffsetCommitKey(Message, versions="0-1"):
    """Names a group, a topic and a partition: whose committed offset the value holds."""

    group: str = string("0-1")
    topic: str = string("0-1")
    partition: int = int32("0-1")


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset; an empty value is a tombstone."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    group: str = string("2")


class MemberMetadata(Message):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: Buffer = bytes_()
    assignment: Buffer = bytes_()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A generation of a group and its members, written when it has become stable."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
