"""TLS connections over real sockets: handshakes, flow control, memory, and the ends of both."""

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial

import pytest
from tests.certificates import Authority

from odradek.net.server import RealNetwork
from odradek.net.straight import straight_socket
from odradek.net.tls import transport as tls_transport
from odradek.net.tls.connector import TlsConnector
from odradek.net.tls.context import TlsOptions, client_context, server_tls
from odradek.net.tls.transport import (
    HELLO_BYTES_MAX,
    RECEIVED_BYTES,
    RECEIVED_BYTES_MAX,
    Scratch,
    TlsTransport,
)
from odradek.security.tls.stores import KeyStore

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def options(authority, key=None, **more):
    trust = KeyStore(type="PEM", location=authority.file)
    return TlsOptions(
        key_store=KeyStore(type="PEM", location=key) if key else KeyStore(),
        trust_store=trust,
        **more,
    )


class Inner(asyncio.BufferedProtocol):
    """A connection that keeps what it receives, and what it is notified of."""

    def __init__(self, room=1 << 16):
        self.buffer = bytearray(room)
        self.received = bytearray()
        self.updates = []
        self.transport = None
        self.is_slow = False
        self.changed = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes):
        self.updates.append(nbytes)
        self.received += self.buffer[:nbytes]
        self.changed.set()

    def pause_writing(self):
        self.is_slow = True

    def resume_writing(self):
        self.is_slow = False
        self.changed.set()

    def connection_lost(self, exc):
        self.changed.set()
        self.lost.set_result(exc)

    async def until(self, holds):
        async with asyncio.timeout(20):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


class Listener:
    """A listening socket that serves TLS; `accepted` are the connections."""

    def __init__(self, context, **inner):
        self.context, self.inner = context, inner
        self.accepted, self.problems, self.established = [], [], []
        self.begun = []
        self.came = asyncio.Event()
        self.soon = None

    async def open(self):
        scratch = Scratch()

        def make():
            inner = Inner(**self.inner)
            self.accepted.append(inner)
            self.came.set()
            return TlsTransport(
                inner,
                self.context,
                scratch=scratch,
                established=self._established,
                failed=self._failed,
                server_side=True,
                begins=self._begins,
                **({"soon": self.soon} if self.soon else {}),
            )

        self.listening = await RealNetwork().listen(make, HOST, 0)
        self.port = self.listening.port
        return self

    def _established(self, transport):
        self.established.append(transport)
        self.came.set()

    def _begins(self, hello_bytes):
        self.begun.append(hello_bytes)
        return True

    def _failed(self, reason):
        self.problems.append(reason)
        self.came.set()

    async def until(self, holds):
        async with asyncio.timeout(20):
            while not holds():
                self.came.clear()
                await self.came.wait()


async def serving(authority, **inner):
    """A listener with a certificate of this authority."""
    return await Listener(
        server_tls(options(authority, authority.issue(HOST))).context, **inner
    ).open()


async def connect(listener, context, **inner):
    """Connect, and wait until the server's handshake has ended, too."""
    before = len(listener.established)
    connector = TlsConnector(RealNetwork(), lambda: context)
    client = await connector.connect(partial(Inner, **inner), HOST, listener.port)
    await listener.until(lambda: len(listener.established) > before)
    return client


def play(story):
    async def whole():
        await asyncio.wait_for(story(), 60)

    asyncio.run(whole())


def test_bytes_go_both_ways_and_the_end_reaches_both_sides(authority):
    async def story():
        listener = await serving(authority)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        client.transport.write(b"request")
        await server.until(lambda: server.received == b"request")
        for size in (0, 1, 20_000, 300_000):
            server.transport.write(bytes(size))
        assert straight_socket(server.transport) is None, "nothing is sent past the encryption"
        await client.until(lambda: len(client.received) == 320_001)

        server.transport.write(b"last")
        server.transport.close()
        await client.lost
        await server.lost
        assert client.received.endswith(b"last")
        listener.listening.close()

    play(story)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_enabled_versions_are_used_alone(authority, version):
    async def story():
        other = {"TLSv1.2": "TLSv1.3", "TLSv1.3": "TLSv1.2"}[version]
        key = authority.issue(HOST)
        context = server_tls(options(authority, key, versions=(version,))).context
        listener = await Listener(context).open()
        client = await connect(listener, client_context(options(authority)))
        assert client.transport.get_extra_info("ssl_object").version() == version
        with pytest.raises(ConnectionError):
            await connect(listener, client_context(options(authority, versions=(other,))))
        await listener.until(lambda: listener.problems)
        assert "ssl.enabled.protocols" in listener.problems[0]
        client.transport.abort()
        listener.listening.close()

    play(story)


