"""Tools of Kafka's that have verbs; Java reads their command lines by argparse4j."""

import argparse

from odradek.cli.kafka.support.arguments import ArgumentParser

CommandLine = ArgumentParser


def connection_options(parser: argparse.ArgumentParser) -> None:
    """Where the cluster is: brokers or controllers, one of the two."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="host:port,...", help="Brokers.")
    where.add_argument("--bootstrap-controller", metavar="host:port,...", help="KRaft controllers.")
    parser.add_argument("--command-config", metavar="file", help="Client properties.")
