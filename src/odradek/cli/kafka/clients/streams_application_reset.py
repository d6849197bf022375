"""`kafka-streams-application-reset`: lets an application of Kafka Streams process again.

It resets the committed offsets of the application's group and deletes its internal topics.
Behaviour, flags and texts follow Kafka 3.9's `StreamsResetter`.
"""

import re
from collections.abc import Sequence
from typing import Final

import odradek.client.admin.topics as admin
from odradek.cli.connect import properties_of, with_cluster
from odradek.cli.failures import IllegalArgumentError, ToolError
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.cli.kafka.support.group_reset import read_csv, scenario_of
from odradek.cli.kafka.support.java import hash_order, partition_hash, split, string_hash
from odradek.client.admin.groups import commit_offsets, describe_group, remove_members
from odradek.client.admin.offset_reset import (
    Offsets,
    Scenario,
    ToEarliest,
    ToLatest,
    ToOffsets,
    new_offsets,
)
from odradek.client.cluster import Cluster
from odradek.model.partition import TopicPartition

_POSITIONS: Final = ("to-offset", "to-datetime", "by-duration", "to-latest", "shift-by")
_DEFAULT: Final = "localhost:9092"
_INTERNAL: Final = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)
_NOT_INTERNAL: Final = (
    "Invalid topic specified in the --internal-topics option. Ensure that the topics specified are "
    "all internal topics. Do a dry run without the --internal-topics option to see the list of all "
    "internal topics that can be deleted."
)


class ActiveMembersError(ToolError):
    """The application still runs."""

    exception = "java.lang.IllegalStateException"


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    parser.require(flags, "application-id")
    servers = flags.value("bootstrap-server") or flags.value("bootstrap-servers") or _DEFAULT

    async def work(cluster: Cluster) -> int:
        return await _reset(cluster, parser, flags)

    return with_cluster(servers, properties_of(flags.value("config-file")), work)


def command_line() -> Parser:
    parser = Parser(
        "This tool helps to quickly reset an application in order to reprocess its data from "
        "scratch. Stop the application before, and clean up its local state afterwards."
    )
    parser.value("application-id", metavar="id", help="The application's id: its group.")
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value("bootstrap-servers", metavar="host:port,...", help="The same; deprecated.")
    parser.value(
        "config-file",
        "command-config",
        metavar="file",
        help="Client properties, one key=value a line.",
    )
    parser.value("input-topics", metavar="a,b", help="Topics to read again, from the beginning.")
    parser.value("intermediate-topics", metavar="a,b", help="Topics to skip to the end of.")
    parser.value("internal-topics", metavar="a,b", help="The only internal topics to delete.")
    parser.value("to-offset", metavar="offset", help="Reset to this offset.")
    parser.value("to-datetime", metavar="time", help="Reset to YYYY-MM-DDThh:mm:ss.sss.")
    parser.value("by-duration", metavar="PnDTnHnMnS", help="Reset to the time that is so long ago.")
    parser.flag("to-earliest", help="Reset to the first record (default).")
    parser.flag("to-latest", help="Reset to the end offset.")
    parser.value("from-file", metavar="file", help="Reset to the offsets in a CSV file.")
    parser.value("shift-by", metavar="n", help="Reset by n forward, or (negative) back.")
    parser.flag("force", help="Remove members of the group that are still there.")
    parser.flag("dry-run", help="Show what would be done.")
    parser.common()
    return parser


async def _reset(cluster: Cluster, parser: Parser, flags: Flags) -> int:
    application = flags.text("application-id")
    if flags.has("dry-run"):
        print(
            "----Dry run displays the actions which will be performed when running Streams Reset "
            "Tool----"
        )
    await _without_members(cluster, application, flags)
    topics = set(await admin.list_topics(cluster))
    code = await _reset_offsets(cluster, topics, parser, flags)
    await _delete_internal(cluster, application, topics, flags)
    return code


async def _without_members(cluster: Cluster, application: str, flags: Flags) -> None:
    members = (await describe_group(cluster, application)).members
    if not members:
        return
    if flags.has("force"):
        print(
            "Force deleting all active members in the group: "
            + ", ".join(member.member_id for member in members)
        )
        if not flags.has("dry-run"):
            await remove_members(cluster, application, [member.member_id for member in members])
        return
    raise ActiveMembersError(
        f"Consumer group '{application}' is still active and has following members: "
        f"[{', '.join(member.member_id for member in members)}]. Make sure to stop all running "
        "application instances before running the reset tool. You can use option '--force' to "
        "remove active members from the group."
    )