def test_a_paused_connection_keeps_little_and_then_receives_all(authority):
    async def story():
        listener = await serving(authority)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        server.transport.pause_reading()
        data = bytes(range(256)) * (32 << 10)
        client.transport.write(data)
        # The socket's buffers are full, and the client has been notified.
        await client.until(lambda: client.is_slow)
        assert not server.received
        assert server.transport.pending_bytes <= RECEIVED_BYTES
        server.transport.resume_reading()
        await server.until(lambda: len(server.received) == len(data))
        assert server.received == data
        client.transport.abort()
        await server.lost
        listener.listening.close()

    play(story)


def test_a_connection_that_pauses_after_each_read_receives_everything(authority):
    async def story():
        listener = await serving(authority, room=1000)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        keep = server.buffer_updated

        def updated(count):
            keep(count)
            server.transport.pause_reading()
            asyncio.get_running_loop().call_soon(server.transport.resume_reading)

        server.buffer_updated = updated
        client.transport.write(b"x" * 200_000)
        await server.until(lambda: len(server.received) == 200_000)
        client.transport.abort()
        await server.lost
        listener.listening.close()

    play(story)


@pytest.mark.parametrize("room", [1 << 10, 1 << 20])
def test_as_much_is_received_at_once_as_the_connection_has_room_for(authority, room):
    async def story():
        listener = await serving(authority, room=room)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        size = len(server.transport.get_buffer(-1))
        assert size == {1 << 10: RECEIVED_BYTES, 1 << 20: RECEIVED_BYTES_MAX}[room]
        data = bytes(range(256)) * (8 << 10)
        client.transport.write(data)
        await server.until(lambda: len(server.received) == len(data))
        assert server.received == data
        assert min(RECEIVED_BYTES, room) <= max(server.updates) <= RECEIVED_BYTES_MAX
        client.transport.abort()
        await server.lost
        listener.listening.close()

    play(story)


def test_a_connection_with_much_room_that_pauses_keeps_a_part_of_a_record_only(authority):
    async def story():
        listener = await serving(authority, room=1 << 20)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        keep, waiting = server.buffer_updated, []

        def updated(count):
            keep(count)
            server.transport.pause_reading()
            waiting.append(server.transport.pending_bytes)
            asyncio.get_running_loop().call_soon(server.transport.resume_reading)

        server.buffer_updated = updated
        client.transport.write(bytes(4 << 20))
        await server.until(lambda: len(server.received) == 4 << 20)
        assert max(server.updates) > RECEIVED_BYTES
        assert max(waiting) < 17 << 10
        client.transport.abort()
        await server.lost
        listener.listening.close()

    play(story)


def test_a_peer_that_does_not_read_slows_the_writer_down_and_all_bytes_are_counted(authority):
    async def story():
        listener = await serving(authority)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        client.transport.pause_reading()
        written = 0
        while not server.is_slow:
            server.transport.write(bytes(1 << 20))
            written += 1 << 20
        unsent = server.transport.get_write_buffer_size()
        # What the kernel has not taken is counted, encrypted or not.
        assert unsent > 0
        assert unsent <= (1 << 20) + (256 << 10)
        server.transport.write(bytes(1 << 20))
        written += 1 << 20
        assert server.transport.get_write_buffer_size() == unsent + (1 << 20)

        client.transport.resume_reading()
        await client.until(lambda: len(client.received) == written)
        await server.until(lambda: not server.is_slow)
        assert server.transport.get_write_buffer_size() == 0
        server.transport.abort()
        await client.lost
        listener.listening.close()

    play(story)


def test_an_aborted_connection_drops_what_is_unsent(authority):
    async def story():
        listener = await serving(authority)
        client = await connect(listener, client_context(options(authority)))
        (server,) = listener.accepted
        client.transport.pause_reading()
        while not server.is_slow:
            server.transport.write(bytes(1 << 20))
        server.transport.abort()
        await server.lost
        assert server.transport.get_write_buffer_size() == 0
        client.transport.abort()
        await client.lost
        listener.listening.close()

    play(story)


# -------------------------------------------------------------------------------- handshakes


def test_a_client_without_tls_is_closed_with_a_reason(authority):
    async def story():
        listener = await serving(authority)
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        writer.write(b"\0\0\0\x10\0\x12\0\0")
        assert await reader.read() == b""
        writer.close()
        (problem,) = listener.problems
        assert problem.startswith("the client does not use TLS")
        listener.listening.close()

    play(story)


