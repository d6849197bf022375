"""Which processes of this machine run: for the SQLite store's sessions and wake-ups.

Every session has, beside the store's file, a lock file that its process holds locked, and a
listening socket to which every later session connects. So of any two processes one has a
connection to the other:

* after a commit a byte is sent to all others: `woken`;
* the end of a connection shows at once that a process may have ended, and the lock, which the
  kernel releases, proves it: `died`. The end of the connection alone is no proof, and the lock
  alone would have to be polled;
* a process that hangs keeps both. Every process sends a heartbeat byte now and then; one that
  sends nothing for its session's time-out is reported too (`died`). The time is measured by the
  listener's own monotonic clock, and starts again when the listener itself was suspended.

The bytes carry no information: a process that is woken reads the store.
"""

import asyncio
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from odradek.model.errors import StartupError

# When to try a lock after its owner's connection has ended: the kernel closes the descriptors
# of an ending process one after the other.
_LOCK_TRIES_S: Final = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_ACCEPT_PAUSE_S: Final = 0.5
_SOCKET_PATH_BYTES_MAX: Final = 103  # of sockaddr_un, on the system with the shortest

_HELLO: Final = struct.Struct(">q")  # the session that connects
_WAKE: Final = b"w"
_HEARTBEAT: Final = b"h"


