"""Runs in a child process: one line of JSON asks for a run, one line is its outcome.

The child has PYTHONHASHSEED=0, so that sets of strings have the same order in every run.
"""

import json
import os
from typing import IO, Final

from odradek.testkit.simulation.outcome import RunOptions
from odradek.testkit.simulation.runs.forks import Play, in_fork

CHILD: Final = "ODRADEK_SIMULATION_CHILD"  # "READ,WRITE,CALL": descriptors, and which call it is
HASH_SEED: Final = "0"


def call_of_child() -> int | None:
    """Which call of the fixture this child is for; None in other processes."""
    value = os.environ.get(CHILD)
    return None if value is None else int(value.split(",")[2])


def pipe_of_child() -> tuple[IO[str], IO[str]]:
    """The child's ends of the pipe."""
    read, write, _ = map(int, os.environ[CHILD].split(","))
    return os.fdopen(read, encoding="utf-8"), os.fdopen(write, "w", encoding="utf-8")


def serve(asked: IO[str], answers: IO[str], play: Play) -> None:
    """Play what is asked for, until the parent closes the pipe."""
    for line in asked:
        outcome = in_fork(play, RunOptions.decode(json.loads(line)))
        answers.write(json.dumps(outcome.encode()) + "\n")
        answers.flush()
