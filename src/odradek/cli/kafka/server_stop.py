"""`kafka-server-stop`: stops the brokers of this machine (SIGTERM).

As Apache Kafka's script: all brokers of this user, or the one with the given process.role,
broker.id or directory. Brokers are the processes whose command is `odradek server-start`.
"""

import os
import pathlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.config.option import InvalidConfigError
from odradek.config.properties import parse, parse_overrides

USAGE: Final = "usage: kafka-server-stop [--broker-id N | --node-id N]"


class _Running(NamedTuple):
    pid: int
    broker_id: str | None


def main(arguments: Sequence[str]) -> int:
    wanted: str | None = None
    words = list(arguments)
    if words in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    if words:
        name, equals, value = words[0].partition("=")
        if name not in ("--broker-id", "--node-id") or len(words) > 2 - bool(equals):
            print(f"{' '.join(words)}: must be --broker-id N", file=sys.stderr)
            return 1
        wanted = value if equals else (words[1] if len(words) == 2 else "")
    found = [each for each in _running() if wanted is None or each.broker_id == wanted]
    if not found:
        print("No kafka server to stop")
        return 1
    for each in found:
        os.kill(each.pid, signal.SIGTERM)
    return 0


def _running() -> Iterator[_Running]:
    """The `server-start` processes of this user."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            cwd = pathlib.Path((path / "cwd").readlink())
        except OSError:
            continue  # the process has ended meanwhile
        if not _is_broker(words):
            continue
        yield _Running(int(path.name), _broker_id(words, cwd))


def _is_broker(words: Sequence[str]) -> bool:
    names = [pathlib.Path(word).name for word in words]
    module = "odradek" in names and "server-start" in words
    return module or any(name.startswith("kafka-server-start") for name in names[:2])


def _broker_id(words: Sequence[str], cwd: pathlib.Path) -> str | None:
    """`broker.id` in the broker's properties file and overrides."""
    properties: dict[str, str] = {}
    for word in words:
        if word.endswith(".properties"):
            try:
                properties |= parse((cwd / word).read_text())
            except (OSError, InvalidConfigError):
                continue
    overrides = [words[at + 1] for at, w in enumerate(words[:-1]) if w == "--override"]
    try:
        properties |= parse_overrides(overrides)
    except InvalidConfigError:
        return None
    return properties.get("broker.id", properties.get("node.id"))
