"""Options shared by Kafka's tools with verbs (argparse4j in Java)."""

import argparse

from odradek.cli.kafka.support.arguments import ArgumentParser

CommandLine = ArgumentParser


def connection_options(parser: argparse.ArgumentParser) -> None:
    """Add `--bootstrap-server` and `--bootstrap-controller`, of which one is required."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="host:port,...", help="Brokers.")
    where.add_argument("--bootstrap-controller", metavar="host:port,...", help="KRaft controllers.")
    parser.add_argument("--command-config", metavar="file", help="Client properties.")
