"""A network whose connections are cut off, delayed or frozen on request: for tests and teaching.

It wraps the real network of one broker, and only of a broker that was started for it: the
connections of any other broker have nothing between the socket and their protocol.

    cut(addresses)   nothing passes between this broker and these addresses, in either direction, on
                     the connections that this broker has made; new ones wait. `cuts_client` says
                     for which client ids nothing passes on the connections that it has accepted
    slow(ms)         what this broker sends arrives later by so much, on every connection
    freeze()         nothing passes on any connection, and none is accepted, as with SIGSTOP
    die()            all connections are reset and no protocol is called again, as with SIGKILL

As with TCP no byte is lost: what is held back passes when the network is healed, if the connection
still exists by then. A connection is cut at the broker that has made it. Two brokers connect to
each other, so the cut has to be set at both.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Protocol, cast

from odradek.net.channel import Connector
from odradek.net.server import ListeningSocket, Network

Address = tuple[str, int]
CutsClient = Callable[[str], bool]
# A protocol is asked to pause when so many of its bytes are held back.
_HELD_BYTES_MAX: Final = 1 << 20


def no_client(_client_id: str) -> bool:
    return False


class InnerNetwork(Network, Connector, Protocol):
    """The network that is wrapped."""


class FaultyNetwork:
    """The network of one broker, with faults."""

    def __init__(self, network: InnerNetwork, loop: asyncio.AbstractEventLoop) -> None:
        self.delay_s = 0.0
        self.is_frozen = False
        self.is_dead = False
        self.links: set[FaultyLink] = set()
        self.accepted: dict[Address, FaultyLink] = {}  # by the address of the other side
        self.loop = loop
        self._network = network
        self._cut: frozenset[Address] = frozenset()
        self._cuts_client: CutsClient = no_client
        self._listening: list[ListeningSocket] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> ListeningSocket:
        """Open a listener of the wrapped network."""
        listening = await self._network.listen(
            lambda: FaultyLink(self, make_protocol(), None), host, port
        )
        self._listening.append(listening)
        return listening

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect; to an address that is cut off, when it is healed."""
        address = (host, port)
        while self.is_held(address):
            healed = self.loop.create_future()
            self._waiting.append(healed)
            await healed
        link = await self._network.connect(
            lambda: FaultyLink(self, make_protocol(), address), host, port
        )
        return cast("FaultyLink", link).protocol

    # ----------------------------------------------------------------------------- the faults

    def cut(self, addresses: Collection[Address], cuts_client: CutsClient = no_client) -> None:
        """Cut these addresses and clients off, in place of those before; none ends it."""
        self._cut = frozenset(addresses)
        self._cuts_client = cuts_client
        self._update()

    def slow(self, ms: int) -> None:
        """Delay what is sent from now on; 0 ends it."""
        self.delay_s = ms / 1000

    def freeze(self) -> None:
        self.is_frozen = True
        self._update()

    def thaw(self) -> None:
        self.is_frozen = False
        self._update()

    def die(self) -> None:
        """Reset all connections and close the listeners, without notifying a protocol."""
        self.is_dead = True
        for link in tuple(self.links):
            link.die()
        for listening in self._listening:
            listening.close()

    def is_held(self, address: Address | None, client_id: str | None = None) -> bool:
        """Whether nothing passes on a connection to this address (None: an accepted one)."""
        return self.is_frozen or address in self._cut or self.is_cut(client_id)

    def is_cut(self, client_id: str | None) -> bool:
        """Whether this client is cut off; None: it is not known, or another broker."""
        return client_id is not None and self._cuts_client(client_id)

    def _update(self) -> None:
        for link in tuple(self.links):
            link.update()
        waiting, self._waiting = self._waiting, []
        for healed in waiting:
            if not healed.done():
                healed.set_result(None)


