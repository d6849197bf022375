"""From a file to a socket (`sendfile`): the bytes do not pass through the broker's memory.

Only where nothing stands between the connection and its socket. A transport that changes or delays
what is written (TLS, injected faults) has no `socket` among its extra information.
"""

import asyncio
import socket
import sys
from contextlib import suppress
from typing import Any

from odradek.net.outgoing import SLICE_BYTES, DeferredPart


def straight_socket(transport: asyncio.Transport) -> "StraightSocket | None":
    """The socket of a transport; None: everything has to be written to the transport."""
    if sys.platform != "linux":  # TCP_CORK exists only on Linux
        return None
    connected = transport.get_extra_info("socket")
    if connected is None:  # the transport has TLS or injects faults
        return None
    return StraightSocket(transport, connected)


class StraightSocket:
    """The socket of a connection, past its transport."""

    __slots__ = ("_socket", "_transport")

    def __init__(self, transport: asyncio.Transport, connected: Any) -> None:
        self._transport = transport
        self._socket = connected

    def cork(self) -> None:
        """Let what is written from now on leave in full segments.

        A response of several writes does not wake up its client for the first bytes.
        """
        self._set_cork(1)

    def uncork(self) -> None:
        """Let all of it leave."""
        self._set_cork(0)

    def _set_cork(self, value: int) -> None:
        with suppress(OSError):  # closed meanwhile
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, value)

    def send(self, part: DeferredPart) -> int:
        """Send what comes next of a part; how many bytes the socket has taken.

        0: the part has to be read, and what was read to be written to the transport.
        """
        # What the transport still holds has to leave first.
        if self._transport.get_write_buffer_size() or self._transport.is_closing():
            return 0
        return part.send(self._socket.fileno(), SLICE_BYTES)
