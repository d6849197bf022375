"""Connections that are not authenticated yet: how much memory they may take, and for how long.

Without these limits, clients without credentials could take the memory and the file descriptors of
all others (CVE-2022-34917). At the limit of memory the connections that were accepted first are
closed: a log-in takes a few round trips, so they are the least likely to complete theirs.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Final

from odradek.model.clock import MonotonicMs
from odradek.net.connection import COUNTED_BYTES, Connection

# What each connection counts, beside its memory above it.
CONNECTION_BYTES: Final = COUNTED_BYTES


class Unauthenticated:
    """The connections of one broker's SASL listeners, from acceptance to authentication."""

    def __init__(
        self,
        *,
        monotonic_ms: Callable[[], MonotonicMs],
        soon: Callable[[Callable[[], None]], None],
        dropped: Callable[[Connection, str], None],
    ) -> None:
        """`dropped` is called before a connection is closed, with the reason."""
        self.bytes_max = 1 << 62  # odradek.unauthenticated.memory.max.bytes
        self.ms_max = 1 << 62  # odradek.unauthenticated.timeout.ms
        self.memory_bytes = 0
        self.dropped_connections = 0
        self._monotonic_ms = monotonic_ms
        self._soon = soon
        self._dropped = dropped
        self._since: dict[Connection, MonotonicMs] = {}  # in the order of their acceptance
        self._sheds = False

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, connection: Connection) -> None:
        """A connection is accepted, and has to authenticate."""
        self._since[connection] = self._monotonic_ms()
        self._add(CONNECTION_BYTES)

    def leave(self, connection: Connection) -> None:
        """A connection is authenticated, or closed."""
        if self._since.pop(connection, None) is not None:
            self.memory_bytes -= CONNECTION_BYTES + connection.memory_bytes

    def holds(self, connection: Connection, more_bytes: int) -> None:
        """The memory of a connection has changed; it counts before authentication."""
        if connection in self._since:
            self._add(more_bytes)

    def drop_late(self) -> None:
        """Close the connections that have not authenticated in time."""
        began_ms = self._monotonic_ms() - self.ms_max
        late = takewhile(lambda entry: entry[1] < began_ms, list(self._since.items()))
        for connection, _ in late:
            self._drop(
                connection,
                f"not authenticated within odradek.unauthenticated.timeout.ms={self.ms_max}",
            )

    # ------------------------------------------------------------------------ inside

    def _add(self, more_bytes: int) -> None:
        self.memory_bytes += more_bytes
        if self.memory_bytes > self.bytes_max and not self._sheds:
            self._sheds = True
            self._soon(self._shed)

    def _shed(self) -> None:
        self._sheds = False
        while self.memory_bytes > self.bytes_max and self._since:
            self._drop(
                next(iter(self._since)),
                f"{len(self._since)} connections that are not authenticated take "
                f"{self.memory_bytes} bytes of memory; "
                f"odradek.unauthenticated.memory.max.bytes={self.bytes_max}",
            )

    def _drop(self, connection: Connection, reason: str) -> None:
        self.leave(connection)
        self.dropped_connections += 1
        self._dropped(connection, reason)
        connection.abort()
