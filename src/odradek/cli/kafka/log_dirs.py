"""`kafka-log-dirs`: shows the log directories of brokers, with their replicas and sizes.

Behaviour, flags and texts follow Kafka 3.9's `LogDirsCommand`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

import odradek.client.admin.topics as admin
from odradek.cli.connect import properties_of, with_cluster
from odradek.cli.failures import ToolError, to_int
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.cli.kafka.support.java import hash_order, partition_hash
from odradek.client.admin.partitions import LogDir, describe_log_dirs
from odradek.client.cluster import Cluster
from odradek.client.kafka_errors import exception_name


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    parser.require(flags, "bootstrap-server", "describe")
    return with_cluster(
        flags.text("bootstrap-server"),
        properties_of(flags.value("command-config")),
        lambda cluster: _run(cluster, flags),
        client=("AdminClient", "log-dirs-tool"),
        call="listNodes",
    )


def command_line() -> Parser:
    parser = Parser("This tool helps to query log directory usage on the specified brokers.")
    parser.connection()
    parser.flag("describe", help="Show directories and the replicas in them.")
    parser.value("topic-list", metavar="a,b", help="Only replicas of these topics.")
    parser.value("broker-list", metavar="1,2", help="Only these brokers.")
    parser.common()
    return parser


async def _run(cluster: Cluster, flags: Flags) -> int:
    topics = {topic for topic in flags.text("topic-list").split(",") if topic}
    state = await admin.describe_cluster(cluster)
    live = sorted(node.id for node in state.nodes)
    asked = sorted({to_int(text) for text in flags.text("broker-list").split(",") if text})
    missing = [broker for broker in asked if broker not in live]
    if missing:
        raise ToolError(
            f"ERROR: The given brokers do not exist from --broker-list: {_ids(missing)}. "
            f"Current existent brokers: {_ids(live)}"
        )
    brokers = asked or live
    print("Querying brokers for log directories information", flush=True)
    described = {broker: await describe_log_dirs(cluster, broker) for broker in brokers}
    print(f"Received log directory information from brokers {_ids(brokers)}")
    print(_as_json(described, topics))
    return 0


def _as_json(described: Mapping[int, Sequence[LogDir]], topics: set[str]) -> str:
    document = {
        "brokers": [
            {"broker": broker, "logDirs": [_directory(log_dir, topics) for log_dir in log_dirs]}
            for broker, log_dirs in described.items()
        ],
        "version": 1,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _directory(log_dir: LogDir, topics: set[str]) -> dict[str, object]:
    wanted = [p for p in log_dir.replicas if not topics or p.topic in topics]
    return {
        "partitions": [
            {
                "partition": str(partition),
                "size": log_dir.replicas[partition].size_bytes,
                "offsetLag": log_dir.replicas[partition].offset_lag,
                "isFuture": log_dir.replicas[partition].is_future,
            }
            for partition in hash_order(wanted, partition_hash)
        ],
        "error": None if log_dir.error is None else exception_name(log_dir.error.code),
        "logDir": log_dir.path,
    }


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
