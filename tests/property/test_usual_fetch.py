"""Compares the straight reader and writer of a follower's usual fetch with the general ones."""

import struct
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.follower_frames import fetch_frame

from odradek.wire.codec import DATA_ELEMENTS_MAX, decoder
from odradek.wire.follower_fetch import FollowerLimits
from odradek.wire.header import decode_request_header
from odradek.wire.messages.fetch import (
    FOLLOWER_VERSION,
    JOINED_BYTES,
    FetchPartition,
    FetchRequest,
    PartitionData,
    encode_fetch_response,
)
from odradek.wire.usual_fetch import encode_usual_response, read_usual_fetch

MANY = 127  # the count of so many takes two bytes
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
positive = st.integers(1, (1 << 31) - 1)
natural = st.integers(0, (1 << 31) - 1)
topic_ids = st.binary(min_size=16, max_size=16)

# -------------------------------------------------------------------------------- the request

partitions = st.builds(
    FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=int32,
)
named = st.lists(partitions, max_size=3)
many_named = st.builds(
    lambda each, count: [each] * count, partitions, st.integers(MANY - 3, MANY - 1)
)
usual_frames = st.builds(
    lambda *arguments: fetch_frame(*arguments, {}),
    st.tuples(int32, st.text(max_size=20)),
    st.tuples(natural, int64),
    st.builds(FollowerLimits, int32, int32, int32),
    st.tuples(int32, positive),
    st.dictionaries(topic_ids, named, max_size=3)
    | st.dictionaries(topic_ids, named | many_named, min_size=1, max_size=2),
)
# What a client may send as a follower, of which the straight reader leaves a part to the general.
fetches = st.builds(
    fetch_frame,
    st.tuples(int32, st.none() | st.text(max_size=20)),
    st.tuples(st.integers(-2, 3), int64),
    st.builds(FollowerLimits, int32, int32, int32),
    st.tuples(int32, st.integers(-1, 2)),
    st.dictionaries(
        topic_ids,
        named | st.builds(lambda each: [each] * MANY, partitions),
        max_size=2,
    )
    | st.builds(lambda: {bytes([n] * 16): [] for n in range(MANY)}),
    st.dictionaries(topic_ids, st.lists(int32, max_size=2), max_size=1),
)


