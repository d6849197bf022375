"""Every PySpark that the format says it works with, on our brokers and on Apache's, and every
Python that is at hand.

What is tried beside the environment's own is fetched once, into .cache/: some 450 MB for each
PySpark.
"""

import os
import pathlib
import subprocess
import sys
from importlib import metadata

import fetch
import pytest
from harness import Cluster, run_program

pytestmark = pytest.mark.jvm

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "support" / "spark" / "versions.py"
SOURCES = pathlib.Path(__file__).resolve().parents[3] / "src"
ROWS = 500


def play(
    cluster: Cluster, folder: pathlib.Path, prefix: str, python: str, *packages: pathlib.Path
) -> dict[str, object]:
    path = os.pathsep.join(map(str, (*packages, SOURCES)))
    command = [python, str(SCRIPT), cluster.bootstrap, str(folder), prefix]
    return run_program(command, timeout_s=600, PYTHONPATH=path, PYSPARK_PYTHON=python)


@pytest.mark.parametrize("line", ["4.0", "4.1"])
def test_batches_work_with_the_first_lines_and_streams_are_refused(
    each_cluster: Cluster, tmp_path: pathlib.Path, line: str
) -> None:
    packages = fetch.python_packages(sys.executable, f"pyspark=={line}.*")

    reported = play(each_cluster, tmp_path, f"py{line}-", sys.executable, packages)

    assert str(reported["pyspark"]).startswith(line)
    assert (reported["batch"], reported["exactly once"]) == (ROWS, ROWS)
    text = f"spark.readStream.format('odradek') with PySpark {reported['pyspark']}: streams need"
    assert f"{text} PySpark 4.2 or newer" in str(reported["stream"])


@pytest.mark.parametrize("line", ["4.2", "4.3"])
def test_everything_works_with_later_lines(
    each_cluster: Cluster, tmp_path: pathlib.Path, line: str
) -> None:
    packages = []
    if not metadata.version("pyspark").startswith(line):
        packages = [fetch.python_packages(sys.executable, f"pyspark=={line}.*")]

    reported = play(each_cluster, tmp_path, f"py{line}-", sys.executable, *packages)

    assert str(reported["pyspark"]).startswith(line)
    assert (reported["batch"], reported["exactly once"], reported["stream"]) == (ROWS, ROWS, ROWS)


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_everything_works_with_each_python(
    cluster: Cluster, tmp_path: pathlib.Path, minor: int
) -> None:
    python = f"python3.{minor}"
    if minor == sys.version_info.minor:
        python, packages = sys.executable, []
    else:
        # pyenv and its like put names on PATH that only complain: so it is tried.
        tried = subprocess.run(
            ["sh", "-c", f"{python} -m pip -V"], capture_output=True, check=False
        )
        if tried.returncode:
            pytest.skip(f"no {python} with pip")
        packages = [fetch.python_packages(python, *fetch.requirements("arrow", "spark"))]

    reported = play(cluster, tmp_path, f"{python.rpartition('/')[2]}-", python, *packages)

    assert str(reported["python"]).startswith(f"3.{minor}.")
    assert (reported["batch"], reported["exactly once"], reported["stream"]) == (ROWS, ROWS, ROWS)
