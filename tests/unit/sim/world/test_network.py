"""What a simulated connection does, and what befalls it."""

import asyncio
import random

import pytest

from odradek.sim.world.network import SimulatedLoop, SimulatedNetwork
from odradek.sim.world.process import MortalLoop

PORT = 9092


class Peer(asyncio.Protocol):
    def __init__(self):
        self.received = b""
        self.ended = []
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data

    def connection_lost(self, exc):
        self.ended.append(exc)


class Stage:
    """A server and a client, connected."""

    def __init__(self, seed):
        self.loop = asyncio.get_running_loop()
        self.network = self.loop.network = SimulatedNetwork(self.loop, random.Random(seed))
        self.server, self.client = MortalLoop(self.loop, "server"), MortalLoop(self.loop, "client")
        self.host = self.network.join(self.server)
        self.network.join(self.client)
        self.accepted = []

    async def connect(self):
        await self.host.listen(self.accept, "", PORT)
        near = await self.client.create_task(self._connect())
        await asyncio.sleep(0)
        return near, self.accepted[-1] if self.accepted else None

    def accept(self):
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def _connect(self):
        return (await self.loop.create_connection(Peer, "server", PORT))[1]


def play(story, seed=1):
    async def main():
        await story(Stage(seed))

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_in_order_whatever_the_delays(seed):
    async def story(stage):
        near, far = await stage.connect()
        sent = b""
        for number in range(200):
            data = b"%d " % number
            near.transport.write(data)
            sent += data
        near.transport.close()
        await asyncio.sleep(1)
        assert far.received == sent
        assert far.ended == [None]
        assert near.ended == [None]

    play(story, seed)


def test_a_port_without_a_listener_refuses():
    async def story(stage):
        with pytest.raises(ConnectionRefusedError):
            await stage.client.create_task(stage._connect())

    play(story)


def test_a_killed_process_is_missed_and_one_without_power_is_not_until_it_is_back():
    async def story(stage):
        near, _ = await stage.connect()
        stage.server.kill()
        stage.network.host_died("server", power=False)
        await asyncio.sleep(1)
        assert isinstance(near.ended[0], ConnectionResetError)

    async def without_power(stage):
        near, _ = await stage.connect()
        stage.server.kill()
        stage.network.host_died("server", power=True)
        await asyncio.sleep(100)
        assert near.ended == []
        stage.network.join(MortalLoop(stage.loop, "server"))
        await asyncio.sleep(0)
        assert isinstance(near.ended[0], ConnectionResetError)

    play(story)
    play(without_power)


def test_what_a_host_sent_before_it_lost_power_does_not_arrive():
    async def story(stage):
        near, far = await stage.connect()
        far.transport.write(b"too late")
        stage.server.kill()
        stage.network.host_died("server", power=True)
        await asyncio.sleep(1)
        assert near.received == b""

    play(story)


def test_unless_it_was_held_up_then_it_arrives_in_order_before_the_host_is_missed():
    async def story(stage):
        near, far = await stage.connect()
        stage.network.hold_up("server", ["client"], 3.0)
        far.transport.write(b"sent ")
        far.transport.write(b"before")
        stage.server.kill()
        stage.network.host_died("server", power=True)
        stage.network.join(MortalLoop(stage.loop, "server"))
        await asyncio.sleep(2.9)
        assert (near.received, near.ended) == (b"", [])
        await asyncio.sleep(0.2)
        assert near.received == b"sent before"
        (ended,) = near.ended
        assert isinstance(ended, ConnectionResetError)

    play(story)


def test_a_cut_loses_bytes_one_way_and_healing_resets():
    async def story(stage):
        near, far = await stage.connect()
        stage.network.cut("client", "server")
        near.transport.write(b"lost")
        far.transport.write(b"heard")
        await asyncio.sleep(1)
        assert (far.received, near.received) == (b"", b"heard")
        stage.network.heal()
        await asyncio.sleep(1)
        assert isinstance(near.ended[0], ConnectionResetError)
        assert isinstance(far.ended[0], ConnectionResetError)

    play(story)


def test_a_slow_link_takes_longer_in_its_direction_and_keeps_the_order():
    async def story(stage):
        near, far = await stage.connect()
        stage.network.slow_down("client", "server", 2.0)
        near.transport.write(b"late, ")
        far.transport.write(b"soon")
        await asyncio.sleep(1)
        assert (far.received, near.received) == (b"", b"soon")
        stage.network.slow_down("client", "server", 0.0)
        near.transport.write(b"and later")
        await asyncio.sleep(0.5)
        assert far.received == b"", "something overtook what was sent before it"
        await asyncio.sleep(1)
        assert far.received == b"late, and later"

    play(story)


def test_a_buffer_that_is_too_small_is_filled_again_and_again():
    class Small(asyncio.BufferedProtocol):
        def __init__(self):
            self.room = bytearray(3)
            self.received = b""

        def get_buffer(self, sizehint):
            return memoryview(self.room)

        def buffer_updated(self, nbytes):
            self.received += self.room[:nbytes]

    async def story(stage):
        small = Small()
        stage.accept = lambda: stage.accepted.append(small) or small
        near, _ = await stage.connect()
        near.transport.write(b"ten bytes.")
        await asyncio.sleep(1)
        assert small.received == b"ten bytes."

    play(story)


def test_a_paused_process_takes_the_connection_and_the_bytes_when_it_goes_on():
    async def story(stage):
        stage.server.pause()
        near, far = await stage.connect()
        assert far is None
        near.transport.write(b"patience")
        await asyncio.sleep(5)
        stage.server.resume()
        await asyncio.sleep(1)
        assert stage.accepted[0].received == b"patience"

    play(story)


def test_a_reader_that_does_not_read_slows_the_writer():
    async def story(stage):
        paused = []

        class Writer(Peer):
            def pause_writing(self):
                paused.append(True)

            def resume_writing(self):
                paused.append(False)

        near, far = await stage.connect()
        near.transport.pause_reading()
        far.transport.protocol = writer = Writer()
        far.transport.write(bytes(100_000))
        await asyncio.sleep(1)
        assert paused == [True]
        assert near.received == b""
        near.transport.resume_reading()
        await asyncio.sleep(1)
        assert paused == [True, False]
        assert len(near.received) == 100_000
        assert writer.ended == []

    play(story)
