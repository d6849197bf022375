"""Exactly once with kills of drivers, executors, their Python workers, and brokers.

The query runs on two executors that are processes of their own (`local-cluster`). ODRADEK_CHAOS
is the number of Spark processes that are killed; 4 without it, 20 for the whole proof. With every
fourth of them a broker is killed too.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import processes
import pyarrow as pa
import pytest
from harness import odradek

from odradek.client import arrow

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "support" / "spark" / "copying.py"
KILLS = int(os.environ.get("ODRADEK_CHAOS", "4"))
ROWS = 20_000
DEADLINE_S = 600
VICTIMS = ("driver", "executor", "worker")
MASTER = (
    "--master local-cluster[2,1,512] --driver-memory 512m --conf spark.executor.memory=512m "
    "--conf spark.task.maxFailures=8 pyspark-shell"
)


class Job:
    """The query: a driver with its executors, in a process group of their own."""

    def __init__(self, servers: str, folder: pathlib.Path, *finish: str) -> None:
        self.folder = folder
        with (folder / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), servers, str(folder), *finish],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYSPARK_SUBMIT_ARGS": MASTER, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def triggers(self) -> int:
        """How many triggers both queries have finished or begun."""
        return sum(1 for _ in self.folder.glob("to-*/*/[0-9]*"))

    def wait_for_progress(self) -> None:
        """Until another trigger is begun or finished."""
        before, deadline_s = self.triggers(), time.monotonic() + DEADLINE_S
        while self.triggers() <= before:
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline_s, self.output()
            time.sleep(0.02)

    def output(self) -> str:
        return (self.folder / "job.log").read_text()[-3000:]

    def kill(self, victim: str, drawn: random.Random) -> str:
        """Kill -9 one process, or all if it is the driver. Returns what was killed."""
        below = processes.below(self.process.pid)
        if victim == "worker":
            pids = [
                each.pid for each in below if each.is_forked_from("pyspark.daemon pyspark.worker")
            ]
        else:
            pids = [each.pid for each in below if "CoarseGrainedExecutorBackend" in each.command]
        if victim == "driver" or not pids:
            self.end()
            return "driver"
        os.kill(drawn.choice(pids), signal.SIGKILL)
        return victim

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.jvm
def test_every_row_is_written_once_with_any_kill(tmp_path: pathlib.Path) -> None:
    drawn = random.Random(7)
    home = str(tmp_path / "cluster")
    options = ("num.partitions=3", "default.replication.factor=3", "min.insync.replicas=2")
    odradek("up", "--brokers", "3", "--dir", home, "--detach", "--", *options)
    job = None
    killed = []
    try:
        servers = json.loads(odradek("status", "--dir", home, "--json"))["bootstrap"]
        values = [b"%d" % n for n in range(ROWS)]
        arrow.write_topic(servers, "chaos", pa.table({"key": values, "value": values}))
        for kill in range(KILLS):
            if job is None:
                job = Job(servers, tmp_path)
            job.wait_for_progress()
            # Anywhere in a trigger: in a task, between its commit and Spark's, or idle.
            time.sleep(drawn.random() * 2)
            killed.append(job.kill(VICTIMS[kill % 3], drawn))
            if killed[-1] == "driver":
                job = None
            if kill % 4 == 0:
                broker = str(drawn.randrange(3))
                odradek("kill", broker, "--dir", home)
                odradek("start", broker, "--dir", home)
        if job is not None:
            job.end()
        job = Job(servers, tmp_path, "finish")
        assert job.process.wait(DEADLINE_S) == 0, job.output()
        there = arrow.offsets_of(servers, "copied")
        ends = {number: offsets.end for number, offsets in there.items()}
        copied = arrow.read_topic(servers, "copied", columns=["value"], end=ends, committed=True)
    finally:
        if job is not None and job.process.poll() is None:
            job.end()
        odradek("down", "--dir", home)

    assert set(killed) == set(VICTIMS)
    assert sorted(map(int, copied.column("value").to_pylist())) == [*range(ROWS)]
    (result,) = (tmp_path / "result").glob("*.csv")
    assert sorted(map(int, result.read_text().split())) == [*range(ROWS)]
