"""Unmodified clients share a topic's partitions in a group, and fetch their committed offsets."""

import pathlib

import membership
import pytest
from harness import Cluster, run_program
from programs import CLIENTS, each_client

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


@pytest.mark.parametrize("client", each_client())
def test_two_consumers_share_a_topic_and_a_third_continues_at_their_committed_offsets(
    cluster: Cluster, client: str, tmp_path: pathlib.Path
) -> None:
    assert report(cluster, client, "", tmp_path) == membership.EXPECTED


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "client",
    [
        pytest.param("librdkafka"),
        pytest.param("java_3.9", marks=pytest.mark.jvm),
        pytest.param("java_4", marks=pytest.mark.jvm),
    ],
)
def test_partitions_are_assigned_by_every_strategy(
    cluster: Cluster, client: str, strategy: str, tmp_path: pathlib.Path
) -> None:
    if client == "librdkafka" and strategy == "sticky":
        pytest.skip("librdkafka has no sticky assignor that is not cooperative")
    assert report(cluster, client, strategy, tmp_path) == membership.EXPECTED


def report(cluster: Cluster, client: str, strategy: str, tmp_path: pathlib.Path) -> object:
    file = tmp_path / "plan.json"
    file.write_text(membership.plan(cluster.bootstrap, strategy))
    command = [*CLIENTS[client](), cluster.bootstrap, "group", str(file)]
    reported = run_program(command, timeout_s=150)
    assert reported.pop("client")
    return reported
