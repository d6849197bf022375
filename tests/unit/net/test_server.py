"""The real listener: options of accepted sockets, and connection limits."""

import asyncio
import contextlib
import gc
import socket

import pytest

from odradek.model.cluster import EndPoint
from odradek.net.server import ConnectionLimits, RealNetwork, Server, why_not_listen
from odradek.net.unauthenticated import CONNECTION_BYTES


class _Accepted(asyncio.BufferedProtocol):
    """Keeps the accepted socket."""

    def __init__(self, came: asyncio.Future[socket.socket]) -> None:
        self._came = came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._came.set_result(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(16)

    def buffer_updated(self, nbytes: int) -> None:
        pass


def test_accepted_sockets_have_no_nagle_delay():
    async def accepted_without_delay() -> int:
        came: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        listening = await RealNetwork().listen(lambda: _Accepted(came), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        accepted = await asyncio.wait_for(came, 10)
        delay_is_off = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await writer.wait_closed()
        listening.close()
        return delay_is_off

    assert asyncio.run(accepted_without_delay())


@pytest.mark.parametrize(
    ("host", "port"), [("a..b", 9), ("x" * 64, 9), ("a\0b", 9), ("127.0.0.1", 65_536)]
)
def test_an_address_that_cannot_be_is_an_error_of_the_connection(host, port):
    connect = RealNetwork().connect(asyncio.BufferedProtocol, host, port)

    with pytest.raises(OSError, match=f"{port}: "):
        asyncio.run(connect)


def test_why_not_listen_names_the_reason():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert why_not_listen("127.0.0.1", port) == "Address already in use"
    assert why_not_listen("127.0.0.1", port) is None
    assert why_not_listen("203.0.113.1", 0) == "Cannot assign requested address"


@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_is_accepted_while_its_listener_closes_is_not_left_behind(turns):
    """Its socket would stay open, and its client would wait for an answer."""

    async def client_sees_the_end() -> bytes:
        loop = asyncio.get_running_loop()
        server = Server(
            RealNetwork(),
            Refusing(),
            ConnectionLimits(),
            monotonic_ms=lambda: 0,
            soon=loop.call_soon,
        )
        port = await server.listen(
            EndPoint(listener="L", security_protocol="PLAINTEXT", host="127.0.0.1", port=0)
        )
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            server.stop_listening()
            server.close_connections()
            with contextlib.suppress(ConnectionResetError):
                return await asyncio.wait_for(loop.sock_recv(client, 1), 10)
            return b""

    assert asyncio.run(client_sees_the_end()) == b""
    gc.collect()  # what is left behind is a warning, and that an error


# ------------------------------------------------------------------------------ connection limits


class Refusing:
    """A handler that records the connections it was called with."""

    def __init__(self):
        self.came, self.reasons = [], []

    def frame(self, connection, frame):
        pass

    def connected(self, connection):
        self.came.append(connection)

    def disconnected(self, connection):
        pass

    def broke_off(self, connection, reason):
        self.reasons.append(reason)


class Transport(asyncio.Transport):
    def __init__(self, connection, host):
        super().__init__({"peername": (host, 4711)})
        self.connection, self.closed = connection, False

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close


def served(handler, **limits):
    ms = iter(range(1000))
    return Server(
        None, handler, ConnectionLimits(**limits), monotonic_ms=lambda: next(ms), soon=[].append
    )


def joined(server, listener="CLIENTS", host="10.0.0.7"):
    connection = server.make_connection(listener)
    transport = Transport(connection, host)
    connection.connection_made(transport)
    return transport


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"connections_max": 2}, "max.connections=2"),
        ({"files_max": 2}, "no file descriptors"),
        ({"per_ip_max": 2}, "max.connections.per.ip"),
    ],
)
def test_above_a_limit_connections_are_refused_with_one_line(limits, reason):
    handler = Refusing()
    server = served(handler, **limits)
    transports = [joined(server) for _ in range(5)]

    assert [each.closed for each in transports] == [False, False, True, True, True]
    assert (len(handler.came), server.refused_connections) == (2, 3)
    assert server.refused_for_files.count == (3 if "files_max" in limits else 0)
    assert len(handler.reasons) == 1
    assert reason in handler.reasons[0]
    transports[0].connection.connection_lost(None)
    assert not joined(server).closed


@pytest.mark.parametrize("limits", [{"connections_max": 3}, {"files_max": 3}])
def test_at_the_limit_a_broker_replaces_the_longest_idle_client(limits):
    server = served(Refusing(), protected_listener="BROKERS", **limits)
    broker, first, second = joined(server, "BROKERS"), joined(server), joined(server)
    first.connection.buffer_updated(0)
    late = joined(server, "BROKERS")

    assert [each.closed for each in (broker, first, second, late)] == [False, False, True, False]
    assert server.refused_connections == 0


@pytest.mark.parametrize(
    "limits",
    [{"connections_max": 3}, {"files_max": 3}, {"per_listener_max": {"CLIENTS": 3}}],
)
def test_at_the_limit_a_storm_before_authentication_makes_room_for_other_addresses(limits):
    server = served(Refusing(), unauthenticated_bytes_max=64 * CONNECTION_BYTES, **limits)
    storm = [joined(server, host="10.0.0.9") for _ in range(3)]
    for transport in storm[1:]:
        server.unauthenticated.enter(transport.connection)
    other = joined(server)

    assert [each.closed for each in (*storm, other)] == [False, True, False, False]
    assert joined(server, host="10.0.0.9").closed, "not for the address itself"
    assert server.refused_connections == 1
