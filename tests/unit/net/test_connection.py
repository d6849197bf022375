"""Responses leave in the order of the requests, and a peer that sends too much feels it."""

import asyncio

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.net.connection import Connection
from odradek.net.server import ConnectionLimits, Server


class FakeTransport(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.written = []
        self.reading = True
        self.closed = False

    def get_extra_info(self, name, default=None):
        return ("10.0.0.7", 4711) if name == "peername" else default

    def write(self, data):
        self.written.append(bytes(data))

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close


class Handler:
    """Answers each frame with itself; `later` frames wait, `bad` ones are malformed."""

    def __init__(self):
        self.frames, self.places, self.refusals = [], {}, []

    def connected(self, connection):
        pass

    def disconnected(self, connection):
        pass

    def refused(self, connection, reason):
        self.refusals.append(reason)

    def frame(self, connection, frame):
        text = bytes(frame).decode()
        self.frames.append(text)
        if text.startswith("later"):
            self.places[text] = connection.later()
        elif text == "bad":
            raise MalformedRequestError("bad frame")
        elif text != "silent":
            connection.respond([text.encode()])


def frame(text):
    return len(text).to_bytes(4, "big") + text.encode()


class Peer:
    def __init__(self, *, in_flight_max=5, frame_bytes_max=1 << 20):
        self.handler, self.transport = Handler(), FakeTransport()
        self.connection = Connection(
            self.handler,
            listener="PLAINTEXT",
            frame_bytes_max=frame_bytes_max,
            in_flight_max=in_flight_max,
            now_ms=lambda: 0,
        )
        self.connection.connection_made(self.transport)

    def send(self, *texts):
        self.send_bytes(b"".join(map(frame, texts)))

    def send_bytes(self, data):
        while data:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    @property
    def received(self):
        return b"".join(self.transport.written).decode()


def test_the_answers_of_one_read_leave_in_one_write():
    peer = Peer()
    peer.send("a", "b", "c")

    assert peer.transport.written == [b"abc"]


def test_a_request_that_waits_holds_back_only_the_answers_behind_it():
    peer = Peer()
    peer.send("a", "later1", "b", "later2", "c")
    assert peer.received == "a"
    assert peer.handler.frames == ["a", "later1", "b", "later2", "c"]

    peer.handler.places["later2"].fill([b"2"])
    assert peer.received == "a"

    peer.handler.places["later1"].fill([b"1"])
    assert peer.received == "a1b2c"


def test_a_request_without_a_response_leaves_no_gap():
    peer = Peer()
    peer.send("later1", "silent", "b")
    peer.handler.places["later1"].fill([])

    assert peer.received == "b"


def test_reading_stops_while_too_much_is_in_flight_and_goes_on_after():
    peer = Peer(in_flight_max=2)
    peer.send("later1", "later2", "c")
    assert peer.handler.frames == ["later1", "later2"]
    assert not peer.transport.reading

    peer.handler.places["later1"].fill([b"1"])
    assert peer.handler.frames == ["later1", "later2", "c"]

    peer.handler.places["later2"].fill([b"2"])
    assert peer.transport.reading
    assert peer.received == "12c"


def test_a_peer_that_does_not_read_its_answers_is_not_read_either():
    peer = Peer()
    peer.connection.pause_writing()
    peer.send("a")
    assert peer.handler.frames == []
    assert not peer.transport.reading

    peer.connection.resume_writing()
    assert peer.received == "a"
    assert peer.transport.reading


def test_a_muted_peer_waits_with_what_it_has_sent():
    peer = Peer()
    peer.connection.mute()
    peer.send("a")
    assert peer.received == ""

    peer.connection.unmute()
    assert peer.received == "a"


def test_a_held_peer_waits_until_everybody_who_holds_it_has_let_go():
    peer = Peer()
    peer.connection.hold()
    peer.connection.hold()
    peer.send("a")
    peer.connection.let_go()
    peer.connection.mute()
    peer.connection.unmute()
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert peer.received == ""

    peer.connection.let_go()
    assert peer.received == "a"


def test_what_came_before_a_malformed_frame_is_answered_and_nothing_after_it_is_read():
    peer = Peer()
    peer.send("a", "bad", "b")

    assert peer.received == "a"
    assert peer.handler.refusals == ["bad frame"]
    assert peer.transport.closed


@pytest.mark.parametrize("length", [-1, (1 << 20) + 1, 2**31 - 1])
def test_a_frame_of_impossible_length_ends_the_connection_before_its_body_comes(length):
    peer = Peer()
    peer.send_bytes(length.to_bytes(4, "big", signed=True))

    assert peer.transport.closed
    assert str(length) in peer.handler.refusals[0]


def test_a_frame_may_come_byte_by_byte():
    peer = Peer()
    for byte in frame("hello"):
        peer.send_bytes(bytes([byte]))

    assert peer.received == "hello"


def test_frames_larger_than_the_buffer_arrive_whole_and_small_ones_after_them():
    peer = Peer()
    large = "x" * 300_000
    peer.send(large, "b")
    assert peer.handler.frames == [large, "b"]

    for number in range(100):
        peer.send(f"n{number}")
    assert peer.handler.frames[-1] == "n99"
    assert len(peer.connection.get_buffer(-1)) <= 16 * 1024, "the large buffer is given back"


def test_a_promised_length_costs_no_memory():
    peer = Peer(frame_bytes_max=100 << 20)
    peer.send_bytes((100 << 20).to_bytes(4, "big") + b"ten bytes.")

    assert len(peer.connection.get_buffer(-1)) < 64 * 1024


# ------------------------------------------------------------- queued.max.request.bytes


class Crowd:
    """Peers of one server that wants at most so many bytes of requests it has not handled."""

    def __init__(self, *, peers, queued_bytes_max):
        self.handler = Handler()
        self.server = Server(
            None, self.handler, ConnectionLimits(queued_bytes_max=queued_bytes_max),
            now_ms=lambda: 0,
        )  # fmt: skip
        self.peers = [self.join() for _ in range(peers)]

    def join(self):
        peer = Peer.__new__(Peer)
        peer.handler, peer.transport = self.handler, FakeTransport()
        peer.connection = self.server.make_connection("PLAINTEXT")
        peer.connection.connection_made(peer.transport)
        return peer


def test_while_too_much_waits_half_sent_requests_are_read_and_no_others():
    crowd = Crowd(peers=3, queued_bytes_max=100)
    first, second, third = crowd.peers
    first.send_bytes(frame("a" * 120)[:90])
    assert [peer.transport.reading for peer in crowd.peers] == [True, True, True]
    second.send_bytes(frame("b" * 120)[:20])
    late = crowd.join()

    assert [peer.transport.reading for peer in crowd.peers] == [True, True, False]
    assert not late.transport.reading
    first.send_bytes(frame("a" * 120)[90:])
    assert first.received == "a" * 120
    assert all(peer.transport.reading for peer in (*crowd.peers, late))
    third.send("c")
    assert third.received == "c"


def test_what_a_peer_had_sent_counts_no_longer_when_it_is_gone():
    crowd = Crowd(peers=2, queued_bytes_max=100)
    first, second = crowd.peers
    first.send_bytes(frame("a" * 200)[:110])
    assert not second.transport.reading
    first.connection.connection_lost(None)

    assert second.transport.reading


def test_requests_that_a_muted_peer_has_sent_count_until_they_are_handled():
    crowd = Crowd(peers=2, queued_bytes_max=100)
    first, second = crowd.peers
    first.connection.mute()
    first.send("a" * 110)
    assert not second.transport.reading
    first.connection.unmute()

    assert first.received == "a" * 110
    assert second.transport.reading
