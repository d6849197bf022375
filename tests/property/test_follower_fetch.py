"""A follower's fetch and its response, by hand and by the generic codec."""

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.follower_frames import fetch_frame

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import encoder
from odradek.wire.follower_fetch import (
    FollowerFetchWriter,
    FollowerLimits,
    read_any,
    read_usual,
)
from odradek.wire.messages.fetch import (
    FOLLOWER_VERSION,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
topic_ids = st.binary(min_size=16, max_size=16)
asked = st.tuples(int32, int32, int64, int32, int64, int32)
# Some with more than 126 items, whose count takes two bytes.
indexes = st.lists(int32, max_size=3) | st.integers(126, 129).map(lambda n: list(range(n)))
named = st.lists(asked, max_size=3) | st.builds(
    lambda each, count: [each] * count, asked, st.integers(126, 129)
)
names = st.text(max_size=20)
limits_of_followers = st.builds(FollowerLimits, int32, int32, int32)
sessions = st.tuples(int32, int32)


def by_the_codec(header, replica, limits, session, topics, forgotten):
    """The frame of a follower's fetch, written by the generic codec."""
    named = {
        topic_id: [
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=log_start_offset,
                partition_max_bytes=bytes_max,
            )
            for (
                index,
                leader_epoch,
                fetch_offset,
                last_fetched_epoch,
                log_start_offset,
                bytes_max,
            ) in partitions
        ]
        for topic_id, partitions in topics.items()
    }
    frame = fetch_frame(header, replica, limits, session, named, forgotten)
    return len(frame).to_bytes(4, "big") + frame


@given(
    header=st.tuples(int32, names),
    replica=st.tuples(int32, int64),
    limits=limits_of_followers,
    session=sessions,
    topics=st.dictionaries(topic_ids, named, max_size=3),
    forgotten=st.dictionaries(topic_ids, indexes, max_size=3),
)
def test_a_followers_fetch_is_what_the_generic_codec_writes(
    header, replica, limits, session, topics, forgotten
):
    writer = FollowerFetchWriter(header[1], replica[0], limits)

    written = writer.any(header[0], replica[1], session, topics, forgotten)

    assert written == by_the_codec(header, replica, limits, session, topics, forgotten)


@given(
    header=st.tuples(int32, names),
    replica=st.tuples(int32, int64),
    limits=limits_of_followers,
    session=sessions,
    topic_id=topic_ids,
    partition=asked,
)
def test_a_fetch_of_one_partition_is_what_the_generic_codec_writes(
    header, replica, limits, session, topic_id, partition
):
    writer = FollowerFetchWriter(header[1], replica[0], limits)

    written = writer.one(header[0], replica[1], *session, topic_id, partition)

    topics = {topic_id: [partition]}
    assert written == by_the_codec(header, replica, limits, session, topics, {})


# ------------------------------------------------------------------------------- responses

# Sizes whose varint has one, two and three bytes, and those at which it grows.
records = st.binary(max_size=200) | st.sampled_from((126, 127, 128, 16382, 16383, 16384)).map(bytes)
usual_partitions = st.builds(
    PartitionData,
    partition_index=int32,
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted_transactions=st.none(),
    preferred_read_replica=int32,
    records=st.none() | records,
)
any_partitions = usual_partitions | st.builds(
    PartitionData,
    partition_index=int32,
    error_code=st.just(0) | int16,
    high_watermark=int64,
    log_start_offset=int64,
    diverging_epoch=st.none() | st.builds(EpochEndOffset, epoch=int32, end_offset=int64),
    current_leader=st.none() | st.builds(LeaderIdAndEpoch, leader_id=int32, leader_epoch=int32),
    snapshot_id=st.none() | st.builds(SnapshotId, end_offset=int64, epoch=int32),
    aborted_transactions=st.none()
    | st.lists(
        st.builds(AbortedTransaction, producer_id=st.just(0) | int64, first_offset=int64),
        max_size=2,
    ),
    records=st.none() | records,
)


def topics_of(partitions):
    few = st.lists(partitions, max_size=3)
    many = st.builds(lambda each, n: [each] * n, partitions, st.integers(125, 129))
    return st.builds(FetchableTopicResponse, topic_id=topic_ids, partitions=few | few | few | many)


