"""`kafka-broker-api-versions`: which APIs each broker serves, in which versions.

Behaviour and format follow Kafka 3.9's `BrokerApiVersionsCommand`; "usable" is the highest version
that Odradek's client supports, too.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import odradek.client.admin.topics as admin
from odradek.cli.connect import ClientError, NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import java_text
from odradek.cli.kafka.support.flags import Parser
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, OdradekError
from odradek.model.printable import printable
from odradek.wire.api_keys import APIS, OWN_APIS
from odradek.wire.schema import NO_VERSIONS, Versions

# The timeout of BrokerApiVersionsCommand for each address.
_WAIT_MS: Final = 5_000
# APIs of Kafka 3.9 for KRaft, which brokers in ZooKeeper mode do not serve.
_OTHERS: Final = {
    55: "DescribeQuorum", 64: "UnregisterBroker",
    71: "GetTelemetrySubscriptions", 72: "PushTelemetry",
    74: "ListClientMetricsResources", 75: "DescribeTopicPartitions", 76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe", 78: "ShareFetch", 79: "ShareAcknowledge", 80: "AddRaftVoter",
    81: "RemoveRaftVoter", 83: "InitializeShareGroupState", 84: "ReadShareGroupState",
    85: "WriteShareGroupState", 86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary",
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments, uncaught=True)
    parser.require(flags, "bootstrap-server")
    servers = flags.text("bootstrap-server")
    try:
        properties = properties_of(flags.value("command-config"))
        return with_cluster(
            servers,
            properties,
            _run,
            client=("LegacyAdminClient", "admin-1"),
            wait_ms=_WAIT_MS * len(servers.split(",")),
        )
    except NoBrokerError:
        nodes = enumerate(servers.split(","), 1)
        tried = ", ".join(f"{address} (id: -{number} rack: null)" for number, address in nodes)
        return _uncaught(
            f"java.lang.RuntimeException: Request METADATA failed on brokers List({tried})"
        )
    except ClientError as error:
        return _uncaught(str(error).rpartition("\n")[2])
    except (OdradekError, OSError) as error:
        return _uncaught(java_text(error))


def _uncaught(why: str) -> int:
    sys.stdout.flush()
    print(f'Exception in thread "main" {why}', file=sys.stderr)
    return 1


def command_line() -> Parser:
    parser = Parser("This tool helps to retrieve broker version information.")
    parser.connection()
    parser.common()
    return parser


async def _run(cluster: Cluster) -> int:
    state = await admin.describe_cluster(cluster)
    failed = False
    for node in sorted(state.nodes):
        name = printable(f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'})")
        try:
            connection = await cluster.broker(node.id)
        except (ApiError, ConnectionError) as error:
            failed = True
            print(f"{name} -> ERROR: {error}")
            continue
        print(f"{name} -> (\n" + ",\n".join(_lines(connection.versions)) + "\n)")
    return 1 if failed else 0


def _lines(served: Mapping[int, Versions]) -> list[str]:
    lines = []
    for key in sorted({*APIS, *_OTHERS, *served} - OWN_APIS):
        api = APIS.get(key)
        name = api.name if api is not None else _OTHERS.get(key, "UNKNOWN")
        theirs = served.get(key)
        if theirs is None:
            lines.append(f"\t{name}({key}): UNSUPPORTED")
            continue
        ours = NO_VERSIONS if api is None else api.decodable
        usable = min(theirs.last, ours.last)
        text = str(usable) if usable >= max(theirs.first, ours.first) else "UNSUPPORTED"
        first, last = theirs
        span = str(first) if first == last else f"{first} to {last}"
        known = api is not None or key in _OTHERS
        lines.append(f"\t{name}({key}): {span}" + (f" [usable: {text}]" if known else ""))
    return lines
