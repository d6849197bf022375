"""Whether a leader still answers this broker, for a client that may have just lost it."""

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.broker.cluster.peers import Peer, PeerError
from odradek.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

PROBE_MS: Final = 50


class LeaderProbe:
    """Asks a leader for nothing, beside the fetches of a replica fetcher.

    A process that has ended loses its connections one after the other, within milliseconds: a
    client of the leader may notice the end before this broker does. A request over a connection of
    this broker is answered, or lost with the process.
    """

    def __init__(self, peer: Peer, broker_id: int, start: Callable[..., object]) -> None:
        """`start` starts a coroutine as a task with a name (`Tasks.start`)."""
        self._peer = peer
        self._broker_id = broker_id
        self._start = start
        self._is_disconnected = asyncio.Event()
        self._under_way: asyncio.Future[None] | None = None

    def connected(self) -> None:
        """The replica fetcher has a connection to the leader."""
        self._is_disconnected.clear()

    def disconnected(self) -> None:
        """It has lost its connection, and the loss has been reported."""
        self._is_disconnected.set()

    async def wait(self) -> None:
        """Wait until the leader has answered, or the loss of the fetcher's connection is reported.

        At most `PROBE_MS`. Those who wait at the same time share one request.
        """
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_future()
            self._start(self._ask(self._under_way), "probe of a leader")
        await asyncio.shield(self._under_way)

    async def _ask(self, done: "asyncio.Future[None]") -> None:
        try:
            async with asyncio.timeout(PROBE_MS / 1000):
                try:
                    request = ListOffsetsRequest(replica_id=self._broker_id)
                    await self._peer.ask(request, ListOffsetsResponse)
                except PeerError:  # not a loss by itself: a peer may close an idle connection
                    await self._is_disconnected.wait()
        except TimeoutError:
            pass
        finally:
            self._under_way = None
            done.set_result(None)
