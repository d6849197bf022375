"""Spark's own connector, a jar, and our data source: one cluster, one session, the same rows.

On a broker of ours and on Apache Kafka of each line.
"""

import json
import pathlib
import subprocess
import sys

import fetch
import pytest
from harness import Cluster

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "support" / "spark" / "both.py"


@pytest.mark.jvm
def test_the_connector_and_ours_read_what_the_other_wrote(
    each_cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    jars = ",".join(map(str, fetch.spark_connector()))

    done = subprocess.run(
        [sys.executable, str(SCRIPT), each_cluster.bootstrap, jars, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )

    outcome = json.loads(done.stdout.splitlines()[-1])
    assert {name: found for name, found in outcome.items() if found is not True} == {}
    assert len(outcome) == 68


@pytest.mark.jvm
def test_the_demo_runs_the_main_job_and_leaves_nothing_running(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    done = subprocess.run(
        [sys.executable, "-m", "odradek", "demo", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "checked: all 19,486 rows are those that pandas computes" in done.stderr
    assert "killed broker" in done.stderr
    assert "leader elected" in done.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"flights.png", "flights.html"}
    assert not list(temporary.glob("odradek-demo-*"))
