"""The connections that a Python worker of Spark keeps from task to task."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client.cluster import Cluster
from odradek.spark.connections import Connections

KAFKA = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    async def connect(_: Any) -> object:
        return object()

    monkeypatch.setattr(Cluster, "connect", connect)
    made = Connections()
    yield made
    made.thread.close()
    gc.unfreeze()


def test_a_cluster_is_connected_to_once(connections: Connections) -> None:
    first = connections.cluster(KAFKA, "reading")
    assert connections.cluster(KAFKA, "reading") is first
    assert connections.cluster({**KAFKA, "client.id": "b"}, "reading") is not first


def test_permanent_objects_are_frozen_for_the_collector_when_a_worker_is_reused(
    connections: Connections,
) -> None:
    connections.cluster(KAFKA, "the first task")
    before = gc.get_freeze_count()
    connections.cluster(KAFKA, "the second")
    frozen = gc.get_freeze_count()
    assert frozen > before
    more = [[number] for number in range(1_000)]
    connections.cluster(KAFKA, "the third")
    assert gc.get_freeze_count() <= frozen  # only once: later objects may become garbage
    assert len(more) == 1_000
