"""Transactions with coordinators, leaders and groups on brokers of both kinds, in one ZooKeeper.

Coordinators have markers written by leaders of the other kind, and leaders ask coordinators of the
other kind before they take the first batch of a transaction. Version 2 is not offered here.
"""

import json
import pathlib
from collections.abc import Iterator

import pytest
import transacting
from harness import run_program
from mixed import MixedCluster
from programs import CLIENTS

pytestmark = pytest.mark.jvm

ROUNDS = 6  # each with names of its own, so with other coordinators and leaders
PARTITIONS = 50


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path, {1: "theirs", 2: "ours", 3: "ours"})
    yield made
    made.end()


def test_transactions_go_from_kind_to_kind(cluster: MixedCluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "plan.json"
    for number in range(ROUNDS):
        file.write_text(transacting.plan(f"mixed-{number}"))
        command = [*CLIENTS["librdkafka"](), cluster.bootstrap, "transact", str(file)]
        report = run_program(command, timeout_s=120)
        assert report.pop("client")
        assert report == transacting.EXPECTED, number
    assert set(cluster.leaders("__transaction_state", PARTITIONS)) == {1, 2, 3}
    stored = cluster.node("/odradek/features")
    assert stored is None or stored["features"]["transaction.version"] == 1, json.dumps(stored)
