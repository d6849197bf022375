"""Who of the processes on this machine is alive: for the SQLite store's sessions and wake-ups.

Every session has, beside the store's file, a lock file that its process holds locked, and a
listening socket to which every later session connects. So of any two processes one has a
connection to the other:

* after a commit a byte goes to all others: `woken`;
* its end says at once that a process died, and the lock, which the kernel frees, proves it:
  `died`. The end alone proves nothing, the lock alone would have to be polled;
* a process that hangs keeps both: it is known by its silence, for every process sends a byte
  now and then. Silence is measured by the listener's own monotonic clock, and a listener that
  was itself asleep begins anew: `died` as well, after the session's time-out.

No byte of this is trusted with meaning: who is woken reads the store.
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
# of a dying process one after the other.
_LOCK_TRIES_S: Final = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_SOCKET_PATH_BYTES_MAX: Final = 103  # of sockaddr_un, on the meanest system

_HELLO: Final = struct.Struct(">q")  # the session that connects
_WAKE: Final = b"w"
_BEAT: Final = b"h"


class Presence:
    """One session's presence, and what it knows of the others'."""

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
        self._address: _Address | None = None
        self._server: asyncio.Server | None = None
        self._peers: dict[int, _Peer] = {}  # by session
        self._connections: set[_Peer] = set()
        self._heard: dict[
            int, float
        ] = {}  # by session: when it last gave a sign, or was first seen
        self._beaten = 0.0
        self._looked = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------- this session

    def claim(self, session: int, *, timeout_ms: int) -> None:
        """Lock and listen, before anybody can know of the session."""
        self._session = session
        self._time_out_s = timeout_ms / 1000
        lock = self._path(session, "lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._address = _Address(self._path(session, "sock"))
        with suppress(FileNotFoundError):  # left by one that died before it was known
            os.unlink(self._address.text)
        self._socket.bind(self._address.text)
        os.chmod(self._address.text, 0o600)  # before it listens, so that nobody slips in
        self._socket.listen(128)
        self._socket.setblocking(False)

    async def begin(self) -> None:
        """Take the connections that arrive."""
        loop = asyncio.get_running_loop()
        self._beaten = self._looked = loop.time()
        self._server = await loop.create_unix_server(lambda: _Peer(self, 0), sock=self._socket)

    def end(self) -> None:
        """Let go of everything: to the others this process is dead now."""
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        elif self._socket is not None:
            self._socket.close()
        self._socket = None
        if self._address is not None:
            self._address.release()
        for peer in list(self._connections):
            peer.abandon()
        self._connections.clear()
        self._peers.clear()
        self._heard.clear()
        if self._lock >= 0:
            self.forget(self._session)
            os.close(self._lock)
            self._lock = -1

    # -------------------------------------------------------------------- the others

    def is_free(self, session: int) -> bool:
        """Whether nobody holds a session's lock: its process is no more."""
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

    def forget(self, session: int) -> None:
        """Remove the files of a session that is over."""
        self._heard.pop(session, None)
        for kind in ("sock", "lock"):
            with suppress(OSError):  # another process was faster; else it is litter, no more
                os.unlink(self._path(session, kind))

    def wake(self) -> None:
        """Tell all others that something has changed."""
        for peer in self._peers.values():
            peer.send(_WAKE)

    def tick(self, time_outs_ms: Mapping[int, int]) -> None:
        """Now and then: give a sign, look for those who give none, connect to the unknown."""
        now = asyncio.get_running_loop().time()
        if now - self._looked > 2 * self._look_every_s:
            # It was we who slept, and what they sent may be unread.
            self._heard = dict.fromkeys(self._heard, now)
        self._looked = now
        if now - self._beaten >= self._time_out_s / 4:
            self._beaten = now
            for peer in self._peers.values():
                peer.send(_BEAT)
        for session in self._heard.keys() - time_outs_ms.keys():
            del self._heard[session]
        for session in sorted(time_outs_ms.keys() - {self._session}):
            if now - self._heard.setdefault(session, now) > time_outs_ms[session] / 1000:
                self._died(session)
            elif session not in self._peers and now > self._heard[session]:
                self.greet(session)  # known since the last time, and it has not connected to us

    def greet(self, session: int) -> None:
        """Connect to a session, or find out that its process is dead."""
        self._own(self._connect(session))

    async def _connect(self, session: int) -> None:
        loop = asyncio.get_running_loop()
        address = _Address(self._path(session, "sock"))
        try:
            _, peer = await loop.create_unix_connection(lambda: _Peer(self, session), address.text)
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

    def connected(self, peer: "_Peer") -> None:
        """There is a connection, of whomever."""
        self._connections.add(peer)

    def met(self, peer: "_Peer") -> None:
        """A peer has told its session."""
        self._peers[peer.session] = peer

    def heard(self, peer: "_Peer", data: bytes) -> None:
        """A peer gave a sign."""
        self._heard[peer.session] = asyncio.get_running_loop().time()
        if _WAKE in data:
            self._woken()

    def parted(self, peer: "_Peer") -> None:
        """The connection to a peer has ended."""
        self._connections.discard(peer)
        if self._peers.get(peer.session) is peer:
            del self._peers[peer.session]
            self._own(self._suspect(peer.session))


class _Peer(asyncio.Protocol):
    """One connection. `session` is 0 until the one who connected has said who it is."""

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
            self._presence.met(self)

    def data_received(self, data: bytes) -> None:
        if not self.session:
            self._hello += data
            if len(self._hello) < _HELLO.size:
                return
            (self.session,) = _HELLO.unpack_from(self._hello)
            data = self._hello[_HELLO.size :]
            self._presence.met(self)
            self.send(_WAKE)  # of what was written before we knew whom to wake
        self._presence.heard(self, data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._presence.parted(self)

    def send(self, data: bytes) -> None:
        # A peer that does not read has a byte to wake it already.
        if self._transport is not None and not self._transport.get_write_buffer_size():
            self._transport.write(data)

    def abandon(self) -> None:
        self.session = 0  # its end is no news
        if self._transport is not None:
            self._transport.abort()


class _Address:
    """The address of a socket file, also where its path is too long for one."""

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
        """The address is not needed any more."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1
