"""A network in memory: it delays, splits, cuts and loses, by seed.

It speaks asyncio's transports and protocols, so the real `net/` runs on it unchanged. A
connection is two `_End`s. What one writes arrives at the other after the link's delay, in order,
in pieces of any size, as TCP may have it. What it can do to a connection:

    die with its host     the other end learns of it (as by a reset), or never does
    be cut                bytes are lost in one direction or both until it is healed or closed
    be reset              both ends lose it, wherever the bytes were
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_HIGH_WATER_BYTES: Final = 64 * 1024


class SimulatedNetwork:
    """The network of one simulation. Hosts are names; `host(name)` is a broker's view of it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        *,
        delay_ms: tuple[float, float] = (0.05, 2.0),
    ) -> None:
        self.delay_ms = delay_ms
        self._loop = loop
        self._random = randomness
        self._listening: dict[tuple[str, int], _Listening] = {}
        self._connections: list[tuple[_End, _End]] = []
        self._next_port = 20_000
        self._cut: set[tuple[str, str]] = set()  # from, to

    def host(self, name: str) -> "Host":
        """The network as seen from a host."""
        return Host(self, name)

    def cut(self, source: str, target: str) -> None:
        """Lose all that goes from one host to another, until it is healed."""
        self._cut.add((source, target))

    def heal(self) -> None:
        """All links work again. Connections that lost bytes are reset: TCP cannot repair them."""
        self._cut.clear()
        for near, far in list(self._connections):
            if near.lost_bytes or far.lost_bytes:
                near.drop(ConnectionResetError("healed after a cut"))
                far.drop(ConnectionResetError("healed after a cut"))

    def reset_some(self, share: float) -> int:
        """Reset each connection with this probability. Returns how many were."""
        count = 0
        for near, far in list(self._connections):
            if self._random.random() < share:
                near.drop(ConnectionResetError("reset"))
                far.drop(ConnectionResetError("reset"))
                count += 1
        return count

    def host_died(self, name: str) -> None:
        """All connections of a host end, and its listeners with it. It is told nothing."""
        for address in [a for a in self._listening if a[0] == name]:
            del self._listening[address]
        for near, far in list(self._connections):
            for here, there in ((near, far), (far, near)):
                if here.host == name:
                    here.vanish()
                    there.drop(ConnectionResetError(f"{name} died"))

    # ----------------------------------------------------------------------- inside

    def listen(self, host: str, port: int, make_protocol: Callable[[], Any]) -> "_Listening":
        """Take a port."""
        if not port:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self._listening:
            raise OSError(98, "Address already in use")
        listening = _Listening(self, host, port, make_protocol)
        self._listening[host, port] = listening
        return listening

    def stop_listening(self, host: str, port: int) -> None:
        """Give a port back."""
        self._listening.pop((host, port), None)

    async def connect(
        self, source: str, target: str, port: int, make_protocol: Callable[[], Any]
    ) -> Any:
        """Connect as `loop.create_connection` does. Returns the protocol.

        Raises:
            OSError: nobody listens there, or the way is cut.
        """
        await asyncio.sleep(self.draw_delay_s())
        if self.is_cut(source, target) or self.is_cut(target, source):
            raise TimeoutError(f"{target}:{port} does not answer")
        listening = self._listening.get((target, port))
        if listening is None:
            raise ConnectionRefusedError(f"nobody listens on {target}:{port}")
        self._next_port += 1
        near = _End(self, source, peer=(target, port), protocol=make_protocol())
        far = _End(self, target, peer=(source, self._next_port), protocol=listening.make_protocol())
        near.other, far.other = far, near
        self._connections.append((near, far))
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near.protocol

    def forget(self, end: "_End") -> None:
        """A connection is over on both sides."""
        self._connections = [pair for pair in self._connections if end not in pair]

    def is_cut(self, source: str, target: str) -> bool:
        """Whether bytes from one host to another are lost."""
        return source != target and (source, target) in self._cut

    def draw_delay_s(self) -> float:
        """A delay of this network."""
        return self._random.uniform(*self.delay_ms) / 1000

    def draw_piece(self, available: int) -> int:
        """How many of the bytes that are there arrive together."""
        if self._random.random() < 0.8:
            return available
        return self._random.randint(1, available)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Do something after a delay."""
        self._loop.call_later(delay_s, work)

    def soon(self, work: Callable[..., None], *arguments: object) -> None:
        """Do something in the next turn."""
        self._loop.call_soon(work, *arguments)


class Host:
    """The `Network` of one broker, and the way out for clients."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.network = network
        self.name = name

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> "_Listening":
        """Accept connections from now on, whatever address `host` was."""
        del host
        return self.network.listen(self.name, port, make_protocol)

    async def connect(self, make_protocol: Callable[[], Any], target: str, port: int) -> Any:
        """Connect to a host of this network."""
        return await self.network.connect(self.name, target, port, make_protocol)