class Presence:
    """One session's lock, socket and connections to the other sessions' processes."""

    def __init__(
        self,
        store_path: str,
        *,
        look_every_ms: int,
        woken: Callable[[], None],
        died: Callable[[int], None],
    ) -> None:
        self._store_path = store_path
        self._look_every_s = look_every_ms / 1000
        self._woken = woken
        self._died = died
        self._session = 0
        self._time_out_s = 0.0
        self._lock = -1
        self._socket: socket.socket | None = None
        self._address: SocketAddress | None = None
        self._accepted: set[socket.socket] = set()  # connections that have no transport yet
        self._peers: dict[int, _PeerConnection] = {}  # by session
        self._connections: set[_PeerConnection] = set()
        self._last_received: dict[int, float] = {}  # by session: last byte, or first seen
        self._last_heartbeat = 0.0
        self._last_tick = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------- this session

    def claim(self, session: int, *, timeout_ms: int) -> None:
        """Lock and listen, before another process can read the session from the store."""
        self._session = session
        self._time_out_s = timeout_ms / 1000
        lock = self._path(session, "lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._address = SocketAddress(self._path(session, "sock"))
        with suppress(FileNotFoundError):  # left by a process that ended before it registered
            os.unlink(self._address.text)
        self._socket.bind(self._address.text)
        os.chmod(self._address.text, 0o600)  # before it listens, so that no other user can connect
        self._socket.listen(128)
        self._socket.setblocking(False)

    def begin(self) -> None:
        """Accept connections of other sessions."""
        loop = asyncio.get_running_loop()
        self._last_heartbeat = self._last_tick = loop.time()
        self._listen()

    def end(self) -> None:
        """Release lock, socket and connections: for the others this process has ended."""
        for task in self._tasks:
            task.cancel()
        if self._socket is not None:
            with suppress(RuntimeError):  # the loop did not run: nothing listens
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for connection in self._accepted:
            connection.close()
        self._accepted.clear()
        if self._address is not None:
            self._address.release()
        for peer in list(self._connections):
            peer.abandon()
        self._connections.clear()
        self._peers.clear()
        self._last_received.clear()
        if self._lock >= 0:
            self.remove_files(self._session)
            os.close(self._lock)
            self._lock = -1

    # asyncio's Server leaves a connection open that it has accepted when it is closed and that has
    # no transport yet (Python 3.11: an assertion fails in a task). So this accepts on its own.

    def _listen(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor is free; the connecting process tries again as well
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_PAUSE_S, self._listen)
            return
        connection.setblocking(False)
        self._accepted.add(connection)
        self._own(self._take(connection))

    async def _take(self, connection: socket.socket) -> None:
        self._accepted.discard(connection)  # its transport closes it from here on
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _PeerConnection(self, 0), connection
            )

    # -------------------------------------------------------------------- the others

    def is_free(self, session: int) -> bool:
        """Whether no process holds a session's lock: its process has ended."""
        try:
            lock = os.open(self._path(session, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def remove_files(self, session: int) -> None:
        """Remove the files of a session that has ended."""
        self._last_received.pop(session, None)
        for kind in ("sock", "lock"):
            with suppress(OSError):  # removed by another process already, or left over: harmless
                os.unlink(self._path(session, kind))

    def wake(self) -> None:
        """Notify all others that the store has changed."""
        for peer in self._peers.values():
            peer.send(_WAKE)

    def tick(self, time_outs_ms: Mapping[int, int]) -> None:
        """Periodically: send heartbeats, report silent sessions, connect to new ones."""
        now = asyncio.get_running_loop().time()
        if now - self._last_tick > 2 * self._look_every_s:
            # This process was suspended, and bytes of the others may still be unread.
            self._last_received = dict.fromkeys(self._last_received, now)
        self._last_tick = now
        if now - self._last_heartbeat >= self._time_out_s / 4:
            self._last_heartbeat = now
            for peer in self._peers.values():
                peer.send(_HEARTBEAT)
        for session in self._last_received.keys() - time_outs_ms.keys():
            del self._last_received[session]
        for session in sorted(time_outs_ms.keys() - {self._session}):
            if now - self._last_received.setdefault(session, now) > time_outs_ms[session] / 1000:
                self._died(session)
            elif session not in self._peers and now > self._last_received[session]:
                # It is in the store since the last tick, and has not connected to us.
                self.connect_to(session)

    def connect_to(self, session: int) -> None:
        """Connect to a session, or report that its process has ended."""
        self._own(self._connect(session))

    async def _connect(self, session: int) -> None:
        loop = asyncio.get_running_loop()
        address = SocketAddress(self._path(session, "sock"))
        try:
            _, peer = await loop.create_unix_connection(
                lambda: _PeerConnection(self, session), address.text
            )
        except OSError:
            await self._suspect(session)
        else:
            peer.send(_HELLO.pack(self._session))
        finally:
            address.release()

    async def _suspect(self, session: int) -> None:
        for delay_s in _LOCK_TRIES_S:
            await asyncio.sleep(delay_s)
            if self.is_free(session):
                self._died(session)
                return

    def _own(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _path(self, session: int, kind: str) -> str:
        return f"{self._store_path}-session-{session}.{kind}"

    # ----------------------------------------------------------- what the peers report

    def connected(self, peer: "_PeerConnection") -> None:
        """A connection was accepted or made; its session may not be known yet."""
        if self._socket is None:
            peer.abandon()  # accepted in the moment of the end
            return
        self._connections.add(peer)

    def identified(self, peer: "_PeerConnection") -> None:
        """The session of a connection is known."""
        self._peers[peer.session] = peer

    def received(self, peer: "_PeerConnection", data: bytes) -> None:
        """Bytes have arrived from a session."""
        self._last_received[peer.session] = asyncio.get_running_loop().time()
        if _WAKE in data:
            self._woken()

    def disconnected(self, peer: "_PeerConnection") -> None:
        """A connection has ended: check whether its process has."""
        self._connections.discard(peer)
        if self._peers.get(peer.session) is peer:
            del self._peers[peer.session]
            self._own(self._suspect(peer.session))


class _PeerConnection(asyncio.Protocol):
    """One connection. `session` is 0 until the connecting process has sent its session."""

    def __init__(self, presence: Presence, session: int) -> None:
        self.session = session
        self._presence = presence
        self._transport: asyncio.Transport | None = None
        self._hello = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports keep the contract without inheriting it.
        self._transport = cast(asyncio.Transport, transport)
        self._presence.connected(self)
        if self.session:
            self._presence.identified(self)

    def data_received(self, data: bytes) -> None:
        if not self.session:
            self._hello += data
            if len(self._hello) < _HELLO.size:
                return
            (self.session,) = _HELLO.unpack_from(self._hello)
            data = self._hello[_HELLO.size :]
            self._presence.identified(self)
            self.send(_WAKE)  # for what was written before this connection existed
        self._presence.received(self, data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._presence.disconnected(self)

    def send(self, data: bytes) -> None:
        # A peer with unread bytes has one that wakes it already.
        if self._transport is not None and not self._transport.get_write_buffer_size():
            self._transport.write(data)

    def abandon(self) -> None:
        self.session = 0  # its end is not reported
        if self._transport is not None:
            self._transport.abort()


class SocketAddress:
    """The address of a socket file, also where the path is too long for a sockaddr."""

    def __init__(self, path: str) -> None:
        self.text = path
        self._directory = -1
        if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX:
            return
        if not os.path.isdir("/proc/self/fd"):
            raise StartupError(
                f"{path}: must be at most {_SOCKET_PATH_BYTES_MAX} bytes long to hold a socket; "
                "choose a shorter data directory"
            )
        directory, name = os.path.split(path)
        self._directory = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        self.text = f"/proc/self/fd/{self._directory}/{name}"

    def release(self) -> None:
        """Close the directory that a shortened address refers to."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1
