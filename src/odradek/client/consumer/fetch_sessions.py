"""The client's side of a fetch session (KIP-227; Java's FetchSessionHandler). Pure.

The broker keeps the partitions of a session. The first request (epoch 0) contains all of them, each
later one only new, changed and removed partitions; the response leaves out partitions without new
data. If the broker no longer has the session, the next request is a full one again.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

_FIRST_EPOCH: Final = 0
_EPOCH_MAX: Final = 0x7FFFFFFF
_SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Wanted(NamedTuple):
    """The fetch parameters of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int  # of this client's metadata; -1: not known
    last_fetched_epoch: int  # -1: not known
    bytes_max: int


class Ask(NamedTuple):
    """The part of a Fetch request that the session determines."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSessionHandler:
    """The fetch session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = _FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def ask(self, wanted: Mapping[TopicPartition, Wanted]) -> Ask:
        """The next request, after which the session has exactly these partitions."""
        if self._epoch == _FIRST_EPOCH:
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

    def answered(self, error_code: int, session_id: int) -> bool:
        """Process a response; False if the session is lost, and the next request must be a full
        one.
        """
        if error_code in _SESSION_LOST:
            self.lost()
            return False
        if error_code:
            return False
        if session_id == 0:
            self.lost()  # the broker has no free session slot: each request is a full one
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def lost(self) -> None:
        """Make the next request a full one."""
        self._id = 0
        self._epoch = _FIRST_EPOCH


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
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, one in removed.items():
        key = (partition.topic, one.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic(topic=partition.topic, topic_id=one.topic_id)
        topic.partitions.append(partition.partition)
    return list(topics.values())
