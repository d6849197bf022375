"""Moves, elections and deletions with Apache Kafka's own tools, on its brokers and on ours.

The same steps are done on three brokers of each kind, each on a ZooKeeper of its own: the znodes
are compared after every step, byte by byte except for the topics' ids and the order within an ISR,
in which its members happened to join.
"""

import itertools
import json
import pathlib
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pytest
import raw
from mixed import MixedCluster, OurBroker, TheirBroker, until

from odradek.model.errors import ErrorCode
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

pytestmark = pytest.mark.jvm

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
# The controller removes a killed broker from the ISR (a new leader epoch) when its session ends.
# With the default options the leader might remove it first because it lags (the same leader epoch).
PROPERTIES = {"replica.lag.time.max.ms": "60000"}
Snapshot = Mapping[str, str]


def snapshot(cluster: MixedCluster) -> Snapshot:
    """The znodes of topics and requests, by path."""
    found = {}
    paths = ["/brokers/topics", "/admin", "/config/topics"]
    while paths:
        path = paths.pop()
        data, _ = cluster.client.get(path)
        found[path] = _comparable((data or b"").decode())
        paths += [f"{path}/{name}" for name in cluster.client.get_children(path)]
    return found


def _comparable(text: str) -> str:
    text = re.sub(r'"topic_id":"[^"]*"', '"topic_id":"?"', text)
    return re.sub(r'"isr":\[([\d,]*)\]', lambda m: f'"isr":{sorted(m[1].split(","))}', text)


def alter(cluster: MixedCluster, topic: str, target: Sequence[int] | None) -> ErrorCode:
    """Reassign partition 0, or cancel that (None), by a plain request to the controller."""
    partition = ReassignablePartition(
        partition_index=0, replicas=None if target is None else list(target)
    )
    asked = ReassignableTopic(name=topic, partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[asked])
    head = encode_request_header(45, 0, 1, "test")
    body = encoder(AlterPartitionReassignmentsRequest, 0)(request)
    host, _, port = cluster.brokers[cluster.controller].address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), 30)) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (length,) = struct.unpack(">i", raw.receive(connection, 4))
        frame = memoryview(raw.receive(connection, length))
    _, position = decode_response_header(frame, 0, 45, 0)
    answer, _ = decoder(AlterPartitionReassignmentsResponse, 0)(frame, position)
    assert answer.error_code == ErrorCode.NONE, answer
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def isr_is(cluster: MixedCluster, partition: int, *isr: int, topic: str = "z") -> None:
    cluster.wait_for_isr(topic, {partition: set(isr)})


Steps = Iterator[tuple[str, Snapshot]]


def taken_back(cluster: MixedCluster) -> Steps:
    """Reassignments that are cancelled."""
    assert cluster.controller == 1
    cluster.create("z", "2:1,1:2")
    for partition in (0, 1):
        isr_is(cluster, partition, 1, 2)
    yield "created", snapshot(cluster)

    cluster.brokers[3].pause()  # so that nothing is copied for the moment
    try:
        assert alter(cluster, "z", None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert alter(cluster, "z", [3, 3]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert alter(cluster, "z", [7]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert alter(cluster, "none", [1]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(cluster, "z", [3, 1]) is ErrorCode.NONE
        yield "a move was begun", snapshot(cluster)
        assert alter(cluster, "z", [3]) is ErrorCode.NONE
        yield "it was replaced", snapshot(cluster)
        assert alter(cluster, "z", None) is ErrorCode.NONE
        yield "it was taken back", snapshot(cluster)
    finally:
        cluster.brokers[3].resume()
    raw.wait_for_brokers(cluster.brokers[1].address, 3, timeout_s=60)


def moved(cluster: MixedCluster, home: pathlib.Path) -> Steps:
    """Reassignments by Kafka's tool, and the leaders afterwards."""
    for step, partition, replicas in (
        ("its leader moved", 0, [3, 1]),
        ("it grew", 0, [3, 1, 2]),
        ("it shrank", 0, [3, 1]),
        ("it shrank to what follows", 0, [1]),
        ("another order", 1, [2, 1]),
    ):
        cluster.reassign(home, "z", {partition: replicas})
        isr_is(cluster, partition, *replicas)
        yield step, snapshot(cluster)
    cluster.elect_preferred()
    until("2 leads", lambda: cluster.state("z", 1)["leader"] == 2)
    yield "the preferred leader was elected", snapshot(cluster)


def deleted(cluster: MixedCluster) -> Steps:
    """A topic is deleted while a broker is down."""
    cluster.brokers[2].kill()
    until("1 leads", lambda: cluster.state("z", 1)["leader"] == 1)
    yield "the leader was killed", snapshot(cluster)
    cluster.tool(TOPICS, "--delete", "--topic", "z")
    for partition in (0, 1):
        until("it ends", lambda partition=partition: cluster.state("z", partition)["leader"] == -1)
    yield "deletion waits", snapshot(cluster)
    cluster.brokers[2].start()
    until("it is gone", lambda: cluster.node("/brokers/topics/z") is None)
    until("no trace", lambda: cluster.client.exists("/admin/delete_topics/z") is None)
    yield "it is deleted", snapshot(cluster)


def led_again(cluster: MixedCluster) -> Steps:
    """No in-sync replica is left, and one outside the ISR is elected."""
    cluster.create("u", "2:3")
    isr_is(cluster, 0, 2, 3, topic="u")
    cluster.brokers[3].kill()
    isr_is(cluster, 0, 2, topic="u")
    cluster.brokers[2].kill()
    until("no leader", lambda: cluster.state("u", 0)["leader"] == -1)
    cluster.brokers[3].start()
    raw.wait_for_brokers(cluster.brokers[1].address, 2, timeout_s=60)
    yield "no replica may lead", snapshot(cluster)
    cluster.tool(ELECTION, "--election-type", "unclean", "--topic", "u", "--partition", "0")
    yield "an unclean leader was elected", snapshot(cluster)
    cluster.brokers[2].start()
    isr_is(cluster, 0, 2, 3, topic="u")
    yield "it has recovered", snapshot(cluster)


def test_apache_kafkas_tools_find_the_same_znodes_on_ours_and_on_its_own(
    tmp_path: pathlib.Path,
) -> None:
    seen: dict[str, list[tuple[str, Snapshot]]] = {}
    for kind in ("theirs", "ours"):
        cluster = MixedCluster(tmp_path / kind, {1: kind, 2: kind, 3: kind}, PROPERTIES)
        try:
            parts = (taken_back(cluster), moved(cluster, tmp_path), deleted(cluster))
            seen[kind] = [*itertools.chain(*parts, led_again(cluster))]
        finally:
            cluster.end()
        expected = {"ours": OurBroker, "theirs": TheirBroker}[kind]
        assert {type(broker) for broker in cluster.brokers.values()} == {expected}
    for (step, theirs), (same_step, ours) in zip(seen["theirs"], seen["ours"], strict=True):
        assert step == same_step
        assert json.dumps(ours, indent=1) == json.dumps(theirs, indent=1), step
