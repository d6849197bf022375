"""`kafka-delete-records`: deletes records below given offsets.

Behaviour, flags and texts follow Kafka 3.9's `DeleteRecordsCommand`.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from odradek.cli.connect import NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import CommandFailedError, OperationError, ToolError, java_text, log_line
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.cli.kafka.support.java import hash_order, partition_hash
from odradek.cli.kafka.support.json_files import field, objects, read_json, topic_partition
from odradek.client.admin.partitions import delete_records
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    parser.require(flags, "bootstrap-server", "offset-json-file")
    try:
        return _delete(flags)
    except NoBrokerError as error:
        raise ToolError(str(error)) from None


def command_line() -> Parser:
    parser = Parser(
        "This tool helps to delete records of the given partitions down to the specified offset."
    )
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value(
        "offset-json-file", metavar="file",
        help='{"partitions": [{"topic": "a", "partition": 0, "offset": 7}], "version": 1}; -1 is '
        "the high watermark.",
    )  # fmt: skip
    parser.value("command-config", metavar="file", help="Client properties, one key=value a line.")
    parser.common()
    return parser


def _delete(flags: Flags) -> int:
    offsets = read_offsets(flags.text("offset-json-file"))

    async def work(cluster: Cluster) -> int:
        return await _run(cluster, offsets)

    properties = properties_of(flags.value("command-config"))
    servers, call = flags.text("bootstrap-server"), "deleteRecords(api=METADATA)"
    try:
        return with_cluster(servers, properties, work, call=call)
    except NoBrokerError as error:
        # As in Kafka 3.9: a line for each partition, and exit code 0.
        print("Executing records delete operation")
        _print(dict.fromkeys(offsets, error))
        return 0


async def _run(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> int:
    print("Executing records delete operation", flush=True)
    _print(await delete_records(cluster, offsets))
    return 0


def _print(outcomes: Mapping[TopicPartition, int | ApiError | NoBrokerError]) -> None:
    print("Records delete operation completed:")
    for partition in hash_order(outcomes, partition_hash):
        outcome = outcomes[partition]
        if isinstance(outcome, int):
            print(f"partition: {partition}\tlow_watermark: {outcome}")
            continue
        if isinstance(outcome, ApiError):
            _log(partition, outcome)
        print(f"partition: {partition}\terror: {java_text(outcome)}")


def _log(partition: TopicPartition, error: ApiError) -> None:
    print(
        log_line(
            "ERROR",
            f"[AdminClient clientId=adminclient-1] DeleteRecords request for topic partition "
            f"{partition} failed due to an unexpected error {error.code.name}",
            "org.apache.kafka.clients.admin.internals.DeleteRecordsHandler",
        ),
        file=sys.stderr,
    )


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """The offsets in the JSON file of --offset-json-file.

    Raises:
        ToolError: the file cannot be read, has another format, or names a partition twice.
    """
    document = read_json(path)
    version = field(document, "version", int) if "version" in document else 1
    if version != 1:
        raise OperationError(f"Not supported version field value {version}")
    if "partitions" not in document:
        raise OperationError("Missing partitions field")
    entries = list(objects(document, "partitions"))
    partitions = [topic_partition(entry) for entry in entries]
    twice = [str(p) for p, times in Counter(partitions).items() if times > 1]
    if twice:
        raise CommandFailedError(
            f"Offset json file contains duplicate topic partitions: {','.join(twice)}"
        )
    offsets = [field(entry, "offset", int, name="Long") for entry in entries]
    return dict(zip(partitions, offsets, strict=True))
