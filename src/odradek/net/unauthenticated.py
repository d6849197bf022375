"""Connections that are not authenticated yet: how much memory they may take, and for how long.

Without these limits, clients without credentials could take the memory and the file descriptors of
all others (CVE-2022-34917). At the limit of memory the connections that were accepted first are
closed: a log-in takes a few round trips, so they are the least likely to complete theirs. To refuse
the latest instead would let those that never complete a handshake keep all others out.

Each address has a share of the memory, a 64th. While an address takes more than its share, the
address that takes most loses its connections first, and also gives way where the number of
connections is limited. Otherwise a storm from one address would close the log-ins of all others: 1.
Memory for 250 connections is taken. 2. A client begins a TLS handshake, for which it needs 100 ms.
3. In this time 250 connections of another address are accepted, so the client's is the earliest.

A connection counts from its acceptance on, until it is authenticated. On an SSL listener that is
when the TLS handshake is complete.
"""

import ipaddress
from collections.abc import Callable
from itertools import takewhile
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs
from odradek.net.connection import COUNTED_BYTES, Connection

# What each connection counts, beside its memory above it. With an unfinished TLS handshake it takes
# 52 KB: 45 KB are OpenSSL's (3.0).
CONNECTION_BYTES: Final = COUNTED_BYTES
# An address has this part of the memory as its share. So the addresses above it are few, and the
# one that takes most is found quickly, from however many addresses the connections are.
_SHARES: Final = 64
_LOGGED_EVERY_MS: Final = 60_000


class _CountedPeer(NamedTuple):
    since_ms: MonotonicMs
    counted_bytes: int  # beside the connection's own memory
    address: "_SourceAddress"


class _SourceAddress:
    """The connections from one address that are not authenticated."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory_bytes = 0
        self.connections: dict[Connection, None] = {}  # in the order of their acceptance


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
        self.ms_max = 1 << 62  # odradek.unauthenticated.timeout.ms
        self.memory_bytes = 0
        self.dropped_connections = 0
        self._bytes_max = self._share_bytes = 1 << 62
        self._monotonic_ms = monotonic_ms
        self._soon = soon
        self._dropped = dropped
        self._peers: dict[Connection, _CountedPeer] = {}  # in the order of their acceptance
        self._addresses: dict[str, _SourceAddress] = {}
        self._above_share: dict[str, _SourceAddress] = {}
        self._sheds = False
        self._next_line_ms = MonotonicMs(0)

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def bytes_max(self) -> int:
        """The option `odradek.unauthenticated.memory.max.bytes`; each address has a 64th of it."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, value: int) -> None:
        self._bytes_max, self._share_bytes = value, value // _SHARES
        self._above_share.clear()
        for address in self._addresses.values():
            self._compare(address)

    def enter(self, connection: Connection) -> None:
        """A connection is accepted, and has to authenticate."""
        if connection in self._peers:
            return
        name = network_of(connection.peer_host)
        address = self._addresses.setdefault(name, _SourceAddress(name))
        address.connections[connection] = None
        self._peers[connection] = _CountedPeer(self._monotonic_ms(), CONNECTION_BYTES, address)
        self._add(address, CONNECTION_BYTES)

    def begin_handshake(self, connection: Connection, more_bytes: int) -> bool:
        """Count what a TLS handshake takes, before it takes it; `more_bytes` above the usual.

        At the limit, earlier connections are closed at once. False: this one had to be closed.
        """
        self.enter(connection)
        peer = self._peers[connection]
        self._peers[connection] = peer._replace(counted_bytes=peer.counted_bytes + more_bytes)
        self._add(peer.address, more_bytes)
        self._shed()
        return connection in self._peers

    def leave(self, connection: Connection) -> None:
        """A connection is authenticated, or closed."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            address = peer.address
            del address.connections[connection]
            if not address.connections:
                del self._addresses[address.name]
            self._add(address, -peer.counted_bytes - connection.memory_bytes)

    def holds(self, connection: Connection, more_bytes: int) -> None:
        """The memory of a connection has changed; it counts before authentication."""
        peer = self._peers.get(connection)
        if peer is not None:
            self._add(peer.address, more_bytes)

    def make_room(self, host: str, listener: str | None = None) -> bool:
        """Close a connection in favour of one from `host`: False if no address has to give way.

        The address that takes most has to, if it is above its share and not that of `host`. With
        `listener`, a connection of that one is closed.
        """
        most = self._most()
        if most is None or most.name == network_of(host):
            return False
        for connection in most.connections:
            if listener is None or connection.listener == listener:
                if self._may_log():
                    self._dropped(connection, self._reason("a connection of another address", most))
                self._drop(connection)
                return True
        return False

    def drop_late(self) -> None:
        """Close the connections that have not authenticated in time."""
        began_ms = self._monotonic_ms() - self.ms_max
        late = takewhile(lambda entry: entry[1].since_ms < began_ms, list(self._peers.items()))
        reason = f"not authenticated within odradek.unauthenticated.timeout.ms={self.ms_max}"
        for connection, _ in late:
            self._dropped(connection, reason)
            self._drop(connection)

    # ------------------------------------------------------------------------ inside

    def _add(self, address: _SourceAddress, more_bytes: int) -> None:
        self.memory_bytes += more_bytes
        address.memory_bytes += more_bytes
        self._compare(address)
        if self.memory_bytes > self.bytes_max and not self._sheds:
            self._sheds = True
            self._soon(self._shed)

    def _compare(self, address: _SourceAddress) -> None:
        if address.memory_bytes > self._share_bytes:
            self._above_share[address.name] = address
        else:
            self._above_share.pop(address.name, None)

    def _most(self) -> _SourceAddress | None:
        """The address that takes most, if it takes more than its share."""
        above = self._above_share.values()
        return max(above, key=lambda address: address.memory_bytes, default=None)

    def _shed(self) -> None:
        self._sheds = False
        while self.memory_bytes > self.bytes_max and self._peers:
            most = self._most()
            closed = next(iter(self._peers if most is None else most.connections))
            if self._may_log():
                self._dropped(closed, self._reason("memory", most))
            self._drop(closed)

    def _may_log(self) -> bool:
        now_ms = self._monotonic_ms()
        may_log = now_ms >= self._next_line_ms
        if may_log:
            self._next_line_ms = MonotonicMs(now_ms + _LOGGED_EVERY_MS)
        return may_log

    def _reason(self, needed: str, most: _SourceAddress | None) -> str:
        largest = ""
        if most is not None:
            largest = f"{most.name} has {len(most.connections)} of them and loses them first; "
        return (
            f"closed for {needed}: {len(self._peers)} connections that are not authenticated take "
            f"{self.memory_bytes} bytes; "
            f"odradek.unauthenticated.memory.max.bytes={self.bytes_max}; {largest}the "
            f"{self.dropped_connections} closed so far and those of the next minute are not logged"
        )

    def _drop(self, connection: Connection) -> None:
        self.leave(connection)
        self.dropped_connections += 1
        connection.abort()


def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 network of 64 bits.

    One host has as many addresses in such a network as it likes.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))
