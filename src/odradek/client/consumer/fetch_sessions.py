"""A consumer's fetch session with one broker: only what changed travels (KIP-227). Pure.

The broker remembers the partitions of a session. The first request names them all (epoch 0), each
later one what is new, what moved and what is no longer wanted; the response leaves out what has
nothing new. When the broker does not know the session any more, all begins anew.
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
    """From where one partition is to be read."""

    topic_id: bytes
    offset: int
    leader_epoch: int  # the asker's picture; -1: it has none
    last_fetched_epoch: int  # -1: not known
    bytes_max: int


class Ask(NamedTuple):
    """The part of a request that the session decides."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = _FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def ask(self, wanted: Mapping[TopicPartition, Wanted]) -> Ask:
        """What to send, so that the broker reads these and no others."""
        if self._epoch == _FIRST_EPOCH:
            changed, gone = dict(wanted), {}
        else:
            changed = {p: w for p, w in wanted.items() if self._known.get(p) != w}
            gone = {p: w for p, w in self._known.items() if p not in wanted}
            # A topic made anew has another id: the former is forgotten, this one is new.
            for partition, want in changed.items():
                before = self._known.get(partition)
                if before is not None and before.topic_id != want.topic_id:
                    gone[partition] = before
        self._known = dict(wanted)
        return Ask(self._id, self._epoch, _topics(changed), _forgotten(gone))

    def answered(self, error_code: int, session_id: int) -> bool:
        """Take note of a response; False if the session is lost and all is to be asked anew."""
        if error_code in _SESSION_LOST:
            self.lost()
            return False
        if error_code:
            return False
        if session_id == 0:
            self.lost()  # the broker has no room for it: each request is whole
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def lost(self) -> None:
        """Begin anew with the next request."""
        self._id = 0
        self._epoch = _FIRST_EPOCH


def _topics(wanted: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for partition, want in wanted.items():
        key = (partition.topic, want.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=partition.topic, topic_id=want.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.last_fetched_epoch,
                partition_max_bytes=want.bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(gone: Mapping[TopicPartition, Wanted]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, want in gone.items():
        key = (partition.topic, want.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic(topic=partition.topic, topic_id=want.topic_id)
        topic.partitions.append(partition.partition)
    return list(topics.values())
