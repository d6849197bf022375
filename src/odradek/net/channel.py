"""The way to another broker: requests out, responses in, in order, by callback.

Brokers do not negotiate: which versions they speak follows from `inter.broker.protocol.version`,
so the first bytes on a channel are a request. A response is handed over as a view of the
channel's own memory, good during the callback: a follower appends what it fetched from where the
socket put it.

A channel lives for one connection. When it ends, whatever waits is told so; whoever wants
to go on makes another.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, cast

from odradek.model.errors import MalformedRequestError
from odradek.net.connection import Chunk, write_joined
from odradek.wire.frame import FrameBuffer
from odradek.wire.header import decode_response_header

RESPONSE_BYTES_MAX: Final = 256 << 20

# The response's frame and where its body begins; None: the channel has ended.
Answered = Callable[[memoryview | None, int], None]


class Connector(Protocol):
    """The part of the world that makes connections: the real loop's, or the simulator's."""

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect, and return the protocol.

        Raises:
            OSError: nobody is there.
        """


class _Awaited(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    sent_ms: int
    answered: Answered


class Channel(asyncio.BufferedProtocol):
    """One connection to one broker."""

    __slots__ = ("_awaited", "_correlation_id", "_ended", "_frames", "_now_ms", "_transport")

    def __init__(self, *, now_ms: Callable[[], int], ended: Callable[[], None]) -> None:
        """`ended` is called once, when the connection is over for whatever reason."""
        self._now_ms = now_ms
        self._ended = ended
        self._frames = FrameBuffer(frame_bytes_max=RESPONSE_BYTES_MAX)
        self._awaited: deque[_Awaited] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None

    # ------------------------------------------------------------------ for its owner

    def next_correlation_id(self) -> int:
        """The number of the next request."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def send(
        self,
        chunks: Sequence[Chunk],
        *,
        api_key: int,
        api_version: int,
        answered: Answered,
    ) -> None:
        """Send a frame whose header has the number drawn last; `answered` is called once."""
        if self._transport is None or self._transport.is_closing():
            answered(None, 0)
            return
        self._awaited.append(
            _Awaited(api_key, api_version, self._correlation_id, self._now_ms(), answered)
        )
        write_joined(self._transport, chunks)

    @property
    def oldest_request_ms(self) -> int | None:
        """When the request was sent that waits longest; None if none does."""
        return self._awaited[0].sent_ms if self._awaited else None

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.abort()

    # -------------------------------------------------------------------- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever it was
        """The connection is gone; nobody waits for nothing."""
        self._transport = None
        awaited, self._awaited = self._awaited, deque()
        for request in awaited:
            request.answered(None, 0)
        self._ended()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - a hint
        """Where the socket may write."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """The socket has written."""
        self._frames.wrote(nbytes)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._answer(frame)
        except MalformedRequestError:
            self.close()  # nothing after it can be trusted

    def _answer(self, frame: memoryview) -> None:
        if not self._awaited:
            raise MalformedRequestError("a response that nobody asked for")
        request = self._awaited.popleft()
        correlation_id, position = decode_response_header(
            frame, 0, request.api_key, request.api_version
        )
        if correlation_id != request.correlation_id:
            request.answered(None, 0)
            raise MalformedRequestError(
                f"response {correlation_id} where {request.correlation_id} was due"
            )
        request.answered(frame, position)
