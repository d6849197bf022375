"""`kafka-consumer-groups`: lists, describes and deletes groups; resets and deletes their offsets.

Behaviour, flags and texts follow Kafka 3.9's `ConsumerGroupCommand`; its tables of offsets that
were reset or deleted are one long line there, and rows here. --describe is in
`odradek.cli.kafka.support.group_tables`, --reset-offsets in
`odradek.cli.kafka.support.group_reset`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import odradek.client.admin.groups as admin_groups
from odradek.cli.connect import NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import FileError, IllegalArgumentError, ParseError, java_text
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser, UsageError
from odradek.cli.kafka.support.group_reset import (
    SCENARIOS,
    partitions_of,
    print_reset,
    reset_offsets,
    to_csv,
)
from odradek.cli.kafka.support.group_tables import describe
from odradek.cli.kafka.support.java import hash_order, split, string_hash
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
# The order in which ConsumerGroupCommandOptions checks scenarios that exclude each other.
_CHECKED: Final = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current",
    "shift-by", "from-file",
)  # fmt: skip
_STATES: Final = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning",
    "Reconciling",
)  # fmt: skip
_TYPES: Final = ("Consumer", "Classic")
_NO_ACTION: Final = (
    "WARN: No action will be performed as the --execute option is missing."
    "In a future major release, the default behavior of this command will be to prompt the user "
    "before executing the reset rather than doing a dry run. You should add the --dry-run option "
    "explicitly if you are scripting this command and want to keep the current default behavior "
    "without prompting."
)
_TIMEOUT_MS: Final = 5_000
_SCOPES: Final = ("all-groups", "group")


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments, uncaught=True)
    try:
        _check(parser, flags)
    except FlagError as error:
        parser.fail(str(error))
    try:
        timeout_ms = flags.integer("timeout", bits=64)
        properties = properties_of(flags.value("command-config"))
        return with_cluster(
            flags.text("bootstrap-server"),
            properties,
            lambda cluster: _run(cluster, parser, flags),
            call=_CALLS["delete" if flags.has("delete") else "describe"],
            wait_ms=_TIMEOUT_MS if timeout_ms is None else timeout_ms,
        )
    except IllegalArgumentError as error:
        parser.fail(str(error))
    except UsageError:
        raise
    except NoBrokerError as error:
        _print_no_broker(flags, error)
        return 0
    except (OdradekError, OSError) as error:
        summary, _, more = _text_of(error).partition("\n")
        print(f"\nError: Executing consumer group command failed due to {summary}", flush=True)
        print(more or java_text(error), file=sys.stderr)
        # As in Kafka 3.9 the error is printed, and the exit code is 0.
        return 0


_CALLS: Final = {
    "describe": "describeConsumerGroups(api=FIND_COORDINATOR)",
    "delete": "deleteConsumerGroups(api=FIND_COORDINATOR)",
}


def _text_of(error: Exception) -> str:
    if isinstance(error, ApiError):
        return _execution(error)
    # In Java these are the cause of another exception, whose message has their class names.
    return java_text(error) if isinstance(error, FileError | ParseError) else str(error)


def _print_no_broker(flags: Flags, error: NoBrokerError) -> None:
    """No broker has answered: the message depends on the request of Kafka's tool that timed out."""
    if flags.has("delete") and flags.has("group"):
        failed = dict.fromkeys(flags.values("group"), error)
        _print_deletions(dict(failed))
        return
    if flags.has("delete-offsets"):
        _print_error("Encounter some unknown error: REQUEST_TIMED_OUT")
        _print_statuses({})
        return
    why = _execution(error) if flags.has("reset-offsets") else java_text(error)
    if flags.has("list") or flags.has("all-groups"):
        why = (
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.KafkaException: "
            "Failed to find brokers to send ListGroups"
        )
    print(f"\nError: Executing consumer group command failed due to {why}", flush=True)


def _execution(error: Exception) -> str:
    """The error as the text of Java's `ExecutionException`."""
    return f"java.util.concurrent.ExecutionException: {java_text(error)}"


