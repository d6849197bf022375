"""Controller requests that reach a broker before it knows its own broker epoch.

The controller sees a registration when it is in the store; the broker sees it when the store's
answer arrives, which may be later. Until then LeaderAndIsr, UpdateMetadata and StopReplica cannot
be judged: they may be meant for this registration, or for one of an earlier process.

    obeyed             the broker leads or truncates by what an earlier process was told
    refused            the controller considers the broker informed: it is never announced, and its
                       replicas never follow
    here, and in Kafka they wait, and are judged when the epoch is known

A request waits in its connection, which handles and reads nothing else meanwhile. So a connection
holds one request, whose memory counts as that of any partly received one
(`odradek.connections.memory.max.bytes`); a controller has one connection, and there are at most
`WAITING_MAX`. The wait ends with the registration, or with the start that fails without one; it
closes the connections. A controller sends again what it got no response to.
"""

import logging
from collections.abc import Callable
from typing import Final

from odradek.net.connection import Connection
from odradek.net.server import Frames
from odradek.wire.api_keys import ApiKey

log = logging.getLogger(__name__)
# The first two bytes of a request are its API key.
HELD: Final = frozenset(
    int(key).to_bytes(2, "big")
    for key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
)
_PURPOSE: Final = "registration"
WAITING_MAX: Final = 100  # connections; each connection above that is closed


class EarlyRequests:
    """Holds back the controller's requests until `registered`; then it costs nothing."""

    def __init__(
        self, wrap_frames: Callable[[str, Callable[[Frames], Frames] | None], None]
    ) -> None:
        """`wrap_frames` is that of the server (`net/server.py`)."""
        self._wrap_frames = wrap_frames
        self._waiting: dict[Connection, None] = {}
        wrap_frames(_PURPOSE, self._around)

    def registered(self) -> None:
        """The broker epoch is known: handle what waits, in the order of its arrival."""
        self._wrap_frames(_PURPOSE, None)
        waiting, self._waiting = self._waiting, {}
        if waiting:
            log.info("handling %d early requests of the controller", len(waiting))
        for connection in waiting:
            if not connection.closing:
                connection.release()

    def _around(self, frames: Frames) -> Frames:
        def hold_back(connection: Connection, frame: memoryview) -> None:
            if bytes(frame[:2]) not in HELD:
                frames(connection, frame)
            elif self._has_room_for(connection):
                self._waiting[connection] = None
                connection.put_back(frame)
            else:
                connection.close()

        return hold_back

    def _has_room_for(self, connection: Connection) -> bool:
        if len(self._waiting) < WAITING_MAX or connection in self._waiting:
            return True
        self._waiting = {each: None for each in self._waiting if not each.closing}
        return len(self._waiting) < WAITING_MAX
