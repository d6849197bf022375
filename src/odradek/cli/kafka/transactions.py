"""`kafka-transactions`: lists and describes transactions; finds and aborts hanging ones.

Behaviour, flags and texts follow Kafka 3.9's `TransactionsCommand`.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import odradek.client.admin.groups as admin_groups
import odradek.client.admin.topics as admin
from odradek.cli.connect import ClientError, NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import java_text, message_of
from odradek.cli.kafka.support.arguments import CommandLine, Namespace, integer, long
from odradek.client.admin.groups import ProducerDescription
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable
from odradek.net.clock import real_wall_ms

_LIST: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE: Final = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
    "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs",
    "TopicPartitions",
)  # fmt: skip
_PRODUCERS: Final = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
    "CurrentTransactionStartOffset",
)  # fmt: skip
_HANGING: Final = (
    "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
    "LastTimestamp", "Duration(min)",
)  # fmt: skip
_TIMEOUT_MINUTES_MAX: Final = 15


def main(arguments: Sequence[str]) -> int:
    options = command_line().read(arguments)
    problem = _problem(options)
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1

    async def work(cluster: Cluster) -> int:
        await _VERBS[options.verb](cluster, options)
        return 0

    try:
        properties = properties_of(options.command_config)
        call = _CALLS[options.verb]
        return with_cluster(options.bootstrap_server, properties, work, call=call)
    except ClientError as error:
        summary, _, more = str(error).partition("\n")
        print(f'Exception in thread "main" {error.exception}: {summary}\n{more}', file=sys.stderr)
        return 1
    except (OdradekError, OSError) as error:
        sys.stdout.flush()
        print(_message(error, options), file=sys.stderr)
        return 1


# The first request of Kafka's tool, which its message names.
_CALLS: Final = {
    "list": "listTransactions(api=METADATA)",
    "describe": "describeTransactions(api=FIND_COORDINATOR)",
    "describe-producers": "describeProducers(api=METADATA)",
    "abort": "describeProducers(api=METADATA)",
    "find-hanging": "listTopics",
}


def _message(error: Exception, options: Namespace) -> str:
    if isinstance(error, NoBrokerError):
        failed = "Failed to list topics: " if options.verb == "find-hanging" else _failed(options)
        return f"{failed}{error}. Enable debug logging for additional detail."
    if not isinstance(error, ApiError):
        return f"{_failed(options)}{error}"
    text = message_of(error)
    if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        text = (
            f"DescribeTransactions request for transactionalId `{options.transactional_id}` failed "
            "because the ID could not be found"
        )
    elif error.code == ErrorCode.BROKER_NOT_AVAILABLE:
        text = (
            "Timed out waiting for a node assignment. "
            "Call: describeProducers(api=DESCRIBE_PRODUCERS)"
        )
    elif options.verb == "find-hanging":
        text = f"Failed to describe 1 topics: {java_text(ApiError(error.code)).partition(': ')[2]}"
    return f"{_failed(options)}{text}. Enable debug logging for additional detail."


def _failed(options: Namespace) -> str:
    """The beginning of Kafka's message about a failed verb."""
    if options.verb == "list":
        return "Failed to list transactions: "
    if options.verb == "describe":
        return (
            "Failed to describe transaction state of transactional-id "
            f"`{options.transactional_id}`: "
        )
    if options.verb == "describe-producers":
        where = "leader" if options.broker_id is None else f"broker {options.broker_id}"
        partition = TopicPartition(options.topic, options.partition)
        return f"Failed to describe producers for partition {partition} on {where}: "
    return ""


def command_line() -> CommandLine:
    parser = CommandLine("kafka-transactions.sh", "Analyse transactions, and abort hanging ones.")
    parser.value("bootstrap-server", metavar="host:port,...", required=True)
    parser.value("command-config", metavar="file", help="Client properties.")
    parser.flag("version", "v", help="Print the version.")
    listing = parser.verb("list", "Show transactional ids.")
    listing.value("duration-filter", metavar="ms", help="Older transactions.", read=long)
    one = parser.verb("describe", "Show the state of one transactional id.")
    one.value("transactional-id", metavar="id", required=True)
    producers = parser.verb("describe-producers", "Show the producers of a partition.")
    producers.value("topic", metavar="name", required=True)
    producers.value("partition", metavar="N", read=integer, required=True)
    text = "The broker to ask; default: the leader."
    producers.value("broker-id", metavar="N", help=text, read=integer)
    abort = parser.verb("abort", "Abort a hanging transaction.")
    abort.value("topic", metavar="name", required=True)
    abort.value("partition", metavar="N", read=integer, required=True)
    text = "The first offset of the transaction."
    abort.value("start-offset", metavar="offset", help=text, read=long)
    abort.value("producer-id", metavar="id", read=long)
    abort.value("producer-epoch", metavar="epoch", read=integer)
    abort.value("coordinator-epoch", metavar="epoch", read=integer)
    text = "Find transactions that no coordinator will complete."
    hanging = parser.verb("find-hanging", text)
    text = "Only partitions that this broker leads."
    hanging.value("broker-id", metavar="N", help=text, read=integer)
    longest = _TIMEOUT_MINUTES_MAX
    hanging.value("max-transaction-timeout", metavar="minutes", read=integer, default=longest)
    hanging.value("topic", metavar="name")
    hanging.value("partition", metavar="N", read=integer)
    return parser


