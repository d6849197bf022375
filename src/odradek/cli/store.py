"""Opens a coordination store for a tool: ZooKeeper, or the embedded store of `odradek up`.

One argument names it: `host:port[,host:port][/chroot]` is ZooKeeper; the path of a
`coordination.db`, or of a directory with such a file, is the embedded store. Before the first
broker runs there is no such file: only a path that ends in `.db` names it then, and a tool that
writes creates it.
"""

import asyncio
import pathlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.coord.store import Store
from odradek.model.errors import StartupError
from odradek.model.extras import install

if TYPE_CHECKING:
    import ssl

EMBEDDED: Final = "coordination.db"
_TIMEOUT_MS: Final = 30_000
_NETTY: Final = "zookeeper.clientCnxnSocket"


def embedded_path(where: str) -> pathlib.Path | None:
    """The file of the embedded store; None if `where` names ZooKeeper."""
    path = pathlib.Path(where)
    if path.is_dir():
        path = path / EMBEDDED
    return path if path.is_file() else None


@asynccontextmanager
async def opened_store(
    where: str,
    *,
    timeout_ms: int = _TIMEOUT_MS,
    tls: Mapping[str, str] | None = None,
    creates: bool = False,
) -> AsyncIterator[Store]:
    """A session with a store, closed at the end of the block.

    `tls` are the `zookeeper.ssl.*` properties of `-zk-tls-config-file`. With `creates` the file of
    an embedded store is created if it does not exist, for its owner only.

    Raises:
        StartupError: the store does not exist, or does not answer within the timeout.
    """
    path = embedded_path(where) or (_new_path(where) if creates else None)
    store = _zookeeper(where, timeout_ms, tls or {}) if path is None else _embedded(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _new_path(where: str) -> pathlib.Path | None:
    path = pathlib.Path(where)
    return path if path.suffix == ".db" and path.parent.is_dir() else None


def _embedded(path: pathlib.Path) -> Store:
    from odradek.coord.sqlite import SqliteStore  # noqa: PLC0415
    from odradek.net.clock import RealClock  # noqa: PLC0415 - not for ZooKeeper

    return SqliteStore(str(path), clock=RealClock())


def _zookeeper(where: str, timeout_ms: int, tls: Mapping[str, str]) -> Store:
    if ":" not in where:
        raise StartupError(
            f"{where}: must be host:port of a ZooKeeper, or the directory of a cluster "
            f"(with its {EMBEDDED}); before the first broker runs, the file of odradek.store.path"
        )
    try:
        from odradek.coord.zookeeper import ZooKeeperStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise StartupError(
            f"{where}: kazoo, the client for ZooKeeper, is not installed: {install('zookeeper')}"
        ) from None
    return ZooKeeperStore(
        where,
        call_soon=asyncio.get_running_loop().call_soon_threadsafe,
        randomness=Random(),
        connection_timeout_ms=timeout_ms,
        tls=_tls(tls),
    )


def _tls(properties: Mapping[str, str]) -> "ssl.SSLContext | None":
    """TLS by the `zookeeper.ssl.*` properties; other properties are ignored."""
    known = {k: v for k, v in properties.items() if k.startswith(("zookeeper.ssl.", _NETTY))}
    if known.pop("zookeeper.ssl.client.enable", "false").strip().lower() != "true":
        return None
    from odradek.broker.cluster.stores import zookeeper_tls  # noqa: PLC0415 - few connections use TLS
    from odradek.config.broker import BrokerConfig  # noqa: PLC0415

    return zookeeper_tls(BrokerConfig(known, host_name="localhost"))
