"""`kafka-topics`: creates, lists, describes, alters and deletes topics.

Behaviour, flags and texts follow Kafka 3.9's `TopicCommand`; the differences, with reasons,
are in `tests/recorded/exceptions.py`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import odradek.client.admin.topics as admin
from odradek.cli.connect import ClientError, properties_of, with_cluster
from odradek.cli.failures import (
    FORMAT,
    FORMAT_WARNING,
    CommandFailedError,
    ConfigError,
    IllegalArgumentError,
    OperationError,
    ToolError,
    java_text,
    log_line,
    message_of,
    to_int,
)
from odradek.cli.kafka.support.flags import Flags, Parser, UsageError
from odradek.cli.kafka.support.java import hash_order, int_list, split, string_hash
from odradek.client.admin.partitions import PartitionReassignment, list_reassignments
from odradek.client.cluster import Cluster
from odradek.model.command import command, flag
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable
from odradek.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from odradek.wire.schema import ZERO_UUID

_LOGGER: Final = "org.apache.kafka.tools.TopicCommand"
_ACTIONS: Final = ("create", "list", "alter", "describe", "delete")
_REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
_CONFIGS_TOOL: Final = (
    " (the kafka-configs CLI supports altering topic configs with a --bootstrap-server option)"
)
_COLLISION: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments, empty="Create, delete, describe, or change a topic.")
    try:
        _check(parser, flags)
    except UsageError as error:
        if flags.has("alter") and flags.has("replication-factor"):
            error.hint = _reassignment_hint(flags)
        raise
    servers = flags.text("bootstrap-server")
    properties = properties_of(flags.value("command-config"))
    try:
        return with_cluster(
            servers, properties, lambda cluster: _run(cluster, flags), call=_first_call(flags)
        )
    except ClientError:
        raise
    except (OdradekError, ConnectionError) as error:
        print(f"Error while executing topic command : {message_of(error)}", flush=True)
        print(log_line("ERROR", f"{java_text(error)}\n", _LOGGER), file=sys.stderr)
        return 1


def _reassignment_hint(flags: Flags) -> str:
    names = {"topic": "TOPIC", "replication-factor": "N", "bootstrap-server": "HOST:PORT"}
    given = [
        word
        for name, default in names.items()
        for word in flag(f"--{name}", (flags.values(name) or [default])[0])
    ]
    return (
        "Hint: a reassignment changes the replication factor. Plan it and carry it out with\n"
        f"    {command('odradek', 'plan', 'replication-factor', *given, '--execute')}\n"
        "or name the replicas of each partition in a file for\n"
        "    kafka-reassign-partitions --reassignment-json-file FILE --execute"
    )


def _first_call(flags: Flags) -> str:
    if flags.has("create"):
        return "createTopics"
    return "describeTopics" if flags.has("topic-id") else "listTopics"


def command_line() -> Parser:
    parser = Parser("This tool helps to create, delete, describe, or change a topic.")
    parser.connection()
    parser.flag("list", help="List the topics.")
    parser.flag("create", help="Create a topic.")
    parser.flag("delete", help="Delete topics.")
    parser.flag("alter", help="Give a topic more partitions.")
    parser.flag("describe", help="Tell partitions, replicas and configuration of topics.")
    parser.value(
        "topic", metavar="name", help="The topic; except with --create a regular expression."
    )
    parser.value("topic-id", metavar="id", help="The topic to describe, by id.")
    parser.value("config", metavar="name=value", help="With --create: an option of the topic.")
    parser.value("delete-config", metavar="name", help="Not supported: see kafka-configs.")
    parser.value(
        "partitions", metavar="number", help="The number of partitions; default: num.partitions."
    )
    parser.value("replication-factor", metavar="number", help="Replicas of each partition.")
    parser.value(
        "replica-assignment",
        metavar="1:2,2:3,...",
        help="The brokers of each partition, the preferred leader first.",
    )
    parser.flag("under-replicated-partitions", help="Describe only these.")
    parser.flag(
        "unavailable-partitions", help="Describe only those whose leader is not registered."
    )
    parser.flag("under-min-isr-partitions", help="Describe only those below min.insync.replicas.")
    parser.flag("at-min-isr-partitions", help="Describe only those at min.insync.replicas.")
    parser.flag("topics-with-overrides", help="Describe only topics with options of their own.")
    parser.flag("if-exists", help="Alter, delete or describe only existing topics.")
    parser.flag("if-not-exists", help="Create only if the topic does not exist.")
    parser.flag("exclude-internal", help="List or describe without Kafka's own topics.")
    parser.value(
        "partition-size-limit-per-response",
        metavar="number",
        help="Accepted for compatibility, without effect.",
    )
    parser.common()
    return parser


def _check(parser: Parser, flags: Flags) -> None:
    if sum(map(flags.has, _ACTIONS)) != 1:
        parser.fail(
            "Command must include exactly one action: "
            "--list, --describe, --create, --alter or --delete"
        )
    if not flags.has("bootstrap-server"):
        raise IllegalArgumentError("--bootstrap-server must be specified")
    if flags.has("describe") and flags.has("if-exists"):
        if not flags.has("topic") and not flags.has("topic-id"):
            parser.fail("--topic or --topic-id is required to describe a topic")
        if flags.has("topic") and flags.has("topic-id"):
            print(
                "Only topic id will be used when both --topic and --topic-id are specified "
                "and topicId is not Uuid.ZERO_UUID"
            )
    if not flags.has("list") and not flags.has("describe"):
        parser.require(flags, "topic")
    if flags.has("alter"):
        if flags.has("config"):
            parser.fail(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
                f'"[alter]"{_CONFIGS_TOOL}'
            )
        parser.require(flags, "partitions")
    _check_pairs(parser, flags)


def _check_pairs(parser: Parser, flags: Flags) -> None:
    def only_with(option: str, *actions: str, but: Sequence[str] = ()) -> None:
        parser.refuse(flags, option, [a for a in _ACTIONS if a not in actions])
        parser.refuse(flags, option, but)

    only_with("config", "alter", "create")
    only_with("delete-config", "alter", but=["bootstrap-server"])
    only_with("partitions", "alter", "create")
    only_with("replication-factor", "create")
    only_with("replica-assignment", "create", "alter")
    if flags.has("create"):
        parser.refuse(flags, "replica-assignment", ["partitions", "replication-factor"])
    for report in _REPORTS:
        only_with(report, "describe", but=["topics-with-overrides"])
    only_with("topics-with-overrides", "describe", but=_REPORTS)
    only_with("if-exists", "alter", "delete", "describe")
    only_with("if-not-exists", "create")
    only_with("exclude-internal", "list", "describe")


async def _run(cluster: Cluster, flags: Flags) -> int:
    if flags.has("create"):
        await _create(cluster, flags)
    elif flags.has("alter"):
        await _alter(cluster, flags)
    elif flags.has("list"):
        await _list(cluster, flags)
    elif flags.has("describe"):
        await _describe(cluster, flags)
    else:
        await _delete(cluster, flags)
    return 0


# ---------------------------------------------------------------------------------------- create


async def _create(cluster: Cluster, flags: Flags) -> None:
    topic = _new_topic(flags)
    if "." in topic.name or "_" in topic.name:
        print(_COLLISION)
    _check_counts(flags)
    if FORMAT in topic.configs:
        print(FORMAT_WARNING.format(topic.configs[FORMAT]))
    if not topic.name:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "The given topic name '' cannot be represented in a request.",
        )
    outcomes = await admin.create_topics(cluster, [topic])
    error = outcomes[topic.name]
    if error is None:
        print(f"Created topic {topic.name}.")
    elif error.code == ErrorCode.INVALID_CONFIG and message_of(error).startswith("Invalid value "):
        raise ConfigError(message_of(error))  # Java's tool checks values itself
    elif error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not flags.has("if-not-exists"):
        raise error


def _new_topic(flags: Flags) -> admin.NewTopic:
    assignment = flags.text("replica-assignment")
    return admin.NewTopic(
        name=flags.text("topic"),
        partitions=_given(flags, "partitions"),
        replication_factor=_given(flags, "replication-factor"),
        assignment=parse_assignment(assignment) if assignment else None,
        configs=_configs(flags.values("config")),
    )


def _given(flags: Flags, name: str) -> int:
    value = flags.integer(name)
    return -1 if value is None else value


def _check_counts(flags: Flags) -> None:
    replication_factor = flags.integer("replication-factor")
    if replication_factor is not None and not 1 <= replication_factor <= 32767:
        raise IllegalArgumentError("The replication factor must be between 1 and 32767 inclusive")
    partitions = flags.integer("partitions")
    if partitions is not None and partitions < 1:
        raise IllegalArgumentError("The partitions must be greater than 0")


def _configs(pairs: Sequence[str]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "=" in value or not value.strip():
            raise IllegalArgumentError(
                "requirement failed: Invalid topic config: all configs to be added must be in the "
                'format "key=val".'
            )
        configs[name.strip()] = value.strip()
    return configs


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Replicas of each partition: `1:2,2:3`.

    Raises:
        ToolError: an id is not a number or occurs twice, or the lists differ in length.
    """
    assignment: dict[int, list[int]] = {}
    for number, part in enumerate(split(text, ",")):
        brokers = [to_int(broker.strip()) for broker in split(part, ":")]
        twice = [b for b in dict.fromkeys(brokers) if brokers.count(b) > 1]
        if twice:
            raise CommandFailedError(
                "Partition replica lists may not contain duplicate entries: "
                + ",".join(map(str, twice))
            )
        assignment[number] = brokers
        if len(brokers) != len(assignment[0]):
            raise OperationError(
                f"Partition {number} has different replication factor: {int_list(brokers)}"
            )
    return assignment