class _Listening:
    def __init__(
        self, network: SimulatedNetwork, host: str, port: int, make_protocol: Callable[[], Any]
    ) -> None:
        self.port = port
        self.make_protocol = make_protocol
        self._network = network
        self._host = host

    def close(self) -> None:
        self._network.stop_listening(self._host, self.port)


class _End(asyncio.Transport):
    """One end of a connection: a transport to its protocol."""

    other: "_End"

    def __init__(
        self, network: SimulatedNetwork, host: str, *, peer: tuple[str, int], protocol: Any
    ) -> None:
        super().__init__({"peername": peer})
        self.host = host
        self.protocol = protocol
        self.lost_bytes = 0
        self._network = network
        self._closing = False
        self._gone = False
        self._reading = True
        self._arrived: deque[bytes] = deque()
        self._under_way = 0  # bytes written here that the other end has not taken
        self._writing_paused = False
        self._arrives_at = 0.0
        self._eof_arrived = False

    # ------------------------------------------------------ what a protocol may call

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._gone or self._closing or not data:
            return
        self._send(bytes(data))
        if self._under_way > _HIGH_WATER_BYTES and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self._closing or self._gone

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._network.soon(self._deliver)

    def close(self) -> None:
        if self._closing or self._gone:
            return
        self._closing = True
        self._send(None)
        self._network.soon(self.drop, None)

    def abort(self) -> None:
        if not self._gone:
            self._closing = True
            self._network.soon(self.other.drop, ConnectionResetError("aborted"))
            self._network.soon(self.drop, None)

    def get_write_buffer_size(self) -> int:
        return self._under_way

    # --------------------------------------------------------------- what befalls it

    def drop(self, error: Exception | None) -> None:
        """The connection is over; the protocol is told."""
        if not self._gone:
            self._gone = True
            self._arrived.clear()
            self.protocol.connection_lost(error)
            self._network.forget(self)

    def vanish(self) -> None:
        """The process is dead: nobody is told."""
        self._gone = True
        self._network.forget(self)

    # ------------------------------------------------------------------------ inside

    def _send(self, data: bytes | None) -> None:
        """Put bytes (None: the end) on the way. They keep their order whatever the delays."""
        size = len(data) if data else 0
        self._under_way += size
        if self._network.is_cut(self.host, self.other.host):
            self.lost_bytes += max(size, 1)
            return
        now = asyncio.get_running_loop().time()
        self._arrives_at = max(self._arrives_at, now + self._network.draw_delay_s())
        self._network.later(self._arrives_at - now, lambda: self.other.arrive(data))

    def arrive(self, data: bytes | None) -> None:
        """Bytes come in; None: no more will."""
        if self._gone:
            return
        if self.other.lost_bytes:
            return  # a gap in the stream: TCP would hold back what is behind it
        if data is None:
            self._eof_arrived = True
        else:
            self._arrived.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._reading and self._arrived and not self._gone:
            data = self._arrived.popleft()
            piece = self._network.draw_piece(len(data))
            if piece < len(data):
                self._arrived.appendleft(data[piece:])
                data = data[:piece]
            self.other.taken(len(data))
            self._hand_over(data)
        if self._eof_arrived and not self._arrived and not self._gone:
            self.drop(None)

    def _hand_over(self, data: bytes) -> None:
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            while data and not self._gone:
                room = memoryview(self.protocol.get_buffer(len(data)))
                count = min(len(room), len(data))
                room[:count] = data[:count]
                self.protocol.buffer_updated(count)
                data = data[count:]
        else:
            self.protocol.data_received(data)

    def taken(self, count: int) -> None:
        """The other end has taken bytes out of the network."""
        self._under_way -= count
        if self._writing_paused and self._under_way <= _HIGH_WATER_BYTES // 4:
            self._writing_paused = False
            if not self._gone:
                self.protocol.resume_writing()
