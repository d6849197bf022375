"""How kazoo runs for us: its thread, its sockets, its log, and where its answers go.

Kazoo is made for threads: it hands answers to one worker and events to another, and an answer may
then overtake an event. Here there is but the thread that reads the socket, and it calls back
where it is.
"""

import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from kazoo.handlers.threading import (  # type: ignore[import-untyped]
    SequentialThreadingHandler,
)

T = TypeVar("T")


class Answer(Generic[T]):
    """Where kazoo's thread puts what became of a request, in the order in which it hears it."""

    __slots__ = ("_answered", "_post", "_request")

    def __init__(
        self,
        post: Callable[[Callable[[], object]], None],
        answered: Callable[[T, Any], None],
        request: T,
    ) -> None:
        self._post = post
        self._answered = answered
        self._request = request

    def set(self, value: Any = None) -> None:
        """It was done."""
        self._post(partial(self._answered, self._request, value))

    def set_exception(self, error: Exception) -> None:
        """It was not, or nobody knows."""
        self._post(partial(self._answered, self._request, error))


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's threads and sockets: one thread, no workers; TLS as its owner set it up."""

    def __init__(self, *, connect_timeout_ms: int, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.may_connect = True  # until the session is over: a new one is its owner's to begin
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._tls = tls

    def start(self) -> None:
        """No workers: never `running`, kazoo calls back where it is."""

    def stop(self) -> None:
        """Nothing to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        """Tell of an event: here and now, in its place among the answers."""
        callback.func(*callback.args)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: object
    ) -> socket.socket:
        """Reach a server, so soon that another can be tried before the session ends."""
        if not self.may_connect:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the session is over")
        try:
            connection = socket.create_connection(address, self._connect_timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                return _secured(connection, self._tls, hostname or address[0])
        except OSError as error:
            where = f"{hostname or address[0]}:{address[1]}"
            raise OSError(error.errno, f"{where}: {error.strerror or error}") from error
        return connection

    def select(self, readers: Any, writers: Any, others: Any, timeout: float | None) -> Any:
        """Wait, but not for bytes that TLS has decrypted already."""
        buffered = [r for r in readers if isinstance(r, ssl.SSLSocket) and r.pending()]
        if not buffered:
            return super().select(readers, writers, others, timeout)
        ready = super().select(readers, writers, others, 0)
        return [*buffered, *(r for r in ready[0] if r not in buffered)], ready[1], ready[2]


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """Kazoo warns of every attempt to connect. One warning is enough, and that is ours."""

    last_warning: str | None = None

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Remember a warning, and make it an item of information."""
        if level == logging.WARNING:
            self.last_warning = str(msg) % args
            level = logging.INFO
        super().log(level, msg, *args, **kwargs)


def _secured(connection: socket.socket, tls: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(connection, server_hostname=name)
    except BaseException:
        connection.close()
        raise