# ----------------------------------------------------------------------------------------- which


async def _topics(cluster: Cluster, flags: Flags) -> list[str]:
    """The topics that --topic selects, sorted."""
    names = await admin.list_topics(cluster)
    wanted = flags.value("topic")
    hidden = INTERNAL_TOPICS if flags.has("exclude-internal") else frozenset()
    if wanted is not None:
        names = matching_topics(names, wanted)
    return [name for name in names if name not in hidden]


def matching_topics(names: Sequence[str], pattern: str) -> list[str]:
    """The names that match a pattern of Kafka's `IncludeList`.

    Raises:
        ToolError: the pattern is not a regular expression.
    """
    expression = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    if expression.replace("_", "").replace("-", "").isalnum():
        return [name for name in names if name == expression]
    from odradek.model.java_pattern import (  # noqa: PLC0415 - most calls name one topic
        JavaPatternError,
        compile_java_pattern,
    )

    try:
        compiled = compile_java_pattern(expression)
    except JavaPatternError:
        raise ToolError(f"{expression} is an invalid regex.") from None
    return [name for name in names if compiled.fullmatch(name)]


async def _unreadable(cluster: Cluster, flags: Flags) -> dict[str, str]:
    """The selected topics whose znode cannot be read, and a sentence about each."""
    from odradek.cli.kafka.support.unreadable_topics import (  # noqa: PLC0415 - after all else
        unreadable_topics,
    )

    found = await unreadable_topics(cluster)
    wanted = flags.value("topic")
    names = list(found) if wanted is None else matching_topics(list(found), wanted)
    return {name: f"Topic '{printable(name)}' cannot be read: {found[name]}" for name in names}