def test_a_handshake_that_is_not_completed_ends_after_its_time(authority, monkeypatch):
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def story():
        listener = await serving(authority)
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        writer.write(b"\x16\x03\x01")
        assert await reader.read() == b""
        (server,) = listener.accepted
        assert not listener.begun, "OpenSSL's object would take 45 KB for three bytes"
        await server.lost
        assert listener.problems == ["no TLS handshake within 0 s"]
        writer.close()
        listener.listening.close()

    play(story)


def hello(message_bytes, record_bytes=512, kind=1):
    """The headers of a ClientHello."""
    record = b"\x16\x03\x01" + record_bytes.to_bytes(2, "big")
    return record + bytes([kind]) + message_bytes.to_bytes(3, "big")


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (hello(HELLO_BYTES_MAX + 1), "a ClientHello of 32769 bytes; 32768 are accepted"),
        (hello(1 << 24 - 1), "bytes; 32768 are accepted"),
        (hello(508, record_bytes=3), "does not begin with a ClientHello"),
        (hello(508, kind=11), "does not begin with a ClientHello"),
    ],
)
def test_memory_is_not_taken_for_what_a_client_announces(authority, head, text):
    async def story():
        listener = await serving(authority)
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        for each in head:  # one byte after the other is the same
            writer.write(bytes([each]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.read() == b""
        assert [text in problem for problem in listener.problems] == [True]
        assert not listener.begun
        writer.close()
        listener.listening.close()

    play(story)


def test_the_size_of_a_client_hello_is_known_before_the_handshake_begins(authority):
    async def story():
        listener = await serving(authority)
        client = await connect(listener, client_context(options(authority)))
        (size,) = listener.begun
        assert 100 < size < 4096
        client.transport.abort()
        listener.listening.close()

    play(story)


def test_a_port_check_is_no_failed_handshake(authority):
    async def story():
        listener = await serving(authority)
        _, writer = await asyncio.open_connection(HOST, listener.port)
        await listener.until(lambda: listener.accepted)
        writer.close()
        await listener.accepted[0].lost
        assert listener.problems == [""]
        listener.listening.close()

    play(story)


def test_a_client_that_leaves_during_the_handshake_is_reported(authority):
    async def story():
        listener = await serving(authority)
        _, writer = await asyncio.open_connection(HOST, listener.port)
        writer.write(b"\x16\x03\x01\x02")
        await writer.drain()
        writer.close()
        await listener.until(lambda: listener.problems)
        assert listener.problems[0].startswith("the other side closed the connection during")
        listener.listening.close()

    play(story)


def test_a_certificate_is_required_if_the_options_say_so(authority):
    async def story():
        key = authority.issue(HOST)
        context = server_tls(options(authority, key, client_auth="required")).context
        listener = await Listener(context).open()
        # With TLS 1.3 the client learns after its own handshake that it was refused.
        refused = client_context(options(authority, versions=("TLSv1.2",)))
        with pytest.raises(ConnectionError):
            await connect(listener, refused)
        await listener.until(lambda: listener.problems)
        assert "ssl.client.auth=required" in listener.problems[0]

        own = authority.issue("alice@example.org", name="alice")
        client = await connect(listener, client_context(options(authority, own)))
        client.transport.write(b"x")
        await listener.accepted[1].until(lambda: listener.accepted[1].received)
        client.transport.abort()
        listener.listening.close()

    play(story)


@pytest.mark.parametrize("flaw", ["expired", "other host", "other authority"])
def test_a_server_with_a_wrong_certificate_is_refused(authority, tmp_path, caplog, flaw):
    keys = {
        "expired": partial(authority.expired, HOST),
        "other host": partial(authority.issue, "broker.example.org"),
        "other authority": partial(Authority(tmp_path / "other").issue, HOST),
    }
    reasons = {
        "expired": "certificate has expired",
        "other host": "IP address mismatch",
        "other authority": "unable to get local issuer certificate",
    }

    async def story():
        listener = await Listener(server_tls(options(authority, keys[flaw]())).context).open()
        connector = TlsConnector(RealNetwork(), lambda: client_context(options(authority)))
        for _ in range(2):
            with pytest.raises(ConnectionError, match=reasons[flaw]):
                await connector.connect(Inner, HOST, listener.port)
        assert len(caplog.records) == 1  # one line while the problem is the same
        await listener.until(lambda: len(listener.problems) == 2)
        listener.listening.close()

    play(story)


def test_a_host_name_is_not_checked_if_the_options_say_so(authority):
    async def story():
        key = authority.issue("broker.example.org")
        listener = await Listener(server_tls(options(authority, key)).context).open()
        context = client_context(options(authority, checks_host_name=False))
        client = await connect(listener, context)
        client.transport.abort()
        await client.lost
        listener.listening.close()

    play(story)


def test_a_cancelled_connection_is_closed(authority):
    async def story():
        with socket.socket() as silent:
            silent.bind((HOST, 0))
            silent.listen()
            connector = TlsConnector(RealNetwork(), lambda: client_context(options(authority)))
            connecting = asyncio.ensure_future(
                connector.connect(Inner, HOST, silent.getsockname()[1])
            )
            accepted, _ = await asyncio.get_running_loop().run_in_executor(None, silent.accept)
            with accepted:
                connecting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await connecting
                accepted.settimeout(20)
                rest = await asyncio.get_running_loop().run_in_executor(None, read_all, accepted)
                assert rest[:1] in (b"", b"\x16")

    play(story)


def read_all(connection):
    data = b""
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return data


def test_handshakes_wait_for_their_turn(authority):
    async def story():
        listener = Listener(server_tls(options(authority, authority.issue(HOST))).context)
        waiting = []
        listener.soon = lambda work: (waiting.append(work), listener.came.set())
        await listener.open()
        connecting = asyncio.ensure_future(connect(listener, client_context(options(authority))))
        while not connecting.done():
            await listener.until(lambda: waiting or connecting.done())
            for work in [waiting.pop() for _ in list(waiting)]:
                work()
            await asyncio.sleep(0)
        (await connecting).transport.abort()
        listener.listening.close()

    play(story)


def test_a_renegotiation_is_not_possible(authority):
    context = server_tls(options(authority, authority.issue(HOST))).context
    assert context.options & ssl.OP_NO_RENEGOTIATION


class Wire(asyncio.Transport):
    """A socket whose bytes the test carries."""

    def __init__(self):
        super().__init__()
        self.sent = bytearray()
        self.ended = None

    def write(self, data):
        self.sent += data

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.ended is not None

    def close(self):
        self.ended = "closed"

    def abort(self):
        self.ended = "aborted"

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


class Carried:
    """A server's connection and its client, whose records the test cuts as it needs."""

    def __init__(self, authority, **inner):
        self.inner, self.wire = Inner(**inner), Wire()
        self.server = TlsTransport(
            self.inner,
            server_tls(options(authority, authority.issue(HOST))).context,
            scratch=Scratch(),
            established=lambda _: None,
            failed=pytest.fail,
            server_side=True,
        )
        self.server.connection_made(self.wire)
        self.to_client, self.from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client_context(options(authority)).wrap_bio(
            self.to_client, self.from_client, server_hostname=HOST
        )
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.carry(self.from_client.read())
            self.to_client.write(self.taken())

    def record(self, data):
        self.client.write(data)
        return self.from_client.read()

    def carry(self, data):
        rest = memoryview(data)
        while rest:
            room = self.server.get_buffer(-1)
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.server.buffer_updated(count)
            rest = rest[count:]

    def taken(self):
        data, self.wire.sent = bytes(self.wire.sent), bytearray()
        return data


@pytest.mark.parametrize("room", [1, 7, 1000, 1 << 16, 1 << 18])
@pytest.mark.parametrize("piece", [1, 5, 22, 1000, 1 << 18])
def test_records_arrive_whole_however_they_are_cut(authority, room, piece):
    async def story():
        carried = Carried(authority, room=room)
        sent = [bytes([n]) * size for n, size in enumerate((1, 7, 16_384, 200, 3, 90_000, 1))]
        data = b"".join(map(carried.record, sent))
        for begin in range(0, len(data), piece):
            carried.carry(data[begin : begin + piece])
        assert carried.inner.received == b"".join(sent)
        assert carried.server.pending_bytes == 0
        carried.server.write(b"response")
        carried.to_client.write(carried.taken())
        assert carried.client.read() == b"response"
        assert carried.wire.ended is None

    play(story)


def test_what_arrives_with_the_end_of_the_connection_is_passed_on(authority):
    async def story():
        carried = Carried(authority)
        last = carried.record(b"last")
        with suppress(ssl.SSLWantReadError):
            carried.client.unwrap()
        carried.carry(last + carried.from_client.read())
        assert carried.inner.received == b"last"
        assert carried.wire.ended == "closed"

    play(story)


def test_a_record_that_was_changed_on_its_way_ends_the_connection(authority):
    async def story():
        carried = Carried(authority)
        first, second = bytearray(carried.record(b"first")), carried.record(b"second")
        first[-1] ^= 1
        carried.carry(bytes(first))
        carried.carry(second)
        assert not carried.inner.received
        assert carried.wire.ended == "aborted"

    play(story)
