"""Acknowledging what Spark wrote first, so that it writes on."""

import pickle
import socket
import sys

import pytest

from odradek.spark import promptness
from odradek.spark.promptness import Prompt, acknowledge

LINUX = sys.platform == "linux"


class Loaded(Prompt):
    """Something that Spark sends to its workers."""

    def __init__(self) -> None:
        self.columns = ("key", "value")


def test_connections_over_tcp_are_told_and_stay_open() -> None:
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


def test_unix_sockets_and_files_are_left_alone() -> None:
    before = acknowledge()
    one, other = socket.socketpair()
    with one, other:
        assert acknowledge() == before


def test_who_is_loaded_acknowledges_and_has_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    sent = pickle.dumps(Loaded())
    monkeypatch.setattr(promptness, "acknowledge", lambda: told.append(True))
    loaded = pickle.loads(sent)
    assert told == [True]
    assert loaded.columns == ("key", "value")


def test_nothing_is_told_where_the_system_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    with socket.create_server(("127.0.0.1", 0)):
        assert acknowledge() == 0