class FaultyLink(asyncio.BufferedProtocol, asyncio.Transport):
    """Between a socket and its protocol: the protocol of the one, the transport of the other."""

    def __init__(
        self,
        network: FaultyNetwork,
        protocol: asyncio.BufferedProtocol,
        address: Address | None,
    ) -> None:
        """`address` is where this broker has connected to; None: the connection was accepted."""
        super().__init__()
        self.protocol = protocol
        # Of an accepted connection, when its first request has shown whose it is.
        self.is_named = False
        self.client_id: str | None = None  # None: not known, or another broker's
        self._network = network
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._queue: deque[tuple[float, bytes]] = deque()  # when it may pass, in order
        self._queued_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._reads = True  # whether the protocol wants to read
        self._is_made = False  # whether the protocol has its transport
        self._is_over = False  # whether the protocol was notified of the end
        self._closes = False
        self._socket_is_full = False
        self._is_paused = False  # whether the protocol was asked to pause writing

    # ------------------------------------------------------------------ what the faults call

    def update(self) -> None:
        """The faults of the network have changed."""
        held = self._network.is_held(self._address, self.client_id)
        if held is self._is_held or self._transport is None:
            return
        self._is_held = held
        if held:
            self._transport.pause_reading()
            return
        if self._is_over:  # it was closed while it was held
            self._transport.abort()
            return
        if not self._is_made:
            self._made()
        if self._reads and not self._transport.is_closing():
            self._transport.resume_reading()
        self._drain()

    def name(self, client_id: str | None) -> None:
        """Its requests are of this client; None: of another broker."""
        self.is_named, self.client_id = True, client_id
        self.update()

    def die(self) -> None:
        self._is_over = True
        self._end_timer()
        if self._transport is not None:
            self._transport.abort()

    # ----------------------------------------------------------------- the socket's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._network.is_dead:
            self.die()
            return
        self._network.links.add(self)
        if self._address is None:
            self._network.accepted[self._peer()] = self
        self._is_held = self._network.is_held(self._address)
        if self._is_held:
            self._transport.pause_reading()
        else:
            self._made()

    def _peer(self) -> Address:
        peer = self.get_extra_info("peername")
        return (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("unknown", 0)

    def _made(self) -> None:
        self._is_made = True
        self.protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._network.links.discard(self)
        if self._address is None and self._network.accepted.get(self._peer()) is self:
            del self._network.accepted[self._peer()]
        self._end_timer()
        self._ended(exc)

    def _ended(self, exc: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            if self._is_made:
                self.protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> Any:
        return self.protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_over:
            self.protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return None if self._is_over else self.protocol.eof_received()

    def pause_writing(self) -> None:
        self._socket_is_full = True
        self._update_pause()

    def resume_writing(self) -> None:
        self._socket_is_full = False
        self._drain()

    # --------------------------------------------------------------- the protocol's transport

    def write(self, data: Any) -> None:
        """Pass bytes on, now or when the faults allow it."""
        if self._closes or self._is_over or self._transport is None:
            return
        delay_s = self._network.delay_s
        if not self._queue and not self._is_held and not delay_s:
            self._transport.write(data)
            return
        self._queue.append((self._network.loop.time() + delay_s, bytes(data)))
        self._queued_bytes += len(data)
        self._drain()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close when everything written has passed."""
        self._closes = True
        self._drain()

    def abort(self) -> None:
        """Reset; the other side notices it when nothing is held back any more."""
        self._closes = True
        self._queue.clear()
        self._queued_bytes = 0
        if self._transport is None:
            return
        if self._is_held:
            self._network.loop.call_soon(self._ended, None)
        else:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._closes or self._transport is None or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._reads = False
        if not self._is_held and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reads = True
        if not self._is_held and self._transport is not None:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":  # what is written past this transport would have no faults
            return default
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        inner = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._queued_bytes + inner

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    # --------------------------------------------------------------------------------- inside

    def _drain(self) -> None:
        """Pass on what is due."""
        transport = self._transport
        self._end_timer()
        if transport is None or self._is_held or self._is_over:
            self._update_pause()
            return
        now_s = self._network.loop.time() + 1e-6
        while self._queue and self._queue[0][0] <= now_s:
            _, data = self._queue.popleft()
            self._queued_bytes -= len(data)
            transport.write(data)
        self._update_pause()
        if self._queue:
            self._timer = self._network.loop.call_at(self._queue[0][0], self._drain)
        elif self._closes:
            transport.close()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _update_pause(self) -> None:
        pauses = self._socket_is_full or self._queued_bytes > _HELD_BYTES_MAX
        if pauses is self._is_paused or self._is_over or not self._is_made:
            return
        self._is_paused = pauses
        if pauses:
            self.protocol.pause_writing()
        else:
            self.protocol.resume_writing()
