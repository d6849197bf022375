"""`kafka-cluster`: shows the cluster's id and its brokers, and refuses to unregister one.

Behaviour, flags and texts follow Kafka 3.9's `ClusterTool`.
"""

from collections.abc import Sequence
from typing import Final

from odradek.cli.connect import properties_of, with_cluster
from odradek.cli.kafka.support.arguments import CommandLine, connection, integer
from odradek.client.admin.topics import describe_cluster
from odradek.client.cluster import Cluster
from odradek.model.printable import printable


def main(arguments: Sequence[str]) -> int:
    options = command_line().read(arguments)
    servers = options.bootstrap_server or options.bootstrap_controller

    async def work(cluster: Cluster) -> int:
        if options.verb == "cluster-id":
            return await _cluster_id(cluster)
        if options.verb == "list-endpoints":
            return await _list(cluster)
        return _unregister()

    return with_cluster(servers, properties_of(options.config), work, call=_CALLS[options.verb])


# The first request of Kafka's tool, which its message names.
_CALLS: Final = {
    "cluster-id": "listNodes",
    "list-endpoints": "listNodes",
    "unregister": "unregisterBroker",
}


def command_line() -> CommandLine:
    parser = CommandLine("kafka-cluster", "The Kafka cluster tool.")
    texts = {
        "cluster-id": "Show the cluster's id.",
        "unregister": "Unregister a broker (KRaft).",
        "list-endpoints": "Show the brokers' addresses.",
    }
    for verb, text in texts.items():
        sub = parser.verb(verb, text)
        connection(sub, "b", "C")
        sub.value("config", "c", "command-config", metavar="file", help="Client properties.")
        if verb == "unregister":
            sub.value("id", "i", metavar="ID", help="The broker.", read=integer, required=True)
    return parser


async def _cluster_id(cluster: Cluster) -> int:
    cluster_id = (await describe_cluster(cluster)).cluster_id
    if cluster_id is None:
        print("No cluster ID found. The Kafka version is probably too old.")
        return 1
    print(f"Cluster ID: {cluster_id}")
    return 0


async def _list(cluster: Cluster) -> int:
    nodes = (await describe_cluster(cluster)).nodes
    if not nodes:
        print("No endpoint found.")
        return 1
    rows: list[tuple[object, ...]] = [("ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE")]
    rows += [
        (n.id, printable(n.host), n.port, printable(n.rack or "null"), "broker")
        for n in sorted(nodes)
    ]
    width = max(20, *(len(node.host) for node in nodes))
    for broker, host, port, rack, kind in rows:
        print(f"{broker!s:<10} {host!s:<{width}} {port!s:<10} {rack!s:<10} {kind!s:<10}")
    return 0


def _unregister() -> int:
    # A registration in ZooKeeper mode ends with the broker's session.
    print("The target cluster does not support the broker unregistration API.")
    return 0
