"""The connections between the processes that share a store."""

import asyncio
import socket

import pytest

from odradek.coord.presence import Presence


def nothing(*_arguments) -> None:
    return None


@pytest.mark.parametrize("turns", range(6))  # of the loop, from the accept to the protocol
def test_a_connection_that_is_made_around_the_end_is_closed(tmp_path, turns):
    async def run() -> bytes:
        path = str(tmp_path / "store")
        presence = Presence(path, look_every_ms=1000, woken=nothing, died=nothing)
        presence.claim(7, timeout_ms=1000)
        presence.begin()
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(f"{path}-session-7.sock")
            for _ in range(turns):
                await asyncio.sleep(0)
            presence.end()
            other.setblocking(False)
            async with asyncio.timeout(10):
                try:
                    return await asyncio.get_running_loop().sock_recv(other, 1)
                except ConnectionResetError:
                    return b""

    assert asyncio.run(run()) == b""
