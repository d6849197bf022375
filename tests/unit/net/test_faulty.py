"""Connections that are cut, delayed, frozen and reset between a socket and its protocol."""

import asyncio

import pytest
from tests.unit.net.test_connection import FakeTransport

import odradek.sim.world.loop as sim
from odradek.net.faulty import FaultyNetwork
from odradek.net.straight import straight_socket

PEER = ("127.0.0.1", 9092)


class Recorder(asyncio.BufferedProtocol):
    """Writes down what it is called with."""

    def __init__(self):
        self.calls = []
        self.buffer = bytearray(100)
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport
        self.calls.append("made")

    def connection_lost(self, exc):
        self.calls.append("lost")

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.calls.append(bytes(self.buffer[:nbytes]))

    def eof_received(self):
        self.calls.append("eof")
        return False

    def pause_writing(self):
        self.calls.append("pause")

    def resume_writing(self):
        self.calls.append("resume")


class OneSocket:
    """A network whose connections are sockets that a test plays."""

    def __init__(self):
        self.sockets = []

    async def listen(self, make_protocol, host, port):
        self.make_protocol = make_protocol
        return self

    def close(self):
        self.sockets.append("closed")

    async def connect(self, make_protocol, host, port):
        protocol = make_protocol()
        self.sockets.append(FakeTransport())
        protocol.connection_made(self.sockets[-1])
        return protocol


class Played:
    """A faulty network, one connection that it has made and its socket."""

    @classmethod
    async def begin(cls):
        self = cls()
        self.real = OneSocket()
        self.network = FaultyNetwork(self.real, asyncio.get_running_loop())
        self.protocol = Recorder()
        assert await self.network.connect(lambda: self.protocol, *PEER) is self.protocol
        self.socket = self.real.sockets[-1]
        (self.link,) = self.network.links
        return self

    def receive(self, data):
        self.link.get_buffer(-1)[: len(data)] = data
        self.link.buffer_updated(len(data))


@pytest.fixture
def play():
    def run(story):
        async def main():
            await story(await Played.begin())

        sim.run(main())

    return run


def test_without_a_fault_bytes_pass_at_once(play):
    async def story(at):
        at.protocol.transport.write(b"out")
        at.receive(b"in")

        assert at.socket.written == [b"out"]
        assert at.protocol.calls == ["made", b"in"]

    play(story)


def test_nothing_goes_past_the_faults_to_the_socket(play):
    async def story(at):
        at.socket.get_extra_info = lambda name, default=None: "a socket"
        assert at.protocol.transport.get_extra_info("peername") == "a socket"
        assert straight_socket(at.protocol.transport) is None

    play(story)


def test_a_cut_holds_both_directions_and_loses_nothing(play):
    async def story(at):
        at.network.cut([PEER])
        at.protocol.transport.write(b"one")
        at.protocol.transport.write(b"two")
        await asyncio.sleep(60)
        assert at.socket.written == []
        assert not at.socket.reading

        at.network.cut([])
        assert at.socket.written == [b"one", b"two"]
        assert at.socket.reading

    play(story)


def test_a_cut_of_another_address_changes_nothing(play):
    async def story(at):
        at.network.cut([("127.0.0.1", 1)])
        at.protocol.transport.write(b"out")
        assert at.socket.written == [b"out"]
        assert at.socket.reading

    play(story)


def test_a_protocol_that_does_not_read_does_not_read_after_the_cut_either(play):
    async def story(at):
        at.network.cut([PEER])
        at.protocol.transport.pause_reading()
        at.network.cut([])
        assert not at.socket.reading

        at.protocol.transport.resume_reading()
        assert at.socket.reading

    play(story)


def test_a_new_connection_waits_until_the_address_is_healed(play):
    async def story(at):
        at.network.cut([PEER])
        second = asyncio.create_task(at.network.connect(Recorder, *PEER))
        await asyncio.sleep(60)
        assert not second.done()
        assert len(at.real.sockets) == 1

        at.network.cut([])
        await second
        assert len(at.real.sockets) == 2

    play(story)


def test_the_peer_does_not_notice_a_reset_before_it_is_healed(play):
    async def story(at):
        at.network.cut([PEER])
        at.protocol.transport.abort()
        await asyncio.sleep(0.001)
        assert at.protocol.calls == ["made", "lost"]
        assert not at.socket.closed

        at.network.cut([])
        assert at.socket.closed

    play(story)


def test_a_slow_network_delays_what_is_sent_in_its_order(play):
    async def story(at):
        at.network.slow(200)
        at.protocol.transport.write(b"one")
        await asyncio.sleep(0.1)
        at.network.slow(0)
        at.protocol.transport.write(b"two")  # not before "one"
        await asyncio.sleep(0.09)
        assert at.socket.written == []

        await asyncio.sleep(0.02)
        assert at.socket.written == [b"one", b"two"]

    play(story)


def test_a_close_comes_after_what_is_delayed(play):
    async def story(at):
        at.network.slow(200)
        at.protocol.transport.write(b"last")
        at.protocol.transport.close()
        await asyncio.sleep(0.1)
        assert not at.socket.closed

        await asyncio.sleep(0.2)
        assert at.socket.written == [b"last"]
        assert at.socket.closed

    play(story)


def test_a_protocol_is_asked_to_pause_when_much_is_held_back(play):
    async def story(at):
        at.network.cut([PEER])
        at.protocol.transport.write(bytes(1 << 20))
        assert at.protocol.calls == ["made"]
        at.protocol.transport.write(b"more")
        assert at.protocol.calls == ["made", "pause"]
        assert at.protocol.transport.get_write_buffer_size() > 1 << 20

        at.network.cut([])
        assert at.protocol.calls == ["made", "pause", "resume"]

    play(story)


def test_a_frozen_network_accepts_a_connection_when_it_goes_on(play):
    async def story(at):
        await at.network.listen(Recorder, "127.0.0.1", 0)
        at.network.freeze()
        link, socket = at.real.make_protocol(), FakeTransport()
        link.connection_made(socket)
        assert link.protocol.calls == []
        assert not socket.reading

        at.network.thaw()
        assert link.protocol.calls == ["made"]
        assert socket.reading

    play(story)


def test_after_its_end_no_protocol_is_called(play):
    async def story(at):
        await at.network.listen(Recorder, "127.0.0.1", 0)
        at.network.die()
        at.link.connection_lost(None)

        assert at.protocol.calls == ["made"]
        assert at.socket.closed
        assert at.real.sockets[-1] == "closed"

        late, socket = at.real.make_protocol(), FakeTransport()
        late.connection_made(socket)
        assert late.protocol.calls == []
        assert socket.closed

    play(story)
