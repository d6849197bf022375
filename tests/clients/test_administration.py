"""The cluster carries out the admin requests of unmodified clients; see `administration.py`."""

import pathlib
import time

import administration
import pytest
from harness import Cluster, run_program
from programs import CLIENTS, each_client


@pytest.mark.parametrize("client", each_client())
def test_a_topic_is_created_altered_and_deleted(
    cluster: Cluster, client: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(administration.plan(f"administered-{client}-{time.time_ns():x}"))
    command = [*CLIENTS[client](), cluster.bootstrap, "administer", str(file)]
    report = run_program(command, timeout_s=120)
    assert report.pop("client")
    assert len(report.pop("brokers")) == len(cluster.bootstrap.split(","))
    assert report == administration.EXPECTED
