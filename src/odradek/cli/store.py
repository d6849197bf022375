"""A coordination store, opened by a tool: ZooKeeper's, or the embedded one of `odradek up`.

Where it is, one argument says: `host:port[,host:port][/chroot]` is ZooKeeper; the path of a
`coordination.db`, or of a directory that has one, is the embedded store.
"""

import asyncio
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from odradek.coord.store import Store
from odradek.model.errors import StartupError

EMBEDDED: Final = "coordination.db"
_TIMEOUT_MS: Final = 30_000


def embedded_path(where: str) -> pathlib.Path | None:
    """The file of the embedded store that is meant; None if it is not an embedded one."""
    path = pathlib.Path(where)
    if path.is_dir():
        path = path / EMBEDDED
    return path if path.is_file() else None


@asynccontextmanager
async def opened_store(where: str, *, timeout_ms: int = _TIMEOUT_MS) -> AsyncIterator[Store]:
    """A session with a store, ended on the way out.

    Raises:
        StartupError: there is no such store, or it does not answer within the time-out.
    """
    store = _store(where, timeout_ms)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _store(where: str, timeout_ms: int) -> Store:
    path = embedded_path(where)
    if path is not None:
        from odradek.broker.world import RealClock  # noqa: PLC0415 - not for ZooKeeper
        from odradek.coord.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(str(path), clock=RealClock())
    if ":" not in where:
        raise StartupError(
            f"{where}: must be host:port of a ZooKeeper, or the directory of a cluster "
            f"(with its {EMBEDDED})"
        )
    try:
        from odradek.coord.zookeeper import ZooKeeperStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise StartupError(
            f"{where}: kazoo, which speaks to ZooKeeper, is not installed: "
            "pip install odradek[zookeeper]"
        ) from None
    return ZooKeeperStore(
        where,
        call_soon=asyncio.get_running_loop().call_soon_threadsafe,
        randomness=Random(),
        connection_timeout_ms=timeout_ms,
    )
