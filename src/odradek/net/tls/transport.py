"""TLS between a socket and a connection: to the socket a protocol, to the connection its transport.

asyncio has such a layer, too (`asyncio.sslproto`), whose limits do not hold for a server with many
clients: it takes 256 KiB for each connection before the handshake, buffers up to 512 KiB of what a
paused connection does not read and as much of what a client does not read, without counting the
socket's own buffer, and a failed handshake reaches neither the connection nor the log. Here

* the connection is made before the handshake: connection limits, rates and the idle time-out hold
  from the first byte on, and a handshake that is not completed in time ends the connection;
* received bytes go through one buffer of all connections (`Scratch`) into OpenSSL at once. The
  socket is not read while the connection is paused, so at most `RECEIVED_BYTES` wait decrypted or
  encrypted;
* bytes are encrypted when the socket takes them, in parts: OpenSSL's buffer keeps its largest
  size. What waits is what the connection has written, and `get_write_buffer_size` counts it all;
* handshakes of a server are worked on one in each iteration of the event loop (`soon`): one with
  an RSA key takes a millisecond.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, cast

from odradek.net.outgoing import Chunk

# Received in one call if the connection has no more room than that; one that receives large frames
# has. So at most this, and a part of a record of TLS, waits while the connection is paused.
RECEIVED_BYTES: Final = 32 * 1024
RECEIVED_BYTES_MAX: Final = 256 * 1024
# OpenSSL's buffers keep their largest size: received bytes go through one in parts of this size,
# and written ones through the other.
_PART_BYTES: Final = 64 * 1024
HANDSHAKE_TIMEOUT_S: Final = 10.0
_HANDSHAKE_RECORD: Final = 0x16
_CLIENT_HELLO: Final = 1
# The headers of a record and of the message in it: type, version, length; type, length.
_HELLO_HEAD_BYTES: Final = 5 + 4
# OpenSSL takes memory for the length that a client announces, up to 128 KiB. Java's limit
# (jdk.tls.maxHandshakeMessageSize).
HELLO_BYTES_MAX: Final = 32 * 1024
_CLOSED_BY_PEER: Final = (
    "the other side closed the connection during the TLS handshake: it may not trust the "
    "certificate sent to it"
)


class _TlsState(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()  # everything written is still sent
    CLOSED = auto()


# An attribute of an Enum takes 75 ns to look up (Python 3.11), three times for each request.
_OPEN: Final = _TlsState.OPEN


class Scratch:
    """The buffer into which sockets write. Its content is used before another socket writes."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVED_BYTES_MAX))
        self.small = self.view[:RECEIVED_BYTES]


def _at_once(work: Callable[[], None]) -> None:
    work()


