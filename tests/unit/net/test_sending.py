"""Responses that are read while they are sent, over real sockets and from real files."""

import asyncio
import contextlib
import functools
import os
import random
import socket
import struct
from types import SimpleNamespace

import pytest

from odradek.log.slices import DeferredRecords, LogSlice
from odradek.log.system.disk import RealDisk
from odradek.model.errors import OdradekError
from odradek.net.connection import Connection

NOISE = random.Random(7).randbytes(3 << 20)


def on_loop(test):
    """Run an asynchronous test."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 20))

    return run


class Part:
    """A part of a response in pieces of a size."""

    def __init__(self, data, piece_bytes):
        self.data, self.piece_bytes, self.done, self.closed = data, piece_bytes, 0, 0

    def __len__(self):
        return len(self.data)

    def read(self, ready):
        piece = self.data[self.done : self.done + self.piece_bytes]
        self.done += len(piece)
        return piece

    def send(self, to, bytes_max):
        return 0

    def close(self):
        self.closed += 1


class StraightPart(Part):
    """Its bytes go to the socket, as many as that takes; every third time they have to be read."""

    sent_bytes = calls = 0

    def send(self, to, bytes_max):
        self.calls += 1
        if self.calls % 3 == 0:
            return 0
        try:
            count = os.write(to, self.data[self.done : self.done + min(bytes_max, 300_000)])
        except BlockingIOError:
            return 0
        self.done += count
        self.sent_bytes += count
        return count


class Peer:
    """A connection that answers one request, and its client, which reads on demand."""

    def __init__(self, parts):
        self.parts, self.broken, self.held_bytes = parts, [], 0
        self.lost = asyncio.get_running_loop().create_future()

    def connected(self, connection):
        pass

    def frame(self, connection, frame):
        connection.respond(self.parts)

    def broke_off(self, connection, reason):
        self.broken.append(reason)

    def disconnected(self, connection):
        self.lost.set_result(None)

    def holds(self, connection, more):
        self.held_bytes += more

    async def read(self, size):
        loop, data = asyncio.get_running_loop(), b""
        while len(data) < size:
            more = await loop.sock_recv(self.client, min(size - len(data), 50_000))
            if not more:
                break
            data += more
        return data


@contextlib.asynccontextmanager
async def answered(*parts, buffer_bytes=None):
    """A client whose request was answered with these parts, and which has read nothing."""
    loop, peer = asyncio.get_running_loop(), Peer(list(parts))
    peer.connection = Connection(
        peer, listener="PLAINTEXT", frame_bytes_max=100, in_flight_max=5, monotonic_ms=lambda: 0,
        soon=loop.call_soon, holds=peer.holds,
    )  # fmt: skip
    listening = socket.create_server(("127.0.0.1", 0))
    peer.client = socket.socket()
    if buffer_bytes is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        peer.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    peer.client.setblocking(False)
    server = await loop.create_server(lambda: peer.connection, sock=listening)
    try:
        await loop.sock_connect(peer.client, listening.getsockname())
        await loop.sock_sendall(peer.client, b"\0\0\0\1x")
        yield peer
        peer.client.close()
        await asyncio.wait_for(peer.lost, 20)
    finally:
        peer.client.close()
        server.close()


@pytest.mark.parametrize("buffer_bytes", [40_000, 200_000, None])
@on_loop
async def test_a_client_that_reads_slowly_gets_every_byte_once(buffer_bytes):
    first, second = Part(NOISE[: 1 << 20], 300_000), Part(NOISE[::-1], 512 << 10)
    between = NOISE[5:70_005]
    async with answered(
        b"<", first, b"|", between, second, b">", buffer_bytes=buffer_bytes
    ) as peer:
        expected = b"<" + first.data + b"|" + between + second.data + b">"
        assert await peer.read(len(expected)) == expected


@pytest.mark.parametrize("buffer_bytes", [40_000, 200_000, None])
@on_loop
async def test_what_goes_right_to_the_socket_keeps_its_place(buffer_bytes):
    first, second = StraightPart(NOISE[: 2 << 20], 70_000), StraightPart(NOISE[::-1], 512 << 10)
    async with answered(
        b"<", first, b"|", NOISE[5:70_005], second, b">", buffer_bytes=buffer_bytes
    ) as peer:
        expected = b"<" + first.data + b"|" + NOISE[5:70_005] + second.data + b">"
        assert await peer.read(len(expected)) == expected

    assert first.sent_bytes
    assert (first.closed, second.closed) == (1, 1)


@on_loop
async def test_what_is_written_together_leaves_at_once():
    """A cork that is left in the socket would hold the last bytes back for 200 ms."""
    async with answered(b"<", Part(b"x" * 70_000, 50_000), b">") as peer:
        assert await peer.read(70_002) == b"<" + b"x" * 70_000 + b">"
        sender = peer.connection._transport.get_extra_info("socket")
        assert sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) == 0


@on_loop
async def test_what_waits_for_a_slow_client_is_counted():
    async with answered(b"<", NOISE[: 1 << 20], b">", buffer_bytes=60_000) as peer:
        assert await peer.read(1) == b"<"
        assert peer.connection._peer_is_slow
        # The buffer of the requests is counted, too.
        unread_bytes = peer.connection._transport.get_write_buffer_size()
        assert peer.held_bytes in range(unread_bytes, unread_bytes + 300_000)
    assert peer.held_bytes == 0


@on_loop
async def test_a_part_is_closed_once_if_the_client_disconnects_before_its_end():
    part = Part(NOISE, 512 << 10)
    async with answered(b"<", part, b">", buffer_bytes=60_000) as peer:
        assert await peer.read(10_000)
        peer.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert (part.closed, part.done < len(part)) == (1, True)


# ------------------------------------------------------------------------ records in a file


@contextlib.contextmanager
def real_disk():
    disk = RealDisk(asyncio.get_running_loop().call_soon_threadsafe)
    try:
        yield disk
    finally:
        disk.close()


def records(disk, path):
    """The bytes of a file but the first seven, which are not in the page cache."""
    path.write_bytes(NOISE)
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    segment = SimpleNamespace(file=disk.file(str(path)))
    return DeferredRecords(LogSlice(segment, 7, len(NOISE) - 7, None), lambda _: None)


@on_loop
async def test_records_in_the_page_cache_go_from_their_file_to_the_socket(tmp_path, monkeypatch):
    path = tmp_path / "0.log"
    path.write_bytes(NOISE)

    def read(*_):
        raise AssertionError("the records are read into memory")

    with real_disk() as disk:
        segment = SimpleNamespace(file=disk.file(str(path)))
        part = DeferredRecords(LogSlice(segment, 4_711, 500_000, None), lambda _: None)
        monkeypatch.setattr(os, "preadv", read)
        async with answered(b"<", part, b">") as peer:
            assert await peer.read(500_002) == b"<" + NOISE[4_711:504_711] + b">"


@on_loop
async def test_records_are_sent_from_a_file_that_is_deleted_meanwhile(tmp_path):
    path = tmp_path / "0.log"
    with real_disk() as disk:
        part = records(disk, path)
        async with answered(b"<", part, b">", buffer_bytes=60_000) as peer:
            begun = await peer.read(100_000)
            path.unlink()
            rest = await peer.read(len(part) + 2 - len(begun))

    assert begun + rest == b"<" + NOISE[7:] + b">"


@on_loop
async def test_a_file_that_is_truncated_meanwhile_closes_the_connection(tmp_path):
    path = tmp_path / "0.log"
    with real_disk() as disk:
        part = records(disk, path)
        async with answered(b"<", part, b">", buffer_bytes=60_000) as peer:
            assert await peer.read(1) == b"<"
            os.truncate(path, len(NOISE) - 10)
            with contextlib.suppress(ConnectionResetError):
                assert len(await peer.read(len(part) + 2)) < len(part)

    assert "was truncated" in peer.broken[0]
    assert part._is_closed


@on_loop
async def test_a_part_that_cannot_be_read_closes_the_connection():
    class Bad(Part):
        def read(self, ready):
            raise OdradekError("bad disk")

    part = Bad(NOISE, 1)
    async with answered(b"<", part, b">") as peer:
        with contextlib.suppress(ConnectionResetError):
            await peer.read(1)

    assert (peer.broken, part.closed) == (["bad disk"], 1)
