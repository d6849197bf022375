"""Frames: a 4-byte length and as many bytes. Everything on a socket is in frames.

Bytes in, frames out; no socket here. A `FrameBuffer` belongs to one connection and lends its
memory twice: to the socket, which writes into it (`writable`, `wrote`), and to the handler,
which gets each frame as a view of it. So the only copy of a record batch on its way to the log is
the kernel's.

A view is valid until the next call of `writable`: a handler that keeps bytes of a frame copies
them first.
"""

from mmap import mmap
from struct import Struct
from typing import Final

from odradek.model.errors import MalformedRequestError

LENGTH_BYTES: Final = 4
_LENGTH: Final = Struct(">i").unpack_from
# How a TLS connection begins, which a listener without TLS takes for a length.
_CLIENT_HELLO: Final = (0x16_03_01, 0x16_03_02, 0x16_03_03)
_SMALL_BYTES: Final = 16 * 1024
# The buffer for the first bytes: of a connection that sends a small request now and then, it is
# large enough. A read that fills it is followed by one with _SMALL_BYTES.
_FIRST_BYTES: Final = 2 * 1024
# From this size on a buffer is mapped: its pages take memory when they are first written, and
# making it takes no time.
_MAPPED_BYTES: Final = 1 << 20
# A buffer that has grown for large frames is released after this many small ones.
_SMALL_FRAMES_BEFORE_SHRINKING: Final = 64


class FrameBuffer:
    """Cuts a stream of bytes into frames, refusing those above a limit."""

    __slots__ = (
        "_buffer", "_end", "_small_frames", "_start", "_touched", "_view", "frame_bytes_max",
        "has_more", "is_large",
    )  # fmt: skip

    def __init__(self, *, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max  # higher once the peer is authenticated
        # Memory is taken for the first bytes: a peer that sends nothing, or does not complete a TLS
        # handshake, costs none.
        self._buffer: bytearray | mmap = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0  # of the bytes not yet consumed
        self._end = 0  # of the bytes that the socket has written
        self._small_frames = 0
        self.has_more = False  # bytes behind the frame that was read last
        self.is_large = False  # it has more memory than at the start
        self._touched = 0  # bytes from the beginning of the buffer that were ever written

    def __len__(self) -> int:
        """Bytes received and not yet consumed."""
        return self._end - self._start

    def writable(self) -> memoryview:
        """Room for the socket to write into, at least one byte."""
        if self._start == self._end:
            # For most frames nothing has to be measured: others were as large before.
            if self._end > self._touched or not self._touched or self.is_large:
                self._touched = max(self._touched, self._end)
                if self._touched >= len(self._buffer) or self.is_large:
                    self._resize_empty()
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            self._make_room()
        return self._view[self._end :]

    def _resize_empty(self) -> None:
        """Make the first buffer, replace it after a read that filled it, or shrink a large one."""
        size = len(self._buffer)
        if not size:
            self._replace(_FIRST_BYTES)
        elif size < _SMALL_BYTES or (
            size > _SMALL_BYTES and self._small_frames >= _SMALL_FRAMES_BEFORE_SHRINKING
        ):
            self._replace(_SMALL_BYTES)

    def wrote(self, count: int) -> None:
        """Count `count` bytes that the socket has written into `writable()`."""
        self._end += count

    def next_frame(self, wrote: int = 0) -> memoryview | None:
        """The next complete frame without its length, or None.

        `wrote` counts bytes as the method of that name does, without another call.

        Raises:
            MalformedRequestError: the length is negative or above the limit. It is checked
                before the body arrives, so a peer cannot make a broker buffer 2 GiB.
        """
        received = self._end = self._end + wrote
        start = self._start
        body = start + LENGTH_BYTES
        if received < body:
            return None
        (length,) = _LENGTH(self._buffer, start)
        if not 0 <= length <= self.frame_bytes_max:
            raise MalformedRequestError(_problem(length, self.frame_bytes_max))
        end = body + length
        if received < end:
            return None
        self._start = end
        self.has_more = end < received
        if self.is_large:
            self._small_frames = self._small_frames + 1 if length < _SMALL_BYTES // 2 else 0
        return self._view[body:end]

    def put_back(self, frame: memoryview) -> None:
        """Make the last frame the next one again."""
        self._start -= len(frame) + LENGTH_BYTES

    def detach(self) -> None:
        """Leave the memory to the holder of the last frame, and continue in another buffer.

        The bytes behind the frame are copied: call it when they are few.
        """
        self._replace(max(_SMALL_BYTES, 2 * (self._end - self._start)))

    def release_memory(self) -> None:
        """While nothing is being received: give back a buffer that is empty."""
        if self._start == self._end and len(self._buffer):
            self._replace(0)

    @property
    def memory_bytes(self) -> int:
        """Memory of the buffer; of a mapped one, the part that was written."""
        size = len(self._buffer)
        return size if size < _MAPPED_BYTES else max(self._touched, self._end)

    def _make_room(self) -> None:
        """Move what is left to the front, into twice the room if it needs it.

        Memory follows the bytes received, never the length announced: a peer that announces
        100 MiB and sends ten bytes has cost ten bytes.
        """
        left = self._end - self._start
        size = len(self._buffer)
        if left > size // 2 or size < _SMALL_BYTES:
            self._replace(self._more_room(size))
            return
        # In place: fresh memory would cost more than the copy, page by page.
        self._view[:left] = self._view[self._start : self._end]
        self._start, self._end = 0, left

    def _more_room(self, size: int) -> int:
        """Twice as much; for a mapped buffer whose frame is larger than that, the whole frame.

        A mapped buffer costs nothing where nothing is written, and a buffer that is replaced once
        is copied once.
        """
        if size < _MAPPED_BYTES:
            return max(size * 2, _SMALL_BYTES)
        length: int = _LENGTH(self._buffer, self._start)[0]
        return max(size * 2, min(length, self.frame_bytes_max) + LENGTH_BYTES)

    def _replace(self, size: int) -> None:
        kept = self._view[self._start : self._end]
        self._buffer = bytearray(size) if size < _MAPPED_BYTES else mmap(-1, size)
        self.is_large = size > _SMALL_BYTES
        self._view = memoryview(self._buffer)
        self._view[: len(kept)] = kept
        self._start, self._end = 0, len(kept)
        self._small_frames = self._touched = 0


def _problem(length: int, frame_bytes_max: int) -> str:
    if length >> 8 in _CLIENT_HELLO:
        return (
            "the client uses TLS, and this listener does not: set security.protocol in the "
            "client's options, or connect to a listener with TLS"
        )
    return f"frame of {length} bytes; socket.request.max.bytes={frame_bytes_max}"
