"""One peer: frames in, responses out in the order of the requests, and no more than it takes.

The frames of one read are handled one after the other in the callback that brought them, and
their responses leave in one write. No task and no future is made for a request that can be
answered at once: this is the one decision that makes a Python broker fast (docs/decisions.md).

A request that has to wait takes a place in the line (`later`) and lets those behind it be read
and handled; their responses wait in the line. Reading stops while

* the peer has `in_flight_max` requests in the line, or
* the peer does not take what was written (the transport's high-water mark), or
* it is muted (throttled, or not yet authenticated), or
* it is held: a request waits for something before it may act, and must not be overtaken, or
* all peers together have sent more than is wanted (`queued.max.request.bytes`): then none begins
  another request, and those that are half sent are read to their end.

Frames already received stay in the buffer meanwhile: the peer feels TCP's back-pressure.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from odradek.model.errors import MalformedRequestError
from odradek.wire.frame import FrameBuffer

Chunk = bytes | bytearray | memoryview
# Chunks up to this size are joined into one write; a larger one costs less sent than copied.
_JOIN_BYTES: Final = 64 * 1024
# Answers up to this size are collected over all frames of one read.
_LARGE_BYTES: Final = 1024


class Place:
    """A request's place in the line of responses."""

    __slots__ = ("chunks", "connection", "lost")

    def __init__(self, connection: "Connection", lost: Callable[[], None] | None = None) -> None:
        self.connection = connection
        self.chunks: Sequence[Chunk] | None = None
        self.lost = lost  # called if the peer goes before it has been answered

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """Give the response (an empty one for a request that gets none). Once, at any time."""
        self.put(chunks)
        self.connection.release()

    def put(self, chunks: Sequence[Chunk]) -> None:
        """The same for one of several: who gives them lets them go together, by `release`."""
        assert self.chunks is None, "a request was answered twice"
        self.chunks = chunks


class FrameHandler(Protocol):
    """What stands behind a connection."""

    def connected(self, connection: "Connection") -> None:
        """A peer came."""

    def frame(self, connection: "Connection", frame: memoryview) -> None:
        """One request. The view is good during this call only, or until the peer is let go.

        Raises:
            MalformedRequestError: the connection is closed, nothing after it can be trusted.
        """

    def refused(self, connection: "Connection", reason: str) -> None:
        """The connection is being closed because of what the peer sent."""

    def disconnected(self, connection: "Connection") -> None:
        """The peer went, or was sent away."""


