"""One accepted connection: frames in, responses out in request order, with bounded memory.

The frames of one read are handled one after the other in the callback that received them, and
their responses are sent in one write, then or at the end of the turn (`net/together.py`). No task
and no future is made for a request that can be answered at once: this decision makes a Python
broker fast (docs/decisions.md).

A request that has to wait reserves a slot in the pipeline (`later`); the requests behind it are
read and handled, and their responses wait in the pipeline. Reading stops while

* the connection has `in_flight_max` requests in the pipeline, or responses of
  `waiting_bytes_max`, or
* the client does not read its responses (the transport's high-water mark), or
* the connection is muted (`net/mute.py`), or
* it is held: a request waits before it takes effect, and later ones must not overtake it, or
* its next request is to be handled after all earlier responses are sent (`put_back`), or
* it has used its slice of the event loop's time, and other work comes first, or
* all connections together have received more than `queued.max.request.bytes`: then no connection
  begins another request, and requests already half received are read to their end.

Frames already received stay in the buffer meanwhile, so TCP's flow control slows the client down.

A response may have parts that are read when the client takes them (`DeferredPart`): records of a
fetch stay in their file until then. So one connection holds a few megabytes at most, whatever it
requests; and `Server` bounds the memory of all connections.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from odradek.model.clock import MonotonicMs
from odradek.model.errors import MalformedRequestError, OdradekError
from odradek.net.mute import Mute
from odradek.net.outgoing import CHUNKS, JOIN_BYTES, SLICE_BYTES, Part, drop, next_piece, size_of
from odradek.net.straight import StraightSocket, straight_socket
from odradek.net.together import Together
from odradek.wire.frame import FrameBuffer

# Responses up to this size are collected over all frames of one read.
_LARGE_BYTES: Final = 1024
# How long the frames of one read are handled before other work gets a turn.
_SLICE_MS: Final = 5
# Memory below this is not counted: every connection takes that much.
COUNTED_BYTES: Final = 64 * 1024


class ResponseSlot:
    """The slot of one request's response in the connection's pipeline."""

    __slots__ = ("chunks", "connection", "hurry", "lost")

    def __init__(self, connection: "Connection", lost: Callable[[], None] | None = None) -> None:
        self.connection = connection
        self.chunks: Sequence[Part] | None = None
        self.lost = lost  # called if the connection is closed before the response is set
        self.hurry: Callable[[], None] | None = None  # sets a response that waits for more data

    def fill(self, chunks: Sequence[Part]) -> None:
        """Set the response (an empty one for a request without a response), and send it. Once."""
        self.put(chunks)
        self.connection.release()

    def put(self, chunks: Sequence[Part]) -> None:
        """Set the response; the caller calls `release` once after setting several."""
        assert self.chunks is None, "a request was answered twice"
        self.chunks = chunks
        # Usually methods of the request that has this slot: a reference cycle.
        self.lost = self.hurry = None
        if len(chunks) != 1 or len(chunks[0]) > _LARGE_BYTES:
            self.connection.piled(chunks)


class FrameHandler(Protocol):
    """What a connection reports its events to."""

    def connected(self, connection: "Connection") -> None:
        """The connection is open."""

    def frame(self, connection: "Connection", frame: memoryview) -> None:
        """Handle one request. The view is valid during this call, or until `let_go` if held.

        Raises:
            MalformedRequestError: the connection is closed; nothing after it can be trusted.
        """

    def refused(self, connection: "Connection", reason: str) -> None:
        """The connection is being closed because of an invalid request."""

    def broke_off(self, connection: "Connection", reason: str) -> None:
        """The connection is being closed by this side before a response is complete."""

    def disconnected(self, connection: "Connection") -> None:
        """The connection is closed."""


class Connection(asyncio.BufferedProtocol):
    """One accepted connection. `session` belongs to the handler."""

    __slots__ = (
        "_closing_after_write",
        "_frames",
        "_handler",
        "_handling",
        "_held",
        "_holds",
        "_in_flight_max",
        "_is_crowded",
        "_memory_bytes",
        "_monotonic_ms",
        "_muted",
        "_outgoing",
        "_paused_ms",
        "_peer_is_slow",
        "_piled_bytes",
        "_pipeline",
        "_put_back",
        "_reading",
        "_ready",
        "_received",
        "_reported_bytes",
        "_soon",
        "_stopped",
        "_straight",
        "_together",
        "_transport",
        "_unsent_bytes",
        "_waiting_bytes_max",
        "_waits_for_turn",
        "active_ms",
        "begun_ms",
        "closing",
        "listener",
        "peer_host",
        "peer_port",
        "sent_late",
        "session",
        "taken_ms",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - its limits, and the world
        self,
        handler: FrameHandler,
        *,
        listener: str,
        frame_bytes_max: int,
        in_flight_max: int,
        monotonic_ms: Callable[[], MonotonicMs],
        soon: Callable[[Callable[[], None]], None],
        received: Callable[[int], None] | None = None,
        holds: Callable[["Connection", int], None] | None = None,
        waiting_bytes_max: int = 1 << 20,
        together: Together | None = None,
    ) -> None:
        """`soon` calls a function after other work has had its turn (`Turns.soon`). With `together`
        small responses wait for those of other connections.

        `received` is called with changes of the number of bytes received and not handled, `holds`
        with changes of the memory that this connection takes.
        """
        self.listener = listener
        self.session: Any = None
        self.peer_host = "unknown"
        self.peer_port = 0
        self.active_ms = MonotonicMs(0)  # when it last received something, as its present request
        self.begun_ms = MonotonicMs(0)  # when its present request began to be handled
        self.taken_ms = MonotonicMs(0)  # when the client last resumed reading responses
        # Called when the client reads again, with the milliseconds for which it did not.
        self.sent_late: Callable[[Connection, int], None] = lambda *_: None
        self.closing = False
        self._handler = handler
        self._frames = FrameBuffer(frame_bytes_max=frame_bytes_max)
        self._in_flight_max = in_flight_max
        self._monotonic_ms = monotonic_ms
        self._transport: asyncio.Transport | None = None
        self._straight: StraightSocket | None = None
        self._pipeline: deque[ResponseSlot] = deque()
        self._ready: list[Part] = []
        self._outgoing: deque[Part] = deque()  # not yet passed to the transport
        self._piled_bytes = 0  # of large responses in the pipeline
        self._waiting_bytes_max = waiting_bytes_max
        self._put_back = False  # the next request waits until the pipeline is empty
        self._waits_for_turn = False
        self._soon = soon
        self._together = together
        self._holds = holds
        self._memory_bytes = 0  # as last reported to `holds`
        self._handling = False
        self._peer_is_slow = False
        self._paused_ms = MonotonicMs(0)  # when it last became slow
        self._muted = 0  # the bits of `Mute`
        self._held = 0
        self._stopped = False  # slow, muted, held, waiting for a turn, or closing
        self._reading = True
        self._closing_after_write = False
        self._received = received
        self._reported_bytes = 0
        self._is_crowded = False  # all connections have received too much: begin no request
        self._unsent_bytes = -1  # at the last call of `is_idle`

    # --------------------------------------------------------------- for the handler

    def respond(self, chunks: Sequence[Part]) -> None:
        """Send the response to the request being handled now."""
        if self._pipeline:
            self.later().put(chunks)
        else:
            self._ready += chunks
            # Thirty bytes can request fifty megabytes, a hundred times in one read: a large
            # response is sent at once, so that the first shows whether the client reads it.
            if len(chunks) != 1 or len(chunks[0]) > _LARGE_BYTES:
                self.send_ready()

    def later(self, lost: Callable[[], None] | None = None) -> ResponseSlot:
        """Reserve the slot of the response to the request being handled now.

        `lost` is called if the connection is closed before the response is set.
        """
        slot = ResponseSlot(self, lost)
        self._pipeline.append(slot)
        return slot

    def hurry(self) -> None:
        """Let the first response be set now: that of the present request would wait for it."""
        if self._pipeline and (set_now := self._pipeline[0].hurry) is not None:
            set_now()

    def release(self) -> None:
        """Send the responses at the head of the pipeline that are ready."""
        pipeline = self._pipeline
        while pipeline and pipeline[0].chunks is not None:
            self._ready += pipeline.popleft().chunks or ()
        if self._piled_bytes and (not pipeline or self._piled_bytes > self._waiting_bytes_max):
            self._piled_bytes = sum(size_of(slot.chunks) for slot in pipeline)
        if self._put_back and not pipeline:
            self._put_back = False
            self._may_go_on()
        if not self._handling:
            self.send_ready()
            if not self._reading:  # perhaps because the pipeline was full
                self._handle_more()

    def send_ready(self) -> None:
        """Send the responses that are ready, if there are any."""
        ready = self._ready
        if not ready:
            return
        self._ready = []
        transport = self._transport
        if self._outgoing:
            self._outgoing += ready
        elif transport is None or transport.is_closing():  # the responses can no longer be sent
            self.closing = self._stopped = True
            drop(ready)
        elif len(ready) == 1 and isinstance(ready[0], CHUNKS) and len(ready[0]) <= JOIN_BYTES:
            transport.write(ready[0])
        else:
            self._outgoing += ready
            self._write_out()

    def piled(self, chunks: Sequence[Part]) -> None:
        """Count a large response, which may have to wait for an earlier one."""
        self._piled_bytes += size_of(chunks)

    def put_back(self, frame: memoryview) -> None:
        """Handle the present request, and all later ones, after all earlier responses are sent.

        For a request whose response may be large: it is built when it can be sent.
        """
        self._frames.put_back(frame)
        self._put_back = self._stopped = True

    def keep_frame(self) -> None:
        """Leave the memory of the present frame to the handler."""
        self._frames.detach()

    def refuse(self, reason: str) -> None:
        """Close the connection because of an invalid request."""
        self._handler.refused(self, reason)
        self.close()

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that is accepted. It may be changed before the next frame."""
        return self._frames.frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, value: int) -> None:
        self._frames.frame_bytes_max = value

    def mute(self, why: Mute) -> None:
        self._muted |= int(why)
        self._stopped = True

    def unmute(self, why: Mute) -> None:
        self._muted &= ~int(why)
        self._go_on()

    def report_to(self, handler: FrameHandler) -> None:
        """Report all further events to another handler."""
        self._handler = handler

    def hold(self) -> None:
        """Handle no later request until `let_go`, which is called once for each `hold`.

        Until then the frame of the present request may be read: its memory is not reused.
        """
        self._held += 1
        self._stopped = True

    def let_go(self) -> None:
        """The request that held the connection has taken effect."""
        self._held -= 1
        self._go_on()

    @property
    def has_more(self) -> bool:
        """Whether bytes have arrived behind the request that is being handled."""
        return self._frames.has_more

    @property
    def sends_files(self) -> bool:
        """Whether parts of files go to its socket without passing through the broker's memory."""
        return self._straight is not None

    @property
    def in_flight(self) -> int:
        """The number of requests whose response is not sent yet."""
        return len(self._pipeline)

    def is_idle(self, oldest_ms: int) -> bool:
        """Whether it has received and sent nothing since then, and no request waits."""
        waits = self._pipeline and not self.closing
        if waits or self.active_ms >= oldest_ms or self.taken_ms >= oldest_ms:
            return False
        transport = self._transport
        unsent_bytes = transport.get_write_buffer_size() if transport is not None else 0
        unsent_bytes += size_of(self._outgoing)
        before, self._unsent_bytes = self._unsent_bytes, unsent_bytes
        return not unsent_bytes or unsent_bytes == before

    def crowd(self, is_crowded: bool) -> None:
        """Begin no further request while `is_crowded`."""
        self._is_crowded = is_crowded
        self._handle_more()

    def close(self) -> None:
        """Close after everything written is sent; nothing more is read."""
        if not self.closing and self._transport is not None:
            self.send_ready()
            self.closing = self._stopped = True
            if not self._outgoing:
                self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self.closing = self._stopped = True
            self._drop_outgoing()
            self._count_memory(0)
            self._transport.abort()

    def rest(self, oldest_ms: int) -> None:
        """Shrink its buffer if it has received nothing since then."""
        if self.active_ms < oldest_ms and self._reading:
            self._frames.release_memory()
            self._count()

    # ------------------------------------------------------------------- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._straight = straight_socket(self._transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self.active_ms = self.taken_ms = self._monotonic_ms()
        self._handler.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.closing = self._stopped = True
        self._drop_outgoing()
        abandoned = [slot for slot in self._pipeline if slot.chunks is None]
        self._pipeline.clear()
        for slot in abandoned:
            lost, slot.lost = slot.lost, None
            if lost is not None:
                lost()
        self._handler.disconnected(self)
        self._transport = self._straight = None
        if self._received is not None:
            self._received(-self._reported_bytes)
            self._reported_bytes = 0
        self._count_memory(0)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.wrote(nbytes)
        self.active_ms = self.begun_ms = self._monotonic_ms()
        together = self._together
        if together is not None and together.waiting:
            together.begins(self.begun_ms)
        self._handle_frames()

    def eof_received(self) -> bool:
        """Close at once: responses to a client that has closed its side are not needed."""
        return False

    def pause_writing(self) -> None:
        self._peer_is_slow = self._stopped = True
        self._paused_ms = self._monotonic_ms()
        self._count()

    def resume_writing(self) -> None:
        self._peer_is_slow = False
        self.taken_ms = self._monotonic_ms()
        self.sent_late(self, self.taken_ms - self._paused_ms)
        self._count()
        self._send_on()

    # ----------------------------------------------------------------------- inside

    def _go_on(self) -> None:
        self._may_go_on()
        self._handle_more()

    def _may_go_on(self) -> None:
        self._stopped = (
            self._peer_is_slow
            or self._muted != 0
            or self._held > 0
            or self._put_back
            or self._waits_for_turn
            or bool(self._outgoing)
            or self.closing
        )

    def _handle_more(self) -> None:
        """Handle requests that have arrived before now, unless that is being done."""
        if not self._handling:
            self.begun_ms = self._monotonic_ms()
            self._handle_frames()

    def _handle_frames(self) -> None:
        """Handle the requests that have arrived; `begun_ms` is the present time."""
        self._handling = True
        frames, pipeline = self._frames, self._pipeline
        handled = until_ms = 0
        try:
            while (
                not self._stopped
                and len(pipeline) < self._in_flight_max
                and self._piled_bytes <= self._waiting_bytes_max
            ):
                frame = frames.next_frame()
                if frame is None:
                    break
                if handled:
                    self.begun_ms = self._monotonic_ms()
                    if handled == 1:
                        until_ms = self.begun_ms + _SLICE_MS
                    elif self.begun_ms >= until_ms:
                        frames.put_back(frame)
                        self._wait_for_turn()
                        break
                self._handler.frame(self, frame)
                if not frames.has_more:
                    break
                handled += 1
        except MalformedRequestError as error:
            self._handler.refused(self, str(error))
            self.close()
            return
        finally:
            self._handling = False
        if self._ready:
            together = self._together
            if together is None or not together.defer(self, self.begun_ms):  # they are sent now
                self.send_ready()
        self._handled()

    def _handled(self) -> None:
        """Resume or pause reading, after frames were handled."""
        frames, pipeline = self._frames, self._pipeline
        wanted = (
            not self._stopped
            and len(pipeline) < self._in_flight_max
            and self._piled_bytes <= self._waiting_bytes_max
        )
        if self._received is not None:
            self._report_received(len(frames))
            wanted &= not self._is_crowded or len(frames) > 0
        if wanted is not self._reading:
            self._read_or_not(wanted)
        if frames.is_large or self._memory_bytes:
            self._count()
        if self._closing_after_write and not pipeline:
            self.close()

    def _wait_for_turn(self) -> None:
        """The slice of time is used up: continue after other work has had its turn."""
        self._waits_for_turn = self._stopped = True

        def turn() -> None:
            self._waits_for_turn = False
            self._go_on()

        self._soon(turn)

    def _report_received(self, held_bytes: int) -> None:
        more, self._reported_bytes = held_bytes - self._reported_bytes, held_bytes
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

    def _send_on(self) -> None:
        """The client reads again, or other work has had its turn."""
        self._write_out()
        if not self._outgoing:
            self._handle_more()

    def _write_out(self) -> None:
        """Write what is outgoing, until the client reads too slowly or the slice is used up."""
        outgoing, transport = self._outgoing, self._transport
        # Up to JOIN_BYTES the parts are joined: one write needs no cork, which takes two calls.
        is_one_write = len(outgoing) == 1 or size_of(outgoing) <= JOIN_BYTES
        straight = None if is_one_write else self._straight
        if straight is not None:
            straight.cork()
        self._write_pieces(outgoing, transport)
        if straight is not None:
            straight.uncork()
        self._may_go_on()
        if self.closing and not self._outgoing and transport is not None:
            transport.close()

    def _write_pieces(self, outgoing: deque[Part], transport: asyncio.Transport | None) -> None:
        straight, written_bytes = self._straight, 0
        while outgoing and transport is not None and not self._peer_is_slow:
            if transport.is_closing():
                self.closing = self._stopped = True
                self._drop_outgoing()
                return
            # A part of SLICE_BYTES leaves in one turn with the head and the end of its response.
            if written_bytes > SLICE_BYTES + JOIN_BYTES:
                self._soon(self._send_on)
                break
            part = outgoing[0]
            if straight is not None and not isinstance(part, CHUNKS):
                sent_bytes = straight.send(part)
                if sent_bytes:
                    written_bytes += sent_bytes
                    continue
            try:
                piece = next_piece(outgoing, self._send_on)
            except OdradekError as error:
                self._handler.broke_off(self, str(error))
                self.abort()
                return
            if piece is None:
                break
            written_bytes += len(piece)
            transport.write(piece)

    def _drop_outgoing(self) -> None:
        dropped, self._outgoing = self._outgoing, deque()
        drop(dropped)

    # ------------------------------------------------------------------------- memory

    def _count(self) -> None:
        """Report the memory that this connection takes, if it is above `COUNTED_BYTES`."""
        if self._holds is None:
            return
        memory_bytes = self._frames.memory_bytes + self._piled_bytes
        if self._peer_is_slow and self._transport is not None:
            memory_bytes += self._transport.get_write_buffer_size()
            memory_bytes += sum(len(part) for part in self._outgoing if isinstance(part, CHUNKS))
        self._count_memory(memory_bytes if memory_bytes > COUNTED_BYTES else 0)

    def _count_memory(self, memory_bytes: int) -> None:
        more, self._memory_bytes = memory_bytes - self._memory_bytes, memory_bytes
        if more and self._holds is not None:
            self._holds(self, more)

    @property
    def memory_bytes(self) -> int:
        """The memory it takes; 0 below `COUNTED_BYTES`."""
        return self._memory_bytes
