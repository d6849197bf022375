"""CVE-2022-34917: clients without credentials made the broker allocate much memory."""

import asyncio

from tests.unit.broker.live import play

from odradek.net.unauthenticated import CONNECTION_BYTES

PORT = 9093
OPTIONS = {
    "listeners": "PLAINTEXT://b0:9092,SECURE://b0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


def send_bytes(peer, data):
    peer._to_send += data
    peer.pump()


def test_a_length_costs_nothing_and_a_large_one_ends_the_connection():
    async def story(live):
        honest = live.peer(PORT)
        send_bytes(honest, (524_288).to_bytes(4, "big"))
        assert honest.connection.memory_bytes == 0
        greedy = live.peer(PORT)
        send_bytes(greedy, (524_289).to_bytes(4, "big"))
        await live.until(lambda: greedy.closed)
        assert not honest.closed

    play(story, **OPTIONS)


def test_all_clients_without_credentials_share_one_limit():
    async def story(live):
        unauthenticated = live.broker.server.unauthenticated
        for _ in range(50):
            send_bytes(live.peer(PORT), (524_288).to_bytes(4, "big") + bytes(500_000))
            await asyncio.sleep(0.01)
            assert unauthenticated.memory_bytes <= 1 << 22
        assert unauthenticated.dropped_connections > 30
        assert len(unauthenticated) <= (1 << 22) // CONNECTION_BYTES

    play(story, **OPTIONS, **{"odradek.unauthenticated.memory.max.bytes": str(1 << 22)})


def test_a_client_that_does_not_log_in_does_not_stay():
    async def story(live):
        peer = live.peer(PORT)
        send_bytes(peer, (524_288).to_bytes(4, "big"))
        for _ in range(30):  # one byte after the other
            await asyncio.sleep(1)
            peer.connection.get_buffer(1)[:1] = b"\0"
            peer.connection.buffer_updated(1)
            if peer.closed:
                break
        assert peer.closed
        unauthenticated = live.broker.server.unauthenticated
        await live.until(lambda: len(unauthenticated) == 0)
        assert unauthenticated.dropped_connections == 1

    play(story, **OPTIONS, **{"odradek.unauthenticated.timeout.ms": "10000"})
