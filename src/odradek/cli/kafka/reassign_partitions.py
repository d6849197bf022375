"""`kafka-reassign-partitions`: moves replicas between brokers and directories.

Behaviour, flags and texts follow Kafka 3.9's `ReassignPartitionsCommand`. The JSON it reads and
writes is in `cli/kafka/support/reassignment_json.py`; throttles are in
`cli/kafka/support/reassignment_throttles.py`.
"""

import asyncio
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import odradek.client.admin.partitions as partitions_admin
import odradek.client.admin.topics as admin
from odradek.cli.connect import ClientError, NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import (
    CommandFailedError,
    OperationError,
    ToolError,
    java_text,
    message_of,
)
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.cli.kafka.support.reassignment_json import (
    Plan,
    Replica,
    check_to_execute,
    format_assignment,
    parse_broker_list,
    read_plan,
    read_topics,
)
from odradek.cli.kafka.support.reassignment_throttles import (
    clear_throttles,
    proposed_moves,
    throttle_directories,
    throttle_moves,
)
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.placement.assign import place
from odradek.placement.walk import RoundStart

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_REQUIRED: Final = {
    "verify": ("reassignment-json-file",),
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
_COMMON: Final = ("bootstrap-server", "bootstrap-controller", "command-config")
_PERMITTED: Final = {
    "verify": ("preserve-throttles",),
    "generate": ("disable-rack-aware",),
    "execute": ("additional", "throttle", "replica-alter-log-dirs-throttle", "timeout"),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
_EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
_RUN_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure "
    "the throttle is removed."
)
_TIMEOUT_MS: Final = 10_000
_RETRY_MS: Final = 100


class TerseError(ToolError):
    """Kafka's `TerseException`: printed without the name of the exception."""


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments, uncaught=True)
    action = _check(parser, flags)
    try:
        flags.integer("timeout", bits=64)
        servers = flags.value("bootstrap-server") or flags.text("bootstrap-controller")
        properties = properties_of(flags.value("command-config"))
        return with_cluster(
            servers,
            properties,
            lambda cluster: _run(cluster, action, flags),
            client=("AdminClient", "reassign-partitions-tool"),
            call="listPartitionReassignments" if action != "generate" else "listNodes",
        )
    except TerseError as error:
        print(error)
    except (NoBrokerError, ApiError) as error:
        print(f"Error: {java_text(error)}")
    except ClientError as error:
        summary, _, more = str(error).partition("\n")
        print(f"Error: {summary}", flush=True)
        print(more, file=sys.stderr)
    except (OdradekError, ConnectionError) as error:
        print(f"Error: {error}")
    return 1


def command_line() -> Parser:
    parser = Parser("This tool helps to move topic partitions between replicas.")
    parser.connection(controllers=True)
    parser.flag(
        "verify", help="Show the progress of a reassignment; clear throttles when it is complete."
    )
    parser.flag("generate", help="Propose a reassignment of topics to brokers; nothing is changed.")
    parser.flag("execute", help="Start the reassignment in --reassignment-json-file.")
    parser.flag("cancel", help="Stop the reassignments of the partitions in the file.")
    parser.flag("list", help="Show all active reassignments.")
    parser.value(
        "reassignment-json-file", metavar="file",
        help='{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": '
        '["any", "/data"]}], "version": 1}; log_dirs may be left out.',
    )  # fmt: skip
    parser.value(
        "topics-to-move-json-file", metavar="file",
        help='{"topics": [{"topic": "a"}], "version": 1}',
    )  # fmt: skip
    parser.value("broker-list", metavar="1,2,3", help="With --generate: the target brokers.")
    parser.flag("disable-rack-aware", help="With --generate: ignore racks.")
    parser.value("throttle", metavar="B/s", help="At most so many bytes a second between brokers.")
    parser.value(
        "replica-alter-log-dirs-throttle", metavar="B/s",
        help="At most so many bytes a second between the directories of a broker.",
    )  # fmt: skip
    parser.value("timeout", metavar="ms", help="The timeout to start moves between directories.")
    parser.flag("additional", help="With --execute: even if others are active.")
    parser.flag("preserve-throttles", help="Do not change the throttles.")
    parser.common()
    return parser


