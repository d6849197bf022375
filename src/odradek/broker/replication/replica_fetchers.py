"""Who this broker follows: one fetcher for each leader, made when there is something to fetch.

A leader that is not announced yet, or is dead, is waited for: when the metadata says where it is,
its partitions are fetched.
"""

from collections.abc import Callable

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_fetcher import ReplicaFetcher
from odradek.model.cluster import EndPoint


class ReplicaFetchers:
    """All fetchers of one broker."""

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

    def follow(self, partition: Partition) -> None:
        """Fetch this one from its leader, if it has one that can be reached."""
        if self._is_stopped:
            return
        fetcher = self._fetcher(partition.leader_id)
        if fetcher is None:
            self._waiting[partition] = None
            return
        self._leader_of[partition] = partition.leader_id
        fetcher.follow(partition)

    def leave(self, partition: Partition) -> None:
        """Fetch this one no longer."""
        self._waiting.pop(partition, None)
        leader = self._leader_of.pop(partition, None)
        fetcher = self._by_leader.get(leader) if leader is not None else None
        if fetcher is not None:
            fetcher.leave(partition)
            if not len(fetcher):
                self._drop(leader)

    def metadata_changed(self) -> None:
        """A leader may have come, or moved to another address."""
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
        """Hang up on leaders that have not answered for too long."""
        for fetcher in self._by_leader.values():
            fetcher.check_silence()

    def stop(self) -> None:
        """Follow nobody any more, whatever the controller orders yet.

        The logs are closed next, and what came in behind that would be called durable unflushed.
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
        return fetcher
