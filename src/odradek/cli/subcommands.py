"""Tools of Kafka's that have verbs; Java reads their command lines by argparse4j."""

import argparse
from collections.abc import Sequence

from odradek.cli.arguments import ArgumentParser, BadArgumentsError

CommandLine = ArgumentParser


def connection_options(parser: argparse.ArgumentParser) -> None:
    """Where the cluster is: brokers or controllers, one of the two."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="host:port,...", help="Brokers.")
    where.add_argument("--bootstrap-controller", metavar="host:port,...", help="KRaft controllers.")
    parser.add_argument("--command-config", metavar="file", help="Client properties.")


def parse(parser: ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace | int:
    """The options; or the exit code, when all is said."""
    try:
        parser.check_options(arguments)
        return parser.parse_args(list(arguments))
    except BadArgumentsError:
        return 1
    except SystemExit:
        return 0
