"""Fetches of followers, written by the generic codec."""

from odradek.wire.codec import encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.fetch import (
    FOLLOWER_VERSION,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)


def fetch_frame(header, replica, limits, session, topics, forgotten):
    """A follower's fetch without the length of the frame.

    `header` is correlation id and client id, `replica` its id and broker epoch, `session` id and
    epoch; `topics` and `forgotten` list partitions by topic id.
    """
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
    head = encode_request_header(1, FOLLOWER_VERSION, *header)
    return head + encoder(FetchRequest, FOLLOWER_VERSION)(request)
