"""`kafka-leader-election`: starts preferred and unclean leader elections.

Behaviour, flags and texts follow Kafka 3.9's `LeaderElectionCommand`.
"""

import sys
from collections.abc import Sequence
from typing import Final

from odradek.cli.connect import ClientError, NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import (
    CommandFailedError,
    FileError,
    NoSuchFileError,
    OperationError,
    java_text,
)
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser, UsageError
from odradek.cli.kafka.support.java import hash_order, int_list, partition_hash
from odradek.cli.kafka.support.json_files import JsonError, objects, read_json, topic_partition
from odradek.client.admin.partitions import PREFERRED, UNCLEAN, elect_leaders
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition

_TYPES: Final = {"preferred": PREFERRED, "unclean": UNCLEAN}
_SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    try:
        election = _check(flags)
        properties = properties_of(flags.value("admin.config"))
        partitions = _partitions(flags)
        return with_cluster(
            flags.text("bootstrap-server"),
            {"default.api.timeout.ms": "30000", **properties},
            lambda cluster: _elect(cluster, election, partitions),
        )
    except NoBrokerError:
        print("Timeout waiting for election results", flush=True)
        print("Timeout waiting for election results", file=sys.stderr)
        return 1
    except (UsageError, ClientError):
        raise
    except (OdradekError, OSError) as error:
        sys.stdout.flush()
        if isinstance(error, NoSuchFileError):
            print(error, file=sys.stderr)
        named = isinstance(error, ApiError | FileError | JsonError)
        print(java_text(error) if named else error, file=sys.stderr)
        return 1


def command_line() -> Parser:
    parser = Parser(
        "This tool attempts to elect a new leader for a set of topic partitions. The type of "
        "elections supported are preferred replicas and unclean replicas."
    )
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value(
        "admin.config", "command-config", metavar="file",
        help="Client properties, one key=value a line.",
    )  # fmt: skip
    parser.value("election-type", metavar="type", help="preferred, or unclean (may lose records).")
    parser.value("topic", metavar="name", help="The topic; with --partition.")
    parser.value("partition", metavar="number", help="The partition of --topic.")
    parser.flag(
        "all-topic-partitions", help="All partitions without the leader that is to be elected."
    )
    parser.value(
        "path-to-json-file",
        metavar="file",
        help='{"partitions": [{"topic": "a", "partition": 0}]}',
    )
    parser.common()
    return parser


def _check(flags: Flags) -> int:
    missing = [name for name in ("bootstrap-server", "election-type") if not flags.has(name)]
    if missing:
        raise CommandFailedError(f"Missing required option(s): {', '.join(missing)}")
    if sum(map(flags.has, _SCOPES)) != 1:
        raise CommandFailedError(
            f"One and only one of the following options is required: {', '.join(_SCOPES)}"
        )
    if flags.has("topic") and not flags.has("partition"):
        raise CommandFailedError("Missing required option(s): partition")
    if flags.has("partition") and not flags.has("topic"):
        raise CommandFailedError("Option partition is only allowed if topic is used")
    election = _TYPES.get(flags.text("election-type").lower())
    if election is None:
        raise FlagError(
            f"Cannot parse argument '{flags.text('election-type')}' of option election-type"
        )
    return election


def _partitions(flags: Flags) -> list[TopicPartition] | None:
    """The partitions of the command line; None for all.

    Raises:
        ToolError: the file cannot be read, or names a partition twice.
    """
    if flags.has("topic"):
        return [TopicPartition(flags.text("topic"), flags.integer("partition") or 0)]
    path = flags.value("path-to-json-file")
    if path is None:
        return None
    document = read_json(path)
    if "partitions" not in document:
        raise OperationError('Replica election data is missing "partitions" field')
    found = [topic_partition(entry) for entry in objects(document, "partitions")]
    twice = [p for p in dict.fromkeys(found) if found.count(p) > 1]
    if twice:
        raise OperationError(
            f"Replica election data contains duplicate partitions: {int_list(twice)}"
        )
    return found


async def _elect(
    cluster: Cluster, election: int, partitions: Sequence[TopicPartition] | None
) -> int:
    name = "PREFERRED" if election == PREFERRED else "UNCLEAN"
    try:
        outcomes = await elect_leaders(cluster, election, partitions)
    except ApiError as error:
        known = {
            ErrorCode.REQUEST_TIMED_OUT: "Timeout waiting for election results",
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized to perform leader election",
        }
        if error.code not in known:
            raise
        print(known[error.code])
        raise CommandFailedError(known[error.code]) from None
    elected = [p for p, error in outcomes.items() if error is None]
    failed = {p: error for p, error in outcomes.items() if error is not None}
    needless = [p for p, error in failed.items() if error.code == ErrorCode.ELECTION_NOT_NEEDED]
    for partition in needless:
        del failed[partition]
    if elected:
        print(f"Successfully completed leader election ({name}) for partitions {_names(elected)}")
    if needless:
        print(f"Valid replica already elected for partitions {_names(needless)}")
    for partition in hash_order(failed, partition_hash):
        print(
            f"Error completing leader election ({name}) for partition: {partition}: "
            f"{java_text(failed[partition])}"
        )
    if failed:
        raise CommandFailedError(f"{len(failed)} replica(s) could not be elected")
    return 0


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, hash_order(sorted(partitions), partition_hash)))
