"""Exactly once, whatever is killed: the query's whole process group again and again, and brokers.

ODRADEK_CHAOS says how often; 4 without it, 20 for the whole proof.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from harness import odradek

from odradek.client import arrow

SCRIPT = pathlib.Path(__file__).parent / "spark" / "copying.py"
KILLS = int(os.environ.get("ODRADEK_CHAOS", "4"))
ROWS = 20_000
DEADLINE_S = 600


def start(servers: str, folder: pathlib.Path, *finish: str) -> subprocess.Popen[bytes]:
    with (folder / "job.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), servers, str(folder), *finish],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def triggers(folder: pathlib.Path) -> int:
    """How many triggers both queries have finished or begun."""
    return sum(1 for _ in folder.glob("to-*/*/[0-9]*"))


def wait_for_progress(folder: pathlib.Path, job: subprocess.Popen[bytes]) -> None:
    before, deadline_s = triggers(folder), time.monotonic() + DEADLINE_S
    while triggers(folder) <= before:
        assert job.poll() is None, (folder / "job.log").read_text()[-3000:]
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.jvm
def test_every_row_counts_once_whatever_is_killed(tmp_path: pathlib.Path) -> None:
    drawn = random.Random(7)
    home = str(tmp_path / "cluster")
    options = ("num.partitions=3", "default.replication.factor=3", "min.insync.replicas=2")
    odradek("up", "--brokers", "3", "--dir", home, "--detach", "--", *options)
    try:
        servers = json.loads(odradek("status", "--dir", home, "--json"))["bootstrap"]
        values = [b"%d" % n for n in range(ROWS)]
        arrow.write_topic(servers, "chaos", pa.table({"key": values, "value": values}))
        for kill in range(KILLS):
            job = start(servers, tmp_path)
            try:
                wait_for_progress(tmp_path, job)
                # Anywhere in a trigger: in a task, between its commit and Spark's, or idle.
                time.sleep(drawn.random() * 2)
            finally:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            if kill % 4 == 0:
                broker = str(drawn.randrange(3))
                odradek("kill", broker, "--dir", home)
                odradek("start", broker, "--dir", home)
        assert start(servers, tmp_path, "finish").wait(DEADLINE_S) == 0
        there = arrow.offsets_of(servers, "copied")
        ends = {number: offsets.end for number, offsets in there.items()}
        copied = arrow.read_topic(servers, "copied", columns=["value"], end=ends, committed=True)
    finally:
        odradek("down", "--dir", home)

    assert sorted(map(int, copied.column("value").to_pylist())) == [*range(ROWS)]
    (result,) = (tmp_path / "result").glob("*.csv")
    assert sorted(map(int, result.read_text().split())) == [*range(ROWS)]
