"""How a tool comes to a cluster: `--bootstrap-server`, `--command-config`, and a loop to run on.

    def main(arguments):
        ...
        return with_cluster(servers, properties_of(flags.value("command-config")), work)

where `work(cluster)` is a coroutine function that returns the exit code.
"""

import asyncio
import pathlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from odradek.cli.failures import FileError, ToolError, log_line
from odradek.client.cluster import Cluster, InvalidAddressError, UnresolvableError
from odradek.client.settings import ClientSettings

_CLIENT_UTILS: Final = "org.apache.kafka.clients.ClientUtils"
_CONFIG_EXCEPTION: Final = "org.apache.kafka.common.config.ConfigException"


class ClientError(ToolError):
    """There is no way to make a client of these settings."""

    exception = "org.apache.kafka.common.KafkaException"


def properties_of(file: str | None) -> dict[str, str]:
    """The properties in a file, as `--command-config` names it; none for None.

    Raises:
        FileError: it cannot be read.
        InvalidConfigError: it is no properties file; names the file and the line.
    """
    if file is None:
        return {}
    from odradek.config.option import InvalidConfigError  # noqa: PLC0415 - few calls have one
    from odradek.config.properties import parse  # noqa: PLC0415

    try:
        return parse(pathlib.Path(file).read_text())
    except OSError as error:
        raise FileError(f"{file}: {error.strerror}") from None
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{file}: {error}") from None


def with_cluster(
    servers: str,
    properties: Mapping[str, str],
    work: Callable[[Cluster], Awaitable[int]],
    *,
    client_id: str = "adminclient-1",
) -> int:
    """Connect, work, hang up. Returns the exit code of the work.

    Raises:
        ClientError: no client can be made, for no address is one, or none can be resolved.
        BootstrapError: no broker answers; names each address and why.
        OdradekError: whatever the work raises.
    """
    merged = {**properties, "bootstrap.servers": servers}
    return asyncio.run(_connected(merged, work, client_id))


async def _connected(
    properties: Mapping[str, str], work: Callable[[Cluster], Awaitable[int]], client_id: str
) -> int:
    settings = ClientSettings.from_properties(properties, client_id=client_id)
    try:
        cluster = await Cluster.connect(settings)
    except UnresolvableError as error:
        for reason in error.reasons:
            print(log_line("WARN", _unresolved(reason), _CLIENT_UTILS), file=sys.stderr)
        raise no_client("No resolvable bootstrap urls given in bootstrap.servers") from None
    except InvalidAddressError as error:
        raise no_client(str(error)) from None
    async with cluster:
        return await work(cluster)


def no_client(why: str) -> ClientError:
    """The message of a client that cannot be made."""
    return ClientError(f"Failed to create new KafkaAdminClient\n{_CONFIG_EXCEPTION}: {why}")


def _unresolved(reason: str) -> str:
    """As Kafka's client logs it: `reason` is `host:port: why`."""
    server = reason.partition(": ")[0]
    return (
        f"Couldn't resolve server {server} from bootstrap.servers as DNS resolution failed for "
        f"{server.rpartition(':')[0]}"
    )