def _problem(options: Namespace) -> str | None:
    """The error if options are missing or do not go together; None if the line is valid."""
    if options.verb == "abort" and options.start_offset is None:
        needed = ("producer_id", "producer_epoch", "coordinator_epoch")
        missing = [name for name in needed if getattr(options, name) is None]
        if missing and "producer_id" not in missing:
            return f"Missing required argument --{missing[0].replace('_', '-')}"
        if missing:
            return (
                "The transaction to abort must be identified either with --start-offset (for "
                "brokers on 3.0 or above) or with --producer-id, --producer-epoch, and "
                "--coordinator-epoch (for older brokers)"
            )
    if options.verb == "find-hanging":
        if options.broker_id is None and options.topic is None:
            return (
                "The `find-hanging` command requires either --topic or --broker-id to limit the "
                "scope of the search"
            )
        if options.partition is not None and options.topic is None:
            return "The --partition argument requires --topic to be provided"
    return None


# ---------------------------------------------------------------------------------------- verbs


async def _list(cluster: Cluster, options: Namespace) -> None:
    older = -1 if options.duration_filter is None else options.duration_filter
    found = await admin_groups.list_transactions(cluster, duration_ms=older)
    print_table(_LIST, sorted(found))


async def _describe(cluster: Cluster, options: Namespace) -> None:
    found = await admin_groups.describe_transaction(cluster, options.transactional_id)
    started = found.started_ms >= 0
    row = (
        found.coordinator, found.transactional_id, found.producer_id, found.producer_epoch,
        found.state,
        found.timeout_ms, found.started_ms if started else "None",
        real_wall_ms() - found.started_ms if started else "None",
        ",".join(map(str, found.partitions)),
    )  # fmt: skip
    print_table(_DESCRIBE, [row])


async def _producers_of(
    cluster: Cluster, options: Namespace, broker: int | None
) -> list[ProducerDescription]:
    partition = TopicPartition(options.topic, options.partition)
    described = await admin_groups.describe_producers(cluster, [partition], broker=broker)
    producers = described[partition]
    if isinstance(producers, ApiError):
        raise producers
    return producers


async def _describe_producers(cluster: Cluster, options: Namespace) -> None:
    rows = [
        (
            p.producer_id, p.producer_epoch, p.coordinator_epoch, p.last_sequence,
            p.last_timestamp_ms,
            p.transaction_start_offset if p.transaction_start_offset >= 0 else "None",
        )
        for p in await _producers_of(cluster, options, options.broker_id)
    ]  # fmt: skip
    print_table(_PRODUCERS, rows)


async def _abort(cluster: Cluster, options: Namespace) -> None:
    producer_id, epoch = options.producer_id, options.producer_epoch
    coordinator_epoch = options.coordinator_epoch
    if options.start_offset is not None:
        producers = await _producers_of(cluster, options, None)
        found = [p for p in producers if p.transaction_start_offset == options.start_offset]
        if not found:
            raise _NotFoundError(
                f"Could not find any open transactions starting at offset {options.start_offset} "
                f"on partition {TopicPartition(options.topic, options.partition)}"
            )
        producer_id, epoch = found[0].producer_id, found[0].producer_epoch
        coordinator_epoch = max(found[0].coordinator_epoch, 0)
    await admin_groups.abort_transaction(
        cluster,
        TopicPartition(options.topic, options.partition),
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
    )


class _NotFoundError(OdradekError):
    """The transaction does not exist."""


async def _find_hanging(cluster: Cluster, options: Namespace) -> None:
    """Print transactions older than the longest timeout that their coordinators do not have."""
    limit_ms = options.max_transaction_timeout * 60_000
    wall_ms = real_wall_ms()
    partitions = await _searched(cluster, options)
    described = {}
    if partitions:
        described = await admin_groups.describe_producers(
            cluster, partitions, broker=options.broker_id
        )
    candidates = [
        (partition, producer)
        for partition, producers in described.items()
        if not isinstance(producers, ApiError)
        for producer in producers
        if producer.transaction_start_offset >= 0
        and wall_ms - producer.last_timestamp_ms > limit_ms
    ]
    known = await admin_groups.partitions_in_transactions(
        cluster, {producer.producer_id for _, producer in candidates}
    )
    rows = [
        (
            partition.topic, partition.partition, p.producer_id, p.producer_epoch,
            p.coordinator_epoch, p.transaction_start_offset, p.last_timestamp_ms,
            (wall_ms - p.last_timestamp_ms) // 60_000,
        )
        for partition, p in candidates
        if partition not in known.get(p.producer_id, ())
    ]  # fmt: skip
    print_table(_HANGING, rows)


async def _searched(cluster: Cluster, options: Namespace) -> list[TopicPartition]:
    if options.topic is not None and options.partition is not None:
        return [TopicPartition(options.topic, options.partition)]
    names = await admin.list_topics(cluster) if options.topic is None else [options.topic]
    return [
        TopicPartition(topic.name or "", p.partition_index)
        for topic in await admin.describe_topics(cluster, names)
        for p in topic.partitions
        if options.broker_id is None or options.broker_id in p.replica_nodes
    ]


_VERBS: Final = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "abort": _abort,
    "find-hanging": _find_hanging,
}


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell, each followed by a tab."""
    lines = [list(headings), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True))
        print("".join(cells))