class Connection(asyncio.BufferedProtocol):
    """One accepted connection. `session` belongs to the handler."""

    __slots__ = (
        "_closing_after_write", "_frames", "_handler", "_handling", "_held", "_in_flight_max",
        "_is_crowded", "_line", "_muted", "_now_ms", "_peer_is_slow", "_reading", "_ready",
        "_received", "_stopped", "_told_bytes", "_transport", "_unsent_bytes", "active_ms",
        "closing", "listener", "peer_host", "peer_port", "session",
    )  # fmt: skip

    def __init__(
        self,
        handler: FrameHandler,
        *,
        listener: str,
        frame_bytes_max: int,
        in_flight_max: int,
        now_ms: Callable[[], int],
        received: Callable[[int], None] | None = None,
    ) -> None:
        """`received` is told how many bytes more, or less, wait here to be handled."""
        self.listener = listener
        self.session: Any = None
        self.peer_host = "unknown"
        self.peer_port = 0
        self.active_ms = 0  # when it last sent something: when the present request came
        self.closing = False
        self._handler = handler
        self._frames = FrameBuffer(frame_bytes_max=frame_bytes_max)
        self._in_flight_max = in_flight_max
        self._now_ms = now_ms
        self._transport: asyncio.Transport | None = None
        self._line: deque[Place] = deque()
        self._ready: list[Chunk] = []
        self._handling = False
        self._peer_is_slow = False
        self._muted = False
        self._held = 0
        self._stopped = False  # slow, muted, held or closing
        self._reading = True
        self._closing_after_write = False
        self._received = received
        self._told_bytes = 0
        self._is_crowded = False  # there are too many peers with too much: begin no request
        self._unsent_bytes = -1  # when it was last asked whether this is idle

    # --------------------------------------------------------------- for the handler

    def respond(self, chunks: Sequence[Chunk]) -> None:
        """The answer to the request being handled now."""
        if self._line:
            place = Place(self)
            place.chunks = chunks
            self._line.append(place)
        else:
            self._ready += chunks
            # Thirty bytes can ask for fifty megabytes, and a peer can ask a hundred times in one
            # read: large answers go at once, so that the first shows whether it takes them.
            if len(chunks) != 1 or len(chunks[0]) > _LARGE_BYTES:
                self._flush()

    def later(self, lost: Callable[[], None] | None = None) -> Place:
        """A place in the line for the request being handled now, to be filled later.

        `lost` is called if the peer goes before that: nobody wants the answer any more.
        """
        place = Place(self, lost)
        self._line.append(place)
        return place

    def release(self) -> None:
        """Let the responses at the head of the line go, as far as they are there."""
        line = self._line
        while line and line[0].chunks is not None:
            self._ready += line.popleft().chunks or ()
        if not self._handling:
            self._flush()
            if not self._reading:  # perhaps because of the line
                self._handle_frames()

    def mute(self) -> None:
        """Handle no further request until `unmute`."""
        self._muted = self._stopped = True

    def unmute(self) -> None:
        """Go on with the requests."""
        self._muted = False
        self._go_on()

    def hold(self) -> None:
        """Handle no request behind the present one until `let_go`, once for each `hold`.

        Until then the frame of the present request stays where it is, and may be looked into:
        nothing is read into its place.
        """
        self._held += 1
        self._stopped = True

    def let_go(self) -> None:
        """The request that held it has acted."""
        self._held -= 1
        self._go_on()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their response, or for that of one before them."""
        return len(self._line)

    def is_idle(self, oldest_ms: int) -> bool:
        """Whether it has sent nothing since then, waits for nothing and takes nothing."""
        if self.active_ms >= oldest_ms or (self._line and not self.closing):
            return False
        transport = self._transport
        unsent_bytes = transport.get_write_buffer_size() if transport is not None else 0
        before, self._unsent_bytes = self._unsent_bytes, unsent_bytes
        return not unsent_bytes or unsent_bytes == before

    def crowd(self, is_crowded: bool) -> None:
        """Begin no further request, or go on."""
        self._is_crowded = is_crowded
        if not self._handling:
            self._handle_frames()

    def close(self) -> None:
        """Close when what is written has gone; nothing more is read."""
        if not self.closing and self._transport is not None:
            self.closing = self._stopped = True
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self.closing = self._stopped = True
            self._transport.abort()

    def close_when_answered(self) -> None:
        """Read nothing more, answer what was asked, then close."""
        self._closing_after_write = True
        self.mute()
        if not self._line:
            self.close()

    # ------------------------------------------------------------------- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self.active_ms = self._now_ms()
        self._handler.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The transport is gone."""
        self.closing = self._stopped = True
        abandoned = [place.lost for place in self._line if place.chunks is None]
        self._line.clear()
        for lost in abandoned:
            if lost is not None:
                lost()
        self._handler.disconnected(self)
        self._transport = None
        if self._received is not None:
            self._received(-self._told_bytes)
            self._told_bytes = 0

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the socket may write."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """The socket has written."""
        self._frames.wrote(nbytes)
        self.active_ms = self._now_ms()
        self._handle_frames()

    def eof_received(self) -> bool:
        """The peer sends no more: nothing of what is under way concerns it any longer."""
        return False

    def pause_writing(self) -> None:
        """The peer does not take what we write."""
        self._peer_is_slow = self._stopped = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._peer_is_slow = False
        self._go_on()

    # ----------------------------------------------------------------------- inside

    def _go_on(self) -> None:
        self._stopped = self._peer_is_slow or self._muted or self._held > 0 or self.closing
        if not self._handling:
            self._handle_frames()

    def _handle_frames(self) -> None:
        self._handling = True
        frames, line = self._frames, self._line
        try:
            while not self._stopped and len(line) < self._in_flight_max:
                frame = frames.next_frame()
                if frame is None:
                    break
                self._handler.frame(self, frame)
        except MalformedRequestError as error:
            self._handler.refused(self, str(error))
            self.close()
            return
        finally:
            self._handling = False
        if self._ready:
            self._flush()
        wanted = not self._stopped and len(line) < self._in_flight_max
        if self._received is not None:
            self._tell_received(len(frames))
            wanted &= not self._is_crowded or len(frames) > 0
        if wanted is not self._reading:
            self._read_or_not(wanted)
        if self._closing_after_write and not line:
            self.close()

    def _tell_received(self, held_bytes: int) -> None:
        more, self._told_bytes = held_bytes - self._told_bytes, held_bytes
        if more and self._received is not None:
            self._received(more)

    def _read_or_not(self, wanted: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _flush(self) -> None:
        ready = self._ready
        if not ready or self._transport is None:
            return
        if len(ready) == 1 and len(ready[0]) <= _JOIN_BYTES:
            self._transport.write(ready[0])
        else:
            write_joined(self._transport, ready)
        self._ready = []


def write_joined(transport: asyncio.WriteTransport, chunks: Sequence[Chunk]) -> None:
    """Write chunks in order, small neighbours in one go.

    Not `writelines`: in Python 3.12.0 to 3.12.8 it ignores the peer's slowness (CVE-2024-12254).
    """
    small: list[Chunk] = []
    for chunk in chunks:
        if len(chunk) > _JOIN_BYTES:
            if small:
                transport.write(b"".join(small))
                small = []
            # What the socket does not take at once is cut off: of a view, without a copy.
            transport.write(memoryview(chunk))
        else:
            small.append(chunk)
    if small:
        transport.write(small[0] if len(small) == 1 else b"".join(small))
