"""Clients that a broker is cut off from: their connections stay open, and nothing passes on them.

A connection is known to be a client's by the `client.id` of its first request: brokers' begin with
`broker-`, and the kit has one of its own. A new connection of a client that is cut off is accepted,
and its first request waits until the partition is healed.
"""

from collections.abc import Callable

from odradek.broker.faults.failing import is_of_clients
from odradek.model.errors import MalformedRequestError
from odradek.net.connection import Connection
from odradek.net.faulty import FaultyNetwork
from odradek.net.server import Frames
from odradek.wire.header import decode_request_header


class ClientConnections:
    """Names the accepted connections of one broker, and holds back requests of those cut off."""

    def __init__(
        self,
        network: FaultyNetwork,
        wrap_frames: Callable[[str, Callable[[Frames], Frames] | None], None],
    ) -> None:
        self._network = network
        self._waiting: dict[Connection, None] = {}
        wrap_frames("clients", self._around)

    def go_on(self) -> None:
        """Handle the requests that were held back, unless their client is still cut off."""
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            if not connection.closing:
                connection.release()

    def _around(self, frames: Frames) -> Frames:
        network = self._network

        def handle(connection: Connection, frame: memoryview) -> None:
            link = network.accepted.get((connection.peer_host, connection.peer_port))
            if link is not None:
                if not link.is_named:
                    link.name(_client_of(frame))
                if network.is_cut(link.client_id):
                    self._waiting[connection] = None
                    connection.put_back(frame)
                    return
            frames(connection, frame)

        return handle


def _client_of(frame: memoryview) -> str | None:
    """The client id of a request; None if it is another broker's or the kit's."""
    try:
        header = decode_request_header(frame)[0]
    except MalformedRequestError:  # which its handler refuses
        return None
    return (header.client_id or "") if is_of_clients(header) else None
