"""The fetchers of this broker: one for each leader that it follows, made when one is needed.

A partition whose leader is not in the metadata waits: it is fetched when the metadata has the
leader's address.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Set
from functools import partial

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_fetcher import ReplicaFetcher
from odradek.model.clock import MonotonicMs
from odradek.model.cluster import EndPoint
from odradek.model.partition import TopicPartition
from odradek.replica.failures import Failure, Subject


class ReplicaFetchers:
    """All replica fetchers of one broker (Kafka's `ReplicaFetcherManager`)."""

    def __init__(
        self, cache: MetadataCache, *, listener: str, make: Callable[[EndPoint], ReplicaFetcher]
    ) -> None:
        self._cache = cache
        self._listener = listener
        self._make = make
        self._by_leader: dict[int, ReplicaFetcher] = {}
        self._leader_of: dict[Partition, int] = {}
        self._waiting: dict[Partition, None] = {}
        self._is_stopped = False
        self._dropped_bytes = 0

    def follow(self, partition: Partition) -> None:
        """Fetch this partition, as soon as the metadata has its leader."""
        if self._is_stopped:
            return
        fetcher = self._fetcher(partition.leader_id)
        if fetcher is None:
            self._waiting[partition] = None
            return
        self._leader_of[partition] = partition.leader_id
        fetcher.follow(partition)

    def leave(self, partition: Partition) -> None:
        """Stop fetching this partition."""
        self._waiting.pop(partition, None)
        leader = self._leader_of.pop(partition, None)
        fetcher = self._by_leader.get(leader) if leader is not None else None
        if fetcher is not None:
            fetcher.leave(partition)
            if not len(fetcher):
                self._drop(leader)

    def metadata_changed(self) -> None:
        """Fetch from leaders that have become reachable, or have another address."""
        for leader, fetcher in list(self._by_leader.items()):
            point = self._point(leader)
            if point is None or point != fetcher.leader:
                moved = [p for p, of in self._leader_of.items() if of == leader]
                self._drop(leader)
                self._waiting |= dict.fromkeys(moved)
                for partition in moved:
                    del self._leader_of[partition]
        for partition in list(self._waiting):
            if self._point(partition.leader_id) is not None:
                del self._waiting[partition]
                self.follow(partition)

    def check_silence(self) -> None:
        """Disconnect from leaders that have not answered for too long; log failures that last."""
        for fetcher in self._by_leader.values():
            fetcher.check_silence()

    def probe(self, leaders: Set[int]) -> Awaitable[object] | None:
        """Wait until these leaders have answered, or are lost (`LeaderProbe`).

        None: nothing is fetched from any of them, or those are lost or silent already.
        """
        probes = [
            fetcher.probe.wait()
            for leader, fetcher in self._by_leader.items()
            if leader in leaders and fetcher.is_answering
        ]
        return asyncio.gather(*probes) if probes else None

    def failures(self) -> Iterator[tuple[int, Subject, Failure]]:
        """Leader, partition (None: all of this leader's), and since when and why fetches fail."""
        for leader, fetcher in list(self._by_leader.items()):
            for subject, failure in list(fetcher.failures):
                yield leader, subject, failure

    def lags(self) -> Iterator[tuple[int, TopicPartition, int]]:
        """Leader, partition, and the records below its high watermark that are not here."""
        for leader, fetcher in list(self._by_leader.items()):
            for partition, lag in list(fetcher.lags()):
                yield leader, partition, lag

    @property
    def held_back(self) -> int:
        """The number of partitions that are not fetched now because of an error."""
        return sum(fetcher.held_back for fetcher in self._by_leader.values())

    @property
    def fetched_bytes(self) -> int:
        """Bytes of record batches fetched since the start."""
        fetched = sum(fetcher.fetched_bytes for fetcher in self._by_leader.values())
        return self._dropped_bytes + fetched

    def unanswered_since(self) -> dict[int, MonotonicMs]:
        """The leaders that have not answered a request yet, and when it was sent."""
        sent = {leader: fetcher.unanswered_since for leader, fetcher in self._by_leader.items()}
        return {leader: at for leader, at in sent.items() if at is not None}

    def stop(self) -> None:
        """Stop all fetchers; LeaderAndIsr starts none from now on.

        The logs are closed next: what was appended after that would count as durable, unflushed.
        """
        self._is_stopped = True
        for leader in list(self._by_leader):
            self._drop(leader)
        self._leader_of.clear()
        self._waiting.clear()

    def _drop(self, leader: int | None) -> None:
        if leader is not None:
            fetcher = self._by_leader.pop(leader, None)
            if fetcher is not None:
                self._dropped_bytes += fetcher.fetched_bytes
                fetcher.stop()

    def _point(self, leader: int) -> EndPoint | None:
        broker = self._cache.brokers.get(leader)
        return broker.end_point(self._listener) if broker is not None else None

    def _fetcher(self, leader: int) -> ReplicaFetcher | None:
        known = self._by_leader.get(leader)
        if known is not None:
            return known
        point = self._point(leader)
        if point is None:
            return None
        fetcher = self._by_leader[leader] = self._make(point)
        fetcher.lost = partial(self._cache.leader_lost, leader)
        fetcher.reached = partial(self._cache.leader_reached, leader)
        return fetcher
