"""A real Spark cluster: a master and two workers without Odradek, a job by spark-submit.

What the job needs is shipped with it, as docs/spark.md says. One worker is killed meanwhile. The
topics are on a broker of ours, and on Apache Kafka of each line.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator

import apache
import pyarrow as pa
import pytest
from harness import Cluster

from odradek.client import arrow
from odradek.spark.java import java_home

pytestmark = pytest.mark.jvm

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "support" / "spark" / "copying.py"
ROWS = 3_000
DEADLINE_S = 300
# A Python without our packages: that of the system, not that of the environment.
PYTHON = str(pathlib.Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


class SparkCluster:
    """A standalone master and two workers, out of the package pyspark."""

    def __init__(self, home: pathlib.Path) -> None:
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        self.spark = pathlib.Path(spec.origin).parent
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(self.spark),
            "SPARK_LOCAL_IP": apache.HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": PYTHON,
        }
        port = apache.free_port()
        self.master = f"spark://{apache.HOST}:{port}"
        where = ("--host", apache.HOST, "--webui-port", "0")
        self.daemons = [self._daemon("Master", *where, "--port", str(port))]
        for name in ("one", "two"):
            folder = ("--work-dir", str(home / name))
            self.daemons.append(
                self._daemon("Worker", *where, "-c", "1", "-m", "1g", *folder, self.master)
            )

    def _daemon(self, kind: str, *arguments: str) -> apache.Daemon:
        name = f"{kind}-{len(list(self.home.glob('*.log')))}"
        main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        command = ["env", "-i", *(f"{k}={v}" for k, v in self.environment.items())]
        spark_class = str(self.spark / "bin" / "spark-class")
        return apache.Daemon(name, [*command, spark_class, main, *arguments], self.home)

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.stop()


@pytest.fixture
def spark(tmp_path: pathlib.Path) -> Iterator[SparkCluster]:
    home = tmp_path / "spark"
    home.mkdir()
    made = SparkCluster(home)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What docs/spark.md has one ship: the package and what it needs."""
    folder = tmp_path_factory.mktemp("shipped")
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder / "job")]
    subprocess.run([*install, f"{ROOT}[arrow]"], check=True, timeout=600)
    with tarfile.open(folder / "job.tar.gz", "w:gz", compresslevel=1) as packed:
        packed.add(folder / "job", ".")
    return folder


def submit(
    spark: SparkCluster, archive: pathlib.Path, servers: str, out: pathlib.Path, *finish: str
) -> subprocess.Popen[bytes]:
    with (out / "job.log").open("ab") as log:
        return subprocess.Popen(
            [
                *(str(spark.spark / "bin" / "spark-submit"), "--master", spark.master),
                *("--driver-memory", "512m", "--executor-memory", "512m"),
                *("--archives", f"{archive / 'job.tar.gz'}#job"),
                *("--conf", "spark.executorEnv.PYTHONPATH=job"),
                *(str(SCRIPT), servers, str(out), *finish),
            ],
            env={**spark.environment, "PYTHONPATH": str(archive / "job")},
            cwd=out,
            stdout=log,
            stderr=log,
        )


def triggers(out: pathlib.Path) -> int:
    return sum(1 for _ in out.glob("to-*/commits/[0-9]*"))


def wait_for_triggers(out: pathlib.Path, job: subprocess.Popen[bytes], more: int) -> None:
    least, deadline_s = triggers(out) + more, time.monotonic() + DEADLINE_S
    while triggers(out) < least:
        assert job.poll() is None, (out / "job.log").read_text()[-3000:]
        assert time.monotonic() < deadline_s, (out / "job.log").read_text()[-3000:]
        time.sleep(0.05)


def test_a_job_runs_where_nothing_is_installed_and_a_worker_is_killed(
    each_cluster: Cluster, spark: SparkCluster, archive: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    if shutil.which(PYTHON) is None:
        pytest.skip(f"needs {PYTHON}")
    lacks = subprocess.run([PYTHON, "-S", "-c", "import odradek"], capture_output=True, check=False)
    assert lacks.returncode != 0
    out = tmp_path / "out"
    out.mkdir()
    values = [b"%d" % n for n in range(ROWS)]
    rows = pa.table({"key": values, "value": values})
    arrow.write_topic(each_cluster.bootstrap, "chaos", rows)
    job = submit(spark, archive, each_cluster.bootstrap, out)
    try:
        wait_for_triggers(out, job, 2)
        spark.daemons[1].process.kill()
        wait_for_triggers(out, job, 2)
    finally:
        job.kill()
        job.wait()
    finished = submit(spark, archive, each_cluster.bootstrap, out, "finish")
    try:
        assert finished.wait(DEADLINE_S) == 0, (out / "job.log").read_text()[-3000:]
    finally:
        finished.kill()
        finished.wait()

    there = arrow.offsets_of(each_cluster.bootstrap, "copied")
    ends = {number: offsets.end for number, offsets in there.items()}
    copied = arrow.read_topic(
        each_cluster.bootstrap, "copied", columns=["value"], end=ends, committed=True
    )
    assert sorted(map(int, copied.column("value").to_pylist())) == [*range(ROWS)]
    (result,) = (out / "result").glob("*.csv")
    assert sorted(map(int, result.read_text().split())) == [*range(ROWS)]
