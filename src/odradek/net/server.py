"""Listeners: accept connections within limits, and close idle ones.

The limits are Kafka's: `max.connections` for the broker, `max.connections.per.ip` with its
overrides, `connections.max.idle.ms`. A connection over the limit is closed at once and counted.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from odradek.model.clock import MonotonicMs
from odradek.model.cluster import EndPoint
from odradek.model.errors import StartupError
from odradek.net.connection import Connection, FrameHandler
from odradek.net.mute import Mute
from odradek.net.together import Together
from odradek.net.unauthenticated import Unauthenticated
from odradek.quota.connections import ConnectionRates

Frames = Callable[[Connection, memoryview], None]


class Network(Protocol):
    """Accepts connections: the event loop's TCP, or the simulator's network."""

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> "ListeningSocket":
        """Open a listener.

        Raises:
            OSError: the address is in use, or it is not an address of this host.
        """


class ListeningSocket(Protocol):
    """An open listening socket."""

    @property
    def port(self) -> int:
        """The port in use, also where the configured port is 0."""

    def close(self) -> None:
        """Accept no more connections; connections already accepted stay open."""


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Connection limits. All of them can be changed while the broker runs."""

    connections_max: int = 2**31 - 1
    per_ip_max: int = 2**31 - 1
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    frame_bytes_max: int = 104_857_600
    queued_bytes_max: int = -1  # received, not handled, of all connections; -1: no limit
    in_flight_max: int = 64  # requests of one connection; Java clients have at most 5
    waiting_bytes_max: int = 1 << 20  # of one connection's responses behind one not yet ready
    memory_bytes_max: int = 1 << 30  # received or to be sent, of all connections
    unauthenticated_bytes_max: int = 1 << 28  # of all connections that are not authenticated yet
    unauthenticated_ms_max: int = 30_000  # until a connection is authenticated
    files_max: int = 2**31 - 1  # connections for which there are file descriptors
    # By listener (None: of the broker): connections served in a second, and open ones.
    rates: Mapping[str | None, int] = field(default_factory=dict)
    per_listener_max: Mapping[str, int] = field(default_factory=dict)
    # The brokers' listener (Kafka: `inter.broker.listener.name`): a connection to it is accepted
    # at the limit, and the longest idle one of another listener is closed instead.
    protected_listener: str | None = None


def _never(_seconds: float, _call: Callable[[], None]) -> None:
    raise AssertionError("a server that limits rates is given `call_later`")


@dataclass(slots=True)
class RefusedForFiles:
    """The connections that were refused because no file descriptors were left for them."""

    count: int = 0
    first_ms: MonotonicMs = MonotonicMs(0)
    last_ms: MonotonicMs = MonotonicMs(0)

    def one_more(self, at_ms: MonotonicMs) -> None:
        if not self.count:
            self.first_ms = at_ms
        self.count, self.last_ms = self.count + 1, at_ms


