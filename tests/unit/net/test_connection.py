"""Responses are sent in request order, and reading stops while a client sends too much."""

import asyncio
import gc
import weakref
from functools import partial

import pytest

from odradek.model.errors import MalformedRequestError, OdradekError
from odradek.net.connection import Connection
from odradek.net.mute import Mute
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

    def get_write_buffer_size(self):
        return 0

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
    def __init__(
        self,
        *,
        in_flight_max=5,
        frame_bytes_max=1 << 20,
        handler=None,
        monotonic_ms=lambda: 0,
        together=None,
    ):
        self.handler, self.transport, self.soon = handler or Handler(), FakeTransport(), []
        self.connection = Connection(
            self.handler,
            listener="PLAINTEXT",
            frame_bytes_max=frame_bytes_max,
            in_flight_max=in_flight_max,
            monotonic_ms=monotonic_ms,
            soon=self.soon.append,
            together=together,
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


def test_the_responses_of_one_read_are_sent_in_one_write():
    peer = Peer()
    peer.send("a", "b", "c")

    assert peer.transport.written == [b"abc"]


def test_a_waiting_request_delays_only_the_responses_behind_it():
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


def test_reading_stops_while_the_client_does_not_read_its_responses():
    peer = Peer()
    peer.connection.pause_writing()
    peer.send("a")
    assert peer.handler.frames == []
    assert not peer.transport.reading

    peer.connection.resume_writing()
    assert peer.received == "a"
    assert peer.transport.reading


def test_frames_of_a_muted_connection_are_handled_after_unmute():
    peer = Peer()
    peer.connection.mute(Mute.QUOTA)
    peer.send("a")
    assert peer.received == ""

    peer.connection.unmute(Mute.QUOTA)
    assert peer.received == "a"


def test_a_connection_muted_for_two_reasons_goes_on_when_both_have_ended():
    peer = Peer()
    peer.connection.mute(Mute.QUOTA)
    peer.connection.mute(Mute.REFUSED)
    peer.connection.mute(Mute.QUOTA)
    peer.send("a")
    peer.connection.unmute(Mute.QUOTA)
    peer.connection.unmute(Mute.RATE)
    assert peer.received == ""
    assert not peer.transport.reading

    peer.connection.unmute(Mute.REFUSED)
    assert peer.received == "a"


def test_a_connection_held_twice_goes_on_after_two_let_go():
    peer = Peer()
    peer.connection.hold()
    peer.connection.hold()
    peer.send("a")
    peer.connection.let_go()
    peer.connection.mute(Mute.QUOTA)
    peer.connection.unmute(Mute.QUOTA)
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert peer.received == ""

    peer.connection.let_go()
    assert peer.received == "a"


def test_requests_before_a_malformed_frame_are_answered_and_nothing_after_it_is_read():
    peer = Peer()
    peer.send("a", "bad", "b")

    assert peer.received == "a"
    assert peer.handler.refusals == ["bad frame"]
    assert peer.transport.closed


@pytest.mark.parametrize("length", [-1, (1 << 20) + 1, 2**31 - 1])
def test_an_invalid_frame_length_closes_the_connection_before_the_body_arrives(length):
    peer = Peer()
    peer.send_bytes(length.to_bytes(4, "big", signed=True))

    assert peer.transport.closed
    assert str(length) in peer.handler.refusals[0]


def test_a_frame_may_arrive_byte_by_byte():
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
    assert len(peer.connection.get_buffer(-1)) <= 16 * 1024, "the large buffer is released"


def test_the_length_of_a_frame_alone_allocates_no_memory():
    peer = Peer(frame_bytes_max=100 << 20)
    peer.send_bytes((100 << 20).to_bytes(4, "big") + b"ten bytes.")

    assert len(peer.connection.get_buffer(-1)) < 64 * 1024


# ------------------------------------------------------------- queued.max.request.bytes


class Crowd:
    """Connections that share a limit on bytes received and not handled."""

    def __init__(self, *, peers, queued_bytes_max):
        self.handler = Handler()
        self.server = Server(
            None, self.handler, ConnectionLimits(queued_bytes_max=queued_bytes_max),
            monotonic_ms=lambda: 0, soon=[].append,
        )  # fmt: skip
        self.peers = [self.join() for _ in range(peers)]

    def join(self):
        peer = Peer.__new__(Peer)
        peer.handler, peer.transport = self.handler, FakeTransport()
        peer.connection = self.server.make_connection("PLAINTEXT")
        peer.connection.connection_made(peer.transport)
        return peer


def test_above_the_limit_only_requests_already_half_received_are_read():
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


def test_bytes_of_a_closed_connection_are_not_counted():
    crowd = Crowd(peers=2, queued_bytes_max=100)
    first, second = crowd.peers
    first.send_bytes(frame("a" * 200)[:110])
    assert not second.transport.reading
    first.connection.connection_lost(None)

    assert second.transport.reading


def test_requests_of_a_muted_connection_count_until_they_are_handled():
    crowd = Crowd(peers=2, queued_bytes_max=100)
    first, second = crowd.peers
    first.connection.mute(Mute.QUOTA)
    first.send("a" * 110)
    assert not second.transport.reading
    first.connection.unmute(Mute.QUOTA)

    assert first.received == "a" * 110
    assert second.transport.reading


# -------------------------------------------------------------- a client that requests too much


class Slow(FakeTransport):
    """A transport whose client reads nothing before `take`."""

    def __init__(self, connection):
        super().__init__()
        self.connection, self.waiting = connection, bytearray()

    def write(self, data):
        self.waiting += data
        if len(self.waiting) > 65_536:
            self.connection.pause_writing()

    def get_write_buffer_size(self):
        return len(self.waiting)

    def take(self):
        self.written.append(bytes(self.waiting))
        self.waiting.clear()
        self.connection.resume_writing()


class Pieces:
    """A part of a response that is read in pieces; the `awaited` ones are not ready at once."""

    def __init__(self, *pieces, awaited=(), missing=()):
        self.pieces, self.awaited, self.missing = list(pieces), set(awaited), missing
        self.size, self.number, self.closed = sum(map(len, pieces)), 0, 0
        self.ready = None

    def __len__(self):
        return self.size

    def read(self, ready):
        if self.number in self.missing:
            raise OdradekError("it was cut")
        if self.number in self.awaited:
            self.ready = ready
            return None
        if self.number == len(self.pieces):
            return b""
        self.number += 1
        return self.pieces[self.number - 1]

    def arrive(self):
        self.awaited.clear()
        self.ready()

    def close(self):
        self.closed += 1


class Slowly(Peer):
    """A client that reads on demand; its responses have deferred parts."""

    def __init__(self, *late, **options):
        super().__init__(**options)
        self.late = iter(late)
        self.connection.connection_lost(None)
        handler = self.handler

        class Answers(Handler):
            def frame(self, connection, frame):
                handler.frames.append(bytes(frame).decode())
                connection.respond([b"<", next(answers), b">"])

            def broke_off(self, connection, reason):
                handler.refusals.append(reason)

        answers = self.late
        self.connection = Connection(
            Answers(), listener="PLAINTEXT", frame_bytes_max=1 << 20, in_flight_max=5,
            monotonic_ms=lambda: 0, soon=self.soon.append,
        )  # fmt: skip
        self.transport = Slow(self.connection)
        self.connection.connection_made(self.transport)


def test_a_deferred_part_is_read_as_the_client_takes_it_and_the_next_request_waits():
    first, second = Pieces(b"a" * 70_000, b"b" * 70_000, b"c"), Pieces(b"d")
    peer = Slowly(first, second)
    peer.send("1", "2")
    assert (first.number, peer.handler.frames) == (1, ["1"])
    assert not peer.transport.reading

    peer.transport.take()
    assert (first.number, peer.handler.frames) == (2, ["1"])

    peer.transport.take()
    assert (first.closed, second.closed) == (1, 1)
    assert peer.handler.frames == ["1", "2"]
    peer.transport.take()
    assert peer.received == "<" + "a" * 70_000 + "b" * 70_000 + "c><d>"
    assert peer.transport.reading


def test_a_deferred_piece_that_is_not_ready_is_waited_for():
    part = Pieces(b"a", b"b", awaited=[1])
    peer = Slowly(part)
    peer.send("1")
    peer.transport.take()
    assert peer.received == "<a"

    part.arrive()
    peer.transport.take()
    assert peer.received == "<ab>"


def test_a_response_that_cannot_be_read_to_its_end_closes_the_connection():
    part, behind = Pieces(b"a", b"b", missing=[1]), Pieces()
    peer = Slowly(part, behind)
    peer.send("1", "2")

    assert peer.handler.refusals == ["it was cut"]
    assert peer.transport.closed
    assert part.closed == 1


def test_deferred_parts_of_a_closed_connection_are_closed():
    part = Pieces(b"a" * 70_000, b"b")
    peer = Slowly(part)
    peer.send("1")
    peer.connection.connection_lost(ConnectionResetError())

    assert part.closed == 1


def test_a_client_that_reads_fast_does_not_block_the_others():
    pieces = [bytes(60_000)] * 100
    part = Pieces(*pieces)
    peer = Slowly(part)
    peer.transport = FakeTransport()
    peer.connection.connection_made(peer.transport)
    peer.send("1")
    turns = 0
    while peer.soon:
        assert part.number < 100
        turns += 1
        peer.soon.pop(0)()

    assert turns == 5
    assert len(peer.received) == 6_000_002


def test_no_request_of_a_closed_connection_is_handled():
    peer = Slowly(Pieces(b"a"), Pieces(b"b"), Pieces(b"c"))
    write = peer.transport.write

    def fail(data):
        write(data)
        peer.transport.closed = True  # as after EPIPE from the socket

    peer.transport.write = fail
    peer.send("1", "2", "3")

    assert peer.handler.frames == ["1"]
    assert next(peer.late).closed == 0, "it was not read"


def test_many_received_frames_are_handled_in_slices():
    peer = Peer(monotonic_ms=partial(next, iter(range(0, 1000, 3))))
    peer.send_bytes(b"".join(map(frame, "abcdefg")))
    assert peer.handler.frames == ["a", "b", "c"]
    assert not peer.transport.reading

    peer.soon.pop(0)()
    assert peer.handler.frames == ["a", "b", "c", "d", "e", "f"]
    peer.soon.pop(0)()
    assert peer.received == "abcdefg"
    assert peer.transport.reading


def test_large_responses_behind_a_waiting_one_stop_reading():
    peer = Peer(in_flight_max=100)
    large = "x" * 400_000
    peer.send("later1", large, large, large, "behind")
    assert peer.handler.frames == ["later1", large, large, large]
    assert not peer.transport.reading

    peer.handler.places["later1"].fill([b"1"])
    assert peer.handler.frames[-1] == "behind"
    assert peer.transport.reading


class PutsBack(Handler):
    """Handles `first` frames only after all earlier responses are sent."""

    def frame(self, connection, frame):
        if bytes(frame).startswith(b"first") and connection.in_flight:
            connection.put_back(frame)
        else:
            super().frame(connection, frame)


def test_a_request_that_is_put_back_is_handled_after_the_earlier_responses():
    peer = Peer(handler=PutsBack())
    peer.send("later1", "later2", "first", "behind")
    assert peer.handler.frames == ["later1", "later2"]

    peer.handler.places["later1"].fill([b"1"])
    assert peer.handler.frames == ["later1", "later2"]
    peer.handler.places["later2"].fill([b"2"])
    assert peer.received == "12firstbehind"
    assert peer.transport.reading


def test_the_frame_of_a_request_that_holds_its_connection_is_not_overwritten():
    kept = []

    class Holds(Handler):
        def frame(self, connection, frame):
            if not kept:
                kept.append(frame)
                connection.hold()
            else:
                super().frame(connection, frame)

    peer = Peer(handler=Holds())
    peer.send("held", "behind")
    assert not peer.transport.reading, "its memory is not reused"
    assert bytes(kept[0]) == b"held"

    peer.connection.let_go()
    assert peer.received == "behind"


# ------------------------------------------------------------------ memory of all connections


class Shared:
    """Connections that share a limit on memory."""

    def __init__(self, memory_bytes_max):
        self.handler, self.soon, self.ms = Handler(), [], 0
        self.handler.broke_off = lambda connection, reason: self.handler.refusals.append(reason)
        self.server = Server(
            None, self.handler, ConnectionLimits(memory_bytes_max=memory_bytes_max),
            monotonic_ms=lambda: self.ms, soon=self.soon.append,
        )  # fmt: skip

    def half_sent(self, size):
        peer = Peer.__new__(Peer)
        peer.handler, peer.transport = self.handler, FakeTransport()
        peer.connection = self.server.make_connection("PLAINTEXT")
        peer.connection.connection_made(peer.transport)
        self.ms += 1
        peer.send_bytes(frame("a" * size)[:-2])
        return peer


def test_above_the_memory_limit_the_longest_idle_connections_are_closed():
    all_of_them = Shared(4 << 20)
    idle = all_of_them.half_sent(10)
    first, second, third = (all_of_them.half_sent(1_000_000) for _ in range(3))
    assert all_of_them.soon == []
    all_of_them.ms += 1
    first.send_bytes(b"a")
    fourth, fifth = (all_of_them.half_sent(1_000_000) for _ in range(2))
    for work in all_of_them.soon:
        work()

    closed_ones = [each.transport.closed for each in (idle, first, second, third, fourth, fifth)]
    assert closed_ones == [False, False, True, False, False, False]
    assert all_of_them.server.memory_bytes <= 4 << 20
    assert all_of_them.server.dropped_connections == 1
    assert "odradek.connections.memory.max.bytes=4194304" in all_of_them.handler.refusals[0]


def test_released_memory_is_no_longer_counted():
    all_of_them = Shared(100 << 20)
    peer = all_of_them.half_sent(3_000_000)
    assert all_of_them.server.memory_bytes >= 3_000_000
    peer.send_bytes(b"aa")
    all_of_them.ms += 5_001
    all_of_them.server.rest(5_000)
    assert all_of_them.server.memory_bytes == 0

    peer.send("and so on")
    assert peer.received.endswith("and so on")


class Call:
    """A request that waits; it has its slot, and the slot calls it if the client disconnects."""

    def __init__(self, connection):
        self.slot = connection.later(self.abandoned)

    def abandoned(self):
        pass


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_request_that_has_waited_is_freed_without_a_garbage_collection(is_answered):
    peer = Peer()
    call = Call(peer.connection)
    freed = weakref.ref(call)
    if is_answered:
        call.slot.fill([b"1"])
    else:
        peer.connection.connection_lost(None)

    gc.disable()
    try:
        del call
        assert freed() is None
    finally:
        gc.enable()
