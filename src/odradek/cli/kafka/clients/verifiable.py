"""What the two verifiable tools share: events as lines of JSON, and how they connect."""

import json
import time
from argparse import ArgumentParser


def tell(name: str, **event: object) -> None:
    """One event, as one line on stdout."""
    now_ms = time.time_ns() // 1_000_000
    line = {"timestamp": now_ms, "name": name, **event}
    print(json.dumps(line, separators=(",", ":"), ensure_ascii=False), flush=True)


def add_connection(parser: ArgumentParser) -> None:
    """`--bootstrap-server`, or `--broker-list` as it was called."""
    group = parser.add_mutually_exclusive_group(required=True)
    servers = "HOST1:PORT1[,HOST2:PORT2[...]]"
    group.add_argument("--bootstrap-server", metavar=servers, help="brokers to connect to")
    group.add_argument("--broker-list", metavar=servers, help="the same (deprecated)")


def text_of(data: bytes | None) -> str | None:
    """Bytes as the events show them."""
    return None if data is None else data.decode("utf-8", "replace")
