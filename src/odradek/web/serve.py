"""Runs the page's server in this process until it is told to stop."""

import socket
from collections.abc import Callable
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette

SHUTDOWN_S = 2


class PageCertificate(NamedTuple):
    """Files in PEM; without `key` the private key is in the file of the certificates."""

    certificates: str
    key: str | None = None


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose.

    Raises:
        OSError: the address is not one of this host, or is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(64)
    except OSError:
        bound.close()
        raise
    return bound


class PageServer(uvicorn.Server):
    """uvicorn, which calls `ready` when it serves."""

    def __init__(
        self, app: Starlette, ready: Callable[[], None], *, tls: PageCertificate | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            ssl_certfile=tls.certificates if tls else None,
            ssl_keyfile=tls.key if tls else None,
            proxy_headers=False,  # the address of a peer is counted, and must not be invented
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
            limit_concurrency=256,
            h11_max_incomplete_event_size=16_384,
        )
        super().__init__(config)
        self._app = app
        self._ready = ready

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._app.state.workspaces():
            each.hub.close()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