usual_responses = st.builds(
    FetchResponse,
    throttle_time_ms=int32,
    session_id=int32,
    responses=st.lists(topics_of(usual_partitions), min_size=1, max_size=3),
)
any_responses = usual_responses | st.builds(
    FetchResponse,
    throttle_time_ms=int32,
    error_code=st.just(0) | int16,
    session_id=int32,
    responses=st.lists(topics_of(any_partitions), max_size=3)
    | usual_partitions.map(
        lambda each: [FetchableTopicResponse(topic_id=bytes(16), partitions=[each])] * 127
    ),
    node_endpoints=st.lists(
        st.builds(NodeEndpoint, node_id=int32, host=names, port=int32, rack=st.none() | names),
        max_size=2,
    ),
)
encode_response = encoder(FetchResponse, FOLLOWER_VERSION)
HEADER = b"head."


def read_by_the_codec(view, position):
    try:
        return read_any(view, position)
    except MalformedRequestError:
        return None


def zeros(*, topics=1, partitions=1):
    """A response that looks usual where a count of two bytes is read as one of one byte."""
    part = PartitionData(
        last_stable_offset=0, log_start_offset=0, aborted_transactions=None,
        preferred_read_replica=0, records=None,
    )  # fmt: skip
    topic = FetchableTopicResponse(topic_id=b"\2" * 16, partitions=[part] * partitions)
    return FetchResponse(responses=[topic] * topics)


def with_a_transaction_of_producer_0():
    response = zeros()
    aborted = [AbortedTransaction(producer_id=0, first_offset=0)]
    response.responses[0].partitions[0].aborted_transactions = aborted
    response.responses[0].partitions[0].records = b"records"
    return response


@settings(max_examples=400)
@given(any_responses)
@example(zeros(topics=127))
@example(zeros(partitions=127))
@example(with_a_transaction_of_producer_0())
def test_a_usual_response_is_read_as_the_generic_codec_reads_it(response):
    frame = memoryview(HEADER + encode_response(response))
    found = read_usual(frame, len(HEADER))
    event(f"usual: {found is not None}")

    assert found in (None, read_any(frame, len(HEADER)))


@given(usual_responses)
def test_responses_with_whole_partitions_and_without_errors_are_usual(response):
    few = [topic for topic in response.responses if len(topic.partitions) < 127]
    response.responses = few or [FetchableTopicResponse(topic_id=bytes(16), partitions=[])]
    frame = memoryview(HEADER + encode_response(response))

    assert read_usual(frame, len(HEADER)) == read_any(frame, len(HEADER))


@settings(max_examples=1000)
@given(any_responses, st.data())
def test_damaged_responses_are_read_as_the_generic_codec_reads_them_or_not_at_all(response, data):
    frame = bytearray(HEADER + encode_response(response))
    # Most damage is done where the lengths and counts are: near the beginning, and at the end.
    places = st.integers(len(HEADER), len(frame) - 1)
    places |= st.integers(len(HEADER), min(len(frame) - 1, 80))
    places |= st.integers(max(len(HEADER), len(frame) - 6), len(frame) - 1)
    for at in data.draw(st.lists(places, max_size=3)):
        frame[at] = data.draw(st.sampled_from((0, 1, 2, 127, 128, 255)) | st.integers(0, 255))
    if data.draw(st.booleans()):
        del frame[data.draw(places) :]
    found = read_usual(memoryview(frame), len(HEADER))
    event(f"usual: {found is not None}")

    assert found in (None, read_by_the_codec(memoryview(frame), len(HEADER)))


@pytest.mark.parametrize("place", [-3, -2, -1])
def test_a_response_with_an_unknown_tagged_field_is_not_usual(place):
    frame = bytearray(HEADER + encode_response(zeros()))
    assert frame[-3:] == bytes(3)  # of the partition, of the topic and of the response
    frame[place : len(frame) + place + 1] = b"\1\x09\0"
    view = memoryview(frame)

    assert read_usual(view, len(HEADER)) is None
    assert read_any(view, len(HEADER)) == read_any(
        memoryview(HEADER + encode_response(zeros())), len(HEADER)
    )


@given(usual_responses)
def test_no_response_is_usual_that_has_lost_its_end(response):
    frame = HEADER + encode_response(response)
    found = [
        size
        for size in range(len(HEADER), len(frame), max(1, len(frame) // 200))
        if read_usual(memoryview(frame[:size]), len(HEADER)) is not None
    ]

    assert found == []
