"""A broker's requests to the controller.

If this broker is the controller, the request's handler is called; if another one is, it is sent to
its inter-broker listener and handled in the same way there. Which broker is controller is what
UpdateMetadata named last (the metadata cache). After NOT_CONTROLLER, or no response, the caller is
to wait and send again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import Peer, PeerError
from odradek.model.cluster import Broker
from odradek.wire.schema import Message

R = TypeVar("R", bound=Message)


class ControllerLink:
    """Sends requests to the present controller, and follows when another is elected."""

    def __init__(
        self,
        *,
        broker_id: int,
        listener: str,
        cache: MetadataCache,
        own: Callable[[Message], Awaitable[Message]],
        make_peer: Callable[[str, int], Peer],
    ) -> None:
        """`own` handles a request if this broker is the controller; it may raise PeerError."""
        self._broker_id = broker_id
        self._listener = listener
        self._cache = cache
        self._own = own
        self._make_peer = make_peer
        self._peer: Peer | None = None
        self._peer_address: tuple[str, int] | None = None

    async def ask(self, request: Message, kind: type[R]) -> R:
        """The controller's answer, which is of the class `kind`.

        Raises:
            PeerError: no controller is known, or no response came.
        """
        controller = self._cache.brokers.get(self._cache.controller_id)
        if controller is None:
            raise PeerError("no controller is known")
        if controller.id == self._broker_id:
            answer = await self._own(request)
            assert isinstance(answer, kind), answer
            return answer
        return await self._to(controller).ask(request, kind)

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
