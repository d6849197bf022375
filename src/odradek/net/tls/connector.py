"""Outgoing connections with TLS, around those of another connector."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, cast

from odradek.net.channel import Connector
from odradek.net.tls.transport import Scratch, TlsTransport

log = logging.getLogger(__name__)
_LOGGED_MAX: Final = 1_000


class TlsConnector:
    """Connects to other brokers with TLS. A problem of an address is logged once while it lasts."""

    def __init__(
        self,
        connector: Connector,
        context: Callable[[], ssl.SSLContext],
        refused: Callable[[str, str], None] = lambda _host, _what: None,
    ) -> None:
        """`context` is called for each connection, so that it may change. `refused` is called with
        a host and what happened, each time that a handshake fails.
        """
        self._refused = refused
        self._connector = connector
        self._context = context
        self._scratch = Scratch()
        self._logged: dict[tuple[str, int], str] = {}

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect, complete the handshake, and return the protocol.

        Raises:
            OSError: the connection cannot be made, or the handshake failed.
        """
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def end(problem: str | None) -> None:
            if not ready.done():
                ready.set_result(problem)

        def make() -> TlsTransport:
            return TlsTransport(
                make_protocol(),
                self._context(),
                scratch=self._scratch,
                established=lambda _: end(None),
                failed=lambda reason: end(reason or "it closed the connection, without TLS"),
                server_side=False,
                server_host=host,
            )

        transport = cast("TlsTransport", await self._connector.connect(make, host, port))
        try:
            problem = await ready
        except BaseException:
            transport.abort()
            raise
        if problem is not None:
            self._log(host, port, problem)
            raise ConnectionError(f"{host}:{port}: {problem}")
        self._logged.pop((host, port), None)
        return transport.inner

    def _log(self, host: str, port: int, problem: str) -> None:
        self._refused(host, f"no connection to the broker at {host}:{port}: {problem}")
        if self._logged.get((host, port)) != problem:
            if len(self._logged) >= _LOGGED_MAX:
                self._logged.clear()
            self._logged[host, port] = problem
            log.warning("cannot connect to the broker at %s:%d: %s", host, port, problem)
