"""A network in memory that delays, splits, loses and reorders by seed.

It implements asyncio's transports, so the real `net/` and `client/` run on it unchanged. A
connection is two `_End`s, each on the host of a process. Bytes arrive at the other end after the
link's delay, in order, in pieces of any size, as with TCP. Faults:

    a process is killed    a reset, which may overtake bytes that were sent before
    a host loses power     its peers receive nothing until it runs again and resets them;
                           bytes that were held up before (`hold_up`) still arrive
    a link is cut          bytes are lost in one direction or both until it is healed
    a link is slow         bytes take longer in one direction
    a connection is reset  both ends lose it; bytes in flight are lost
    a process is paused    its host accepts bytes and connections, which wait
"""

import asyncio
import errno
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol
from zlib import crc32

from odradek.sim.world.descriptors import Descriptors
from odradek.sim.world.loop import VirtualTimeLoop
from odradek.sim.world.process import MortalLoop, running_process, task_factory

USUAL_DELAY_MS: Final = (0.05, 2.0)
_HIGH_WATER_BYTES: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 1.0
_TICK_S: Final = 1e-6
_ACCEPT_AGAIN_S: Final = 1.0  # asyncio's pause after it could not accept

Parcel = bytes | Exception | None  # bytes, a reset, or the orderly end


class WireEnd(Protocol):
    """One end of a connection, on the host `name`."""

    name: str
    peer_name: str
    protocol: Any
    is_gone: bool


class Wiretap(Protocol):
    """Reads what processes send and receive."""

    def received(self, end: WireEnd, data: bytes) -> None:
        """Bytes are about to be handed to the process of this end."""

    def sent(self, end: WireEnd, data: bytes) -> None:
        """The process of this end has sent bytes."""