def _need(topics: Sequence[str], flags: Flags) -> None:
    wanted = flags.value("topic")
    if not topics and wanted and not flags.has("if-exists"):  # an empty name counts as none
        raise IllegalArgumentError(f"Topic '{wanted}' does not exist as expected")


# -------------------------------------------------------------------------- list, alter, delete


async def _list(cluster: Cluster, flags: Flags) -> None:
    print("\n".join(await _topics(cluster, flags)), flush=True)
    for sentence in (await _unreadable(cluster, flags)).values():
        print(sentence, file=sys.stderr)


async def _alter(cluster: Cluster, flags: Flags) -> None:
    count = flags.integer("partitions")
    assert count is not None  # --partitions is required
    text = flags.text("replica-assignment")
    assignment = parse_assignment(text) if text else None
    topics = await _topics(cluster, flags)
    _need(topics, flags)
    if not topics:
        return
    described = await admin.describe_topics(cluster, topics)
    requested = {}
    for topic in described:
        new = None if assignment is None else list(assignment.values())[len(topic.partitions) :]
        requested[topic.name or ""] = admin.MorePartitions(count, new)
    _raise_first(await admin.create_partitions(cluster, requested))


async def _delete(cluster: Cluster, flags: Flags) -> None:
    topics = await _topics(cluster, flags)
    topics += await _unreadable(cluster, flags)
    _need(topics, flags)
    own = [topic for topic in topics if topic in INTERNAL_TOPICS]
    if own:
        raise OperationError(
            f"Topic {own[0]} is a kafka internal topic "
            "and is not allowed to be marked for deletion."
        )
    if topics:
        _raise_first(await admin.delete_topics(cluster, topics))