def _check(parser: Parser, flags: Flags) -> str:
    actions = [action for action in _ACTIONS if flags.has(action)]
    if len(actions) != 1:
        names = ", ".join(f"--{action}" for action in _ACTIONS)
        parser.fail(f"Command must include exactly one action: {names}")
    if flags.has("bootstrap-server") and flags.has("bootstrap-controller"):
        parser.fail("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not flags.has("bootstrap-server") and not flags.has("bootstrap-controller"):
        parser.fail("Please specify --bootstrap-server")
    (action,) = actions
    parser.require(flags, *_REQUIRED[action])
    allowed = {action, *_REQUIRED[action], *_PERMITTED[action], *_COMMON}
    for option in flags.order:
        if not allowed & set(option.names):
            parser.fail(f'Option "{option}" can\'t be used with action "{parser[action]}"')
    return action


async def _run(cluster: Cluster, action: str, flags: Flags) -> int:
    if action == "list":
        await _list(cluster)
    elif action == "generate":
        await _generate(cluster, flags)
    else:
        plan = read_plan(flags.text("reassignment-json-file"))
        if action == "verify":
            await _verify(cluster, plan, keep=flags.has("preserve-throttles"))
        elif action == "execute":
            await _execute(cluster, plan, flags)
        else:
            await _cancel(cluster, plan, flags)
    return 0


# ----------------------------------------------------------------------------- list, generate


async def _list(cluster: Cluster) -> None:
    moves = await partitions_admin.list_reassignments(cluster)
    if not moves:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition in sorted(moves):
        move = moves[partition]
        text = f"{partition}: replicas: {_ids(move.replicas)}."
        if move.adding:
            text += f" adding: {_ids(move.adding)}."
        if move.removing:
            text += f" removing: {_ids(move.removing)}."
        print(text)


async def _generate(cluster: Cluster, flags: Flags) -> None:
    topics = read_topics(flags.text("topics-to-move-json-file"))
    brokers = parse_broker_list(flags.text("broker-list"))
    described = await admin.describe_topics(cluster, topics)
    current = {
        TopicPartition(topic.name or "", p.partition_index): tuple(p.replica_nodes)
        for topic in described
        for p in topic.partitions
    }
    racks = await _racks(cluster, brokers, rack_aware=not flags.has("disable-rack-aware"))
    proposed: dict[TopicPartition, Sequence[int]] = {}
    for topic in topics:
        mine = {p: replicas for p, replicas in current.items() if p.topic == topic}
        try:
            placed = place(
                racks,
                partitions=len(mine),
                replication_factor=len(next(iter(mine.values()))),
                start=RoundStart(
                    random.randrange(len(racks) or 1), random.randrange(len(racks) or 1)
                ),
            )
        except ApiError as error:
            raise CommandFailedError(message_of(error)) from None
        proposed |= {TopicPartition(topic, index): ids for index, ids in placed.items()}
    print(f"Current partition replica assignment\n{format_assignment(current)}\n")
    print(f"Proposed partition reassignment configuration\n{format_assignment(proposed)}")


async def _racks(
    cluster: Cluster, brokers: Sequence[int], *, rack_aware: bool
) -> dict[int, str | None]:
    state = await admin.describe_cluster(cluster)
    racks = {node.id: node.rack for node in state.nodes if node.id in brokers}
    if not rack_aware:
        return dict.fromkeys(racks)
    if any(racks.values()) and not all(racks.values()):
        raise OperationError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    return racks


# ------------------------------------------------------------------------------------ execute


async def _execute(cluster: Cluster, plan: Plan, flags: Flags) -> None:
    check_to_execute(plan)
    throttle = flags.integer("throttle", bits=64)
    dir_throttle = flags.integer("replica-alter-log-dirs-throttle", bits=64)
    under_way = await partitions_admin.list_reassignments(cluster)
    if under_way and not flags.has("additional"):
        raise TerseError(_EXISTING)
    targets = dict(plan.targets)
    await _check_brokers(cluster, targets.values())
    current = await _current(cluster, targets)
    print(
        f"Current partition replica assignment\n\n{format_assignment(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    has_throttle = throttle is not None and throttle >= 0
    has_dir_throttle = dir_throttle is not None and dir_throttle >= 0
    if has_throttle or has_dir_throttle:
        print(_RUN_VERIFY)
    if throttle is not None and has_throttle:
        await throttle_moves(cluster, proposed_moves(under_way, targets, current), throttle)
        print(f"The inter-broker throttle limit was set to {throttle} B/s")
    if dir_throttle is not None and has_dir_throttle:
        await throttle_directories(cluster, {r.broker for r in plan.directories}, dir_throttle)
        print(f"The replica-alter-dir throttle limit was set to {dir_throttle} B/s")
    try:
        await _start(cluster, targets)
    except (OdradekError, ConnectionError):
        if has_throttle or has_dir_throttle:
            sys.stdout.flush()
            print("The throttles set above stay: --verify clears them.", file=sys.stderr)
        raise
    if plan.directories:
        timeout_ms = flags.integer("timeout", bits=64)
        await _move_directories(
            cluster, plan.directories, _TIMEOUT_MS if timeout_ms is None else timeout_ms
        )


async def _start(cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    outcomes = await partitions_admin.alter_reassignments(cluster, targets)
    errors = {partition: error for partition, error in outcomes.items() if error is not None}
    if errors:
        failures = "\n".join(f"{p}: {message_of(errors[p])}" for p in sorted(errors))
        started = sorted(outcomes.keys() - errors.keys())
        if started:
            failures += f"\nStarted all the same: {_names(started)}"
        raise TerseError(f"Error reassigning partition(s):\n{failures}")
    print(f"Successfully started partition reassignment{_s(targets)} for {_names(sorted(targets))}")


async def _check_brokers(cluster: Cluster, replicas: Iterable[Sequence[int]]) -> None:
    state = await admin.describe_cluster(cluster)
    live = {node.id for node in state.nodes}
    for broker in sorted({broker for ids in replicas for broker in ids}):
        if broker not in live:
            raise CommandFailedError(f"Unknown broker id {broker}")


async def _current(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    wanted = set(partitions)
    topics = sorted({partition.topic for partition in wanted})
    current = {}
    for topic in await admin.describe_topics(cluster, topics):
        for p in topic.partitions:
            partition = TopicPartition(topic.name or "", p.partition_index)
            if partition in wanted:
                current[partition] = tuple(p.replica_nodes)
    missing = sorted(wanted - current.keys())
    if missing:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition: {', '.join(map(str, missing))}",
        )
    return current


async def _move_directories(
    cluster: Cluster, directories: Mapping[Replica, str], timeout_ms: int
) -> None:
    """Start moves to directories; a replica that its broker does not hold yet is tried again."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    pending = dict(directories)
    while pending:
        begun = await _begin_moves(cluster, pending)
        for replica in sorted(begun):
            print(  # with the space at its end, as Kafka's tool prints it
                f"Successfully started moving log directory to {pending[replica]} for replica "
                f"{replica.partition} with broker {replica.broker} "
            )
        pending = {replica: path for replica, path in pending.items() if replica not in begun}
        if pending and loop.time() >= deadline_s:
            names = ",".join(map(str, sorted(pending)))
            raise TerseError(
                f"Timed out before log directory move{_s(pending)} could be started for: {names}"
            )
        if pending:
            await asyncio.sleep(_RETRY_MS / 1000)


async def _begin_moves(cluster: Cluster, directories: Mapping[Replica, str]) -> set[Replica]:
    begun = set()
    for broker in sorted({replica.broker for replica in directories}):
        mine = {r: path for r, path in directories.items() if r.broker == broker}
        moves = {replica.partition: path for replica, path in mine.items()}
        outcomes = await partitions_admin.alter_replica_log_dirs(cluster, broker, moves)
        for replica in mine:
            error = outcomes.get(replica.partition)
            if error is None:
                begun.add(replica)
            elif error.code != ErrorCode.REPLICA_NOT_AVAILABLE:
                sys.stdout.flush()
                print(message_of(error), file=sys.stderr)
                raise CommandFailedError(f"Failed to alter dir for {replica}")
    return begun


# ------------------------------------------------------------------------------------- verify


async def _verify(cluster: Cluster, plan: Plan, *, keep: bool) -> None:
    under_way = await _verify_partitions(cluster, plan.targets)
    moving = await _verify_directories(cluster, plan.directories)
    if not under_way and not moving and not keep:
        await clear_throttles(cluster, plan.targets)


async def _verify_partitions(
    cluster: Cluster, targets: Sequence[tuple[TopicPartition, Sequence[int]]]
) -> bool:
    """Print the progress of each partition. Returns whether any reassignment is active."""
    under_way = await partitions_admin.list_reassignments(cluster)
    metadata = await cluster.refresh(sorted({partition.topic for partition, _ in targets}))
    current = {
        TopicPartition(topic.name or "", p.partition_index): tuple(p.replica_nodes)
        for topic in metadata.topics
        for p in topic.partitions
    }
    print("Status of partition reassignment:")
    for partition, target in sorted(dict(targets).items()):
        if partition in under_way:
            print(f"Reassignment of partition {partition} is still in progress.")
        elif current.get(partition, ()) == tuple(target):
            print(f"Reassignment of partition {partition} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{_ids(current.get(partition, ()))} rather than {_ids(target)}."
            )
    return bool(under_way)


class _Whereabouts(NamedTuple):
    """The directory of a replica, and of the future replica that is copied from it."""

    current: str | None
    future: str | None
    live: bool  # the broker has answered; it may hold no such replica


async def _whereabouts(
    cluster: Cluster, directories: Mapping[Replica, str]
) -> dict[Replica, _Whereabouts]:
    found = {}
    await cluster.refresh()
    for broker in sorted({replica.broker for replica in directories}):
        mine = [replica for replica in directories if replica.broker == broker]
        logs = await partitions_admin.describe_log_dirs(
            cluster, broker, [replica.partition for replica in mine]
        )
        for replica in mine:
            held = [(d.path, d.replicas[replica.partition]) for d in logs
                    if replica.partition in d.replicas]  # fmt: skip
            current = [path for path, info in held if not info.is_future]
            future = [path for path, info in held if info.is_future]
            found[replica] = _Whereabouts(
                current[0] if current else None, future[0] if future else None, live=bool(logs)
            )
    return found


async def _verify_directories(cluster: Cluster, directories: Mapping[Replica, str]) -> bool:
    """Print the progress of each move between directories. Returns whether one is active."""
    lines, moving = [], False
    for replica, where in sorted((await _whereabouts(cluster, directories)).items()):
        target = directories[replica]
        name = f"{replica.partition} on broker {replica.broker}"
        if where.future is not None:
            moving = True
            if where.future == target:
                lines.append(f"Reassignment of replica {replica} is still in progress.")
            else:
                lines.append(
                    f"Partition {name} is being moved to log dir {where.future} "
                    f"instead of {target}."
                )
        elif where.current is None and not where.live:
            lines.append(
                f"Partition {replica.partition} cannot be found in any live log directory on "
                f"broker {replica.broker}."
            )
        elif where.current is None:
            lines.append(
                f"Partition {replica.partition} is not found in any live log dir on broker "
                f"{replica.broker}. There is likely an offline log directory on the broker."
            )
        elif where.current == target:
            lines.append(f"Reassignment of replica {replica} completed successfully.")
        else:
            lines.append(
                f"Partition {name} is not being moved from log dir {where.current} to {target}."
            )
    print("\n".join(lines))
    return moving


# ------------------------------------------------------------------------------------- cancel


async def _cancel(cluster: Cluster, plan: Plan, flags: Flags) -> None:
    targets = dict(plan.targets)
    under_way = await partitions_admin.list_reassignments(cluster, targets)
    active = sorted(p for p, move in under_way.items() if move.adding or move.removing)
    if active:
        outcomes = await partitions_admin.alter_reassignments(cluster, dict.fromkeys(active))
        errors = {partition: error for partition, error in outcomes.items() if error is not None}
        if errors:
            failures = "\n".join(f"{p}: {message_of(errors[p])}" for p in sorted(errors))
            raise TerseError(
                f"Error cancelling partition reassignment{_s(errors)} for:\n{failures}"
            )
        print(f"Successfully cancelled partition reassignment{_s(active)} for: {_names(active)}")
    else:
        print("None of the specified partition reassignments are active.")
    back = {
        replica: where.current
        for replica, where in (await _whereabouts(cluster, plan.directories)).items()
        if where.future is not None and where.current is not None
    }
    if back:
        timeout_ms = flags.integer("timeout", bits=64)
        await _move_directories(cluster, back, _TIMEOUT_MS if timeout_ms is None else timeout_ms)
    else:
        # As Kafka's tool: without an end of line.
        print("None of the specified partition moves are active.", end="")
    if not flags.has("preserve-throttles"):
        await clear_throttles(cluster, plan.targets)


def _s(things: object) -> str:
    assert hasattr(things, "__len__")
    return "" if len(things) == 1 else "s"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, partitions))