class Server:
    """All listeners of one broker, and their connections."""

    def __init__(  # noqa: PLR0913 - what it accepts, for which handler, and the world
        self,
        network: Network,
        handler: FrameHandler,
        limits: ConnectionLimits,
        *,
        monotonic_ms: Callable[[], MonotonicMs],
        soon: Callable[[Callable[[], None]], None],
        call_later: Callable[[float, Callable[[], None]], object] = _never,
        rates: ConnectionRates | None = None,
        around: Callable[[Connection], asyncio.BufferedProtocol] | None = None,
        together: Together | None = None,
    ) -> None:
        """`soon` calls a function after other work has had its turn (`Turns.soon`).

        `call_later` is needed where connections are limited by a rate. `around` is what the socket
        of a connection is given in place of the connection (TLS); None: the connection. Without
        `together` each connection sends its responses at once.
        """
        self._around = around
        self._call_later = call_later
        self.unauthenticated = Unauthenticated(
            monotonic_ms=monotonic_ms, soon=soon, dropped=self.broke_off
        )
        self.limits = limits
        # What handles the connections of a listener before this object does, by listener.
        self.in_front: dict[str, FrameHandler] = {}
        self.refused_connections = 0
        self.refused_for_files = RefusedForFiles()
        self.delayed_connections = 0  # above a rate: served or closed later
        self.rates = rates or ConnectionRates()
        self.dropped_connections = 0  # because of `memory_bytes_max`
        self.memory_bytes = 0  # of the connections that take more than 64 KiB
        self._soon = soon
        self._together = together
        self._sheds = False
        self._is_over = False
        self._refusal_is_logged = False
        self._queued_bytes = 0
        self._is_crowded = False
        self._network = network
        self._handler = handler
        # Bound here without a call in between: it is called for every request.
        self.frame: Frames = handler.frame
        self._wraps: dict[str, Callable[[Frames], Frames]] = {}
        self._monotonic_ms = monotonic_ms
        self._listening: list[ListeningSocket] = []
        self._connections: dict[Connection, None] = {}  # in the order of their acceptance
        self._by_ip: Counter[str] = Counter()
        self.created: Counter[str] = Counter()  # accepted connections since the start, by listener
        self.closed: Counter[str] = Counter()

    def wrap_frames(self, purpose: str, wrap: Callable[[Frames], Frames] | None) -> None:
        """Let frames pass through another function on their way to the handler; None: no longer.

        There is one function for each purpose.
        """
        self._wraps.pop(purpose, None)
        if wrap is not None:
            self._wraps[purpose] = wrap
        self.frame = self._handler.frame
        for each in self._wraps.values():
            self.frame = each(self.frame)

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.unauthenticated.bytes_max = limits.unauthenticated_bytes_max
        self.unauthenticated.ms_max = limits.unauthenticated_ms_max

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def sessions(self) -> Iterator[tuple[str, Any]]:
        """Listener and session of each open connection."""
        return ((connection.listener, connection.session) for connection in self._connections)

    def by_listener(self) -> Counter[str]:
        """The number of open connections of each listener."""
        return Counter(connection.listener for connection in self._connections)

    def hosts(self, count: int) -> list[tuple[str, int]]:
        """The addresses with the most open connections."""
        return self._by_ip.most_common(count)

    @property
    def ports(self) -> list[int]:
        """The ports of the open listeners, in the order of their opening."""
        return [listening.port for listening in self._listening]

    async def listen(self, end_point: EndPoint) -> int:
        """Open one listener and return its port.

        Raises:
            StartupError: the address cannot be used.
        """
        make_protocol = partial(self._make_protocol, end_point.listener)
        try:
            listening = await self._network.listen(make_protocol, end_point.host, end_point.port)
        except OSError as error:
            raise StartupError(
                f"cannot listen on {end_point.connection_string}: {error.strerror or error}; "
                f"choose another address in `listeners`, or stop the process that uses this one"
            ) from None
        self._listening.append(listening)
        return listening.port

    def _make_protocol(self, listener: str) -> asyncio.BufferedProtocol:
        connection = self.make_connection(listener)
        return connection if self._around is None else self._around(connection)

    def make_connection(self, listener: str) -> Connection:
        """The protocol for a connection that a listener accepts."""
        return Connection(
            self.in_front.get(listener, self),
            listener=listener,
            frame_bytes_max=self.limits.frame_bytes_max,
            in_flight_max=self.limits.in_flight_max,
            monotonic_ms=self._monotonic_ms,
            soon=self._soon,
            received=self._received if self.limits.queued_bytes_max > 0 else None,
            holds=self._holds,
            waiting_bytes_max=self.limits.waiting_bytes_max,
            together=self._together,
        )

    def stop_listening(self) -> None:
        """Close all listeners; accepted connections stay open."""
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    def close_connections(self) -> None:
        """Close every connection once its ready responses are sent, and those that come later."""
        self._is_over = True
        for connection in list(self._connections):
            connection.close()

    def drop_idle(self) -> int:
        """Close connections that are idle for too long, or not authenticated in time.

        Returns the number of idle ones.
        """
        self.unauthenticated.drop_late()
        oldest_ms = self._monotonic_ms() - self.limits.idle_ms_max
        idle = [connection for connection in self._connections if connection.is_idle(oldest_ms)]
        for connection in idle:
            connection.abort()  # a response that the client has not read yet will not be read
        return len(idle)

    def rest(self, interval_ms: int) -> None:
        """Shrink the buffers of connections that received nothing for `interval_ms`."""
        oldest_ms = self._monotonic_ms() - interval_ms
        for connection in self._connections:
            connection.rest(oldest_ms)

    # ------------------------------------------- a FrameHandler before the real one

    def connected(self, connection: Connection) -> None:
        """Accept a connection, or close it if a limit is reached."""
        if self._is_over:
            connection.abort()
            return
        reason = self._refusal_reason(connection)
        if reason is not None:
            self.refused_connections += 1
            if not self._refusal_is_logged:  # logged once, until a connection is closed
                self._refusal_is_logged = True
                self._handler.broke_off(connection, f"{reason}; further refusals are not logged")
            connection.abort()
            return
        refused_ms = self.rates.refused_ms(connection.peer_host, self._monotonic_ms())
        if refused_ms:
            # Closed after the throttle time, as in Kafka: its client does not reconnect before.
            self.delayed_connections += 1
            self._hold_up(connection)
            self._call_later(refused_ms / 1000, connection.abort)
            return
        self._connections[connection] = None
        self.created[connection.listener] += 1
        self._by_ip[connection.peer_host] += 1
        if self._is_crowded:
            connection.crowd(True)
        self._handler.connected(connection)
        delay_ms = self._delay_ms(connection.listener)
        if delay_ms:
            self.delayed_connections += 1
            self._hold_up(connection)
            self._call_later(delay_ms / 1000, partial(connection.unmute, Mute.RATE))

    def _hold_up(self, connection: Connection) -> None:
        """Stop reading a new connection, so that a TLS handshake does not begin either."""
        connection.mute(Mute.RATE)
        connection.crowd(self._is_crowded)

    def _delay_ms(self, listener: str) -> int:
        """How long a new connection is not read.

        The broker's rate does not hold for a separate listener of the brokers.
        """
        limits, now_ms = self.limits.rates, self._monotonic_ms()
        delay_ms = 0
        if listener in limits:
            delay_ms = self.rates.delay_ms(listener, limits[listener], now_ms)
        if None in limits and listener != self.limits.protected_listener:
            delay_ms = max(delay_ms, self.rates.delay_ms(None, limits[None], now_ms))
        return delay_ms

    def _refusal_reason(self, connection: Connection) -> str | None:
        """The limit that a new connection would exceed; None if it may stay."""
        limits, ip, count = self.limits, connection.peer_host, len(self._connections)
        per_ip = limits.per_ip_overrides.get(ip, limits.per_ip_max)
        if self._by_ip[ip] >= per_ip:
            return f"{self._by_ip[ip]} connections of this address (max.connections.per.ip)"
        listener, make_room = connection.listener, self.unauthenticated.make_room
        listener_max = limits.per_listener_max.get(listener)
        if listener_max is not None and self.by_listener()[listener] >= listener_max:
            why = f"{listener_max} connections of listener {listener} (max.connections)"
            return None if make_room(ip, listener) else why
        if count < limits.connections_max and count < limits.files_max:
            return None
        if make_room(ip) or (listener == limits.protected_listener and self._make_room()):
            return None
        if count >= limits.connections_max:
            return f"{count} connections are open; max.connections={limits.connections_max}"
        self.refused_for_files.one_more(self._monotonic_ms())
        return (
            f"{count} connections are open, and there are no file descriptors for more: raise the "
            "limit of open files (ulimit -n, LimitNOFILE=)"
        )

    def _make_room(self) -> bool:
        """Close the longest idle connection of another listener than the brokers'."""
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
        self._handler.refused(connection, reason)

    def disconnected(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self.closed[connection.listener] += 1
        self.unauthenticated.leave(connection)
        self._refusal_is_logged = False
        self._by_ip[connection.peer_host] -= 1
        if not self._by_ip[connection.peer_host]:
            del self._by_ip[connection.peer_host]
        self._handler.disconnected(connection)

    def broke_off(self, connection: Connection, reason: str) -> None:
        self._handler.broke_off(connection, reason)

    def _holds(self, connection: Connection, more_bytes: int) -> None:
        """Add to the memory of all connections; close some of them if it is too much."""
        self.unauthenticated.holds(connection, more_bytes)
        self.memory_bytes += more_bytes
        if not self._sheds and self.memory_bytes > self.limits.memory_bytes_max:
            self._sheds = True
            self._soon(self._shed)

    def _shed(self) -> None:
        """Close the connections idle for longest until memory suffices."""
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
        """Add to the received and not handled bytes; stop or resume reading at the limit."""
        self._queued_bytes += more_bytes
        is_crowded = self._queued_bytes > self.limits.queued_bytes_max
        if is_crowded is not self._is_crowded:
            self._is_crowded = is_crowded
            for connection in list(self._connections):
                connection.crowd(is_crowded)


def why_not_listen(host: str, port: int) -> str | None:
    """Why a listener cannot be opened there now; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return None


# asyncio accepts as many connections in one iteration of the loop as its backlog allows. A large
# backlog makes one long iteration, and opens many files before the first refusal.
ACCEPTED_AT_ONCE: Final = 50


class RealNetwork:
    """TCP on the running event loop."""

    def __init__(
        self,
        *,
        backlog: int = 50,
        at_once: int = ACCEPTED_AT_ONCE,
        send_bytes: int = -1,
        receive_bytes: int = -1,
    ) -> None:
        """`at_once` connections of a listener are accepted in one turn of the loop."""
        self._backlog = backlog
        self._at_once = at_once
        self._buffers = ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes))

    async def listen(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> ListeningSocket:
        """Open a listener; an empty host means all interfaces."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Without IPPROTO_TCP asyncio does not recognise accepted sockets as TCP and leaves Nagle's
        # algorithm on: the end of a large response then waits 40 ms for the client's delayed ACK.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, size in self._buffers:
                if size > 0:  # accepted sockets inherit the option
                    listening.setsockopt(socket.SOL_SOCKET, option, size)
            listening.bind((host, port))
        except BaseException:
            listening.close()
            raise
        server = await asyncio.get_running_loop().create_server(
            make_protocol, sock=listening, backlog=min(self._backlog, self._at_once)
        )
        listening.listen(self._backlog)
        return _RealListeningSocket(server, listening)

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        loop = asyncio.get_running_loop()
        try:
            _, protocol = await loop.create_connection(make_protocol, host, port)
        except (ValueError, OverflowError) as error:  # no host can have this name, or no port
            raise OSError(f"{host}:{port}: {error}") from None
        return protocol


class _RealListeningSocket:
    def __init__(self, server: asyncio.Server, listening: socket.socket) -> None:
        self._server = server
        self._listening = listening
        self.port: int = listening.getsockname()[1]

    def close(self) -> None:
        # A connection that was accepted in this turn of the loop gets its transport in the next,
        # and could not after the end of its listener: its socket would stay open.
        loop = self._server.get_loop()
        loop.remove_reader(self._listening)
        loop.call_soon(self._server.close)