def _raise_first(outcomes: Mapping[str, ApiError | None]) -> None:
    """Raise the first failure, after a line on stderr about the topics that succeeded."""
    failed = {name: error for name, error in outcomes.items() if error is not None}
    if not failed:
        return
    name, error = next(iter(failed.items()))
    done = [name for name in outcomes if name not in failed]
    if done:
        sys.stdout.flush()
        print(f"{name} was refused; done all the same: {', '.join(done)}", file=sys.stderr)
    raise error


# -------------------------------------------------------------------------------------- describe


class _Replicas(NamedTuple):
    """One partition with its reassignment and its replicas that may become leader."""

    partition: MetadataResponsePartition
    move: PartitionReassignment | None
    leaders: admin.EligibleLeaders

    @property
    def replication_factor(self) -> int:
        """The number of replicas without those that a reassignment is adding."""
        if self.move is None:
            return len(self.partition.replica_nodes)
        changing = {*self.move.adding, *self.move.removing}
        if not changing & set(self.partition.replica_nodes):
            return len(self.partition.replica_nodes)
        return len(self.move.replicas) - len(self.move.adding)


async def _describe(cluster: Cluster, flags: Flags) -> None:
    described = await _described(cluster, flags)
    if not described:
        return
    names = [topic.name or "" for topic in described]
    configs = await admin.describe_configs(cluster, [(admin.TOPIC, name) for name in names])
    moves = await _moves(cluster, described)
    # Kafka's tool does not request them for --topic-id.
    by_id = flags.has("topic-id") and parse_topic_id(flags.text("topic-id")) != ZERO_UUID
    leaders = {} if by_id else await admin.eligible_leaders(cluster, names)
    live = set(cluster.metadata.nodes)
    for topic in described:
        config = configs[admin.TOPIC, topic.name or ""]
        if isinstance(config, ApiError):
            raise config
        partitions = [
            _Replicas(p, moves.get(partition), leaders.get(partition, _NOT_TOLD))
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
            for partition in (TopicPartition(topic.name or "", p.partition_index),)
        ]
        _print_topic(flags, topic, config, partitions, live)


async def _described(cluster: Cluster, flags: Flags) -> list[MetadataResponseTopic]:
    flags.integer("partition-size-limit-per-response")
    text = flags.value("topic-id")
    topic_id = parse_topic_id(text) if text is not None else ZERO_UUID
    if topic_id != ZERO_UUID:
        found = await admin.describe_topic_ids(cluster, [topic_id])
        if not found and not flags.has("if-exists"):
            raise IllegalArgumentError(f"TopicId '{text}' does not exist as expected")
        return found
    topics = await _topics(cluster, flags)
    for name, sentence in (await _unreadable(cluster, flags)).items():
        remedy = command("kafka-topics", "--delete", *flag("--topic", name))
        if not topics:
            raise OperationError(f"{sentence}. To remove it: {remedy}")
        print(f"{sentence}. To remove it: {remedy}", file=sys.stderr)
    _need(topics, flags)
    if not topics:
        return []
    order = hash_order(topics, string_hash, expected=len(topics))
    return await admin.describe_topics(cluster, order)


