"""`kafka-server-start`: runs one broker, with the arguments of Apache Kafka's script.

    kafka-server-start [-daemon] server.properties [--override property=value]*

The same as `odradek server-start`; with -daemon it runs in the background, with its output in
`kafkaServer.out` in the directory LOG_DIR (default: `logs`).
"""

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from odradek.cli.kafka.support.flags import version_text

USAGE: Final = "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*"


def main(arguments: Sequence[str]) -> int:
    words = list(arguments)
    daemon = words[:1] == ["-daemon"]
    if daemon:
        words.pop(0)
    if not words or "--help" in words:
        print(USAGE)
        return 1
    if "--version" in words:
        print(version_text())
        return 0
    if daemon:
        return _in_background(words)
    from odradek.cli.main import run  # noqa: PLC0415 - it imports click and the broker

    return run(["server-start", *words])


def _in_background(words: Sequence[str]) -> int:
    if not pathlib.Path(words[0]).is_file():
        print(f"{words[0]}: no such file", file=sys.stderr)
        return 1
    logs = pathlib.Path(os.environ.get("LOG_DIR", "logs"))
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / "kafkaServer.out").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "odradek", "server-start", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return 0
