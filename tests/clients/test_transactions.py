"""Transactions of unmodified clients: atomic, with a group's committed offsets, and fenced."""

import pathlib
import time

import pytest
import transacting
from harness import Cluster, run_program
from programs import CLIENTS, each_client


@pytest.mark.parametrize("client", each_client())
def test_committed_records_are_read_once_and_aborted_ones_are_not(
    cluster: Cluster, client: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(transacting.plan(f"transact-{client}-{time.time_ns():x}"))
    command = [*CLIENTS[client](), cluster.bootstrap, "transact", str(file)]
    report = run_program(command, timeout_s=120)
    assert report.pop("client")
    assert report == transacting.EXPECTED
