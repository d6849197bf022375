"""The usual fetch of a follower, and its response: read and written in a few steps.

A follower fetches again whenever it has appended something, so most of its fetches continue a
session and name one partition or a few. `read_usual_fetch` takes such a frame apart without the
objects of `odradek.wire.messages.fetch`. For any other frame, and for one with a fault, it returns
None: the general path reads it again, and names the error.

A fetch is usual if it has `FOLLOWER_VERSION`, continues a session, removes no partition from it,
and has no tagged field but the follower's state (KIP-903): what a follower sends most of the time
(`odradek.wire.follower_fetch`).
"""

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.fetch import FOLLOWER_VERSION
from odradek.wire.primitives import compact_count

_FETCH: Final = int(ApiKey.FETCH)
_HEADER_BYTES: Final = 10
# API key, version, correlation id, length of the client id.
_HEADER: Final = Struct(">hhih").unpack_from
# Tagged fields of the header, max wait, min and max bytes, isolation level, session id and epoch,
# number of topics.
_BODY: Final = Struct(">BiiiBiiB")
# Topic id, number of partitions.
_TOPIC: Final = Struct(">16sB")
# Partition, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, tags.
_PARTITION: Final = Struct(">iiqiqiB")
# Forgotten topics, rack, number of tags, tag and its size, replica id, broker epoch, tags inside.
_END: Final = Struct(">BBBBBiqB")
_USUAL_END: Final = (1, 1, 1, 1, 13)  # the tag of the follower's state is 1, its size 13
_SHORT: Final = 128  # a larger count has more than one byte
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs

# Topic id, partition, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes.
NamedPartition: TypeAlias = tuple[bytes, int, int, int, int, int, int]


class UsualFetch(NamedTuple):
    """A usual fetch of a follower."""

    correlation_id: int
    client_id: str
    limits: tuple[int, int, int]  # max wait (ms), min bytes, max bytes
    session_id: int
    session_epoch: int
    replica_id: int
    replica_epoch: int
    partitions: list[NamedPartition]


def read_usual_fetch(frame: memoryview) -> UsualFetch | None:
    """The parts of a follower's usual fetch; None for any other frame, or one with a fault."""
    try:
        end_at = len(frame) - _END.size
        forgotten, rack, tags, tag, size, replica_id, replica_epoch, inside = _END.unpack_from(
            frame, end_at
        )
        # Looked at first: a consumer's fetch ends differently, and is left alone soon. Counts and
        # lengths are encoded plus one.
        if (
            (forgotten, rack, tags, tag, size) != _USUAL_END
            or inside
            or replica_id < 0
            or end_at < _HEADER_BYTES
        ):
            return None
        api_key, version, correlation_id, length = _HEADER(frame, 0)
        if api_key != _FETCH or version != FOLLOWER_VERSION or length < 0:
            return None
        at = _HEADER_BYTES + length
        tags, wait_ms, min_bytes, max_bytes, isolation, session_id, epoch, topics = (
            _BODY.unpack_from(frame, at)
        )
        if tags or isolation or epoch <= 0 or not 0 < topics < _SHORT:
            return None
        client_id = str(frame[_HEADER_BYTES:at], "utf-8")
        at += _BODY.size
        partitions: list[NamedPartition] = []
        while topics > 1:
            topics -= 1
            at = _read_topic(frame, at, partitions)
    except (struct.error, IndexError, ValueError):
        return None
    if at != end_at:
        return None
    limits = (wait_ms, min_bytes, max_bytes)
    return _new(
        UsualFetch,
        (correlation_id, client_id, limits, session_id, epoch, replica_id, replica_epoch,
         partitions),
    )  # fmt: skip