async def _moves(
    cluster: Cluster, topics: Sequence[MetadataResponseTopic]
) -> dict[TopicPartition, PartitionReassignment]:
    partitions = [
        TopicPartition(topic.name or "", p.partition_index)
        for topic in topics
        for p in topic.partitions
    ]
    try:
        return await list_reassignments(cluster, partitions)
    except ApiError as error:
        # The client may lack the right to see reassignments, or the broker may not support them.
        if error.code not in (
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            raise
        return {}


def _print_topic(
    flags: Flags,
    topic: MetadataResponseTopic,
    config: Sequence[admin.ConfigEntry],
    partitions: Sequence[_Replicas],
    live: set[int],
) -> None:
    name = topic.name or ""
    by_name = {entry.name: entry for entry in config}
    if not any(map(flags.has, _REPORTS)):
        own = [
            f"{entry_name}={by_name[entry_name].value}"
            for entry_name in hash_order(by_name, string_hash)
            if by_name[entry_name].source != admin.DEFAULT_CONFIG
        ]
        if own or not flags.has("topics-with-overrides"):
            _print_head(topic, partitions, ",".join(own))
    if flags.has("topics-with-overrides"):
        return
    min_isr = int(by_name["min.insync.replicas"].value or 1) if by_name else 1
    for replicas in partitions:
        if _is_wanted(flags, replicas, min_isr, live):
            _print_partition(name, replicas)


def _print_head(topic: MetadataResponseTopic, partitions: Sequence[_Replicas], own: str) -> None:
    parts = [f"Topic: {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        parts.append(f"TopicId: {format_topic_id(topic.topic_id)}")
    parts.append(f"PartitionCount: {len(partitions)}")
    parts.append(f"ReplicationFactor: {partitions[0].replication_factor if partitions else 0}")
    parts.append(f"Configs: {own}")
    print("\t".join(parts))


def _is_wanted(flags: Flags, replicas: _Replicas, min_isr: int, live: set[int]) -> bool:
    partition = replicas.partition
    has_leader = partition.leader_id >= 0
    reports = {
        "under-replicated-partitions": replicas.replication_factor > len(partition.isr_nodes),
        "unavailable-partitions": not has_leader or partition.leader_id not in live,
        "under-min-isr-partitions": not has_leader or len(partition.isr_nodes) < min_isr,
        "at-min-isr-partitions": len(partition.isr_nodes) == min_isr,
    }
    asked = [is_so for report, is_so in reports.items() if flags.has(report)]
    return not asked or any(asked)


def _print_partition(topic: str, replicas: _Replicas) -> None:
    partition, move, leaders = replicas
    parts = [
        "",
        f"Topic: {topic}",
        f"Partition: {partition.partition_index}",
        f"Leader: {partition.leader_id if partition.leader_id >= 0 else 'none'}",
        f"Replicas: {_ids(partition.replica_nodes)}",
        f"Isr: {_ids(partition.isr_nodes)}",
    ]
    if move is not None:
        parts.append(f"Adding Replicas: {_ids(move.adding)}")
        parts.append(f"Removing Replicas: {_ids(move.removing)}")
    parts.append(f"Elr: {_ids_or_none(leaders.eligible)}")
    parts.append(f"LastKnownElr: {_ids_or_none(leaders.last_known)}")
    print("\t".join(parts))


# Clusters in ZooKeeper mode have no eligible leader replicas (KIP-966).
_NOT_TOLD: Final = admin.EligibleLeaders(None, None)


def _ids_or_none(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else _ids(brokers)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def format_topic_id(topic_id: bytes) -> str:
    """A topic id as Kafka prints it: URL-safe base64 without padding."""
    from base64 import urlsafe_b64encode  # noqa: PLC0415 - for --describe only

    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(text: str) -> bytes:
    """The inverse of `format_topic_id`.

    Raises:
        IllegalArgumentError: the text is not a topic id.
    """
    from base64 import urlsafe_b64decode  # noqa: PLC0415

    if len(text) > 24:
        raise IllegalArgumentError(
            f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID"
        )
    for letter in text:
        if not (letter.isascii() and (letter.isalnum() or letter in "-_=")):
            raise IllegalArgumentError(f"Illegal base64 character {ord(letter):x}")
    try:
        topic_id = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise IllegalArgumentError("Input byte array has wrong 4-byte ending unit") from None
    if len(topic_id) != 16:
        raise IllegalArgumentError(
            f"Input string `{text}` decoded as {len(topic_id)} bytes, "
            "which is not equal to the expected 16 bytes of a base64-encoded UUID"
        )
    return topic_id
