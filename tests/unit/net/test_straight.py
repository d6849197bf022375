"""The socket of a connection, past its transport."""

import socket

from tests.unit.net.test_connection import FakeTransport, Handler

from odradek.net.connection import Connection
from odradek.net.straight import straight_socket


class Socket:
    """Notes between the writes when it is corked."""

    def __init__(self, writes):
        self._writes = writes

    def setsockopt(self, level, option, value):
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CORK)
        self._writes.append(("cork", value))

    def fileno(self):
        return 17


class SocketTransport(FakeTransport):
    def __init__(self):
        super().__init__()
        self.socket = Socket(self.written)
        self.unsent_bytes = 0

    def get_write_buffer_size(self):
        return self.unsent_bytes

    def get_extra_info(self, name, default=None):
        return self.socket if name == "socket" else super().get_extra_info(name, default)


def test_a_transport_without_a_socket_has_none():
    assert straight_socket(FakeTransport()) is None


class Part:
    """A part of a response that goes to the socket, one half after the other."""

    def __init__(self, transport):
        self.transport, self.left_bytes = transport, 200_000

    def __len__(self):
        return 200_000

    def send(self, to, bytes_max):
        if self.left_bytes:
            self.transport.written.append(("part", to))
            self.left_bytes -= 100_000
            return 100_000
        return 0

    def read(self, ready):
        data = b"read" if self.left_bytes else b""
        self.left_bytes = 0
        return data

    def close(self):
        self.transport.written.append("closed")


def answered(chunks, transport):
    """A connection that has sent one response."""
    connection = Connection(
        Handler(), listener="PLAINTEXT", frame_bytes_max=100, in_flight_max=5,
        monotonic_ms=lambda: 0, soon=lambda call: None,
    )  # fmt: skip
    connection.connection_made(transport)
    connection.respond(chunks)
    connection.release()
    return transport.written


def test_the_first_bytes_of_a_response_do_not_leave_alone():
    transport = SocketTransport()
    written = answered([b"<", Part(transport), b">"], transport)

    part = ("part", 17)
    assert written == [("cork", 1), b"<", part, part, "closed", b"", b">", ("cork", 0)]


def test_what_the_transport_holds_leaves_first():
    transport = SocketTransport()
    transport.unsent_bytes = 1
    written = answered([b"<", Part(transport), b">"], transport)

    assert written == [("cork", 1), b"<", b"read", "closed", b"", b">", ("cork", 0)]


def test_a_response_in_one_piece_is_not_corked():
    assert answered([b"<>"], SocketTransport()) == [b"<>"]


def test_small_pieces_are_joined_and_not_corked():
    assert answered([b"<", b"x", b">"], SocketTransport()) == [b"<x>"]
