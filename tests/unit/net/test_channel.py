"""A channel: responses by callback in order; its end is reported to every waiting request."""

from tests.unit.net.test_connection import FakeTransport

from odradek.net.channel import Channel
from odradek.net.outgoing import JOIN_BYTES
from odradek.wire.header import encode_response_header

FETCH, VERSION = 1, 17


class Ends:
    def __init__(self):
        self.now_ms = 0
        self.ended = 0
        self.answers = []
        self.channel = Channel(monotonic_ms=lambda: self.now_ms, ended=self._ended)
        self.transport = FakeTransport()
        self.channel.connection_made(self.transport)

    def _ended(self):
        self.ended += 1

    def ask(self):
        number = self.channel.next_correlation_id
        self.channel.send(
            [b"frame %d" % number], api_key=FETCH, api_version=VERSION, answered=self._answered
        )
        return number

    def _answered(self, frame, position):
        self.answers.append(None if frame is None else bytes(frame[position:]))

    def receive(self, data):
        while data:
            room = self.channel.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.channel.buffer_updated(count)
            data = data[count:]


def response(number, body):
    frame = encode_response_header(FETCH, VERSION, number) + body
    return len(frame).to_bytes(4, "big") + frame


def test_responses_are_matched_to_their_requests_in_order():
    ends = Ends()
    first, second = ends.ask(), ends.ask()
    ends.receive(response(first, b"one") + response(second, b"two"))

    assert ends.transport.written == [b"frame 1", b"frame 2"]
    assert ends.answers == [b"one", b"two"]


def test_the_send_time_of_the_oldest_request_in_flight():
    ends = Ends()
    assert ends.channel.oldest_request_ms is None
    ends.now_ms = 7
    number = ends.ask()
    ends.now_ms = 9
    assert ends.channel.oldest_request_ms == 7

    ends.receive(response(number, b""))
    assert ends.channel.oldest_request_ms is None


def test_the_end_is_reported_to_every_request_in_flight():
    ends = Ends()
    ends.ask()
    ends.ask()
    ends.channel.connection_lost(None)

    assert ends.answers == [None, None]
    assert ends.ended == 1
    ends.ask()
    assert ends.answers == [None, None, None], "and to a request sent afterwards"


def test_a_response_to_another_request_ends_the_channel():
    ends = Ends()
    number = ends.ask()
    ends.receive(response(number + 1, b"another"))

    assert ends.answers == [None]
    assert ends.transport.closed


def test_a_response_that_ends_within_its_header_ends_the_channel():
    ends = Ends()
    ends.ask()
    ends.receive(b"\0\0\0\4" + bytes(4))

    assert ends.transport.closed


def test_each_request_gets_a_number_of_its_own():
    ends = Ends()
    ends.channel.next_correlation_id = 0x7FFFFFFF

    assert [ends.ask() for _ in range(3)] == [0x7FFFFFFF, 0, 1]


def test_only_small_pieces_of_a_request_are_joined():
    ends = Ends()
    large = b"x" * (JOIN_BYTES + 1)
    for chunks in ([b"a"], [b"b", b"c"], [large], [b"d", large, b"e"]):
        ends.channel.send(chunks, api_key=FETCH, api_version=VERSION, answered=ends._answered)

    assert ends.transport.written == [b"a", b"bc", large, b"d", large, b"e"]


def test_a_response_without_a_request_ends_the_channel():
    ends = Ends()
    ends.receive(response(1, b""))

    assert ends.transport.closed
