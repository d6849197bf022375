"""Responses of several connections leave at the end of a turn of the loop, each in its order."""

from tests.unit.net.test_connection import Handler, Peer

from odradek.net.together import Together


class Loop:
    """Callbacks of the next turn."""

    def __init__(self):
        self.soon = []

    def call_soon(self, callback):
        self.soon.append(callback)

    def turn(self):
        due, self.soon = self.soon, []
        for callback in due:
            callback()


class Answering(Handler):
    """A text in capitals has a large response, and `close` closes the connection behind it."""

    def frame(self, connection, frame):
        text = bytes(frame).decode()
        if text == "close":
            connection.respond([b"bye"])
            connection.close()
        elif text.isupper():
            connection.respond([text.encode(), b"!"])
        else:
            super().frame(connection, frame)


class Turn:
    """Some connections to one broker, in one turn of its loop."""

    def __init__(self, peers=2, *, is_alone=False):
        self.loop, self.ms = Loop(), 0
        self.together = Together(self.loop, lambda: is_alone)
        self.peers = [
            Peer(handler=Answering(), monotonic_ms=lambda: self.ms, together=self.together)
            for _ in range(peers)
        ]

    @property
    def received(self):
        return [peer.received for peer in self.peers]


def test_responses_of_one_turn_leave_at_its_end():
    turn = Turn(3)
    for peer, text in zip(turn.peers, "abc", strict=True):
        peer.send(text)
    assert turn.received == ["", "", ""]

    turn.loop.turn()

    assert turn.received == ["a", "b", "c"]
    assert not turn.loop.soon


def test_the_only_ready_connection_sends_at_once():
    turn = Turn(is_alone=True)
    turn.peers[0].send("a")

    assert turn.received == ["a", ""]
    assert not turn.loop.soon


def test_no_response_waits_for_requests_of_a_later_millisecond():
    turn = Turn(3)
    turn.peers[0].send("a")
    turn.ms = 1
    turn.peers[1].send("silent")
    assert turn.received == ["a", "", ""]

    turn.peers[2].send("c")
    assert turn.received == ["a", "", ""]
    turn.loop.turn()
    assert turn.received == ["a", "", "c"]


def test_a_large_response_takes_those_before_it_along():
    turn = Turn()
    turn.peers[0].send("a")
    turn.peers[0].send("B")
    turn.peers[1].send("c")
    assert turn.received == ["aB!", ""]

    turn.loop.turn()

    assert turn.received == ["aB!", "c"]


def test_a_connection_that_is_closed_in_the_turn_sends_before():
    turn = Turn()
    turn.peers[0].send("a", "close")

    assert turn.received == ["abye", ""]
    assert turn.peers[0].transport.closed

    turn.loop.turn()
    assert turn.received == ["abye", ""]


def test_the_response_to_a_client_that_has_left_is_dropped():
    turn = Turn()
    turn.peers[0].send("a")
    turn.peers[1].send("b")
    turn.peers[0].connection.connection_lost(None)

    turn.loop.turn()

    assert turn.received == ["", "b"]
