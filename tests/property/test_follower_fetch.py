"""A follower's fetch, written by hand, is what the generic codec writes."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.codec import encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.fetch import (
    FOLLOWER_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    FollowerLimits,
    ForgottenTopic,
    ReplicaState,
    encode_follower_fetch,
)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
topic_ids = st.binary(min_size=16, max_size=16)
partitions = st.builds(
    FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=int32,
)
# Some with more than 126 items, whose count takes two bytes.
indexes = st.lists(int32, max_size=3) | st.integers(126, 129).map(lambda n: list(range(n)))
named = st.lists(partitions, max_size=3) | st.builds(
    lambda each, count: [each] * count, partitions, st.integers(126, 129)
)


@given(
    header=st.tuples(int32, st.text(max_size=20)),
    replica=st.tuples(int32, int64),
    limits=st.builds(FollowerLimits, int32, int32, int32),
    session=st.tuples(int32, int32),
    topics=st.dictionaries(topic_ids, named, max_size=3),
    forgotten=st.dictionaries(topic_ids, indexes, max_size=3),
)
def test_a_followers_fetch_is_what_the_generic_codec_writes(
    header, replica, limits, session, topics, forgotten
):
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica[0], replica_epoch=replica[1]),
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=key, partitions=each) for key, each in topics.items()],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=key, partitions=each) for key, each in forgotten.items()
        ],
    )
    frame = encode_request_header(1, FOLLOWER_VERSION, *header)
    frame += encoder(FetchRequest, FOLLOWER_VERSION)(request)

    written = encode_follower_fetch(header, replica, limits, session, topics, forgotten)

    assert written == len(frame).to_bytes(4, "big") + frame
