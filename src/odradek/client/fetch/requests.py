"""Fetch requests and responses, alone or in a fetch session (KIP-227; Java's FetchSessionHandler).

The broker keeps the partitions of a session. The first request (epoch 0) contains all of them, each
later one only new, changed and removed partitions; the response leaves out partitions without new
data. If the broker no longer has the session, the next request is a full one again.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.connection import Connection
from odradek.client.kafka_errors import known_code
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.wire.schema import ZERO_UUID

# Replica ids that are not a follower's.
CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2  # reads from followers, and above the high watermark

_FIRST_EPOCH: Final = 0
_NO_SESSION: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF
_TOPIC_IDS_FROM: Final = 13
_REPLICA_STATE_FROM: Final = 15
SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Wanted(NamedTuple):
    """The fetch parameters of one partition."""

    topic_id: bytes
    offset: int
    bytes_max: int
    leader_epoch: int = -1  # of this client's metadata; -1: not known
    last_fetched_epoch: int = -1  # -1: not known


class FetchLimits(NamedTuple):
    """The parameters that all Fetch requests of a reader share."""

    bytes_max: int
    partition_bytes_max: int
    bytes_min: int = 1
    wait_ms_max: int = 500
    reads_committed: bool = False
    rack: str = ""  # client.rack: leaders may name a nearer follower (KIP-392)


class Ask(NamedTuple):
    """The part of a Fetch request that the session determines."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSessionHandler:
    """The fetch session with one broker; without a session every request is a full one."""

    def __init__(self, *, has_session: bool = True) -> None:
        self._first_epoch = _FIRST_EPOCH if has_session else _NO_SESSION
        self._id = 0
        self._epoch = self._first_epoch
        self._known: dict[TopicPartition, Wanted] = {}

    def ask(self, wanted: Mapping[TopicPartition, Wanted]) -> Ask:
        """The next request, after which the session has exactly these partitions."""
        if self._epoch == self._first_epoch:
            changed, removed = dict(wanted), {}
        else:
            changed = {p: w for p, w in wanted.items() if self._known.get(p) != w}
            removed = {p: w for p, w in self._known.items() if p not in wanted}
            # A topic that was created again has another id: the former id is removed, the new one
            # added.
            for partition, one in changed.items():
                before = self._known.get(partition)
                if before is not None and before.topic_id != one.topic_id:
                    removed[partition] = before
        self._known = dict(wanted)
        return Ask(self._id, self._epoch, _topics(changed), _forgotten(removed))

    def answered(self, error_code: int, session_id: int) -> None:
        """Process a response. If the session is lost, the next request is a full one."""
        if error_code in SESSION_LOST:
            self._lost()
        elif error_code:
            return
        elif session_id == 0:
            self._lost()  # the broker has no free session slot: each request is a full one
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def _lost(self) -> None:
        self._id = 0
        self._epoch = self._first_epoch


async def fetch(
    connection: Connection,
    wanted: Mapping[TopicPartition, Wanted],
    limits: FetchLimits,
    *,
    session: FetchSessionHandler | None = None,
    replica_id: int = CONSUMER,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, PartitionData]:
    """Send one Fetch; what the broker returned of each partition, errors included.

    Raises:
        ApiError: the broker refuses the whole request; SESSION_LOST: the next one is a full one.
        ConnectionError: the connection was lost, or no response came in time.
    """
    session = session or FetchSessionHandler(has_session=False)
    ask = session.ask(wanted)
    request = FetchRequest(
        max_wait_ms=limits.wait_ms_max,
        min_bytes=limits.bytes_min,
        max_bytes=limits.bytes_max,
        isolation_level=int(limits.reads_committed),
        session_id=ask.session_id,
        session_epoch=ask.session_epoch,
        topics=ask.topics,
        forgotten_topics_data=ask.forgotten,
        rack_id=limits.rack,
    )
    # Topic ids only if every topic has one.
    by_name = any(one.topic_id == ZERO_UUID for one in wanted.values())
    version_max = _TOPIC_IDS_FROM - 1 if by_name else None
    if replica_id != CONSUMER:
        version = connection.version_of(ApiKey.FETCH, version_max=version_max)
        if version >= _REPLICA_STATE_FROM:
            request.replica_state = ReplicaState(replica_id=replica_id)
        else:
            request.replica_id = replica_id
    answer = await connection.request(
        request, FetchResponse, version_max=version_max, timeout_ms=timeout_ms
    )
    session.answered(answer.error_code, answer.session_id)
    if answer.error_code:
        raise ApiError(known_code(answer.error_code), "Fetch")
    names = {one.topic_id: partition.topic for partition, one in wanted.items()}
    return {
        TopicPartition(topic.topic or names[topic.topic_id], data.partition_index): data
        for topic in answer.responses
        if topic.topic or topic.topic_id in names
        for data in topic.partitions
    }


def _topics(wanted: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for partition, one in wanted.items():
        key = (partition.topic, one.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=partition.topic, topic_id=one.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                last_fetched_epoch=one.last_fetched_epoch,
                partition_max_bytes=one.bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(removed: Mapping[TopicPartition, Wanted]) -> list[ForgottenTopic]:
    return [
        ForgottenTopic(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[part.partition for part in topic.partitions],
        )
        for topic in _topics(removed)
    ]