def _read_topic(frame: memoryview, at: int, into: list[NamedPartition]) -> int:
    """Read the partitions of a topic. Returns its end.

    Raises:
        ValueError: it is not usual.
    """
    topic_id, count = _TOPIC.unpack_from(frame, at)
    at += _TOPIC.size
    if not 0 < count < _SHORT:
        raise ValueError
    while count > 1:
        count -= 1
        index, leader_epoch, offset, last_epoch, log_start, max_bytes, tags = (
            _PARTITION.unpack_from(frame, at)
        )
        if tags:
            raise ValueError
        into.append((topic_id, index, leader_epoch, offset, last_epoch, log_start, max_bytes))
        at += _PARTITION.size
    if frame[at]:
        raise ValueError
    return at + 1


# ---------------------------------------------------------------------------- the response

# Length, correlation id, no tags, throttle time, error, session id.
_HEAD: Final = Struct(">iixihi")
# Partition, error, high watermark, last stable offset, log start offset, aborted transactions
# (null), preferred replica.
_STATE: Final = Struct(">ihqqqBi")
# All of it, for one partition.
_ONE: Final = Struct(">iixihiB16sBihqqqBi")
_NO_TAGS_BYTES: Final = 3  # zeros: of the partition, of the topic, of the response
_LENGTH_BYTES: Final = 4


# What a follower is answered about a partition without an error: topic id and partition; high
# watermark, last stable offset and log start offset; the bytes of records. (The keys of a session
# are names or topic ids; in `FOLLOWER_VERSION` they are topic ids.)
UsualAnswer: TypeAlias = tuple[tuple[bytes | str, int], tuple[int, int, int], int]


def encode_usual_response(
    correlation_id: int, session_id: int, answers: Sequence[UsualAnswer]
) -> tuple[bytearray, list[int]]:
    """The frame of the response, and where it has room (zeros) for the records of each answer.

    With them it is what `encode_fetch_response` makes in `FOLLOWER_VERSION`. They are read from the
    log right into the frame: it is sent in one write, and no byte of it is copied.
    """
    if len(answers) != 1:
        return _encode_several(correlation_id, session_id, answers)
    (topic_id, index), state, size_bytes = answers[0]
    count = compact_count(size_bytes)
    at = _ONE.size + len(count)
    frame = bytearray(at + size_bytes + _NO_TAGS_BYTES)
    _ONE.pack_into(
        frame, 0,
        len(frame) - _LENGTH_BYTES, correlation_id, 0, 0, session_id, 2, topic_id, 2,
        index, 0, *state, 0, -1,
    )  # fmt: skip
    frame[_ONE.size : at] = count
    return frame, [at]


def _encode_several(
    correlation_id: int, session_id: int, answers: Sequence[UsualAnswer]
) -> tuple[bytearray, list[int]]:
    topics: dict[bytes, list[int]] = {}  # the positions in `answers`
    for number, answer in enumerate(answers):
        topics.setdefault(answer[0][0], []).append(number)  # type: ignore[arg-type]  # see above
    # What is written: each piece in front of the records of an answer, and the end.
    pieces: list[tuple[bytes, int]] = []
    piece = compact_count(len(topics))
    size = _HEAD.size
    for topic_id, numbers in topics.items():
        piece += topic_id + compact_count(len(numbers))
        for number in numbers:
            (_, index), state, size_bytes = answers[number]
            piece += _STATE.pack(index, 0, *state, 0, -1) + compact_count(size_bytes)
            pieces.append((piece, number))
            size += len(piece) + size_bytes
            piece = b"\0"
        piece += b"\0"
    frame = bytearray(size + len(piece) + 1)  # without tagged fields at the end
    _HEAD.pack_into(frame, 0, len(frame) - _LENGTH_BYTES, correlation_id, 0, 0, session_id)
    at, positions = _HEAD.size, [0] * len(answers)
    for written, number in pieces:
        frame[at : at + len(written)] = written
        positions[number] = at + len(written)
        at = positions[number] + answers[number][2]
    frame[at : at + len(piece)] = piece
    return frame, positions