class SimulatedNetwork:
    """The network of one simulation. Hosts have names."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        *,
        trace: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.delay_ms = USUAL_DELAY_MS
        self.trace = trace
        self.wiretap: Wiretap | None = None
        self.sockets = Counter[str]()  # open connections, by host
        self.descriptors: dict[str, Descriptors] = {}  # of the hosts that have a limit
        self._loop = loop
        self._random = randomness
        self._processes: dict[str, MortalLoop] = {}
        self._listening: dict[tuple[str, int], _Listening] = {}
        self._ends: dict[_End, None] = {}  # in the order of their creation
        self._next_port = 20_000
        self._cut = Counter[tuple[str, str]]()  # from, to
        self._slow_s: dict[tuple[str, str], float] = {}  # additional delay
        self._held_up_s: dict[tuple[str, str], float] = {}  # survives a power loss

    def join(self, process: MortalLoop, listens: Callable[[], None] = lambda: None) -> "Host":
        """Put a process on the host of its name; connections to an earlier process are reset.

        `listens` is called when the process opens a port.
        """
        for end in list(self._ends):
            if end.peer_name == process.name and end.other.is_gone:
                end.drop_behind(ConnectionResetError(f"{process.name} has restarted"))
        self._processes[process.name] = process
        return Host(self, process, listens)

    # --------------------------------------------------------------------------- faults

    def hold_up(self, source: str, targets: Iterable[str], by_s: float) -> None:
        """Delay what a host sends to some others from now on, and deliver it even if the host loses
        power meanwhile. 0 ends the delay.
        """
        for target in targets:
            self._held_up_s.pop((source, target), None)
            if by_s:
                self._held_up_s[source, target] = by_s

    def is_held_up(self, source: str, target: str) -> bool:
        """Whether bytes from one host to another are held up."""
        return (source, target) in self._held_up_s

    def cut(self, source: str, target: str) -> None:
        """Lose all bytes from one host to another until the link is healed."""
        self._cut[source, target] += 1

    def heal(self, links: Iterable[tuple[str, str]] | None = None) -> None:
        """Heal links, all if none are given; a link that was cut twice has to be healed twice.

        Connections that lost bytes are reset, because TCP cannot repair them.
        """
        if links is None:
            self._cut.clear()
        else:
            self._cut.subtract(links)
            self._cut = +self._cut
        for end in list(self._ends):
            if (end.lost_bytes or end.other.lost_bytes) and not (
                self.is_cut(end.name, end.peer_name) or self.is_cut(end.peer_name, end.name)
            ):
                end.drop(ConnectionResetError("healed after a cut"))

    def slow_down(self, source: str, target: str, by_s: float) -> None:
        """Delay all bytes from one host to another; 0 ends the delay."""
        if by_s:
            self._slow_s[source, target] = by_s
        else:
            self._slow_s.pop((source, target), None)

    def reset_some(self, share: float) -> int:
        """Reset each connection with this probability. Returns the number of resets."""
        count = 0
        for end in list(self._ends):
            if not end.is_gone and self._random.random() < share:
                count += 1
                end.other.drop(ConnectionResetError("reset"))
                end.drop(ConnectionResetError("reset"))
        return count

    def host_died(self, name: str, *, power: bool) -> None:
        """End all connections and listeners of a host, without notifying its process."""
        for address in [a for a in self._listening if a[0] == name]:
            del self._listening[address]
        for end in list(self._ends):
            if end.name == name:
                end.vanish(silently=power)
            elif power and end.peer_name == name and end.other.is_gone and not end.other.has_strays:
                end.other.lost_bytes += 1  # its process was dead already; now its host is down, too

    # ----------------------------------------------------------------------- inside

    def listen(
        self, process: MortalLoop, port: int, make_protocol: Callable[[], Any]
    ) -> "_Listening":
        if not port:
            self._next_port += 1
            port = self._next_port
        if (process.name, port) in self._listening:
            raise OSError(98, "Address already in use")
        listening = _Listening(self, process, port, make_protocol)
        self._listening[process.name, port] = listening
        return listening

    def stop_listening(self, host: str, port: int) -> None:
        self._listening.pop((host, port), None)

    async def connect(
        self, process: MortalLoop, target: str, port: int, make_protocol: Callable[[], Any]
    ) -> tuple[asyncio.Transport, Any]:
        """Connect as `loop.create_connection` does.

        Raises:
            OSError: no process listens there, or the link is cut.
        """
        source = process.name
        held = self.descriptors.get(source)
        if held is not None and not held.is_free():
            held.fail(f"a connection to {target}")
            raise OSError(errno.EMFILE, "Too many open files")
        await asyncio.sleep(self.draw_delay_s())
        if self.is_cut(source, target) or self.is_cut(target, source):
            await asyncio.sleep(_CONNECT_TIMEOUT_S)
            raise TimeoutError(f"{target}:{port} does not answer")
        listening = self._listening.get((target, port))
        if listening is None:
            raise ConnectionRefusedError(f"no process listens on {target}:{port}")
        self._next_port += 1
        near = _End(self, process, peer=(target, port))
        far = _End(self, listening.process, peer=(source, self._next_port))
        near.other, far.other = far, near
        self._ends[near] = self._ends[far] = None
        near.begin(make_protocol)
        # The host accepts a connection by itself; the process is notified when it runs.
        listening.process.call_soon(far.accept, listening.make_protocol)
        return near, near.protocol

    def remove(self, end: "_End") -> None:
        """Remove a closed end."""
        self._ends.pop(end, None)
        if end.protocol is not None:
            self.sockets[end.name] -= 1

    def is_cut(self, source: str, target: str) -> bool:
        """Whether bytes from one host to another are lost."""
        return source != target and (source, target) in self._cut

    def draw_delay_s(self) -> float:
        """A random delay of this network."""
        low_ms, high_ms = self.delay_ms
        return (low_ms + (high_ms - low_ms) * self._random.random()) / 1000

    def extra_delay_s(self, source: str, target: str) -> float:
        """The additional delay of a link."""
        by_s = self._slow_s.get((source, target), 0.0) if self._slow_s else 0.0
        return by_s + self._held_up_s.get((source, target), 0.0) if self._held_up_s else by_s

    def draw_piece(self, available: int) -> int:
        """How many of the available bytes travel, or are read, together."""
        if available < 2 or self._random.random() < 0.8:
            return available
        return self._random.randint(1, available - 1)

    def now_s(self) -> float:
        """The simulated time in seconds."""
        return self._loop.time()

    def draw_arrival_s(self, source: str, target: str) -> float:
        """When bytes that are sent now arrive."""
        low_ms, high_ms = self.delay_ms
        delay_s = (low_ms + (high_ms - low_ms) * self._random.random()) / 1000
        arrives_at_s = self._loop.time() + delay_s
        if self._slow_s or self._held_up_s:
            arrives_at_s += self.extra_delay_s(source, target)
        return arrives_at_s


class SimulatedLoop(VirtualTimeLoop):
    """A loop with a simulated network, whose tasks belong to processes."""

    def __init__(self) -> None:
        super().__init__()
        self.network: SimulatedNetwork | None = None
        self.set_task_factory(task_factory)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        """Connect from the host of the calling process."""
        process = running_process()
        assert process is not None, "only processes are on the network"
        assert self.network is not None, "this simulation has no network"
        return await self.network.connect(process, host, port, protocol_factory)


class Host:
    """The network as seen by a process: a broker's `WorldNetwork`."""

    def __init__(
        self, network: SimulatedNetwork, process: MortalLoop, listens: Callable[[], None]
    ) -> None:
        self._network = network
        self._process = process
        self._listens = listens

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> "_Listening":
        """Accept connections on a port; `host` is ignored."""
        del host
        self._listens()
        return self._network.listen(self._process, port, make_protocol)

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect to a process on another host, and return the protocol."""
        _, protocol = await self._network.connect(self._process, host, port, make_protocol)
        assert isinstance(protocol, asyncio.BufferedProtocol)
        return protocol


class _Listening:
    def __init__(
        self,
        network: SimulatedNetwork,
        process: MortalLoop,
        port: int,
        make_protocol: Callable[[], Any],
    ) -> None:
        self.process = process
        self.port = port
        self.make_protocol = make_protocol
        self._network = network

    def close(self) -> None:
        self._network.stop_listening(self.process.name, self.port)


class _End(asyncio.Transport):
    """One end of a connection: the transport of its protocol.

    Calls of the protocol's methods run in the process's loop; what the host's kernel does (accept
    bytes in order, notice the end of a connection) does not.
    """

    other: "_End"

    def __init__(
        self, network: SimulatedNetwork, process: MortalLoop, *, peer: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peer})
        self.name = process.name
        self.peer_name = peer[0]
        self.protocol: Any = None  # until its process has accepted the connection
        self.lost_bytes = 0
        self.is_gone = False
        self._network = network
        self._process = process
        self._reading = True
        self._arrived: deque[bytes] = deque()
        self._end_arrived: list[Exception | None] = []
        self._under_way = 0  # bytes written here that the other process has not read
        self._writing_paused = False
        self._arrives_at_s = 0.0
        self._is_buffered = False  # the protocol has a buffer of its own
        self.has_strays = False  # the host has lost power, but held up bytes still arrive

    def begin(self, make_protocol: Callable[[], Any]) -> None:
        """The process has a socket for the connection."""
        if not self.is_gone:
            self.protocol = make_protocol()
            self._network.sockets[self.name] += 1
            self._is_buffered = isinstance(self.protocol, asyncio.BufferedProtocol)
            self.protocol.connection_made(self)

    def accept(self, make_protocol: Callable[[], Any]) -> None:
        """The process accepts the connection, as soon as it has a descriptor for it."""
        held = self._network.descriptors.get(self.name)
        if held is not None and not self.is_gone and not held.is_free():
            held.fail(f"a connection of {self.peer_name}")
            self._process.call_later(_ACCEPT_AGAIN_S, self.accept, make_protocol)
            return
        self.begin(make_protocol)
        self._deliver()  # what has arrived meanwhile

    # ------------------------------------------------------ what a protocol may call

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_gone or self._process.is_dead or not data:
            return
        sent = bytes(data)
        if self._network.wiretap is not None:
            self._network.wiretap.sent(self, sent)
        piece = self._network.draw_piece(len(sent))
        self._under_way += len(sent)
        self._send(sent[:piece])
        if piece < len(sent):
            self._send(sent[piece:])
        if self._under_way > _HIGH_WATER_BYTES and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.is_gone

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._process.call_soon(self._deliver)

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(ConnectionResetError("aborted"))

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Accepted; the limits of this network are the same for all."""

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self._reading and not self.is_gone

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def _end(self, what: Exception | None) -> None:
        if not self.is_gone and not self._process.is_dead:
            self._send(what)
            self.drop(None)

    # ------------------------------------------------------------------------ faults

    def drop(self, error: Exception | None) -> None:
        """The connection has ended; the process is notified when it runs."""
        if self.is_gone:
            return
        self.is_gone = True
        self._arrived.clear()
        self._network.remove(self)
        if self.protocol is not None:
            self._process.call_soon(self.protocol.connection_lost, error)

    def drop_behind(self, error: Exception) -> None:
        """The restarted peer does not have this connection; bytes that it had sent arrive first."""
        if self.other.has_strays:
            ends_at_s = max(self._network.now_s(), self.other._arrives_at_s)  # noqa: SLF001
            self._process.call_at(ends_at_s + _TICK_S, self.drop, error)
        else:
            self.drop(error)

    def vanish(self, *, silently: bool) -> None:
        """The process is dead; its host sends a reset, or is without power."""
        if not silently:
            self._send(ConnectionResetError(f"{self.name} was killed"))
        elif self._network.is_held_up(self.name, self.peer_name):
            self.has_strays = True
        else:
            self.other.lost_bytes += 1  # bytes in flight do not arrive
            self.lost_bytes += 1
        self.is_gone = True
        self._network.remove(self)

    # ------------------------------------------------------------------------ inside

    def _send(self, what: Parcel) -> None:
        """Send bytes, an end or a reset; they keep their order whatever the delays."""
        network = self._network
        if network.is_cut(self.name, self.peer_name):
            self.lost_bytes += 1
            return
        arrives_at_s = network.draw_arrival_s(self.name, self.peer_name)
        if not isinstance(what, Exception):  # a reset may overtake bytes, which are then lost
            # Strictly later than what was sent before: the order of equal times is not defined.
            arrives_at_s = max(self._arrives_at_s + _TICK_S, arrives_at_s)
            self._arrives_at_s = arrives_at_s
        other = self.other
        other._process.call_at(arrives_at_s, other._arrive, what)  # noqa: SLF001

    def _arrive(self, what: Parcel) -> None:
        if self.is_gone or self.other.lost_bytes:
            return  # after a gap in the stream: TCP never delivers it
        if isinstance(what, bytes):
            self._network.trace(
                f"{self.peer_name} > {self.name}: {len(what)} bytes {crc32(what):08x}"
            )
            self._arrived.append(what)
        else:
            self._network.trace(f"{self.peer_name} > {self.name}: {what or 'no more'}")
            self._end_arrived.append(what)
        self._deliver()

    def _deliver(self) -> None:
        if self.protocol is None:
            return
        while self._reading and self._arrived and not self.is_gone:
            data = self._arrived.popleft()
            piece = self._network.draw_piece(len(data))
            if piece < len(data):
                self._arrived.appendleft(data[piece:])
                data = data[:piece]
            self.other.taken(len(data))
            self._hand_over(data)
        if self._end_arrived and not self._arrived:
            self.drop(self._end_arrived[0])

    def _hand_over(self, data: bytes) -> None:
        protocol = self.protocol
        if self._network.wiretap is not None:
            self._network.wiretap.received(self, data)
        if not self._is_buffered:
            protocol.data_received(data)
            return
        while data and not self.is_gone:
            size = len(data)
            room = memoryview(protocol.get_buffer(size))
            if len(room) >= size:
                room[:size] = data
                protocol.buffer_updated(size)
                return
            count = len(room)
            room[:] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]

    def taken(self, count: int) -> None:
        """The other process has read bytes."""
        self._under_way -= count
        if self._writing_paused and self._under_way <= _HIGH_WATER_BYTES // 4 and not self.is_gone:
            self._writing_paused = False
            self._process.call_soon(self.protocol.resume_writing)
