"""Acknowledging Spark's first write at once, so that it sends the second."""

import pickle
import socket
import sys

import pytest

from odradek.spark import quick_ack
from odradek.spark.quick_ack import QuickAcknowledged, acknowledge

LINUX = sys.platform == "linux"


class Loaded(QuickAcknowledged):
    """An object that Spark pickles for its workers."""

    def __init__(self) -> None:
        self.columns = ("key", "value")


def test_tcp_connections_are_acknowledged_and_stay_open() -> None:
    before = acknowledge()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        client.sendall(b"what to do")
        assert acknowledge() - before >= (2 if LINUX else 0)
        client.sendall(b"and with which partition")
        got = b""
        while len(got) < len(b"what to doand with which partition"):
            got += accepted.recv(100)
        assert got == b"what to doand with which partition"
    assert acknowledge() == before


def test_unix_sockets_and_files_are_skipped() -> None:
    before = acknowledge()
    one, other = socket.socketpair()
    with one, other:
        assert acknowledge() == before


def test_an_unpickled_object_acknowledges_and_has_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    sent = pickle.dumps(Loaded())
    monkeypatch.setattr(quick_ack, "acknowledge", lambda: calls.append(True))
    loaded = pickle.loads(sent)
    assert calls == [True]
    assert loaded.columns == ("key", "value")


def test_systems_without_the_option_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    with socket.create_server(("127.0.0.1", 0)):
        assert acknowledge() == 0
