"""A broker's requests to the controller.

If this broker is the controller, the request's handler is called; if another one is, it is sent to
its inter-broker listener and handled in the same way there. Which broker is controller is what
UpdateMetadata named last (the metadata cache). After NOT_CONTROLLER, or no response, the caller is
to wait and send again.
"""

from collections.abc import Awaitable, Callable, Mapping

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import Peer, PeerError
from odradek.model.cluster import Broker
from odradek.wire.schema import Message

Handler = Callable[[Message], Awaitable[Message]]


class ControllerLink:
    """Sends requests to the present controller, and follows when another is elected."""

    def __init__(
        self,
        *,
        broker_id: int,
        listener: str,
        cache: MetadataCache,
        own: Mapping[type[Message], Handler],
        make_peer: Callable[[str, int], Peer],
    ) -> None:
        """`own` are the handlers of this broker, for when it is the controller."""
        self._broker_id = broker_id
        self._listener = listener
        self._cache = cache
        self._own = own
        self._make_peer = make_peer
        self._peer: Peer | None = None
        self._peer_address: tuple[str, int] | None = None

    async def ask(self, request: Message) -> Message:
        """The controller's answer.

        Raises:
            PeerError: no controller is known, or no response came.
        """
        controller = self._cache.brokers.get(self._cache.controller_id)
        if controller is None:
            raise PeerError("no controller is known")
        if controller.id == self._broker_id:
            handler = self._own.get(type(request))
            if handler is None:  # else the caller would have used it directly
                raise PeerError("the controller of this broker is not ready yet")
            return await handler(request)
        return await self._to(controller).ask(request)

    def close(self) -> None:
        """Close the connection to the controller; waiting requests fail."""
        if self._peer is not None:
            self._peer.close()

    def _to(self, controller: Broker) -> Peer:
        point = controller.end_point(self._listener)
        if point is None:
            raise PeerError(f"controller {controller.id} has no listener {self._listener}")
        address = (point.host, point.port)
        if self._peer is None or self._peer_address != address:
            self.close()
            self._peer, self._peer_address = self._make_peer(*address), address
        return self._peer
