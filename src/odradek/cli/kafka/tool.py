"""The table of Kafka's command-line tools, and how one is run.

A tool is a module of this package with `main(arguments) -> exit code`. It is imported only when it
is used: as `odradek topics ...`, or as a console script named as Kafka's, without the suffix:
`kafka-topics ...`. `odradek.cli.kafka.support.flags` parses flags.

Rules for all tools, which are Kafka's: results go to stdout; errors of the command line go to
stderr, with the help if options do not go together; the exit code of every failure is 1. Imports
are made where they are needed, because the start takes most of a tool's time.

To add one: write `odradek/cli/kafka/NAME.py` with `main`, add its line to `TOOLS`, and its console
script to `pyproject.toml` (all of them point at `script` here).
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from odradek.cli.kafka.support.flags import FlagError, UsageError
from odradek.cli.output import printable_output
from odradek.model.errors import OdradekError


class Tool(NamedTuple):
    """The module of a tool, and its line in the list of tools."""

    module: str
    summary: str


_CONNECT: Final = ("connect-distributed", "connect-mirror-maker", "connect-standalone")
_ZOOKEEPER: Final = ("zookeeper-server-start", "zookeeper-server-stop")
# By subcommand of `odradek`; the console script is `kafka-` + name, unless it is in _BARE.
TOOLS: Final[Mapping[str, Tool]] = {
    "topics": Tool("odradek.cli.kafka.topics", "Create, list, describe, alter and delete topics."),
    "configs": Tool("odradek.cli.kafka.configs", "Describe and alter configurations and quotas."),
    "reassign-partitions": Tool(
        "odradek.cli.kafka.reassign_partitions", "Move replicas between brokers and directories."
    ),
    "consumer-groups": Tool(
        "odradek.cli.kafka.consumer_groups", "List, describe, delete and reset groups."
    ),
    "transactions": Tool(
        "odradek.cli.kafka.transactions", "List and describe transactions; abort hanging ones."
    ),
    "features": Tool("odradek.cli.kafka.features", "Describe and change feature levels."),
    "cluster": Tool("odradek.cli.kafka.cluster", "Show the cluster's id and its brokers."),
    "broker-api-versions": Tool(
        "odradek.cli.kafka.broker_api_versions", "Show the APIs and versions that brokers support."
    ),
    "zookeeper-shell": Tool(
        "odradek.cli.kafka.zookeeper_shell", "Show and change znodes of the coordination store."
    ),
    # `odradek server-start` is another command, without -daemon.
    "server-start": Tool(
        "odradek.cli.kafka.server_start", "Run one broker, or start it in the background."
    ),
    "server-stop": Tool("odradek.cli.kafka.server_stop", "Stop the brokers of this machine."),
    "acls": Tool("odradek.cli.kafka.acls", "Add, remove and list ACLs."),
    "delegation-tokens": Tool(
        "odradek.cli.kafka.delegation_tokens", "Create, renew, expire and describe tokens."
    ),
    "get-offsets": Tool("odradek.cli.kafka.get_offsets", "Show offsets of partitions, by time."),
    "delete-records": Tool(
        "odradek.cli.kafka.delete_records", "Delete records below given offsets."
    ),
    "log-dirs": Tool(
        "odradek.cli.kafka.log_dirs", "Show which replicas are in which log directories."
    ),
    "leader-election": Tool(
        "odradek.cli.kafka.leader_election", "Elect preferred or unclean leaders."
    ),
    "dump-log": Tool("odradek.cli.kafka.dump_log", "Show the contents of a broker's files."),
    "console-producer": Tool(
        "odradek.cli.kafka.clients.console_producer", "Write lines to a topic."
    ),
    "console-consumer": Tool(
        "odradek.cli.kafka.clients.console_consumer", "Show the records of a topic."
    ),
    "producer-perf-test": Tool(
        "odradek.cli.kafka.clients.producer_perf_test", "Measure a producer."
    ),
    "consumer-perf-test": Tool(
        "odradek.cli.kafka.clients.consumer_perf_test", "Measure a consumer."
    ),
    "e2e-latency": Tool(
        "odradek.cli.kafka.clients.e2e_latency", "Measure the time from producer to consumer."
    ),
    "verifiable-producer": Tool(
        "odradek.cli.kafka.clients.verifiable_producer", "Write records, and log each step as JSON."
    ),
    "verifiable-consumer": Tool(
        "odradek.cli.kafka.clients.verifiable_consumer", "Read records, and log each step as JSON."
    ),
    "replica-verification": Tool(
        "odradek.cli.kafka.replica_verification", "Compare the replicas of topics."
    ),
    "streams-application-reset": Tool(
        "odradek.cli.kafka.clients.streams_application_reset",
        "Let an application of Kafka Streams process again.",
    ),
    "client-metrics": Tool(
        "odradek.cli.kafka.elsewhere.client_metrics", "Refused, as with ZooKeeper: KRaft only."
    ),
    "metadata-quorum": Tool(
        "odradek.cli.kafka.elsewhere.metadata_quorum", "Refused, as with ZooKeeper: KRaft only."
    ),
    "storage": Tool(
        "odradek.cli.kafka.elsewhere.storage", "Refused, as with ZooKeeper: nothing is formatted."
    ),
    "mirror-maker": Tool(
        "odradek.cli.kafka.elsewhere.mirror_maker", "Names Apache Kafka's, which works with us."
    ),
    **dict.fromkeys(
        _CONNECT, Tool("odradek.cli.kafka.elsewhere.connect", "Names Apache Kafka's, likewise.")
    ),
    **dict.fromkeys(
        _ZOOKEEPER,
        Tool("odradek.cli.kafka.elsewhere.zookeeper_server", "No ZooKeeper is part of Odradek."),
    ),
    "run-class": Tool(
        "odradek.cli.kafka.elsewhere.run_class", "Names the tool that does what a class does."
    ),
    "preferred-replica-election": Tool(
        "odradek.cli.kafka.elsewhere.preferred_replica_election",
        "Removed by Kafka 3.0; names its successor.",
    ),
}
_BARE: Final = frozenset({"zookeeper-shell", *_CONNECT, *_ZOOKEEPER})


def script_name(tool: str) -> str:
    return tool if tool in _BARE else f"kafka-{tool}"


def run_tool(name: str, arguments: Sequence[str]) -> int:
    """Run one tool. Returns the exit code."""
    with printable_output(arguments):
        return _run(name, arguments)


def _run(name: str, arguments: Sequence[str]) -> int:
    from importlib import import_module  # noqa: PLC0415 - the other tools are not imported

    main = import_module(TOOLS[name].module).main
    try:
        code: int = main(arguments)
        sys.stdout.flush()
    except UsageError as error:
        print(error, file=sys.stderr)
        print(error.parser.usage(), file=sys.stderr)
        if error.hint:
            print(f"\n{error.hint}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`): print nothing more, at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OdradekError, OSError) as error:
        from odradek.cli.failures import printed  # noqa: PLC0415 - most tools have imported it

        sys.stdout.flush()
        print(printed(error), file=sys.stderr)
        if isinstance(error, FlagError) and error.hint:
            print(error.hint, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:  # --help, --version and mistakes
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        from odradek.cli.failures import hide_log  # noqa: PLC0415 - most tools have imported it

        hide_log()
    return code


def script() -> NoReturn:
    """The entry point of all console scripts; `sys.argv[0]` names the tool."""
    called = os.path.basename(sys.argv[0]).removesuffix(".sh").removesuffix(".exe")
    name = called.removeprefix("kafka-")
    if name not in TOOLS:
        print(f"{called}: no tool of this name; there are {', '.join(TOOLS)}", file=sys.stderr)
        sys.exit(1)
    sys.exit(run_tool(name, sys.argv[1:]))
