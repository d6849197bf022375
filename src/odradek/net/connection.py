"""One peer: frames in, responses out in the order of the requests, and no more than it takes.

The frames of one read are handled one after the other in the callback that brought them, and
their responses leave in one write. No task and no future is made for a request that can be
answered at once: this is the one decision that makes a Python broker fast (docs/decisions.md).

A request that has to wait takes a place in the line (`later`) and lets those behind it be read
and handled; their responses wait in the line. Reading stops while

* the peer has `in_flight_max` requests in the line, or responses of `waiting_bytes_max`, or
* the peer does not take what was written (the transport's high-water mark), or
* it is muted (throttled, or not yet authenticated), or
* it is held: a request waits for something before it may act, and must not be overtaken, or
* its next request is to be handled when all before it are answered (`put_back`), or
* it has had its slice of the loop's time, and others come first, or
* all peers together have sent more than is wanted (`queued.max.request.bytes`): then none begins
  another request, and those that are half sent are read to their end.

Frames already received stay in the buffer meanwhile: the peer feels TCP's back-pressure.

A response may have parts that are read when the peer takes them (`Late`): records of a fetch stay
in their file until then. So what waits in memory for one peer is a few megabytes, however much it
asks for; and `Server` bounds what waits for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

from odradek.model.errors import MalformedRequestError, OdradekError
from odradek.wire.frame import FrameBuffer

Chunk = bytes | bytearray | memoryview


class Late(Protocol):
    """A part of a response that is read when it is sent, piece by piece."""

    def __len__(self) -> int:
        """How many bytes it has, those that were read among them."""

    def read(self, ready: Callable[[], None]) -> Chunk | None:
        """The next piece; an empty one behind the last.

        None: it has to be waited for, and `ready` is called when it is worth asking again.

        Raises:
            OdradekError: it is not there, or not as long as was said.
        """

    def close(self) -> None:
        """Nothing more of it is read. Once."""


Part = Chunk | Late
# Chunks up to this size are joined into one write; a larger one costs less sent than copied.
_JOIN_BYTES: Final = 64 * 1024
# Answers up to this size are collected over all frames of one read.
_LARGE_BYTES: Final = 1024
# What is written to the transport before others come first.
_SLICE_BYTES: Final = 1 << 20
# For so long the frames of one read are handled before others come first.
_SLICE_MS: Final = 5
# Memory below this is not counted: every connection has it.
_COUNTED_BYTES: Final = 64 * 1024


class Place:
    """A request's place in the line of responses."""

    __slots__ = ("chunks", "connection", "lost")

    def __init__(self, connection: "Connection", lost: Callable[[], None] | None = None) -> None:
        self.connection = connection
        self.chunks: Sequence[Part] | None = None
        self.lost = lost  # called if the peer goes before it has been answered

    def fill(self, chunks: Sequence[Part]) -> None:
        """Give the response (an empty one for a request that gets none). Once, at any time."""
        self.put(chunks)
        self.connection.release()

    def put(self, chunks: Sequence[Part]) -> None:
        """The same for one of several: who gives them lets them go together, by `release`."""
        assert self.chunks is None, "a request was answered twice"
        self.chunks = chunks
        if len(chunks) != 1 or len(chunks[0]) > _LARGE_BYTES:
            self.connection.piled(chunks)


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

    def broke_off(self, connection: "Connection", reason: str) -> None:
        """The connection is being closed in the middle of a response, which cannot be read."""

    def disconnected(self, connection: "Connection") -> None:
        """The peer went, or was sent away."""


