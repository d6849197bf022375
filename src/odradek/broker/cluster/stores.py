"""The coordination store of a broker's configuration, and how it is reached.

Without `zookeeper.connect` the brokers of one machine share a file (`coord.sqlite`); with it they
use ZooKeeper, in plain text or over TLS. A broker authenticates to ZooKeeper by its certificate or
by `odradek.zookeeper.digest`; with `zookeeper.set.acl` only it may change the nodes that it writes.

Kafka's options for key and trust stores are supported if they name PEM files.
"""

import asyncio
import pathlib
import random
import ssl
from typing import TYPE_CHECKING, Final

from odradek.config.broker import BrokerConfig
from odradek.coord.sqlite import SqliteStore
from odradek.coord.store import Store
from odradek.model.clock import Clock
from odradek.model.errors import StartupError
from odradek.model.extras import install

if TYPE_CHECKING:
    from odradek.coord.zookeeper import ZooKeeperStore

_PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TO_PEM: Final = (
    "; only PEM files are read here: turn it into one with `openssl pkcs12 -in STORE -nodes -out "
    "STORE.pem` (a .jks first with `keytool -importkeystore ... -deststoretype PKCS12`)"
)


def store_of(
    config: BrokerConfig, clock: Clock, loop: asyncio.AbstractEventLoop, drawn: random.Random
) -> Store:
    """The store, not yet opened.

    Raises:
        StartupError: it cannot be reached as the configuration says.
    """
    if config.zookeeper_connect is not None:
        return _zookeeper(config, config.zookeeper_connect, loop, drawn)
    path = embedded_path(config)
    return SqliteStore(path, clock=clock, session_timeout_ms=config.zookeeper_session_timeout_ms)


def embedded_path(config: BrokerConfig) -> str:
    """The file of the embedded store."""
    if config.odradek_store_path is not None:
        return config.odradek_store_path
    # Beside the log directory, not in it: Kafka's tools expect only logs there.
    return f"{config.log_dirs[0].rstrip('/')}.coordination.db"


def _zookeeper(
    config: BrokerConfig, servers: str, loop: asyncio.AbstractEventLoop, drawn: random.Random
) -> "ZooKeeperStore":
    try:
        from odradek.coord.zookeeper import ZooKeeperStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise StartupError(
            f"zookeeper.connect is set, and kazoo is not installed: {install('zookeeper')}"
        ) from None
    tls = zookeeper_tls(config) if config.zookeeper_ssl_client_enable else None
    digest = config.odradek_zookeeper_digest
    if digest is not None and not all(digest.partition(":")):
        raise StartupError("odradek.zookeeper.digest is not `user:password`")
    shows_certificate = tls is not None and config.zookeeper_ssl_keystore_location is not None
    if config.zookeeper_set_acl and not (shows_certificate or digest):
        raise StartupError(
            "zookeeper.set.acl=true, but this broker does not authenticate to ZooKeeper, so that "
            "no client could change what it writes: give it a certificate "
            "(zookeeper.ssl.keystore.location) or a user (odradek.zookeeper.digest)"
        )
    return ZooKeeperStore(
        servers,
        call_soon=loop.call_soon_threadsafe,
        randomness=drawn,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        in_flight_max=config.zookeeper_max_in_flight_requests,
        tls=tls,
        auth=[("digest", digest)] if digest else [],
        is_secured=config.zookeeper_set_acl,
    )


def zookeeper_tls(config: BrokerConfig) -> ssl.SSLContext:
    """The TLS context for ZooKeeper from the options `zookeeper.ssl.*`.

    Raises:
        StartupError: a key or certificate cannot be used.
    """
    trusted = _pem(
        "truststore", config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_truststore_type
    )
    try:
        context = ssl.create_default_context(cafile=trusted)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(f"zookeeper.ssl.truststore.location={trusted}: {error}") from None
    if not config.zookeeper_ssl_endpoint_identification_algorithm:
        context.check_hostname = False
    if config.zookeeper_ssl_enabled_protocols:
        _restrict(context, config.zookeeper_ssl_enabled_protocols)
    own = _pem(
        "keystore", config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_keystore_type
    )
    if own is not None:
        try:
            # An empty password: otherwise OpenSSL asks for one at the terminal.
            context.load_cert_chain(own, password=config.zookeeper_ssl_keystore_password or "")
        except (OSError, ssl.SSLError) as error:
            raise StartupError(
                f"zookeeper.ssl.keystore.location={own}: {error}; it must hold this broker's "
                "private key and its certificate"
            ) from None
    return context


def _restrict(context: ssl.SSLContext, wanted: tuple[str, ...]) -> None:
    unknown = sorted(set(wanted) - set(_PROTOCOLS))
    if unknown:
        raise StartupError(
            f"zookeeper.ssl.enabled.protocols names {', '.join(unknown)}; "
            f"supported are {', '.join(_PROTOCOLS)}"
        )
    versions = sorted(_PROTOCOLS[name] for name in wanted)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _pem(which: str, location: str | None, kind: str | None) -> str | None:
    """The PEM file of the key store or the trust store; None if it is not set."""
    if location is None:
        return None
    kind = (kind or pathlib.PurePath(location).suffix[1:] or "unknown").upper()
    if kind != "PEM":
        raise StartupError(f"zookeeper.ssl.{which}.location={location} is of type {kind}{_TO_PEM}")
    return location
