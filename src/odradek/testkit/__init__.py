"""Kafka clusters for tests: started in milliseconds, broken on request, removed at their end.

    from odradek.testkit import KafkaCluster

    with KafkaCluster(brokers=3) as cluster:
        cluster.topic("orders")
        ...                                  # a client of yours connects to cluster.bootstrap
        cluster.kill(cluster.leader("orders"))
        cluster.assert_records("orders", ["one", "two"])

pytest finds the fixtures `kafka` and `kafka_cluster` by itself (`odradek.testkit.plugin`);
docs/testing.md is the guide. Importing this package imports nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.testkit.cluster import KafkaCluster as KafkaCluster
    from odradek.testkit.cluster import wait_for as wait_for
    from odradek.testkit.errors import KitError as KitError

_HOMES = {
    "KafkaCluster": "odradek.testkit.cluster",
    "KitError": "odradek.testkit.errors",
    "wait_for": "odradek.testkit.cluster",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is used first."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only with the first use

    return getattr(import_module(_HOMES[name]), name)
