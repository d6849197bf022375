"""What a connection sends: chunks in memory, and parts that are read while they are sent."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

Chunk = bytes | bytearray | memoryview


class DeferredPart(Protocol):
    """A part of a response that is read while it is sent, piece by piece."""

    def __len__(self) -> int:
        """Its size in bytes, including what was read already."""

    def read(self, ready: Callable[[], None]) -> Chunk | None:
        """The next piece; an empty one after the last.

        None: the piece is not ready, and `ready` is called when it is worth another call.

        Raises:
            OdradekError: it cannot be read, or it is shorter than its announced length.
        """

    def send(self, to: int, bytes_max: int) -> int:
        """Send the next bytes right to a socket, by its descriptor; how many it has taken.

        0: `read` has to be called.
        """

    def close(self) -> None:
        """Release it; nothing more is read. Called once."""


Part = Chunk | DeferredPart
# Chunks up to this size are joined into one write; larger ones are cheaper to send than to copy.
JOIN_BYTES: Final = 64 * 1024
# Bytes written to the transport before other work gets a turn.
SLICE_BYTES: Final = 1 << 20
CHUNKS: Final = (bytes, bytearray, memoryview)


def size_of(parts: Iterable[Part] | None) -> int:
    return sum(map(len, parts or ()))


def drop(parts: Iterable[Part]) -> None:
    """Release what is not sent."""
    for part in parts:
        if not isinstance(part, CHUNKS):
            part.close()


def next_piece(outgoing: deque[Part], ready: Callable[[], None]) -> Chunk | None:
    """The next piece to write, small neighbours joined; None: `ready` is called later."""
    part = outgoing[0]
    if not isinstance(part, CHUNKS):
        piece = part.read(ready)
        if piece is not None and not piece:
            outgoing.popleft()
            part.close()
            return b""
        return piece
    outgoing.popleft()
    if len(part) > JOIN_BYTES:
        # asyncio keeps what the socket does not take; of a memoryview, without a copy.
        return memoryview(part)
    small, size = [part], len(part)
    while outgoing:
        part = outgoing[0]
        if not isinstance(part, CHUNKS) or len(part) > JOIN_BYTES or size > SLICE_BYTES:
            break
        size += len(part)
        small.append(part)
        outgoing.popleft()
    return small[0] if len(small) == 1 else b"".join(small)