def command_line() -> Parser:
    parser = Parser(
        "This tool helps to list all consumer groups, describe a consumer group, delete consumer "
        "group info, or reset consumer group offsets."
    )
    parser.connection()
    parser.flag("list", help="List the groups.")
    parser.flag("describe", help="Show offsets and lag of groups, or their members or state.")
    parser.flag("delete", help="Delete groups without members.")
    parser.flag("reset-offsets", help="Set offsets of groups without members.")
    parser.flag(
        "delete-offsets", help="Delete offsets of topics that no member of the group reads."
    )
    parser.value("group", metavar="name", help="A group.")
    parser.flag("all-groups", help="All groups.")
    parser.value("topic", metavar="name[:0,1]", help="A topic, or some partitions of one.")
    parser.flag("all-topics", help="With --reset-offsets: all topics with offsets of the group.")
    parser.value("timeout", metavar="ms", help="The timeout of requests.")
    described = ("describe",)
    parser.flag("members", help="With --describe: the members.", only_with=described)
    parser.flag("offsets", help="With --describe: offsets and lag (default).", only_with=described)
    parser.flag("verbose", help="With --describe: more.", only_with=described)
    parser.optional(
        "state", metavar="states", only_with=("describe", "list"),
        help="With --describe: the state. With --list: show states, or filter by them.",
    )  # fmt: skip
    parser.optional(
        "type", metavar="types", only_with=("list",),
        help="With --list: show types, or filter by them.",
    )  # fmt: skip
    parser.flag("dry-run", help="Show what --reset-offsets would do.")
    parser.flag("execute", help="Do it.")
    parser.flag("export", help="Print the offsets as CSV.")
    parser.value("to-offset", metavar="offset", help="Reset to this offset.")
    parser.value("from-file", metavar="file", help="Reset to the offsets in a CSV file.")
    parser.value("to-datetime", metavar="time", help="Reset to YYYY-MM-DDThh:mm:ss.sss.")
    parser.value("by-duration", metavar="PnDTnHnMnS", help="Reset to the time that is so long ago.")
    parser.flag("to-earliest", help="Reset to the first record.")
    parser.flag("to-latest", help="Reset to the end offset.")
    parser.flag("to-current", help="Reset to the committed offset.")
    parser.value("shift-by", metavar="n", help="Reset by n forward, or (negative) back.")
    parser.common()
    return parser


# --------------------------------------------------------------------------------------- check


def _check(parser: Parser, flags: Flags) -> None:
    parser.require(flags, "bootstrap-server")
    has_group = flags.has("group") or flags.has("all-groups")
    if flags.has("describe"):
        if not has_group:
            # Kafka names the actions here, and scripts search for this message.
            parser.fail(
                "Option [describe] takes one of these options: "
                "[reset-offsets], [describe], [delete], [list]"
            )
        if sum(map(flags.has, ("members", "offsets", "state"))) > 1:
            parser.fail(
                "Option [describe] takes at most one of these options: "
                "[members], [offsets], [state]"
            )
        if flags.has_value("state"):
            parser.fail("Option [describe] does not take a value for [state]")
    _check_delete(parser, flags, has_group=has_group)
    if flags.has("reset-offsets"):
        _check_reset(parser, flags, has_group=has_group)
    parser.refuse(flags, "group", ["all-groups"])
    parser.refuse(flags, "group", ["list"])
    parser.refuse(flags, "topic", ["list", "describe"])
    if sum(map(flags.has, _ACTIONS)) != 1:
        parser.fail(
            "Command must include exactly one action: --list, --describe, --delete, "
            "--reset-offsets, --delete-offsets"
        )


def _check_delete(parser: Parser, flags: Flags, *, has_group: bool) -> None:
    if flags.has("delete"):
        if not has_group:
            parser.fail("Option [delete] takes one of these options: [all-groups], [group]")
        if flags.has("topic"):
            parser.fail("The consumer does not support topic-specific offset deletion from a "
                        "consumer group.")  # fmt: skip
    if flags.has("delete-offsets") and not (flags.has("group") and flags.has("topic")):
        parser.fail("Option [delete-offsets] takes the following options: [all-groups], [group]")


