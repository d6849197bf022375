"""Listeners: accept, within limits; drop who is silent for too long.

Limits are Kafka's: `max.connections` for the broker, `max.connections.per.ip` with its
overrides. A peer over the limit is closed at once and counted; the listener goes on.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from odradek.model.cluster import EndPoint
from odradek.model.errors import StartupError
from odradek.net.connection import Connection, FrameHandler


class Network(Protocol):
    """The part of the world that accepts connections: the real loop's, or the simulator's."""

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> "ListeningSocket":
        """Accept connections from now on.

        Raises:
            OSError: the address is not ours or is taken.
        """


class ListeningSocket(Protocol):
    """An open listener."""

    @property
    def port(self) -> int:
        """The port it got, where 0 was asked for."""

    def close(self) -> None:
        """Accept no more; connections already there stay."""


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """How many may come. All of them can be changed while the broker runs."""

    connections_max: int = 2**31 - 1
    per_ip_max: int = 2**31 - 1
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    frame_bytes_max: int = 104_857_600
    queued_bytes_max: int = -1  # received and not handled, of all together; -1: no limit
    in_flight_max: int = 64  # of one connection; Java's clients have at most 5
    waiting_bytes_max: int = 1 << 20  # of one connection's responses, behind one that is awaited
    memory_bytes_max: int = 1 << 30  # received, or to be sent, of all together
    files_max: int = 2**31 - 1  # connections for which there are open files
    # Brokers come by this one, and are let in by whoever was silent longest on another.
    protected_listener: str | None = None


class Server:
    """All listeners of one broker, and the connections that came by them."""

    def __init__(
        self,
        network: Network,
        handler: FrameHandler,
        limits: ConnectionLimits,
        *,
        now_ms: Callable[[], int],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`soon` calls something when others have had their turn (`Turns.soon`)."""
        self.limits = limits
        self.refused_connections = 0
        self.dropped_connections = 0  # for the memory that they took
        self.memory_bytes = 0  # that connections take, as far as it is worth counting
        self._soon = soon
        self._sheds = False
        self._says_refused = False
        self._queued_bytes = 0
        self._is_crowded = False
        self._network = network
        self._handler = handler
        # Passed on without a call in between: it is called for every request.
        self.frame: Callable[[Connection, memoryview], None] = handler.frame
        self._now_ms = now_ms
        self._listening: list[ListeningSocket] = []
        self._connections: dict[Connection, None] = {}  # in the order in which they came
        self._by_ip: Counter[str] = Counter()

    @property
    def connection_count(self) -> int:
        """Connections open now."""
        return len(self._connections)

    def by_listener(self) -> Counter[str]:
        """Connections open now, by listener."""
        return Counter(connection.listener for connection in self._connections)

    @property
    def ports(self) -> list[int]:
        """The ports of the open listeners, in the order in which they were opened."""
        return [listening.port for listening in self._listening]

    async def listen(self, end_point: EndPoint) -> int:
        """Open one listener and return its port.

        Raises:
            StartupError: the address cannot be had.
        """
        make_protocol = partial(self.make_connection, end_point.listener)
        try:
            listening = await self._network.listen(make_protocol, end_point.host, end_point.port)
        except OSError as error:
            raise StartupError(
                f"cannot listen on {end_point.connection_string}: {error.strerror or error}; "
                f"choose another address in `listeners`, or stop who has this one"
            ) from None
        self._listening.append(listening)
        return listening.port

    def make_connection(self, listener: str) -> Connection:
        """The protocol for a peer that comes to a listener."""
        return Connection(
            self,
            listener=listener,
            frame_bytes_max=self.limits.frame_bytes_max,
            in_flight_max=self.limits.in_flight_max,
            now_ms=self._now_ms,
            soon=self._soon,
            received=self._received if self.limits.queued_bytes_max > 0 else None,
            holds=self._holds,
            waiting_bytes_max=self.limits.waiting_bytes_max,
        )

    def stop_listening(self) -> None:
        """Accept nobody any more."""
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    def close_connections(self) -> None:
        """Answer what can be answered and send everybody away."""
        for connection in list(self._connections):
            connection.close()

    def abort_connections(self) -> None:
        """Drop every connection as a dying process would."""
        for connection in list(self._connections):
            connection.abort()

    def drop_idle(self) -> int:
        """Close connections silent for too long that wait for nothing. Returns how many."""
        oldest_ms = self._now_ms() - self.limits.idle_ms_max
        idle = [connection for connection in self._connections if connection.is_idle(oldest_ms)]
        for connection in idle:
            connection.abort()  # what it has not taken until now it will not take
        return len(idle)

    def rest(self, interval_ms: int) -> None:
        """Have connections that sent nothing for so long give back the memory they do not need."""
        oldest_ms = self._now_ms() - interval_ms
        for connection in self._connections:
            connection.rest(oldest_ms)

    # ------------------------------------------- a FrameHandler before the real one

    def connected(self, connection: Connection) -> None:
        """Let a peer in, if there is room."""
        reason = self._why_not(connection)
        if reason is not None:
            self.refused_connections += 1
            if not self._says_refused:  # once, until there is room again
                self._says_refused = True
                self._handler.broke_off(connection, f"{reason}; more are refused without a word")
            connection.abort()
            return
        self._connections[connection] = None
        self._by_ip[connection.peer_host] += 1
        if self._is_crowded:
            connection.crowd(True)
        self._handler.connected(connection)

    def _why_not(self, connection: Connection) -> str | None:
        """Why there is no room for this one."""
        limits, ip, count = self.limits, connection.peer_host, len(self._connections)
        per_ip = limits.per_ip_overrides.get(ip, limits.per_ip_max)
        if self._by_ip[ip] >= per_ip:
            return f"{self._by_ip[ip]} connections are open from there (max.connections.per.ip)"
        if count < limits.connections_max and count < limits.files_max:
            return None
        if connection.listener == limits.protected_listener and self._make_room():
            return None
        if count >= limits.connections_max:
            return f"{count} connections are open; max.connections={limits.connections_max}"
        return (
            f"{count} connections are open, and for more there are no files: raise the limit of "
            "open files (ulimit -n, LimitNOFILE=)"
        )

    def _make_room(self) -> bool:
        """Drop whoever was silent longest on another listener than the brokers'."""
        others = (
            each
            for each in self._connections
            if each.listener != self.limits.protected_listener and not each.closing
        )
        oldest = min(others, key=lambda each: each.active_ms, default=None)
        if oldest is not None:
            oldest.abort()
        return oldest is not None

    def refused(self, connection: Connection, reason: str) -> None:
        """Pass on."""
        self._handler.refused(connection, reason)

    def disconnected(self, connection: Connection) -> None:
        """Forget a peer."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._says_refused = False
        self._by_ip[connection.peer_host] -= 1
        if not self._by_ip[connection.peer_host]:
            del self._by_ip[connection.peer_host]
        self._handler.disconnected(connection)

    def broke_off(self, connection: Connection, reason: str) -> None:
        """Pass on."""
        self._handler.broke_off(connection, reason)

    def _holds(self, more_bytes: int) -> None:
        """A connection takes so much more (or less) memory: drop some if it is too much."""
        self.memory_bytes += more_bytes
        if not self._sheds and self.memory_bytes > self.limits.memory_bytes_max:
            self._sheds = True
            self._soon(self._shed)

    def _shed(self) -> None:
        """Drop the connections that have moved nothing for longest, of those that take memory."""
        self._sheds = False
        holders = [each for each in self._connections if each.memory_bytes and not each.closing]
        holders.sort(key=lambda each: max(each.active_ms, each.taken_ms))
        for connection in holders:
            if self.memory_bytes <= self.limits.memory_bytes_max:
                return
            self.dropped_connections += 1
            self._handler.broke_off(
                connection,
                f"its requests and responses take {connection.memory_bytes} bytes of memory, "
                f"those of all connections {self.memory_bytes}; "
                f"odradek.connections.memory.max.bytes={self.limits.memory_bytes_max}",
            )
            connection.abort()

    def _received(self, more_bytes: int) -> None:
        """So many bytes more (or less) wait to be handled: enough, or no longer too many?"""
        self._queued_bytes += more_bytes
        is_crowded = self._queued_bytes > self.limits.queued_bytes_max
        if is_crowded is not self._is_crowded:
            self._is_crowded = is_crowded
            for connection in list(self._connections):
                connection.crowd(is_crowded)


def why_not_listen(host: str, port: int) -> str | None:
    """Why nothing can listen there now; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return None


