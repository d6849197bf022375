"""Shared by the two verifiable tools: events as lines of JSON, and connection options."""

import json

from odradek.cli.kafka.support.arguments import CommandLine
from odradek.net.clock import real_wall_ms


def emit(name: str, **event: object) -> None:
    wall_ms = real_wall_ms()
    line = {"timestamp": wall_ms, "name": name, **event}
    print(json.dumps(line, separators=(",", ":"), ensure_ascii=False), flush=True)


def add_connection(parser: CommandLine) -> None:
    servers = "HOST1:PORT1[,HOST2:PORT2[...]]"
    text = "as --bootstrap-server (deprecated)"
    parser.value("bootstrap-server", metavar=servers, help="brokers to connect to", either=True)
    parser.value("broker-list", metavar=servers, help=text, either=True)


def text_of(data: bytes | None) -> str | None:
    """Bytes as the events print them: text, or None."""
    return None if data is None else data.decode("utf-8", "replace")
