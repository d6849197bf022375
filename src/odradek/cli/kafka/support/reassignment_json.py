"""JSON of `kafka-reassign-partitions`: plans, topics to move, assignments.

Formats and error messages are those of Kafka 3.9's `ReassignPartitionsCommand`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.cli.failures import CommandFailedError, OperationError, to_int
from odradek.cli.kafka.support.java import int_list
from odradek.cli.kafka.support.json_files import field, list_of, objects, read_json, topic_partition
from odradek.model.partition import TopicPartition

ANY_DIRECTORY: Final = "any"
_VERSION: Final = 1


class Replica(NamedTuple):
    """One replica of a partition. Printed as Kafka prints it: `orders-7-2`."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


class Plan(NamedTuple):
    """The target replicas of partitions, and their log directories where the plan names them."""

    targets: list[tuple[TopicPartition, tuple[int, ...]]]
    directories: dict[Replica, str]


def read_plan(path: str) -> Plan:
    """The plan in a file.

    Raises:
        ToolError: the file cannot be read, or is not a plan.
    """
    document = read_json(path)
    _check_version(document)
    plan = Plan([], {})
    for entry in objects(document, "partitions"):
        partition = topic_partition(entry)
        replicas = list_of(entry, "replicas", int)
        directories = [ANY_DIRECTORY] * len(replicas)
        if "log_dirs" in entry:
            directories = list_of(entry, "log_dirs", str)
        if len(directories) != len(replicas):
            raise CommandFailedError(
                f"Size of replicas list {int_list(replicas)} is different from size of log dirs "
                f"list {int_list(directories)} for partition {partition}"
            )
        plan.targets.append((partition, tuple(replicas)))
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != ANY_DIRECTORY:
                plan.directories[Replica(partition, broker)] = directory
    return plan


def check_to_execute(plan: Plan) -> None:
    """Check a plan before its execution.

    Raises:
        CommandFailedError: it is empty, or has duplicates.
    """
    if not plan.targets:
        raise CommandFailedError("Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in plan.targets):
        raise CommandFailedError("Partition replica list cannot be empty")
    twice = _twice(partition for partition, _ in plan.targets)
    if twice:
        raise CommandFailedError(
            "Partition reassignment contains duplicate topic partitions: "
            + ",".join(map(str, twice))
        )
    doubled = [
        f"{partition} contains multiple entries for {','.join(map(str, _twice(replicas)))}"
        for partition, replicas in plan.targets
        if _twice(replicas)
    ]
    if doubled:
        raise CommandFailedError(
            f"Partition replica lists may not contain duplicate entries: {'. '.join(doubled)}"
        )


def read_topics(path: str) -> list[str]:
    """The topics in a file of --topics-to-move-json-file.

    Raises:
        ToolError: the file cannot be read, or names no topic, or one twice.
    """
    document = read_json(path)
    _check_version(document)
    topics: list[str] = [field(entry, "topic", str) for entry in objects(document, "topics")]
    twice = _twice(topics)
    if twice:
        raise CommandFailedError(
            f"List of topics to reassign contains duplicate entries: {int_list(twice)}"
        )
    return topics


def parse_broker_list(text: str) -> list[int]:
    """`--broker-list 1,2,3`.

    Raises:
        ToolError: an id is not a number, or occurs twice.
    """
    brokers = [to_int(part) for part in text.split(",")]
    twice = _twice(brokers)
    if twice:
        raise CommandFailedError(f"Broker list contains duplicate entries: {int_list(twice)}")
    return brokers


def format_assignment(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """An assignment as the JSON of a plan, sorted by partition."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for partition, replicas in sorted(assignment.items())
    ]
    document = {"version": _VERSION, "partitions": partitions}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _check_version(document: dict[str, Any]) -> None:
    version = field(document, "version", int) if "version" in document else _VERSION
    if version != _VERSION:
        raise OperationError(f"Not supported version field value {version}")


def _twice(things: Iterable[Any]) -> list[Any]:
    return [thing for thing, times in Counter(things).items() if times > 1]
