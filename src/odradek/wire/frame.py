"""Frames: the 4-byte length, and then as many bytes, that everything on a socket is.

Bytes in, frames out; no socket here. A `FrameBuffer` belongs to one connection and lends its
memory twice: to the socket, which writes into it (`writable`, `wrote`), and to the handler,
which gets each frame as a view of it. So a record batch is copied once on its way from the
kernel to the log: by the kernel.

A view is good until the next call of `writable`. Whoever keeps something of a frame copies it.
"""

from mmap import mmap
from struct import Struct
from typing import Final

from odradek.model.errors import MalformedRequestError

LENGTH_BYTES: Final = 4
_LENGTH: Final = Struct(">i")
_SMALL_BYTES: Final = 16 * 1024
# From this size on a buffer is mapped: it takes memory as it is filled, not as it is made, and
# making it takes no time.
_MAPPED_BYTES: Final = 1 << 20
# A buffer that has grown for large frames is given back after this many that were small.
_SMALL_FRAMES_BEFORE_SHRINKING: Final = 64


class FrameBuffer:
    """Cuts a stream of bytes into frames, refusing those above a limit."""

    __slots__ = (
        "_buffer", "_end", "_small_frames", "_start", "_touched", "_view", "frame_bytes_max",
        "is_large",
    )  # fmt: skip

    def __init__(self, *, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max  # raised once the peer is known
        self._buffer: bytearray | mmap = bytearray(_SMALL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # of what is not yet consumed
        self._end = 0  # of what the socket has written
        self._small_frames = 0
        self.is_large = False  # it takes more memory than at the start
        self._touched = 0  # bytes from the begin on that were ever written

    def __len__(self) -> int:
        """Bytes received and not yet consumed."""
        return self._end - self._start

    def writable(self) -> memoryview:
        """Room for the socket to write into, at least one byte."""
        if self._start == self._end:
            self._touched = max(self._touched, self._end)
            self._start = self._end = 0
            if (
                len(self._buffer) > _SMALL_BYTES
                and self._small_frames >= _SMALL_FRAMES_BEFORE_SHRINKING
            ):
                self._replace(_SMALL_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return self._view[self._end :]

    def wrote(self, count: int) -> None:
        """The socket has written `count` bytes."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next complete frame without its length, or None.

        Raises:
            MalformedRequestError: the length is negative or above the limit. It is checked
                before the body is awaited, so a peer cannot make us buffer 2 GiB.
        """
        start = self._start
        body = start + LENGTH_BYTES
        if self._end < body:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        if not 0 <= length <= self.frame_bytes_max:
            raise MalformedRequestError(
                f"frame of {length} bytes; socket.request.max.bytes={self.frame_bytes_max}"
            )
        end = body + length
        if self._end < end:
            return None
        self._start = end
        self._small_frames = self._small_frames + 1 if length < _SMALL_BYTES // 2 else 0
        return self._view[body:end]

    def put_back(self, frame: memoryview) -> None:
        """The last frame is the next one once more."""
        self._start -= len(frame) + LENGTH_BYTES

    def give_away(self) -> None:
        """Leave the memory to whoever has the last frame, and go on in another.

        What stands behind the frame is copied: call it when that is little.
        """
        self._replace(max(_SMALL_BYTES, 2 * (self._end - self._start)))

    def rest(self) -> None:
        """Nothing is coming just now: keep no more memory than what is there needs."""
        if self._start == self._end and len(self._buffer) > _SMALL_BYTES:
            self._replace(_SMALL_BYTES)

    @property
    def memory_bytes(self) -> int:
        """How much memory this takes."""
        size = len(self._buffer)
        return size if size < _MAPPED_BYTES else max(self._touched, self._end)

    def _make_room(self) -> None:
        """Move what is left to the front, into twice the room if it needs it.

        Memory follows the data that came, never the length that was promised: a peer that
        promises 100 MiB and sends ten bytes has cost us ten bytes.
        """
        left = self._end - self._start
        size = len(self._buffer)
        if left > size // 2:
            self._replace(self._more_room(size))
            return
        # In place: fresh memory would cost more than the copy, page by page.
        self._view[:left] = self._view[self._start : self._end]
        self._start, self._end = 0, left

    def _more_room(self, size: int) -> int:
        """Twice as much; for a frame that is larger than that and has begun well, all of it.

        A mapped buffer costs nothing where nothing is written, and what is not made again and
        again need not be copied again and again.
        """
        if size < _MAPPED_BYTES:
            return size * 2
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        return max(size * 2, min(length, self.frame_bytes_max) + LENGTH_BYTES)

    def _replace(self, size: int) -> None:
        kept = self._view[self._start : self._end]
        self._buffer = bytearray(size) if size < _MAPPED_BYTES else mmap(-1, size)
        self.is_large = size > _SMALL_BYTES
        self._view = memoryview(self._buffer)
        self._view[: len(kept)] = kept
        self._start, self._end = 0, len(kept)
        self._small_frames = self._touched = 0