def _check_reset(parser: Parser, flags: Flags, *, has_group: bool) -> None:
    if flags.has("dry-run") and flags.has("execute"):
        parser.fail("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not flags.has("dry-run") and not flags.has("execute"):
        print(_NO_ACTION, file=sys.stderr)
    if not has_group:
        parser.fail("Option [reset-offsets] takes one of these options: [all-groups], [group]")
    for scenario in _CHECKED:
        parser.refuse(flags, scenario, [other for other in SCENARIOS if other != scenario])


def _filters(text: str | None, known: Sequence[str], message: str) -> list[str]:
    """The states or types to filter by.

    Raises:
        IllegalArgumentError: one of them does not exist.
    """
    if not text:
        return []
    by_name = {name.lower(): name for name in known}
    wanted = [by_name.get(part.strip().lower()) for part in split(text, ",")]
    found = [name for name in wanted if name is not None]
    if len(found) < len(wanted):
        raise IllegalArgumentError(message)
    return found


# ----------------------------------------------------------------------------------------- act


async def _run(cluster: Cluster, parser: Parser, flags: Flags) -> int:
    if flags.has("list"):
        await _list(cluster, flags)
    elif flags.has("describe"):
        await describe(cluster, await _groups(cluster, flags), flags)
    elif flags.has("delete"):
        await _delete(cluster, flags)
    elif flags.has("delete-offsets"):
        await _delete_offsets(cluster, flags)
    else:
        offsets = await reset_offsets(cluster, await _groups(cluster, flags), parser, flags)
        if flags.has("export"):
            print(to_csv(offsets, with_group=len(flags.values("group")) != 1))
        else:
            print_reset(offsets)
    return 0


async def _groups(cluster: Cluster, flags: Flags) -> list[str]:
    if not flags.has("all-groups"):
        return list(dict.fromkeys(flags.values("group")))
    return [group.group_id for group in await _listed(cluster)]


async def _listed(
    cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[admin_groups.GroupListing]:
    found = {
        group.group_id: group
        for group in await admin_groups.list_groups(cluster, states=states, types=types)
    }
    return [found[group_id] for group_id in hash_order(sorted(found), string_hash)]


async def _list(cluster: Cluster, flags: Flags) -> None:
    states = _filters(
        flags.value("state"),
        _STATES,
        f"Invalid state list '{flags.value('state')}'. Valid states are: {', '.join(_STATES)}",
    )
    types = _filters(
        flags.value("type"),
        _TYPES,
        f"Invalid types list '{flags.value('type')}'. Valid types are: {', '.join(_TYPES)}",
    )
    groups = await _listed(cluster, states, types)
    if not flags.has("state") and not flags.has("type"):
        for group in groups:
            print(printable(group.group_id))
        return
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    rows = [("GROUP", "TYPE", "STATE"), *((g.group_id, g.type, g.state) for g in groups)]
    for group_id, kind, state in rows:
        line = f"{printable(group_id):<{width}}"
        if flags.has("type"):
            line += f" {kind:<20}"
        if flags.has("state"):
            line += f" {state:<20}"
        print(line)


async def _delete(cluster: Cluster, flags: Flags) -> None:
    outcomes: dict[str, Exception | None] = {}
    for group_id in await _groups(cluster, flags):
        try:
            outcomes[group_id] = await admin_groups.delete_group(cluster, group_id)
        except (ApiError, ConnectionError) as error:
            outcomes[group_id] = error
    _print_deletions(outcomes)


def _print_deletions(outcomes: Mapping[str, Exception | None]) -> None:
    names = hash_order(outcomes, string_hash)
    deleted = [name for name in names if outcomes[name] is None]
    quoted = "', '".join(deleted)
    if len(deleted) == len(names):
        print(f"Deletion of requested consumer groups ('{printable(quoted)}') was successful.")
        return
    _print_error("Deletion of some consumer groups failed:")
    for name in names:
        failed = outcomes[name]
        if failed is not None:
            print(f"* Group '{printable(name)}' could not be deleted due to: {_execution(failed)}")
    if deleted:
        # The odd quotes are those of Kafka's tool.
        names_of = "'".join(deleted)
        print(f"\nThese consumer groups were deleted successfully: '{printable(names_of)}', '")


_WHOLE: Final = {
    ErrorCode.INVALID_GROUP_ID: "'{}' is not valid.",
    ErrorCode.GROUP_ID_NOT_FOUND: "'{}' does not exist.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Access to '{}' is not authorized.",
    ErrorCode.NON_EMPTY_GROUP: (
        "Deleting offsets of a consumer group '{}' is forbidden if the group is not empty."
    ),
}


async def _delete_offsets(cluster: Cluster, flags: Flags) -> None:
    group_id, topics = flags.text("group"), flags.values("topic")
    outcomes: dict[TopicPartition, ApiError | None] = {}
    partitions: list[TopicPartition] = []
    for text in topics:
        try:
            partitions += await partitions_of(cluster, text)
        except ApiError as error:
            outcomes[TopicPartition(text, -1)] = error
    unknown_topics = dict(outcomes)
    try:
        outcomes = await admin_groups.delete_offsets(cluster, group_id, partitions)
    except ApiError as error:
        unknown = f"Encounter some unknown error: {error.code.name}"
        _print_error(_WHOLE.get(error.code, unknown).format(group_id))
        outcomes = dict.fromkeys(partitions, error)
    else:
        if any(outcomes.values()):
            _print_error("Encounter some partition level error, see the follow-up details:")
        else:
            print(
                f"Request succeed for deleting offsets with topic {', '.join(topics)} "
                f"group {printable(group_id)}"
            )
    outcomes |= unknown_topics
    _print_statuses(outcomes)


def _print_statuses(outcomes: Mapping[TopicPartition, ApiError | None]) -> None:
    print(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for partition in sorted(outcomes, key=lambda p: f"{p.topic}{p.partition}"):
        error_of = outcomes[partition]
        number = partition.partition if partition.partition >= 0 else "Not Provided"
        status = "Successful" if error_of is None else f"Error: :{java_text(error_of)}"
        print(f"{partition.topic:<30} {number:<15} {status:<15}")


def _print_error(message: str) -> None:
    print(f"\nError: {printable(message)}")
