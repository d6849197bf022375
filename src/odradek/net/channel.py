"""A connection to another broker: requests out, responses in, in order, by callback.

Brokers do not negotiate API versions: they follow from `inter.broker.protocol.version`, so the
first bytes on a channel are a request. A response is passed on as a view of the channel's receive
buffer, valid during the callback: a follower appends fetched records without copying them first.

A channel lasts for one connection. When the connection ends, every request without a response is
called back with None; to go on, the owner makes another channel.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, cast

from odradek.model.clock import MonotonicMs
from odradek.model.errors import MalformedRequestError
from odradek.net.outgoing import JOIN_BYTES, Chunk
from odradek.wire.frame import FrameBuffer
from odradek.wire.header import decode_response_header

RESPONSE_BYTES_MAX: Final = 256 << 20

# Gets the response's frame and the position of its body; None: the channel has ended.
Answered = Callable[[memoryview | None, int], None]


class Connector(Protocol):
    """Makes outgoing connections: the event loop's TCP, or the simulator's network."""

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect, and return the protocol.

        Raises:
            OSError: the connection cannot be made.
        """


# When it was sent, API key, API version, correlation id, `answered`. A plain tuple: one is made for
# each fetch of a follower.
_InFlight: TypeAlias = tuple[MonotonicMs, int, int, int, Answered]


class Channel(asyncio.BufferedProtocol):
    """One connection to one broker, with its requests in flight."""

    __slots__ = (
        "_ended",
        "_frames",
        "_in_flight",
        "_monotonic_ms",
        "_transport",
        "next_correlation_id",
        "stale_ms",
    )

    def __init__(
        self, *, monotonic_ms: Callable[[], MonotonicMs], ended: Callable[[], None]
    ) -> None:
        """`ended` is called once, when the connection is closed for whatever reason."""
        self._monotonic_ms = monotonic_ms
        self.stale_ms: MonotonicMs | None = None  # from when on its session may expire
        self._ended = ended
        self._frames = FrameBuffer(frame_bytes_max=RESPONSE_BYTES_MAX)
        self._in_flight: deque[_InFlight] = deque()
        self.next_correlation_id = 1  # of the next request that is sent
        self._transport: asyncio.Transport | None = None

    # ------------------------------------------------------------------ for its owner

    def send(
        self,
        chunks: Sequence[Chunk],
        *,
        api_key: int,
        api_version: int,
        answered: Answered,
    ) -> None:
        """Send a request with `next_correlation_id`; `answered` is called exactly once."""
        transport = self._transport
        if transport is None or transport.is_closing():
            answered(None, 0)
            return
        correlation_id = self.next_correlation_id
        self.next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._in_flight.append(
            (self._monotonic_ms(), api_key, api_version, correlation_id, answered)
        )
        if not chunks[1:] and len(chunks[0]) <= JOIN_BYTES:
            transport.write(chunks[0])
        else:
            write_joined(transport, chunks)

    @property
    def oldest_request_ms(self) -> MonotonicMs | None:
        """When the oldest request without a response was sent; None if there is no such request."""
        return self._in_flight[0][0] if self._in_flight else None

    @property
    def is_stale(self) -> bool:
        """Whether the SASL session expires soon: the owner makes another channel."""
        return self.stale_ms is not None and self._monotonic_ms() >= self.stale_ms

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -------------------------------------------------------------------- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the cause
        self._transport = None
        awaited, self._in_flight = self._in_flight, deque()
        for *_, answered in awaited:
            answered(None, 0)
        self._ended()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - a hint
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._frames
        try:
            frame = frames.next_frame(nbytes)
            while frame is not None:
                if not self._in_flight:  # a response without a request
                    self.close()
                    return
                _, api_key, api_version, expected, answered = self._in_flight.popleft()
                correlation_id, position = decode_response_header(frame, 0, api_key, api_version)
                if correlation_id != expected:
                    answered(None, 0)
                    self.close()
                    return
                answered(frame, position)
                frame = frames.next_frame() if frames.has_more else None
        except MalformedRequestError:
            self.close()  # bytes after a malformed response cannot be trusted


def write_joined(transport: asyncio.WriteTransport, chunks: Sequence[Chunk]) -> None:
    """Write chunks in order, small neighbours joined.

    Not `writelines`: in Python 3.12.0 to 3.12.8 it ignores flow control (CVE-2024-12254).
    """
    small: list[Chunk] = []
    for chunk in chunks:
        if len(chunk) > JOIN_BYTES:
            if small:
                transport.write(b"".join(small))
                small = []
            # asyncio keeps what the socket does not take; of a memoryview, without a copy.
            transport.write(memoryview(chunk))
        else:
            small.append(chunk)
    if small:
        transport.write(small[0] if len(small) == 1 else b"".join(small))