def _listed(flags: Flags, name: str) -> list[str]:
    return [topic for text in flags.values(name) for topic in split(text, ",")]


async def _reset_offsets(cluster: Cluster, topics: set[str], parser: Parser, flags: Flags) -> int:
    """Set the offsets of the application. Returns 1 if a topic was not found."""
    application = flags.text("application-id")
    inputs, between = _listed(flags, "input-topics"), _listed(flags, "intermediate-topics")
    if not inputs and not between:
        print("No input or intermediate topics specified. Skipping seek.")
        return 0
    if inputs:
        print(f"Reset-offsets for input topics [{', '.join(inputs)}]")
    if between:
        print(f"Seek-to-end for intermediate topics [{', '.join(between)}]")
    is_complete = _report_unknown("input", inputs, topics)
    is_complete &= _report_unknown("intermediate", between, topics)
    offsets = await _planned(cluster, topics.intersection(inputs), parser, flags)
    ends = await _ends(cluster, application, topics.intersection(between))
    if offsets or ends:
        _report(application, offsets, ends)
        if not flags.has("dry-run"):
            await _commit(cluster, application, {**offsets, **ends})
        print("Done.")
    return int(not is_complete)


def _report_unknown(kind: str, named: Sequence[str], topics: set[str]) -> bool:
    """Print which topics do not exist. Returns whether all exist."""
    unknown = [topic for topic in named if topic not in topics]
    if unknown:
        print(f"Following {kind} topics are not found, skipping them")
    for topic in unknown:
        print(f"Topic: {topic}")
    return not unknown


def _report(application: str, offsets: Offsets, ends: Offsets) -> None:
    if offsets:
        print(f"Following input topics offsets will be reset to (for consumer group {application})")
    for partition in hash_order(offsets, partition_hash):
        topic, index = partition
        print(f"Topic: {topic} Partition: {index} Offset: {offsets[partition]}")
    if ends:
        print(
            "Following intermediate topics offsets will be reset to end (for consumer group "
            f"{application})"
        )
    for topic in sorted({partition.topic for partition in ends}):
        print(f"Topic: {topic}")


async def _commit(cluster: Cluster, application: str, offsets: Offsets) -> None:
    for error in (await commit_offsets(cluster, application, offsets)).values():
        if error is not None:
            raise error


async def _planned(cluster: Cluster, topics: set[str], parser: Parser, flags: Flags) -> Offsets:
    partitions = await _partitions(cluster, topics)
    if not partitions:
        return {}
    application = flags.text("application-id")
    scenario: Scenario = ToEarliest()
    if flags.has("from-file"):
        plan = read_csv(flags.text("from-file"), group=application)
        scenario = ToOffsets(plan.get(application, {}))
    elif any(flags.has(name) for name in _POSITIONS):
        scenario = scenario_of(application, partitions, parser, flags)
    return (await new_offsets(cluster, application, partitions, scenario)).offsets


async def _ends(cluster: Cluster, application: str, topics: set[str]) -> Offsets:
    partitions = await _partitions(cluster, topics)
    if not partitions:
        return {}
    return (await new_offsets(cluster, application, partitions, ToLatest())).offsets


async def _partitions(cluster: Cluster, topics: set[str]) -> list[TopicPartition]:
    if not topics:
        return []
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in await admin.describe_topics(cluster, sorted(topics))
        if topic.name is not None
        for partition in topic.partitions
    ]


async def _delete_internal(
    cluster: Cluster, application: str, topics: set[str], flags: Flags
) -> None:
    internal = [
        topic
        for topic in hash_order(topics, string_hash)
        if topic.startswith(f"{application}-") and _INTERNAL.fullmatch(topic)
    ]
    how = "inferred"
    if flags.has("internal-topics"):
        named = _listed(flags, "internal-topics")
        if not {*named} <= {*internal}:
            raise IllegalArgumentError(_NOT_INTERNAL)
        internal, how = named, "specified"
    print(f"Deleting {how} internal topics [{', '.join(internal)}]")
    if internal and not flags.has("dry-run"):
        for error in (await admin.delete_topics(cluster, internal)).values():
            if error is not None:
                raise error
    print("Done.")
