"""Connections to other brokers, by id: one `Peer` for each, replaced when its address changes."""

from collections.abc import Callable

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import Peer, PeerError


class PeerBook:
    """The brokers that one part of a broker sends requests to."""

    def __init__(
        self, cache: MetadataCache, *, listener: str, make_peer: Callable[[str, int], Peer]
    ) -> None:
        self._cache = cache
        self._listener = listener
        self._make_peer = make_peer
        self._peers: dict[int, tuple[str, int, Peer]] = {}

    def to(self, broker_id: int) -> Peer:
        """The connection to a broker.

        Raises:
            PeerError: it is not registered, or lacks the inter-broker listener.
        """
        broker = self._cache.brokers.get(broker_id)
        point = broker.end_point(self._listener) if broker is not None else None
        if point is None:
            raise PeerError(f"broker {broker_id} has no listener {self._listener} now")
        known = self._peers.get(broker_id)
        if known is not None:
            if known[:2] == (point.host, point.port):
                return known[2]
            known[2].close()
        peer = self._make_peer(point.host, point.port)
        self._peers[broker_id] = (point.host, point.port, peer)
        return peer

    def close(self) -> None:
        """Close the connections to all brokers."""
        for _, _, peer in self._peers.values():
            peer.close()
        self._peers.clear()
