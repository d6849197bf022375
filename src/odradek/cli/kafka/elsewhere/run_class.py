"""`kafka-run-class CLASS`: there is no Java here; the tool that does what the class does."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

# By the class's name without its package, which differs between versions.
SUCCESSORS: Final[Mapping[str, str]] = {
    "AddPartitionsCommand": "kafka-topics --alter --partitions",
    "AclCommand": "kafka-acls",
    "BrokerApiVersionsCommand": "kafka-broker-api-versions",
    "ConfigCommand": "kafka-configs",
    "ConsoleConsumer": "kafka-console-consumer",
    "ConsoleProducer": "kafka-console-producer",
    "ConsumerGroupCommand": "kafka-consumer-groups",
    "ConsumerOffsetChecker": "kafka-consumer-groups --describe --group",
    "ConsumerPerformance": "kafka-consumer-perf-test",
    "CreateTopicCommand": "kafka-topics --create",
    "DeleteRecordsCommand": "kafka-delete-records",
    "DeleteTopicCommand": "kafka-topics --delete",
    "DumpLogSegments": "kafka-dump-log",
    "EndToEndLatency": "kafka-e2e-latency",
    "ExportZkOffsets": "kafka-consumer-groups --reset-offsets --to-current --export --dry-run",
    "GetOffsetShell": "kafka-get-offsets",
    "ImportZkOffsets": "kafka-consumer-groups --reset-offsets --from-file",
    "JmxTool": "GET /metrics of a broker's odradek.http.port, with Kafka's names",
    "Kafka": "kafka-server-start",
    "LeaderElectionCommand": "kafka-leader-election",
    "ListTopicCommand": "kafka-topics --describe",
    "LogDirsCommand": "kafka-log-dirs",
    "PreferredReplicaLeaderElectionCommand": "kafka-leader-election --election-type preferred",
    "ProducerPerformance": "kafka-producer-perf-test",
    "ReassignPartitionsCommand": "kafka-reassign-partitions",
    "ReplicaVerificationTool": "kafka-replica-verification",
    "ShutdownBroker": "odradek stop ID, or SIGTERM: a broker hands its leaders over",
    "SimpleConsumerShell": "kafka-console-consumer --partition N --offset OFFSET",
    "StreamsResetter": "kafka-streams-application-reset",
    "TopicCommand": "kafka-topics",
    "TransactionsCommand": "kafka-transactions",
    "UpdateOffsetsInZK": "kafka-consumer-groups --reset-offsets",
    "VerifiableConsumer": "kafka-verifiable-consumer",
    "VerifiableProducer": "kafka-verifiable-producer",
    "VerifyConsumerRebalance": "kafka-consumer-groups --describe --members",
    "ZooKeeperMainWithTlsSupportForKafka": "zookeeper-shell",
}
_ELSEWHERE: Final = (
    "kafka-run-class runs classes of Apache Kafka, and there is no Java here. Clients of Apache "
    "Kafka work with this cluster unchanged: run the class with a distribution of Apache Kafka."
)


def main(arguments: Sequence[str]) -> int:
    words = [word for word in arguments if not word.startswith("-")]
    name = words[0].rpartition(".")[2] if words else ""
    instead = SUCCESSORS.get(name)
    print(f"{name} is here: {instead}" if instead else _ELSEWHERE, file=sys.stderr)
    return 1
