"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, then only changes.

What Kafka's description leaves open, and what makes thousands of idle partitions free: a session
keeps a *ready set*. An append or a moved high watermark puts the partition into the ready set of
the sessions that hold it, and a fetch looks at that set alone; nothing ever walks over all
partitions. The order of the set is the order in which partitions became ready, so that a
response that is full leaves the rest at the front for the next one.

A partition is in the ready set when it was just named, when something may have changed since it
was last answered, or when it did not fit.

Epochs of a request (`session_epoch`): 0 asks for a new session, -1 closes the old one and asks
for none, any other has to be the one expected next.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
# A session used or made more recently than this is not thrown out for another (KIP-227).
EVICTION_MS_MIN: Final = 120_000

# All sessions together, when one is admitted; afterwards it may double (and more if it is small).
PARTITIONS_MAX: Final = 1 << 18
_GROWTH_MIN: Final = 1_000

# A partition as its fetcher names it: by topic id since version 13, by name before.
TopicKey = bytes | str
PartitionKey = tuple[TopicKey, int]


class SessionPartition:
    """What a fetcher wants of one partition, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start_offset",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "target",
        "told_high_watermark",
        "told_log_start_offset",
    )

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.follower_log_start_offset = -1
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        # The partition found under that name, kept by whoever reads it.
        self.target: object | None = None


class Wanted(NamedTuple):
    """One partition of a fetch request."""

    key: PartitionKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    follower_log_start_offset: int


class FetchSession:
    """The partitions of one fetcher. Without an id it lives for one request only."""

    __slots__ = (
        "by_topic_id", "created_ms", "epoch", "id", "last_used_ms", "partitions",
        "partitions_max", "privileged", "ready",
    )  # fmt: skip

    def __init__(
        self, *, session_id: int, by_topic_id: bool, privileged: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.by_topic_id = by_topic_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1  # expected next
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.partitions_max = 0  # with more of them it cannot be kept; set when it is admitted
        self.ready: dict[PartitionKey, SessionPartition] = {}

    def want(self, wanted: Sequence[Wanted]) -> list[SessionPartition]:
        """Take partitions in, or move them to another offset. Returns those that are new."""
        new = []
        for item in wanted:
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
            self.ready[key] = partition  # at the end: whoever has just been served queues up
        return new

    def forget(self, keys: Sequence[PartitionKey]) -> list[SessionPartition]:
        """Let partitions go. Returns those that were there."""
        gone = [self.partitions.pop(key) for key in keys if key in self.partitions]
        for partition in gone:
            self.ready.pop(partition.key, None)
        return gone

    def answered(self, partition: SessionPartition) -> None:
        """The partition's present state is in the response: nothing more to say for now."""
        self.ready.pop(partition.key, None)


class FetchSessionCache:
    """All sessions of a broker, at most `slots`, and not too large all together."""

    def __init__(self, *, slots: int) -> None:
        self.slots = slots
        self.evictions = 0
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def resume(
        self, session_id: int, session_epoch: int, *, by_topic_id: bool, now_ms: int
    ) -> FetchSession | ErrorCode:
        """The session that an incremental request goes on with."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.by_topic_id is not by_topic_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = 1 if session_epoch == _EPOCH_MAX else session_epoch + 1
        session.last_used_ms = now_ms
        return session

    def admit(self, session: FetchSession, *, session_id: int, now_ms: int) -> FetchSession | None:
        """Keep a session under a new id, if there is room or another may go.

        Returns the session thrown out for it, if any; `session.id` stays `NO_SESSION` if
        there was no room. `session_id` is a number drawn by the caller, above zero.
        """
        thrown_out = None
        size = len(session.partitions)
        if sum(len(known.partitions) for known in self) + size > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self.slots:
            thrown_out = self._evictable(session, now_ms)
            if thrown_out is None:
                return None
            self.evictions += 1
            del self._sessions[thrown_out.id]
        while session_id in self._sessions:
            session_id = session_id % _EPOCH_MAX + 1
        session.id = session_id
        session.partitions_max = 2 * size + _GROWTH_MIN
        self._sessions[session_id] = session
        return thrown_out

    def close(self, session_id: int) -> FetchSession | None:
        """Forget a session. Returns it, if it was there."""
        return self._sessions.pop(session_id, None)

    def _evictable(self, new: FetchSession, now_ms: int) -> FetchSession | None:
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if oldest is not None and now_ms - oldest.last_used_ms > EVICTION_MS_MIN:
            return oldest
        # A follower's session goes before a consumer's, then a larger one before a smaller
        # one that has had its time.
        for session in self._sessions.values():
            if new.privileged and not session.privileged:
                return session
            if (
                new.privileged == session.privileged
                and len(new.partitions) > len(session.partitions)
                and now_ms - session.created_ms > EVICTION_MS_MIN
            ):
                return session
        return None