def agrees(frame):
    """Whether it is read; what is read is what the general path reads."""
    view = memoryview(frame)
    usual = read_usual_fetch(view)
    if usual is None:
        return False
    header, position = decode_request_header(view)
    request, end = decoder(FetchRequest, header.api_version)(view, position, DATA_ELEMENTS_MAX)
    state = request.replica_state
    expected = FetchRequest(
        replica_state=state,
        max_wait_ms=usual.limits[0],
        min_bytes=usual.limits[1],
        max_bytes=usual.limits[2],
        session_id=usual.session_id,
        session_epoch=usual.session_epoch,
        topics=request.topics,
    )
    assert end == len(frame)
    assert header == (1, FOLLOWER_VERSION, usual.correlation_id, usual.client_id)
    assert request == expected
    assert (state.replica_id, state.replica_epoch) == (usual.replica_id, usual.replica_epoch)
    assert state.replica_id >= 0
    assert usual.session_epoch > 0
    assert usual.partitions == [
        (
            topic.topic_id,
            each.partition,
            each.current_leader_epoch,
            each.fetch_offset,
            each.last_fetched_epoch,
            each.log_start_offset,
            each.partition_max_bytes,
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    return True


@given(usual_frames)
def test_a_usual_fetch_is_read_as_the_general_path_reads_it(frame):
    assert agrees(frame)


@given(fetches)
def test_any_fetch_of_a_follower_is_read_alike_or_left_to_the_general_path(frame):
    agrees(frame)


# Where, what it is replaced with, how many bytes it replaces. Places count from both ends: the
# fields that decide are there.
mutations = st.lists(
    st.tuples(
        st.integers(-40, 80) | st.integers(0, 1000), st.binary(max_size=3), st.integers(0, 3)
    ),
    min_size=1,
    max_size=3,
)


def mutated(frame, changes):
    changed = bytearray(frame)
    for place, data, count in changes:
        at = place % (len(changed) + 1)
        changed[at : at + count] = data
    return bytes(changed)


@settings(max_examples=600)
@given(usual_frames, mutations)
def test_a_changed_fetch_is_read_alike_or_left_to_the_general_path(frame, changes):
    agrees(mutated(frame, changes))


@given(usual_frames, st.integers(0, 1000))
def test_a_fetch_that_is_cut_off_is_left_to_the_general_path(frame, length):
    assert not agrees(frame[: length % len(frame)])


@given(usual_frames, st.binary(min_size=1, max_size=20))
def test_a_fetch_with_more_behind_it_is_read_alike_or_left_to_the_general_path(frame, more):
    assert not agrees(frame + more)


@given(st.binary(max_size=100))
def test_any_bytes_are_read_alike_or_left_to_the_general_path(data):
    agrees(data)
    agrees(struct.pack(">hh", 1, FOLLOWER_VERSION) + data)


# By hand, for what no encoder writes: tagged fields and counts of any kind.
TAG = b"\1\7\2ab"  # one tagged field that nobody knows
PARTITION = struct.pack(">iiqiqi", 5, 6, 7, 8, 9, 10)
STATE = struct.pack(">iq", 2, 77)
USUAL = {
    "key": b"\0\1",
    "version": b"\0\x11",
    "correlation id": b"\0\0\0\3",
    "client id": b"\0\2ab",
    "tags of the header": b"\0",
    "limits": struct.pack(">iii", 500, 1, 1 << 20),
    "isolation": b"\0",
    "session": struct.pack(">ii", 42, 3),
    "topics": b"\2",
    "topic id": b"t" * 16,
    "partitions": b"\2",
    "partition": PARTITION,
    "tags of the partition": b"\0",
    "tags of the topic": b"\0",
    "forgotten": b"\1",
    "rack": b"\1",
    "tags": b"\1",
    "state": b"\1\15" + STATE + b"\0",
}
UNUSUAL = {
    "key": [b"\0\0", b"\1\1"],
    "version": [b"\0\x10", b"\0\x12", b"\0\0", b"\1\x11"],
    "client id": [b"\xff\xff", b"\xff\xfe", b"\0\2\xff\xfe", b"\0\3ab", b"\x7f\xff"],
    "tags of the header": [TAG, b"\1"],
    "isolation": [b"\1"],
    "session": [struct.pack(">ii", 42, epoch) for epoch in (0, -1, -(1 << 31))],
    "topics": [b"\0", b"\1", b"\3", b"\x82\0"],
    "partitions": [b"\0", b"\1", b"\3", b"\x82\0"],
    "tags of the partition": [TAG, b"\1", b"\1\0\x10" + b"d" * 16],
    "tags of the topic": [TAG, b"\1"],
    "forgotten": [b"\0", b"\2" + b"f" * 16 + b"\2\0\0\0\1\0"],
    "rack": [b"\2r", b"\0"],
    "tags": [b"\0", b"\2"],
    "state": [
        b"",
        b"\7\2ab",
        b"\1\x11" + STATE + b"\1\7\2ab",
        b"\1\14" + STATE,
        b"\1\15" + struct.pack(">iq", -1, 77) + b"\0",
        b"\1\15" + STATE + b"\1",
        b"\0\2c\1\15" + STATE + b"\0",
    ],
}


EMPTY_TOPIC = USUAL | {"partitions": b"\1", "partition": b"", "tags of the partition": b""}
WITHOUT_TOPICS = EMPTY_TOPIC | {
    "topics": b"\1",
    "topic id": b"",
    "partitions": b"",
    "tags of the topic": b"",
}


def test_each_part_that_is_not_usual_is_left_to_the_general_path():
    assert agrees(b"".join(USUAL.values()))
    assert agrees(b"".join(WITHOUT_TOPICS.values()))
    assert agrees(b"".join(EMPTY_TOPIC.values()))
    for null in (WITHOUT_TOPICS | {"topics": b"\0"}, EMPTY_TOPIC | {"partitions": b"\0"}):
        assert not agrees(b"".join(null.values()))
    for name, others in UNUSUAL.items():
        for other in others:
            frame = b"".join((USUAL | {name: other}).values())
            assert read_usual_fetch(memoryview(frame)) is None, (name, other)


def test_a_partition_that_looks_like_the_end_is_left_to_the_general_path():
    """The bytes end where the tagged fields of its topic should be."""
    end = b"\1\1\1\1\15" + STATE + b"\0"
    lengths = {"partition": bytes(33 - len(end)) + end}
    rest = ("tags of the partition", "tags of the topic", "forgotten", "rack", "tags", "state")
    frame = b"".join((USUAL | lengths | dict.fromkeys(rest, b"")).values())
    assert not agrees(frame)


@settings(max_examples=500)
@given(
    st.fixed_dictionaries(
        {
            name: st.sampled_from([part, part, part, *UNUSUAL.get(name, ())])
            for name, part in USUAL.items()
        }
    )
)
def test_a_fetch_of_several_unusual_parts_is_read_alike_or_left_to_the_general_path(parts):
    agrees(b"".join(parts.values()))


# ------------------------------------------------------------------------------- the response


class Answer(NamedTuple):
    topic_id: bytes
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes


def written_with_records(correlation_id, session_id, answered):
    """The usual response, with the records where it has room for them."""
    usual = [(tuple(each[:2]), tuple(each[2:5]), len(each.records)) for each in answered]
    frame, positions = encode_usual_response(correlation_id, session_id, usual)
    for each, at in zip(answered, positions, strict=True):
        end = at + len(each.records)
        assert not any(frame[at:end]), "the room is empty"
        frame[at:end] = each.records
    return frame


sizes = st.sampled_from([126, 127, 128, 16_382, 16_383, 16_384]) | st.integers(
    JOINED_BYTES - 120, JOINED_BYTES + 10
)
records = st.binary(max_size=30) | sizes.map(b"\1".__mul__)
few_topics = st.sampled_from([b"a" * 16, b"b" * 16, b"c" * 16])
answers = st.builds(Answer, few_topics | topic_ids, int32, int64, int64, int64, records)
many_topics = st.builds(
    lambda answer, count: [answer._replace(topic_id=n.to_bytes(16, "big")) for n in range(count)],
    answers,
    st.integers(MANY - 2, MANY + 2),
)
many_partitions = st.builds(
    lambda answer, count: [answer._replace(partition=n) for n in range(count)],
    answers,
    st.integers(MANY - 2, MANY + 2),
)


def encoded_in_general(correlation_id, session_id, answered):
    topics = {}
    for each in answered:
        topics.setdefault(each.topic_id, []).append(
            PartitionData(
                partition_index=each.partition,
                high_watermark=each.high_watermark,
                last_stable_offset=each.last_stable_offset,
                log_start_offset=each.log_start_offset,
                aborted_transactions=None,
                records=each.records,
            )
        )
    return encode_fetch_response(
        correlation_id, FOLLOWER_VERSION, list(topics.items()), session_id=session_id
    )


@given(
    int32,
    int32,
    st.lists(answers, max_size=6)
    | answers.map(lambda each: [each])
    | st.builds(lambda some, many: [*some, *many], st.lists(answers, max_size=2), many_topics)
    | st.builds(lambda some, many: [*some, *many], st.lists(answers, max_size=2), many_partitions),
)
def test_a_response_has_the_bytes_that_the_general_path_writes(
    correlation_id, session_id, answered
):
    expected = encoded_in_general(correlation_id, session_id, answered)

    assert written_with_records(correlation_id, session_id, answered) == b"".join(expected)
