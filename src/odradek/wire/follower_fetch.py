"""What a follower sends to its leader and gets from it: Fetch in `FOLLOWER_VERSION`, by hand.

Brokers replicate by one such request and response after the other, and with small requests the
steps between two system calls are what they cost. So the usual ones are packed and unpacked in a
few calls here, without an object for each part:

    request    names one partition of a session, and removes none
    response   has no error, no tagged field, no aborted transactions, and at least one partition

The generic codec reads every other response, also one that is malformed. Property tests compare
both directions with it.
"""

import struct
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from odradek.model.errors import MalformedRequestError
from odradek.wire.api_keys import ApiKey
from odradek.wire.codec import decoder
from odradek.wire.messages.fetch import FOLLOWER_VERSION, EpochEndOffset, FetchResponse
from odradek.wire.primitives import compact_count, unsigned_varint

PartitionKey: TypeAlias = tuple[bytes, int]  # topic id, index
# Index, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes: the
# fields of a `FetchPartition` in the order of the wire.
AskedPartition: TypeAlias = tuple[int, int, int, int, int, int]
# Key, error code, high watermark, log start offset, diverging epoch, records.
FetchedPartition: TypeAlias = tuple[PartitionKey, int, int, int, EpochEndOffset | None, memoryview]
# Error code, session id, partitions.
FollowerResponse: TypeAlias = tuple[int, int, list[FetchedPartition]]

_LENGTH_BYTES: Final = 4
_LONG: Final = 0x80  # a varint of more than one byte begins with so much or more

_INT32: Final = Struct(">i")
# Index, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, no tags.
_ASKED: Final = Struct(">iiqiqix")
# API key, version, and after the correlation id the length of the client id.
_START: Final = Struct(">hh")
_NAME_LENGTH: Final = Struct(">h")
# No tags; max wait, min and max bytes, isolation level.
_LIMITS: Final = Struct(">xiiiB")
# No rack, one tag: number, size, replica id; the broker epoch and no tags inside follow.
_REPLICA: Final = Struct(">BBBBi")

# Throttle time, error, session id, topics; the first topic's id, partitions.
_FIRST: Final = Struct(">ihiB16sB").unpack_from
_FIRST_BYTES: Final = 28
# Topic id, partitions.
_TOPIC: Final = Struct(">16sB").unpack_from
_TOPIC_BYTES: Final = 17
# Index, error, high watermark, last stable offset, log start offset, aborted transactions (null: 0,
# none: 1), preferred replica, first byte of the size of the records.
_PARTITION: Final = Struct(">ihqqqBiB").unpack_from
_PARTITION_BYTES: Final = 36
# What reading bytes that are not a usual response may raise.
_UNREADABLE: Final = (struct.error, IndexError, MalformedRequestError)


class FollowerLimits(NamedTuple):
    """The limits of each response to a follower."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class FollowerFetchWriter:
    """Writes the fetches of one follower to one leader, as frames.

    Only what changes from one fetch to the next is packed for each.
    """

    def __init__(self, client_id: str, replica_id: int, limits: FollowerLimits) -> None:
        name = client_id.encode()
        start = _START.pack(ApiKey.FETCH, FOLLOWER_VERSION)
        fixed = _NAME_LENGTH.pack(len(name)) + name + _LIMITS.pack(*limits, 0)
        tail = _REPLICA.pack(1, 1, 1, 13, replica_id)
        head = f"{len(start)}si{len(fixed)}sii"
        self._head = Struct(f">{head}")
        self._tail = Struct(f">{len(tail)}sqx")
        # One topic, its id, one partition, no tags, none forgotten.
        self._one = Struct(f">4s{head}B16sBiiqiqixxB{len(tail)}sqx")
        self._start, self._fixed, self._end = start, fixed, tail
        self._one_length = _INT32.pack(self._one.size - _LENGTH_BYTES)

    def one(
        self,
        correlation_id: int,
        broker_epoch: int,
        session_id: int,
        session_epoch: int,
        topic_id: bytes,
        asked: AskedPartition,
    ) -> bytes:
        """The fetch that names one partition, and removes none from the session."""
        return self._one.pack(
            self._one_length, self._start, correlation_id, self._fixed, session_id, session_epoch,
            2, topic_id, 2, *asked, 1, self._end, broker_epoch,
        )  # fmt: skip

    def any(
        self,
        correlation_id: int,
        broker_epoch: int,
        session: tuple[int, int],
        topics: Mapping[bytes, Sequence[AskedPartition]],
        forgotten: Mapping[bytes, Sequence[int]],
    ) -> bytes:
        """The fetch that names and removes any number of partitions, listed by topic id.

        `session` is its id and epoch.
        """
        head = self._head.pack(self._start, correlation_id, self._fixed, *session)
        pieces = [head, compact_count(len(topics))]
        for topic_id, partitions in topics.items():
            pieces += (topic_id, compact_count(len(partitions)))
            pieces += [_ASKED.pack(*each) for each in partitions]
            pieces.append(b"\0")
        pieces.append(compact_count(len(forgotten)))
        for topic_id, indexes in forgotten.items():
            pieces += (topic_id, compact_count(len(indexes)))
            pieces += (*map(_INT32.pack, indexes), b"\0")
        pieces.append(self._tail.pack(self._end, broker_epoch))
        body = b"".join(pieces)
        return _INT32.pack(len(body)) + body


def read_usual(  # noqa: C901 - on the data path: no call that can be avoided
    view: memoryview, position: int
) -> FollowerResponse | None:
    """A usual response whose body begins at `position`; None for any other, or a malformed one."""
    fetched: list[FetchedPartition] = []
    try:
        _, error, session_id, topics, topic_id, partitions = _FIRST(view, position)
        position += _FIRST_BYTES
        # Counts and sizes are encoded plus one.
        if error or not 1 < topics < _LONG:
            return None
        while topics > 1:
            if not 0 < partitions < _LONG:
                return None
            while partitions > 1:
                index, refusal, high_watermark, _, log_start_offset, aborted, _, size = _PARTITION(
                    view, position
                )
                position += _PARTITION_BYTES
                if size >= _LONG:
                    second = view[position]
                    if second < _LONG:
                        size += (second << 7) - _LONG
                        position += 1
                    else:
                        size, position = unsigned_varint(view, position - 1, "records")
                end = position + size - 1 if size else position
                # The tagged fields are behind the records, which are whole if that byte exists.
                if refusal or aborted > 1 or view[end]:
                    return None
                fetched.append(
                    (
                        (topic_id, index), 0, high_watermark, log_start_offset, None,
                        view[position:end],
                    )
                )  # fmt: skip
                position = end + 1
                partitions -= 1
            if view[position]:  # tagged fields of the topic
                return None
            position += 1
            topics -= 1
            if topics > 1:
                topic_id, partitions = _TOPIC(view, position)
                position += _TOPIC_BYTES
        return None if view[position] else (0, session_id, fetched)
    except _UNREADABLE:
        return None


def read_any(view: memoryview, position: int) -> FollowerResponse:
    """Any response, read by the generic codec.

    Raises:
        MalformedRequestError: it is no such response.
    """
    response, _ = decoder(FetchResponse, FOLLOWER_VERSION)(view, position)
    fetched: list[FetchedPartition] = [
        (
            (topic.topic_id, data.partition_index),
            data.error_code,
            data.high_watermark,
            data.log_start_offset,
            data.diverging_epoch,
            memoryview(data.records or b""),
        )
        for topic in response.responses
        for data in topic.partitions
    ]
    return response.error_code, response.session_id, fetched