def _nothing() -> None:
    pass


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One side of one TLS connection."""

    __slots__ = (
        "_accepted",
        "_backlog",
        "_backlog_bytes",
        "_begins",
        "_context",
        "_established",
        "_failed",
        "_has_begun",
        "_head",
        "_incoming",
        "_is_full",
        "_is_over",
        "_is_paused",
        "_is_scheduled",
        "_outgoing",
        "_peer_is_slow",
        "_read_into",
        "_received_first",
        "_room",
        "_scratch",
        "_server_host",
        "_server_side",
        "_soon",
        "_state",
        "_timer",
        "_tls",
        "_transport",
        "inner",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - a side of a connection, and what it reports to
        self,
        inner: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        *,
        scratch: Scratch,
        established: Callable[["TlsTransport"], None],
        failed: Callable[[str], None],
        server_side: bool,
        server_host: str | None = None,
        soon: Callable[[Callable[[], None]], None] = _at_once,
        accepted: Callable[[], None] = _nothing,
        begins: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`accepted` is called when a server's connection is made.

        `begins` is called before a handshake takes memory, with the size of the ClientHello. It may
        close this connection, and then returns False.

        `established` is called after the handshake, before the first byte is passed on.

        `failed` is called instead, with the reason, if the handshake fails; the connection is
        closed then. The reason is empty if the peer has sent nothing. A server's connection is made
        before the handshake, a client's after it.
        """
        super().__init__()
        self.inner = inner
        self._context = context
        self._server_host = server_host
        self._scratch = scratch
        self._established = established
        self._failed = failed
        self._server_side = server_side
        self._soon = soon
        self._accepted = accepted
        self._begins = begins
        self._head = b""  # the first bytes of the ClientHello
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject  # made in the first step of the handshake
        self._read_into: Callable[[int, memoryview], int]  # its method `read`
        self._has_begun = False
        self._state = _TlsState.HANDSHAKE
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received_first = False
        self._room: memoryview | None = None  # of the connection, for what is received now
        self._is_over = False  # the peer has sent close_notify
        self._is_scheduled = False  # a step of the handshake, or reading what has been received
        self._is_paused = False  # the connection does not read
        self._is_full = False  # the socket does not take more
        self._peer_is_slow = False  # as the connection was notified
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0

    # ------------------------------------------------------------------- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._wait_for_handshake()
        if self._server_side:
            self.inner.connection_made(self)
            self._accepted()
        else:
            self._shake_hands()

    def connection_lost(self, exc: Exception | None) -> None:
        is_made = self._server_side or self._state is not _TlsState.HANDSHAKE
        if self._state is _TlsState.HANDSHAKE:
            self._give_up(_CLOSED_BY_PEER if self._received_first else "")
        self._end()
        if is_made:
            self.inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        scratch = self._scratch
        if self._state is _OPEN:
            room: Any = self.inner.get_buffer(sizehint)
            self._room = room
            size = len(room)
            if size > RECEIVED_BYTES:
                return scratch.view[: max(RECEIVED_BYTES, size - self._incoming.pending)]
        return scratch.small

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what has been received: all of it, if the connection has as much room.

        Usually it is one record, with a small request: such a record takes no call of a helper.
        """
        room, self._room = self._room, None
        received = self._scratch.view[:nbytes]
        if room is None or self._state is not _OPEN:
            if self._state is _TlsState.HANDSHAKE:
                self._received_in_handshake(received)
            return
        size, incoming = len(room), self._incoming
        try:
            if nbytes <= _PART_BYTES:
                incoming.write(received)
                filled = self._read_into(size, room)
                if incoming.pending or not filled:
                    filled = self._fill(room, filled)
            else:
                filled = self._fill_in_parts(room, received)
        except ssl.SSLWantReadError:
            filled = 0
        except ssl.SSLError:
            self.abort()
            return
        if filled:
            self.inner.buffer_updated(filled)
        if self._outgoing.pending or self._is_over:
            self._pass_on(0)
        if filled == size:
            self._read()

    def eof_received(self) -> bool:
        """The peer has closed its side: nothing more is sent to it."""
        return False

    def pause_writing(self) -> None:
        self._is_full = True
        self._notify_slow()

    def resume_writing(self) -> None:
        self._is_full = False
        self._encrypt()
        if not self._is_full and not self._backlog and self._peer_is_slow:
            self._peer_is_slow = False
            self.inner.resume_writing()

    # ------------------------------------------------------- for the connection: a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "socket":  # what is written past this transport would not be encrypted
            return default
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return True
        return self._state is not _OPEN and self._state is not _TlsState.HANDSHAKE

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.inner

    def is_reading(self) -> bool:
        return not self._is_paused

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read what has been received, and then the socket again."""
        if self._is_paused:
            self._is_paused = False
            self._schedule(asyncio.get_running_loop().call_soon, self._resumed)

    def get_write_buffer_size(self) -> int:
        unsent_bytes = self._backlog_bytes
        if self._transport is not None:
            unsent_bytes += self._transport.get_write_buffer_size()
        return unsent_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes received, encrypted, that the connection has not read."""
        return self._incoming.pending

    def write(self, data: Chunk) -> None:
        is_open = self._state is _OPEN
        size = len(data)
        if is_open and not self._backlog and not self._is_full and 0 < size <= _PART_BYTES:
            try:  # without the backlog: most responses are small
                written = self._tls.write(data)
            except ssl.SSLError:  # raised again in `_encrypt`
                pass
            else:
                transport = self._transport
                if transport is not None:
                    transport.write(self._outgoing.read())
                if written == size:
                    return
                data = data[written:]
        if not data or not (is_open or self._state is _TlsState.HANDSHAKE):
            return
        self._backlog.append(memoryview(data))
        self._backlog_bytes += len(data)
        if is_open and not self._is_full:
            self._encrypt()

    def close(self) -> None:
        """Close after everything written is sent."""
        if self._state is _TlsState.OPEN:
            self._state = _TlsState.CLOSING
            self._encrypt()
        elif self._state is _TlsState.HANDSHAKE:
            self.abort()

    def abort(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.abort()

    # ---------------------------------------------------------------------- handshake

    def _begin(self) -> None:
        """Make OpenSSL's object, which takes 50 KB: not for a peer that has sent nothing."""
        self._has_begun = True
        self._tls = self._context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server_side,
            server_hostname=self._server_host,
        )
        self._read_into = cast("Callable[[int, memoryview], int]", self._tls.read)

    def _wait_for_handshake(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self._handshake_is_late)

    def _handshake_is_late(self) -> None:
        if self._is_paused:  # by this side, because of a rate
            self._wait_for_handshake()
        else:
            self._give_up(f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:.0f} s")

    def _received_in_handshake(self, received: memoryview) -> None:
        self._received_first = True
        if self._server_side and len(self._head) < _HELLO_HEAD_BYTES:
            self._head += received[: _HELLO_HEAD_BYTES - len(self._head)]
            problem = _hello_problem(self._head)
            if problem is not None:
                self._give_up(problem)
                return
        self._incoming.write(received)
        if self._server_side and len(self._head) < _HELLO_HEAD_BYTES:
            return
        if self._incoming.pending > RECEIVED_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._schedule(self._soon, self._shake_hands)

    def _schedule(
        self, soon: Callable[[Callable[[], None]], object], work: Callable[[], None]
    ) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            soon(work)

    def _shake_hands(self) -> None:
        self._is_scheduled = False
        if self._state is not _TlsState.HANDSHAKE:
            return
        if not self._has_begun:
            if not self._begins(_length(self._head[6:])):
                return
            self._begin()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            if not self._is_paused and self._transport is not None:
                self._transport.resume_reading()
            return
        except (ssl.SSLError, OSError) as error:
            self._send()  # the alert
            self._give_up(handshake_problem(error, server_side=self._server_side))
            return
        self._state = _TlsState.OPEN
        self._stop_timer()
        self._send()
        if not self._server_side:
            self.inner.connection_made(self)
        self._established(self)
        self._encrypt()
        self._resumed()

    def _give_up(self, reason: str) -> None:
        self._end()
        transport = self._transport
        if transport is not None and not transport.is_closing():
            # An alert is still sent, unless the peer has left earlier bytes unread.
            if transport.get_write_buffer_size():
                transport.abort()
            else:
                transport.close()
        self._failed(reason)

    def _end(self) -> None:
        self._state = _TlsState.CLOSED
        self._stop_timer()
        self._backlog.clear()
        self._backlog_bytes = 0

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------------ reading

    def _resumed(self) -> None:
        self._is_scheduled = False
        if self._state is _TlsState.OPEN and not self._is_paused:
            self._read()
        transport = self._transport
        if not self._is_paused and transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _read(self) -> None:
        """Pass on what had been received, until the connection pauses."""
        filled = size = 0
        while filled == size and self._state is _TlsState.OPEN and not self._is_paused:
            room: Any = self.inner.get_buffer(-1)
            size = len(room)
            try:
                filled = self._fill(room, 0)
            except ssl.SSLError:
                self.abort()
                return
            self._pass_on(filled)

    def _fill_in_parts(self, room: memoryview, received: memoryview) -> int:
        """Decrypt more than OpenSSL's buffer is to hold. Returns the size of the result.

        Raises:
            ssl.SSLError: the peer does not follow the protocol.
        """
        filled = 0
        for begin in range(0, len(received), _PART_BYTES):
            self._incoming.write(received[begin : begin + _PART_BYTES])
            filled = self._fill(room, filled)
        return filled

    def _fill(self, room: memoryview, filled: int) -> int:
        """Decrypt into `room` from `filled` on. Returns the end of what it holds now.

        Raises:
            ssl.SSLError: the peer does not follow the protocol.
        """
        size, incoming = len(room), self._incoming
        try:
            while filled < size:
                count = self._read_into(size - filled, room[filled:] if filled else room)
                if not count:
                    self._is_over = True
                    break
                filled += count
                if not incoming.pending:  # a read of nothing costs an exception
                    break
        except ssl.SSLWantReadError:
            pass
        return filled

    def _pass_on(self, filled: int) -> None:
        if filled:
            self.inner.buffer_updated(filled)
        if self._outgoing.pending:  # an answer to a key update
            self._send()
        if self._is_over:
            self.close()

    # ------------------------------------------------------------------------ writing

    def _encrypt(self) -> None:
        """Encrypt and send the backlog, until the socket does not take more."""
        backlog = self._backlog
        try:
            while backlog and not self._is_full:
                piece = backlog[0]
                size = len(piece)
                written = self._tls.write(piece if size <= _PART_BYTES else piece[:_PART_BYTES])
                self._backlog_bytes -= written
                if written == size:
                    backlog.popleft()
                else:
                    backlog[0] = piece[written:]
                self._send()
        except ssl.SSLWantReadError:  # a key update is not complete
            pass
        except ssl.SSLError:
            self.abort()
            return
        if self._state is _TlsState.CLOSING and not backlog:
            self._finish()
        elif backlog:
            self._notify_slow()

    def _send(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def _finish(self) -> None:
        """Send close_notify, and close without waiting for that of the peer."""
        self._state = _TlsState.CLOSED
        with suppress(ssl.SSLError, OSError):  # the peer's close_notify is outstanding
            self._tls.unwrap()
        self._send()
        if self._transport is not None:
            self._transport.close()

    def _notify_slow(self) -> None:
        if not self._peer_is_slow:
            self._peer_is_slow = True
            self.inner.pause_writing()


def _hello_problem(head: bytes) -> str | None:
    """Why these first bytes of a connection do not begin a handshake; None if they may."""
    if head[0] != _HANDSHAKE_RECORD:
        return (
            "the client does not use TLS, and this listener does: set security.protocol in the "
            "client's options, or connect to a listener without TLS"
        )
    if len(head) < _HELLO_HEAD_BYTES:
        return None
    if head[5] != _CLIENT_HELLO or _length(head[3:5]) < 4:
        return "TLS: the handshake does not begin with a ClientHello"
    if _length(head[6:]) > HELLO_BYTES_MAX:
        return f"TLS: a ClientHello of {_length(head[6:])} bytes; {HELLO_BYTES_MAX} are accepted"
    return None


def _length(encoded: bytes) -> int:
    return int.from_bytes(encoded, "big")


def handshake_problem(error: Exception, *, server_side: bool) -> str:
    """What an error of OpenSSL means, and what to do."""
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        whose = "client's" if server_side else "broker's"
        return f"TLS: the {whose} certificate is refused: {error.verify_message}"
    known = _PROBLEMS_OF_CLIENTS if server_side else _PROBLEMS_OF_SERVERS
    for part, meaning in known.items():
        if part in reason:
            return f"TLS: {meaning} ({reason})"
    return f"TLS: the handshake failed: {reason or error}"


_PROBLEMS_OF_CLIENTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has sent no certificate, and "
    "ssl.client.auth=required: set a key store in the client's options",
    "UNKNOWN_CA": "the client does not trust this broker's certificate: check the client's trust "
    "store",
    "CERTIFICATE_UNKNOWN": "the client refuses this broker's certificate: check the client's "
    "trust store, and the host name it connects to",
    "BAD_CERTIFICATE": "the client refuses this broker's certificate: check the client's trust "
    "store, and the host name it connects to",
    "CERTIFICATE_EXPIRED": "this broker's certificate has expired",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS that is in ssl.enabled.protocols",
    "PROTOCOL_VERSION": "the client has no version of TLS that is in ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client has no cipher suite that is allowed here: check "
    "ssl.cipher.suites, and that the key's type fits them",
}
_PROBLEMS_OF_SERVERS: Final = {
    "WRONG_VERSION_NUMBER": "the other side does not use TLS on this port",
    "RECORD_LAYER_FAILURE": "the other side does not use TLS on this port",
    "CERTIFICATE_REQUIRED": "the other side requires a certificate: set a key store",
    "UNKNOWN_CA": "the other side does not trust the certificate sent to it: check its trust store",
    "BAD_CERTIFICATE": "the other side refuses the certificate sent to it",
    "CERTIFICATE_EXPIRED": "the certificate sent to the other side has expired",
    "PROTOCOL_VERSION": "no version of TLS in common: check ssl.enabled.protocols on both sides",
    "HANDSHAKE_FAILURE": "no cipher suite in common, or a certificate is required",
}
