"""The real listener: what an accepted socket is like."""

import asyncio
import socket

from odradek.net.server import RealNetwork


class _Accepted(asyncio.BufferedProtocol):
    """Keeps the socket that it was given."""

    def __init__(self, came: asyncio.Future[socket.socket]) -> None:
        self._came = came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._came.set_result(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(16)

    def buffer_updated(self, nbytes: int) -> None:
        pass


def test_what_is_written_leaves_at_once_and_not_when_the_peer_has_acknowledged_what_went_before():
    async def accepted_without_delay() -> int:
        came: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        listening = await RealNetwork().listen(lambda: _Accepted(came), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        accepted = await asyncio.wait_for(came, 10)
        delay_is_off = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await writer.wait_closed()
        listening.close()
        return delay_is_off

    assert asyncio.run(accepted_without_delay())