class Connection(asyncio.BufferedProtocol):
    """One accepted connection. `session` belongs to the handler."""

    __slots__ = (
        "_closing_after_write", "_frames", "_handler", "_handling", "_held", "_holds",
        "_in_flight_max", "_is_crowded", "_line", "_memory_bytes", "_muted", "_now_ms",
        "_outgoing", "_peer_is_slow", "_piled_bytes", "_put_back", "_reading", "_ready",
        "_received", "_soon", "_stopped", "_told_bytes", "_transport", "_unsent_bytes",
        "_waiting_bytes_max", "_waits_for_turn", "active_ms", "closing", "listener", "peer_host",
        "peer_port", "session", "taken_ms",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - its limits, and the world
        self,
        handler: FrameHandler,
        *,
        listener: str,
        frame_bytes_max: int,
        in_flight_max: int,
        now_ms: Callable[[], int],
        soon: Callable[[Callable[[], None]], None],
        received: Callable[[int], None] | None = None,
        holds: Callable[[int], None] | None = None,
        waiting_bytes_max: int = 1 << 20,
    ) -> None:
        """`soon` calls something when others have had their turn (`Turns.soon`).

        `received` gets how many bytes more, or less, wait here to be handled; `holds` how many
        bytes of memory more, or less, this connection takes.
        """
        self.listener = listener
        self.session: Any = None
        self.peer_host = "unknown"
        self.peer_port = 0
        self.active_ms = 0  # when it last sent something: when the present request came
        self.taken_ms = 0  # when it last took something for which it had let us wait
        self.closing = False
        self._handler = handler
        self._frames = FrameBuffer(frame_bytes_max=frame_bytes_max)
        self._in_flight_max = in_flight_max
        self._now_ms = now_ms
        self._transport: asyncio.Transport | None = None
        self._line: deque[Place] = deque()
        self._ready: list[Part] = []
        self._outgoing: deque[Part] = deque()  # what the peer has not had time to take
        self._piled_bytes = 0  # of large responses in the line
        self._waiting_bytes_max = waiting_bytes_max
        self._put_back = False  # the next request waits until the line is empty
        self._waits_for_turn = False
        self._soon = soon
        self._holds = holds
        self._memory_bytes = 0  # as `holds` was given it
        self._handling = False
        self._peer_is_slow = False
        self._muted = False
        self._held = 0
        self._stopped = False  # slow, muted, held, out of turn or closing
        self._reading = True
        self._closing_after_write = False
        self._received = received
        self._told_bytes = 0
        self._is_crowded = False  # there are too many peers with too much: begin no request
        self._unsent_bytes = -1  # when it was last asked whether this is idle

    # --------------------------------------------------------------- for the handler

    def respond(self, chunks: Sequence[Part]) -> None:
        """The answer to the request being handled now."""
        if self._line:
            place = Place(self)
            self._line.append(place)
            place.put(chunks)
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
        if self._piled_bytes and (not line or self._piled_bytes > self._waiting_bytes_max):
            self._piled_bytes = sum(_size(place.chunks) for place in line)
        if self._put_back and not line:
            self._put_back = False
            self._may_go_on()
        if not self._handling:
            self._flush()
            if not self._reading:  # perhaps because of the line
                self._handle_frames()

    def piled(self, chunks: Sequence[Part]) -> None:
        """A large response is there, and may have to wait for one before it."""
        self._piled_bytes += _size(chunks)

    def put_back(self, frame: memoryview) -> None:
        """Handle the present request, and all behind it, when those before it are answered.

        For one whose answer may be large: it is made when it can be sent.
        """
        self._frames.put_back(frame)
        self._put_back = self._stopped = True

    def keep_frame(self) -> None:
        """Leave the memory of the present frame to its handler."""
        self._frames.detach()

    def refuse(self, reason: str) -> None:
        """Close it because of what the peer sent."""
        self._handler.refused(self, reason)
        self.close()

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
        waits = self._line and not self.closing
        if waits or self.active_ms >= oldest_ms or self.taken_ms >= oldest_ms:
            return False
        transport = self._transport
        unsent_bytes = transport.get_write_buffer_size() if transport is not None else 0
        unsent_bytes += _size(self._outgoing)
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
            self._flush()
            self.closing = self._stopped = True
            if not self._outgoing:
                self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self.closing = self._stopped = True
            self._drop_outgoing()
            self._count_memory(0)
            self._transport.abort()

    def rest(self, oldest_ms: int) -> None:
        """If it has sent nothing since then, keep no more memory than what is there needs."""
        if self.active_ms < oldest_ms and self._reading:
            self._frames.release_memory()
            self._count()

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
        self.active_ms = self.taken_ms = self._now_ms()
        self._handler.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The transport is gone."""
        self.closing = self._stopped = True
        self._drop_outgoing()
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
        self._count_memory(0)

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
        self._count()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._peer_is_slow = False
        self.taken_ms = self._now_ms()
        self._count()
        self._send_on()

    # ----------------------------------------------------------------------- inside

    def _go_on(self) -> None:
        self._may_go_on()
        if not self._handling:
            self._handle_frames()

    def _may_go_on(self) -> None:
        self._stopped = (
            self._peer_is_slow
            or self._muted
            or self._held > 0
            or self._put_back
            or self._waits_for_turn
            or bool(self._outgoing)
            or self.closing
        )

    def _handle_frames(self) -> None:
        self._handling = True
        frames, line = self._frames, self._line
        handled = until_ms = 0
        try:
            while (
                not self._stopped
                and len(line) < self._in_flight_max
                and self._piled_bytes <= self._waiting_bytes_max
            ):
                frame = frames.next_frame()
                if frame is None:
                    break
                if handled == 1:
                    until_ms = self._now_ms() + _SLICE_MS
                elif handled > 1 and self._now_ms() >= until_ms:
                    frames.put_back(frame)
                    self._wait_for_turn()
                    break
                self._handler.frame(self, frame)
                handled += 1
        except MalformedRequestError as error:
            self._handler.refused(self, str(error))
            self.close()
            return
        finally:
            self._handling = False
        if self._ready:
            self._flush()
        self._handled()

    def _handled(self) -> None:
        """Read on, or not, after what was handled."""
        frames, line = self._frames, self._line
        wanted = (
            not self._stopped
            and len(line) < self._in_flight_max
            and self._piled_bytes <= self._waiting_bytes_max
        )
        if self._received is not None:
            self._tell_received(len(frames))
            wanted &= not self._is_crowded or len(frames) > 0
        if wanted is not self._reading:
            self._read_or_not(wanted)
        if frames.is_large or self._memory_bytes:
            self._count()
        if self._closing_after_write and not line:
            self.close()

    def _wait_for_turn(self) -> None:
        """It has had its slice: go on when the others have had theirs."""
        self._waits_for_turn = self._stopped = True

        def turn() -> None:
            self._waits_for_turn = False
            self._go_on()

        self._soon(turn)

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
        if not ready:
            return
        self._ready = []
        transport = self._transport
        if self._outgoing:
            self._outgoing += ready
        elif transport is None or transport.is_closing():  # nothing more is done for this peer
            self.closing = self._stopped = True
            self._drop(ready)
        elif len(ready) == 1 and type(ready[0]) is bytes and len(ready[0]) <= _JOIN_BYTES:
            transport.write(ready[0])
        else:
            self._outgoing += ready
            self._write_out()

    def _send_on(self) -> None:
        """The peer takes more, or others have had their turn."""
        self._write_out()
        if not self._outgoing and not self._handling:
            self._handle_frames()

    def _write_out(self) -> None:
        """Write what is outgoing, as long as the peer takes it and others need not wait."""
        outgoing, transport = self._outgoing, self._transport
        written_bytes = 0
        while outgoing and transport is not None and not self._peer_is_slow:
            if transport.is_closing():
                self.closing = self._stopped = True
                self._drop_outgoing()
                return
            if written_bytes >= _SLICE_BYTES:
                self._soon(self._send_on)
                break
            try:
                piece = _next_piece(outgoing, self._send_on)
            except OdradekError as error:
                self._handler.broke_off(self, str(error))
                self.abort()
                return
            if piece is None:
                break
            written_bytes += len(piece)
            transport.write(piece)
        self._may_go_on()
        if self.closing and not outgoing and transport is not None:
            transport.close()

    def _drop_outgoing(self) -> None:
        dropped, self._outgoing = self._outgoing, deque()
        self._drop(dropped)

    @staticmethod
    def _drop(parts: Iterable[Part]) -> None:
        for part in parts:
            if not isinstance(part, _CHUNKS):
                part.close()

    # ------------------------------------------------------------------------- memory

    def _count(self) -> None:
        """Say how much memory this takes, if it is worth a word."""
        if self._holds is None:
            return
        memory_bytes = self._frames.memory_bytes + self._piled_bytes
        if self._peer_is_slow and self._transport is not None:
            memory_bytes += self._transport.get_write_buffer_size()
            memory_bytes += sum(len(part) for part in self._outgoing if isinstance(part, _CHUNKS))
        self._count_memory(memory_bytes if memory_bytes > _COUNTED_BYTES else 0)

    def _count_memory(self, memory_bytes: int) -> None:
        more, self._memory_bytes = memory_bytes - self._memory_bytes, memory_bytes
        if more and self._holds is not None:
            self._holds(more)

    @property
    def memory_bytes(self) -> int:
        """The memory it takes, as far as it is worth counting."""
        return self._memory_bytes


_CHUNKS: Final = (bytes, bytearray, memoryview)


def _size(parts: Iterable[Part] | None) -> int:
    return sum(map(len, parts or ()))


def _next_piece(outgoing: deque[Part], ready: Callable[[], None]) -> Chunk | None:
    """Take what is to be written next, small neighbours in one piece; None: wait for `ready`."""
    part = outgoing[0]
    if not isinstance(part, _CHUNKS):
        piece = part.read(ready)
        if piece is not None and not piece:
            outgoing.popleft()
            part.close()
            return b""
        return piece
    outgoing.popleft()
    if len(part) > _JOIN_BYTES:
        # What the socket does not take at once is cut off: of a view, without a copy.
        return memoryview(part)
    small, size = [part], len(part)
    while outgoing:
        part = outgoing[0]
        if not isinstance(part, _CHUNKS) or len(part) > _JOIN_BYTES or size > _SLICE_BYTES:
            break
        size += len(part)
        small.append(part)
        outgoing.popleft()
    return small[0] if len(small) == 1 else b"".join(small)


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
