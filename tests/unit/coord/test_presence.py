"""The connections between the processes that share a store."""

import asyncio
import socket

from odradek.coord.presence import Presence

TURNS = 3  # of the loop: it accepts, makes the transport, and tells the protocol


def nothing(*_arguments) -> None:
    return None


def test_a_connection_that_is_made_after_the_end_is_closed(tmp_path):
    async def run() -> bytes:
        path = str(tmp_path / "store")
        presence = Presence(path, look_every_ms=1000, woken=nothing, died=nothing)
        presence.claim(7, timeout_ms=1000)
        await presence.begin()
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(f"{path}-session-7.sock")
            for _ in range(TURNS):
                await asyncio.sleep(0)
            presence.end()
            other.setblocking(False)
            async with asyncio.timeout(10):
                return await asyncio.get_running_loop().sock_recv(other, 1)

    assert asyncio.run(run()) == b""
