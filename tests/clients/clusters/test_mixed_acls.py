"""Brokers of both kinds enforce the same ACLs, whichever of them or which tool has changed them."""

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import fetch
import pytest
import raw
from mixed import MixedCluster, until

pytestmark = pytest.mark.jvm

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
# What has no ACL is allowed to everybody: an ACL of another user takes a topic away.
OPTIONS = {
    "authorizer.class.name": AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}
TOPIC_AUTHORIZATION_FAILED = 29
WITHIN_S = 5.0


@pytest.fixture
def clustered(tmp_path: pathlib.Path) -> Iterator[tuple[MixedCluster, str]]:
    """The cluster and the address of its ZooKeeper."""
    zookeeper: list[str] = []
    made = MixedCluster(tmp_path, {1: "theirs", 2: "ours"}, OPTIONS, zookeeper.append)
    try:
        yield made, zookeeper[0]
    finally:
        made.end()


def theirs(*arguments: str) -> None:
    """Kafka's own kafka-acls."""
    run(fetch.java("3.9", "kafka.admin.AclCommand", *arguments))


def ours(*arguments: str) -> None:
    run([sys.executable, "-m", "odradek", "acls", *arguments])


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def until_each_answers(cluster: MixedCluster, topic: str, error_code: int) -> None:
    for broker in cluster.brokers.values():
        until(
            f"broker {broker.broker_id} answers {error_code} for {topic}",
            lambda broker=broker: (
                raw.metadata(broker.address, [topic]).topics[topic].error_code == error_code
            ),
            timeout_s=WITHIN_S,
        )


@pytest.mark.parametrize("pattern", ["literal", "prefixed"])
def test_acls_are_shared_in_both_directions(clustered: tuple[MixedCluster, str], pattern: str):
    cluster, zookeeper = clustered
    by_broker = {
        number: ["--bootstrap-server", broker.address] for number, broker in cluster.brokers.items()
    }
    in_store = ["--authorizer-properties", f"zookeeper.connect={zookeeper}"]
    ways = [
        (theirs, by_broker[1]),
        (theirs, by_broker[2]),
        (ours, by_broker[1]),
        (theirs, ["--authorizer", AUTHORIZER, *in_store]),
        (ours, in_store),
    ]
    for number, (tool, where) in enumerate(ways):
        topic = f"topic-{number}"
        raw.create_topic(cluster.brokers[1].address, topic, 1, replication=2)
        until_each_answers(cluster, topic, 0)
        acl = [
            "--topic", topic, "--resource-pattern-type", pattern, "--operation", "Describe",
            "--allow-principal", "User:another",
        ]  # fmt: skip
        tool(*where, "--add", *acl)
        until_each_answers(cluster, topic, TOPIC_AUTHORIZATION_FAILED)
        tool(*where, "--remove", "--force", *acl)
        until_each_answers(cluster, topic, 0)
