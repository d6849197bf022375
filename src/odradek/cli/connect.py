"""Connects a tool to a cluster by `--bootstrap-server` and `--command-config`, on an event loop.

    def main(arguments):
        ...
        return with_cluster(servers, properties_of(flags.value("command-config")), work)

where `work(cluster)` is a coroutine function that returns the exit code.
"""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from odradek.cli.failures import FileError, NoSuchFileError, ToolError, hide_log, show_log
from odradek.client.cluster import (
    BootstrapError,
    Cluster,
    InvalidAddressError,
    UnresolvableError,
)
from odradek.client.settings import ClientSettings, SettingsError
from odradek.config.option import InvalidConfigError
from odradek.model.errors import OdradekError

_CONFIG_EXCEPTION: Final = "org.apache.kafka.common.config.ConfigException"
_TIMEOUTS: Final = (
    "The specified value of default.api.timeout.ms must be no smaller than the value of "
    "request.timeout.ms."
)


class ClientError(ToolError):
    """The client cannot be created from its properties (Kafka's `KafkaException`)."""

    exception = "org.apache.kafka.common.KafkaException"


class NoBrokerError(ToolError):
    """No broker has answered within the timeout."""

    exception = "org.apache.kafka.common.errors.TimeoutException"
    is_named = True

    def __init__(self, call: str) -> None:
        super().__init__(f"Timed out waiting for a node assignment. Call: {call}")


class UnansweredError(ToolError):
    """No broker has answered one of our own commands; the message names each address and why."""


# Shorter than `default.api.timeout.ms`: these commands run on a terminal.
OWN_TIMEOUTS: Final = {
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "8000",
    "socket.connection.setup.timeout.ms": "3000",
}
OWN_WAIT_MS: Final = 3_000


def with_own_cluster(
    servers: str, properties: Mapping[str, str], work: Callable[[Cluster], Awaitable[int]]
) -> int:
    """`with_cluster` for our own commands: short timeouts, and one message if no broker answers.

    Raises:
        ClientError: the client cannot be created; UnansweredError: no broker answers.
        OdradekError: any failure of the work.
    """
    merged = {**OWN_TIMEOUTS, **properties, "bootstrap.servers": servers}
    try:
        return asyncio.run(
            _connected(merged, work, ("AdminClient", "odradek"), OWN_WAIT_MS, any_broker=True)
        )
    except BootstrapError as error:
        reasons = "; ".join(error.reasons) or str(error)
        closed = "closed" in reasons and "security.protocol" not in properties
        hint = "; if the listener uses TLS or SASL, name a file with --command-config"
        raise UnansweredError(
            f"no broker answers ({reasons}): check that a broker runs there, and that the "
            f"address is one of its listeners{hint * closed}"
        ) from None


class BadPropertyError(ClientError):
    """A property has an invalid value (Kafka's `ConfigException`)."""

    exception = _CONFIG_EXCEPTION


def properties_of(file: str | None) -> dict[str, str]:
    """The properties in the file of `--command-config`; {} for None.

    Raises:
        FileError: it cannot be read; NoSuchFileError: it does not exist.
        InvalidConfigError: it is not a properties file; names the file and the line.
    """
    if file is None:
        return {}
    from odradek.config.properties import parse  # noqa: PLC0415

    try:
        return parse(pathlib.Path(file).read_text())
    except FileNotFoundError:
        raise NoSuchFileError(file) from None
    except OSError as error:
        where = f"{file}: " if file else ""
        raise FileError(f"{where}{error.strerror}") from None
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{file}: {error}") from None


def with_cluster(
    servers: str,
    properties: Mapping[str, str],
    work: Callable[[Cluster], Awaitable[int]],
    *,
    client: tuple[str, str] = ("AdminClient", "adminclient-1"),
    call: str = "fetchMetadata",
    wait_ms: int | None = None,
) -> int:
    """Connect, run `work`, disconnect. Returns the exit code that `work` returns.

    Addresses that do not answer are tried again for `wait_ms`, or `default.api.timeout.ms`: a
    broker may be starting. `client` is the kind and the id for log lines. `call` is the first
    request of Kafka's tool, which its message names when no broker answers.

    Raises:
        ClientError: the client cannot be created: no address is valid, or none can be resolved.
        NoBrokerError: no broker answers; each address and why is printed on stderr.
        OdradekError: any failure of the work.
    """
    show_log()
    merged = {**properties, "bootstrap.servers": servers}
    try:
        return asyncio.run(_connected(merged, work, client, wait_ms))
    except BootstrapError:
        raise NoBrokerError(call) from None
    finally:
        hide_log()


async def _connected(
    properties: Mapping[str, str],
    work: Callable[[Cluster], Awaitable[int]],
    client: tuple[str, str],
    wait_ms: int | None,
    *,
    any_broker: bool = False,
) -> int:
    kind, client_id = client
    try:
        settings = ClientSettings.from_properties(properties, client_id=client_id, kind=kind)
    except (InvalidConfigError, SettingsError) as error:
        raise BadPropertyError(f"{error}\n{_CONFIG_EXCEPTION}: {error}") from None
    if settings.request_timeout_ms > settings.api_timeout_ms:
        raise no_client(_TIMEOUTS)
    if not settings.bootstrap_servers:
        raise no_client("You must set either bootstrap.servers or bootstrap.controllers")
    try:
        wait_ms = settings.api_timeout_ms if wait_ms is None else wait_ms
        connect = _connect_to_any if any_broker else Cluster.connect
        cluster = await connect(settings, wait_ms=wait_ms)
    except UnresolvableError:
        raise no_client("No resolvable bootstrap urls given in bootstrap.servers") from None
    except InvalidAddressError as error:
        raise no_client(str(error)) from None
    async with cluster:
        return await work(cluster)


async def _connect_to_any(settings: ClientSettings, *, wait_ms: int) -> Cluster:
    """Connect, also if some of the brokers refuse this client or have an expired certificate.

    Kafka's clients give up at the first: but then the doctor could not say which broker it is.

    Raises:
        AuthenticationError: all brokers that answer refuse it.
    """
    servers = settings.bootstrap_servers
    for first in range(len(servers) - 1):
        try:
            tried = replace(settings, bootstrap_servers=servers[first:])
            return await Cluster.connect(tried, wait_ms=wait_ms)
        except BootstrapError:
            raise  # none of them answers
        except OdradekError:
            continue  # the first that answers refuses this client
    return await Cluster.connect(replace(settings, bootstrap_servers=servers[-1:]), wait_ms=wait_ms)


def no_client(why: str) -> ClientError:
    """`KafkaAdminClient`'s exception when the client cannot be created."""
    return ClientError(f"Failed to create new KafkaAdminClient\n{_CONFIG_EXCEPTION}: {why}")
