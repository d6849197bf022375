"""What the client tests share: the tested Kafka, and how programs are run."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple


class Cluster(NamedTuple):
    """The cluster under test."""

    bootstrap: str
    ours: bool


def odradek(*arguments: str) -> str:
    """The output of an `odradek` command, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"odradek {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def run_program(command: list[str], *, timeout_s: float, **environment: str) -> dict[str, Any]:
    """The report of a client program: the one JSON line it prints."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **environment},
    )
    printed = (done.stdout[-500:] + done.stderr)[-4000:]
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {printed}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report
