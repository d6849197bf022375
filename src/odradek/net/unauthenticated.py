"""Connections that are not authenticated yet: how much memory they may take, and for how long.

Without these limits, clients without credentials could take the memory and the file descriptors of
all others (CVE-2022-34917). At the limit of memory the connections that were accepted first are
closed: a log-in takes a few round trips, so they are the least likely to complete theirs. To refuse
the latest instead would let those that never complete a handshake keep all others out.

A connection counts from its acceptance on a SASL listener, and from the beginning of its TLS
handshake on an SSL listener, where it is authenticated when the handshake is complete.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs
from odradek.net.connection import COUNTED_BYTES, Connection

# What each connection counts, beside its memory above it. With an unfinished TLS handshake it takes
# 52 KB: 45 KB are OpenSSL's (3.0).
CONNECTION_BYTES: Final = COUNTED_BYTES
_LOGGED_EVERY_MS: Final = 60_000


class _CountedPeer(NamedTuple):
    since_ms: MonotonicMs
    counted_bytes: int  # beside the connection's own memory


class Unauthenticated:
    """The connections of one broker that have to authenticate, until they have."""

    def __init__(
        self,
        *,
        monotonic_ms: Callable[[], MonotonicMs],
        soon: Callable[[Callable[[], None]], None],
        dropped: Callable[[Connection, str], None],
    ) -> None:
        """`dropped` is called before a connection is closed, with the reason.

        Of those closed for the memory limit it is called for one in a minute.
        """
        self.bytes_max = 1 << 62  # odradek.unauthenticated.memory.max.bytes
        self.ms_max = 1 << 62  # odradek.unauthenticated.timeout.ms
        self.memory_bytes = 0
        self.dropped_connections = 0
        self._monotonic_ms = monotonic_ms
        self._soon = soon
        self._dropped = dropped
        self._peers: dict[Connection, _CountedPeer] = {}  # in the order of their acceptance
        self._sheds = False
        self._next_line_ms = MonotonicMs(0)

    def __len__(self) -> int:
        return len(self._peers)

    def enter(self, connection: Connection) -> None:
        """A connection is accepted, and has to authenticate."""
        self._peers[connection] = _CountedPeer(self._monotonic_ms(), CONNECTION_BYTES)
        self._add(CONNECTION_BYTES)

    def begin_handshake(self, connection: Connection, more_bytes: int) -> bool:
        """Count what a TLS handshake takes, before it takes it; `more_bytes` above the usual.

        At the limit, earlier connections are closed at once. False: this one had to be closed.
        """
        if connection not in self._peers:
            self.enter(connection)
        peer = self._peers[connection]
        self._peers[connection] = peer._replace(counted_bytes=peer.counted_bytes + more_bytes)
        self._add(more_bytes)
        self._shed()
        return connection in self._peers

    def leave(self, connection: Connection) -> None:
        """A connection is authenticated, or closed."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self.memory_bytes -= peer.counted_bytes + connection.memory_bytes

    def holds(self, connection: Connection, more_bytes: int) -> None:
        """The memory of a connection has changed; it counts before authentication."""
        if connection in self._peers:
            self._add(more_bytes)

    def drop_late(self) -> None:
        """Close the connections that have not authenticated in time."""
        began_ms = self._monotonic_ms() - self.ms_max
        late = takewhile(lambda entry: entry[1].since_ms < began_ms, list(self._peers.items()))
        reason = f"not authenticated within odradek.unauthenticated.timeout.ms={self.ms_max}"
        for connection, _ in late:
            self._dropped(connection, reason)
            self._drop(connection)

    # ------------------------------------------------------------------------ inside

    def _add(self, more_bytes: int) -> None:
        self.memory_bytes += more_bytes
        if self.memory_bytes > self.bytes_max and not self._sheds:
            self._sheds = True
            self._soon(self._shed)

    def _shed(self) -> None:
        self._sheds = False
        while self.memory_bytes > self.bytes_max and self._peers:
            earliest = next(iter(self._peers))
            now_ms = self._monotonic_ms()
            if now_ms >= self._next_line_ms:
                self._next_line_ms = MonotonicMs(now_ms + _LOGGED_EVERY_MS)
                self._dropped(earliest, self._crowd())
            self._drop(earliest)

    def _crowd(self) -> str:
        return (
            f"{len(self._peers)} connections that are not authenticated take {self.memory_bytes} "
            f"bytes of memory; odradek.unauthenticated.memory.max.bytes={self.bytes_max}; the "
            f"{self.dropped_connections} closed so far and those of the next minute are not logged"
        )

    def _drop(self, connection: Connection) -> None:
        self.leave(connection)
        self.dropped_connections += 1
        connection.abort()
