"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, then only changes.

So that thousands of idle partitions cost nothing, a session keeps a *ready set*. An append or a
moved high watermark adds the partition to the ready set of each session that has it, and a fetch
looks at that set alone; no request iterates over all partitions. The set is in the order in which
partitions became ready: those that do not fit into a response come first in the next one.

A partition is in the ready set when the last request named it, when something may have changed
since it was last in a response, or when it did not fit.

The `session_epoch` of a request: 0 asks for a new session, -1 closes the session and asks for no
new one, any other has to be the expected one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs
from odradek.model.errors import ErrorCode

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
# A session used or made more recently than this is not evicted for another (KIP-227).
EVICTION_MS_MIN: Final = 120_000

# All sessions together, when one is added; it may double afterwards (more if it is small).
PARTITIONS_MAX: Final = 1 << 18
_GROWTH_MIN: Final = 1_000


# A partition as a fetch request names it: by topic id since version 13, by name before.
TopicKey = bytes | str
PartitionKey = tuple[TopicKey, int]


def next_epoch(session_epoch: int) -> int:
    """The session epoch of the request after this one: 1 follows the largest."""
    return 1 if session_epoch == _EPOCH_MAX else session_epoch + 1


class SessionPartition:
    """What a session's fetcher requested of one partition, and what was last sent (KIP-227)."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start_offset",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "target",
    )

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.follower_log_start_offset = -1
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        # The partition of that name, cached by the code that reads it.
        self.target: object | None = None


class RequestedPartition(NamedTuple):
    """One partition of a fetch request (Kafka: `FetchRequest.PartitionData`)."""

    key: PartitionKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    follower_log_start_offset: int


class FetchSession:
    """The partitions of one fetcher. A session with id `NO_SESSION` lasts for one request."""

    __slots__ = (
        "by_topic_id", "created_ms", "epoch", "id", "last_used_ms", "partitions",
        "partitions_max", "privileged", "ready",
    )  # fmt: skip

    def __init__(
        self, *, session_id: int, by_topic_id: bool, privileged: bool, monotonic_ms: MonotonicMs
    ) -> None:
        self.id = session_id
        self.by_topic_id = by_topic_id
        self.privileged = privileged
        self.created_ms = monotonic_ms
        self.last_used_ms = monotonic_ms
        self.epoch = 1  # of the next request
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.partitions_max = 0  # a larger session is closed; set when it is added to the cache
        self.ready: dict[PartitionKey, SessionPartition] = {}

    def update(self, requested: Sequence[RequestedPartition]) -> list[SessionPartition]:
        """Add partitions, or change their fetch offsets. Returns those that are new."""
        new = []
        for item in requested:
            key = item.key
            partition = self.partitions.get(key)
            if partition is None:
                partition = self.partitions[key] = SessionPartition(key)
                new.append(partition)
            partition.fetch_offset = item.fetch_offset
            partition.max_bytes = item.max_bytes
            partition.current_leader_epoch = item.current_leader_epoch
            partition.last_fetched_epoch = item.last_fetched_epoch
            partition.follower_log_start_offset = item.follower_log_start_offset
            self.ready.pop(key, None)
            self.ready[key] = partition  # at the end, so that all partitions are served in turn
        return new

    def drop(self, keys: Sequence[PartitionKey]) -> list[SessionPartition]:
        """Remove partitions. Returns those that the session had."""
        dropped = [self.partitions.pop(key) for key in keys if key in self.partitions]
        for partition in dropped:
            self.ready.pop(partition.key, None)
        return dropped

    def answered(self, partition: SessionPartition) -> None:
        """The partition's present state is in the response: remove it from the ready set."""
        self.ready.pop(partition.key, None)


class FetchSessionCache:
    """All sessions of a broker: at most `slots`, with at most `PARTITIONS_MAX` partitions."""

    def __init__(self, *, slots: int) -> None:
        self.slots = slots
        self.evictions = 0
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def find(self, session_id: int) -> FetchSession | None:
        """The session with this id."""
        return self._sessions.get(session_id)

    def resume(
        self, session_id: int, session_epoch: int, *, by_topic_id: bool, monotonic_ms: MonotonicMs
    ) -> FetchSession | ErrorCode:
        """The session of an incremental request, or the error code of the response."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.by_topic_id is not by_topic_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = next_epoch(session_epoch)
        session.last_used_ms = monotonic_ms
        return session

    def admit(
        self, session: FetchSession, *, session_id: int, monotonic_ms: MonotonicMs
    ) -> FetchSession | None:
        """Cache a session under a new id, if there is room or another can be evicted.

        Returns the evicted session, if any; `session.id` stays `NO_SESSION` if there is no room.
        `session_id` is a positive random number from the caller.
        """
        evicted = None
        size = len(session.partitions)
        if sum(len(known.partitions) for known in self) + size > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self.slots:
            evicted = self._evictable(session, monotonic_ms)
            if evicted is None:
                return None
            self.evictions += 1
            del self._sessions[evicted.id]
        while session_id in self._sessions:
            session_id = session_id % _EPOCH_MAX + 1
        session.id = session_id
        session.partitions_max = 2 * size + _GROWTH_MIN
        self._sessions[session_id] = session
        return evicted

    def close(self, session_id: int) -> FetchSession | None:
        """Remove a session. Returns it, if it was there."""
        return self._sessions.pop(session_id, None)

    def _evictable(self, new: FetchSession, monotonic_ms: MonotonicMs) -> FetchSession | None:
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if oldest is not None and monotonic_ms - oldest.last_used_ms > EVICTION_MS_MIN:
            return oldest
        # KIP-227: a consumer's session is evicted for a follower's (privileged) one, and a smaller
        # session for a larger one of the same kind if it is old enough.
        for session in self._sessions.values():
            if new.privileged and not session.privileged:
                return session
            if (
                new.privileged == session.privileged
                and len(new.partitions) > len(session.partitions)
                and monotonic_ms - session.created_ms > EVICTION_MS_MIN
            ):
                return session
        return None
