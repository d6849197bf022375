"""Tools of Kafka's that have subcommands; Java reads their command lines by argparse4j.

So ours are read by `argparse`, which that is modelled on: `tool --option value verb --option`,
abbreviations allowed. What is wrong is told with the usage on stderr; the exit code is 1.
"""

import argparse
import sys
from collections.abc import Sequence


class CommandLineError(Exception):
    """The command line is none; it was told why."""


class CommandLine(argparse.ArgumentParser):
    """An `ArgumentParser` that ends no process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Tell what is wrong.

        Raises:
            CommandLineError: always.
        """
        print(self.format_usage() + f"{self.prog}: error: {message}", file=sys.stderr)
        raise CommandLineError(message)


def connection_options(parser: argparse.ArgumentParser) -> None:
    """Where the cluster is: brokers or controllers, one of the two."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="host:port,...", help="Brokers.")
    where.add_argument("--bootstrap-controller", metavar="host:port,...", help="KRaft controllers.")
    parser.add_argument("--command-config", metavar="file", help="Client properties.")


def parse(parser: CommandLine, arguments: Sequence[str]) -> argparse.Namespace | int:
    """The options; or the exit code, when all is said."""
    try:
        return parser.parse_args(list(arguments))
    except CommandLineError:
        return 1
    except SystemExit:
        return 0
