"""The `odradek` command: one table of subcommands, each imported only when it is used.

So `odradek --help` is fast, and a broker's process loads no tool. Rules for all subcommands:
results go to stdout, everything else to stderr. A failure is one message with the name, the value
and the rule, and the exit code is 1.
"""

import errno
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from odradek import __version__
from odradek.cli.kafka.tool import TOOLS, run_tool
from odradek.cli.output import printable_output
from odradek.cli.suggesting import SuggestingGroup, suggesting_alike
from odradek.model.errors import OdradekError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Subcommand(NamedTuple):
    """The module of a subcommand, and its line in the list of subcommands."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[Mapping[str, Subcommand]] = {
    "up": Subcommand("odradek.cli.odradek.up", "up", "Start a cluster on this machine."),
    "down": Subcommand("odradek.cli.odradek.local", "down", "Stop the cluster."),
    "status": Subcommand(
        "odradek.cli.odradek.local", "status", "Show which brokers run, and their addresses."
    ),
    "start": Subcommand("odradek.cli.odradek.local", "start", "Start one broker."),
    "stop": Subcommand("odradek.cli.odradek.local", "stop", "Stop one broker cleanly."),
    "restart": Subcommand(
        "odradek.cli.odradek.local", "restart", "Stop one broker cleanly and start it."
    ),
    "kill": Subcommand("odradek.cli.odradek.local", "kill", "Kill one broker (kill -9)."),
    "pause": Subcommand("odradek.cli.odradek.local", "pause", "Freeze one broker (SIGSTOP)."),
    "resume": Subcommand(
        "odradek.cli.odradek.local", "resume", "Continue a frozen broker (SIGCONT)."
    ),
    "add": Subcommand("odradek.cli.odradek.growth", "add", "Add brokers to a running cluster."),
    "clone": Subcommand("odradek.cli.odradek.growth", "clone", "Copy a cluster, to try something."),
    "why": Subcommand(
        "odradek.cli.odradek.why",
        "why",
        "Explain a topic, broker, group or denied request.",
    ),
    "plan": Subcommand(
        "odradek.cli.odradek.plan", "plan", "Plan partitions, assignments and moves."
    ),
    "web": Subcommand("odradek.cli.odradek.web", "web", "Serve a page that shows a cluster."),
    "stories": Subcommand("odradek.cli.odradek.web", "stories", "Serve stories of replication."),
    "doctor": Subcommand(
        "odradek.cli.odradek.doctor", "doctor", "Report what is wrong with a cluster."
    ),
    "user": Subcommand(
        "odradek.cli.odradek.access.users", "user", "Add, list and remove users with passwords."
    ),
    "allow": Subcommand(
        "odradek.cli.odradek.access.permissions", "allow", "Give a user a permission."
    ),
    "deny": Subcommand(
        "odradek.cli.odradek.access.permissions", "deny", "Deny a user what others may do."
    ),
    "revoke": Subcommand(
        "odradek.cli.odradek.access.permissions", "revoke", "Take a permission or a denial back."
    ),
    "permissions": Subcommand(
        "odradek.cli.odradek.access.permissions", "permissions", "List who may do what."
    ),
    "server-start": Subcommand(
        "odradek.cli.odradek.server_start", "server_start", "Run one broker in the foreground."
    ),
    "copy-store": Subcommand(
        "odradek.cli.odradek.copy_store", "copy_store", "Copy a cluster's znodes to another store."
    ),
    "produce": Subcommand(
        "odradek.cli.odradek.produce", "produce", "Write the rows of a file to a topic."
    ),
    "consume": Subcommand(
        "odradek.cli.odradek.consume", "consume", "Print the records of a topic."
    ),
    "completion": Subcommand(
        "odradek.cli.odradek.completion",
        "completion",
        "Print the shell completion for names and flags.",
    ),
    "testkit": Subcommand(
        "odradek.cli.odradek.testkit", "testkit", "Run a cluster for tests of other languages."
    ),
    "demo": Subcommand(
        "odradek_demo.command", "demo", "Run the demo, which leaves no process behind."
    ),
}


_TODO: Final = {
    errno.ENOSPC: ": free space on its file system, then repeat the command",
    errno.EDQUOT: ": free space of this user's quota, then repeat the command",
    errno.EROFS: ": choose a directory that can be written",
    errno.EACCES: ": choose a directory of this user, or run the command as its owner",
    errno.EPERM: ": choose a directory of this user, or run the command as its owner",
}


class LazyGroup(SuggestingGroup):
    """Lists its subcommands with their summaries without importing their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of this subcommand alone."""
        if cmd_name not in COMMANDS:
            if cmd_name in TOOLS and ctx.resilient_parsing:  # for shell completion
                from odradek.cli.odradek.completion import completed  # noqa: PLC0415

                return completed(cmd_name)
            return None
        entry = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command), entry
        return command

    def known(self, ctx: click.Context) -> list[str]:
        """Includes Kafka's tools, which `run` accepts, too."""
        return [*self.list_commands(ctx), *TOOLS]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Includes Kafka's tools, which `run` accepts, too."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - for completion only

        tools = {name: tool for name, tool in TOOLS.items() if name not in COMMANDS}
        return super().shell_complete(ctx, incomplete) + [
            CompletionItem(name, help=tool.summary)
            for name, tool in tools.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of subcommands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])
        with formatter.section("Kafka's tools, with Kafka's flags (also as kafka-...)"):
            formatter.write_dl([(name, tool.summary) for name, tool in TOOLS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="odradek")
def odradek() -> None:
    """Apache Kafka of the ZooKeeper era, in Python."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns the exit code."""
    with printable_output(arguments):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in TOOLS and arguments[0] not in COMMANDS:
        return run_tool(arguments[0], arguments[1:])
    try:
        code = odradek.main(
            list(arguments), prog_name="odradek", standalone_mode=False, obj=list(arguments)
        )
    except click.ClickException as error:
        shown = suggesting_alike(error) if isinstance(error, click.NoSuchOption) else error
        shown.show()
        return 1
    except OSError as error:
        print(f"odradek: {_described(error)}", file=sys.stderr)
        return 1
    except OdradekError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def _described(error: OSError) -> str:
    """What failed, on which file, and what to do."""
    if error.strerror is None or error.filename is None:
        return str(error)
    todo = _TODO.get(error.errno or 0, "")
    return f"{error.filename}: {error.strerror}{todo}"
