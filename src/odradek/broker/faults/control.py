"""The socket over which the faults of a broker's process are controlled.

A UNIX socket that only its owner can connect to. A request is a line of JSON, and so is its answer:

    {"do": "cut", "addresses": [["127.0.0.1", 20001]], "store": false,
     "clients": {"named": {"orders-app": true}, "others": false}}     true: is cut off
    {"do": "slow", "ms": 200}
    {"do": "fail_next", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "tickets": ["/..."]}
    {"do": "expire_session"}
    {"do": "set_clock", "ahead_ms": 90000000}
    {"do": "heal"}
    {"do": "attend"}          the broker ends at once when this connection is closed

    {"ok": true} or {"error": "the reason"}
"""

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from odradek.broker.faults.gate import FaultError
from odradek.broker.faults.injected import Faults
from odradek.coord.presence import SocketAddress

_LINE_BYTES_MAX: Final = 1 << 20


class FaultControl:
    """Serves the faults of one broker at a socket's path, until `stop`."""

    def __init__(self, faults: Faults, path: str) -> None:
        self._faults = faults
        self._path = path
        self._server: asyncio.Server | None = None
        self._address: SocketAddress | None = None
        self._attended = False

    async def start(self) -> None:
        with suppress(FileNotFoundError):  # of an earlier process
            os.unlink(self._path)
        self._address = SocketAddress(self._path)
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, self._address.text, limit=_LINE_BYTES_MAX
            )
        finally:
            os.umask(mask)

    def stop(self) -> None:
        """Close the socket; a connection that attends has no meaning any more."""
        self._attended = False
        if self._server is not None:
            self._server.close()
        if self._address is not None:
            self._address.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attends = False
        try:
            while line := await reader.readline():
                answer, attends_now = await self._answer(line)
                attends = attends or attends_now
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # ValueError: a line is too long
            pass
        finally:
            writer.close()
        if attends and self._attended:
            os._exit(1)  # the process that it was started for has ended: as SIGKILL

    async def _answer(self, line: bytes) -> tuple[Mapping[str, object], bool]:
        try:
            request = json.loads(line)
            if request["do"] == "attend":
                self._attended = True
                return {"ok": True}, True
            await self._do(request)
        except FaultError as error:
            return {"error": str(error)}, False
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"a request that is not understood: {error!r}"}, False
        return {"ok": True}, False

    async def _do(self, request: Mapping[str, Any]) -> None:
        faults = self._faults
        match request["do"]:
            case "cut":
                addresses = [(str(host), int(port)) for host, port in request["addresses"]]
                named, others = request["clients"]["named"], request["clients"]["others"]
                faults.cut(
                    addresses,
                    store=bool(request["store"]),
                    cuts_client=lambda client_id: bool(named.get(client_id, others)),
                )
            case "slow":
                faults.slow(int(request["ms"]))
            case "fail_next":
                faults.fail_next(request["api"], request["error"], request["tickets"])
            case "expire_session":
                faults.expire_session()
            case "set_clock":
                await faults.set_clock(int(request["ahead_ms"]))
            case "heal":
                faults.heal()
            case other:
                raise FaultError(f"{other!r} is not a fault")