# asyncio accepts as many connections in one turn of the loop as its backlog says. With a long queue
# that is a long turn, and many open files before the first one can be refused.
ACCEPTED_AT_ONCE: Final = 50


class RealNetwork:
    """TCP on the running loop."""

    def __init__(self, *, backlog: int = 50, send_bytes: int = -1, receive_bytes: int = -1) -> None:
        self._backlog = backlog
        self._buffers = ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes))

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> ListeningSocket:
        """Accept connections from now on; an empty host means all interfaces."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol is named, or asyncio takes accepted sockets for no TCP and leaves Nagle's
        # algorithm on: the end of a large response then waits 40 ms for the peer's delayed ACK.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, size in self._buffers:
                if size > 0:  # accepted sockets inherit it
                    listening.setsockopt(socket.SOL_SOCKET, option, size)
            listening.bind((host, port))
        except BaseException:
            listening.close()
            raise
        server = await asyncio.get_running_loop().create_server(
            make_protocol, sock=listening, backlog=min(self._backlog, ACCEPTED_AT_ONCE)
        )
        listening.listen(self._backlog)
        return _RealListeningSocket(server, listening.getsockname()[1])

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect, and return the protocol."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(make_protocol, host, port)
        return protocol


class _RealListeningSocket:
    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.port = port

    def close(self) -> None:
        self._server.close()
