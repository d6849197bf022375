"""Faults that are injected into brokers that run as processes."""

import asyncio
import time

import pytest
from control import wait_for
from peers import Peer

from odradek.client.admin.topics import NewTopic, create_topics, describe_topics
from odradek.client.cluster import Cluster
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.faults import ClusterFaults, FaultSocket, cuts
from odradek.local.options import UpOptions
from odradek.local.supervisor import Supervisor
from odradek.model.errors import ErrorCode
from odradek.record.records import Record, build_batch
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OPTIONS = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "100",
    "zookeeper.session.timeout.ms": "1500",
    "controller.socket.timeout.ms": "1000",
}
HOUR_MS = 3_600_000


class Three:
    """Three brokers with faults, and requests to them."""

    def __init__(self, path, **options):
        self.directory = ClusterDirectory(path)
        self.supervisor = Supervisor(self.directory, say=print)
        self.faults = ClusterFaults(self.directory)
        self.supervisor.up(UpOptions(brokers=3, faults=True, properties=OPTIONS))

    def peer(self, broker_id):
        listener = self.directory.expect().brokers[broker_id].listeners[0]
        return Peer(int(listener.rpartition(":")[2]))

    def ask(self, work):
        """What a coroutine function returns that is given a client."""

        async def main():
            bootstrap = self.supervisor.status()["bootstrap"]
            async with await Cluster.bootstrap(bootstrap) as cluster:
                return await work(cluster)

        return asyncio.run(main())

    def topic(self, name, **configs):
        wanted = NewTopic(
            name,
            partitions=1,
            replication_factor=3,
            configs={key.replace("_", "."): str(value) for key, value in configs.items()},
        )
        assert self.ask(lambda cluster: create_topics(cluster, [wanted])) == {name: None}
        for broker_id in (0, 1, 2):
            wait_for(lambda at=broker_id: self.metadata(at, name).topics[0].partitions)
        wait_for(lambda: len(self.partition(name).isr_nodes) == 3)

    def partition(self, name="t"):
        (topic,) = self.ask(lambda cluster: describe_topics(cluster, [name]))
        return topic.partitions[0]

    def seen_by(self, broker_id, name="t"):
        """The partition in the metadata of one broker."""
        return self.metadata(broker_id, name).topics[0].partitions[0]

    def metadata(self, broker_id, name="t"):
        with self.peer(broker_id) as peer:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            return peer.request(wanted, MetadataResponse)

    def produce(self, leader=None, name="t", *, acks=1):
        batch = build_batch([Record(None, b"a", int(time.time() * 1000))])
        with self.peer(self.partition(name).leader_id if leader is None else leader) as peer:
            return peer.produce(name, 0, batch, acks=acks).error_code


@pytest.fixture
def three(tmp_path):
    made = Three(tmp_path / "D")
    yield made
    made.supervisor.kill_all()


def test_a_partition_shrinks_the_isr_and_a_healed_one_grows_again(three):
    three.topic("t")
    leader, controller = three.partition().leader_id, three.metadata(0).controller_id
    apart = max({0, 1, 2} - {leader, controller})
    rest = sorted({0, 1, 2} - {apart})
    three.faults.partition([apart], rest)
    assert three.produce(leader) == ErrorCode.NONE  # the follower lacks this record
    wait_for(lambda: sorted(three.seen_by(leader).isr_nodes) == rest)
    assert sorted(three.seen_by(apart).isr_nodes) == [0, 1, 2]  # it is sent no metadata

    three.faults.heal()
    wait_for(lambda: sorted(three.seen_by(apart).isr_nodes) == [0, 1, 2])
    wait_for(lambda: sorted(three.seen_by(leader).isr_nodes) == [0, 1, 2])


def test_a_leader_without_store_and_brokers_is_replaced_and_registers_again(three):
    three.topic("t")
    leader = three.partition().leader_id
    others = sorted({0, 1, 2} - {leader})
    three.faults.partition([leader], [*others, "store"])
    wait_for(lambda: three.seen_by(others[0]).leader_id in others)

    three.faults.heal()
    wait_for(lambda: sorted(three.seen_by(others[0]).isr_nodes) == [0, 1, 2])


def test_a_slow_broker_answers_late(three):
    started_s = time.monotonic()
    three.faults.slow(1, ms=400)
    with three.peer(1) as peer:
        peer.wait_until_led("nothing", partitions=0)
    assert time.monotonic() - started_s >= 0.4
    with pytest.raises(LocalError, match="-1 ms"):
        three.faults.slow(1, ms=-1)


def test_the_next_answer_fails_at_whichever_broker_it_is(three):
    three.topic("t")
    three.faults.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    found = [three.produce() for _ in range(3)]
    assert found == [NOT_LEADER, NOT_LEADER, ErrorCode.NONE]

    three.faults.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    three.faults.heal()
    assert three.produce() == ErrorCode.NONE
    with pytest.raises(LocalError, match="'Prodoce' is no API"):
        three.faults.fail_next("Prodoce", "NOT_LEADER_OR_FOLLOWER")


def test_a_broker_whose_session_expires_registers_with_another_epoch(three):
    three.topic("t")
    leader = three.partition().leader_id
    epoch = three.partition().leader_epoch
    three.faults.expire_session(leader)
    wait_for(lambda: three.partition().leader_epoch > epoch)
    wait_for(lambda: sorted(three.partition().isr_nodes) == [0, 1, 2])


def test_records_expire_when_the_clock_is_advanced(three):
    three.topic("t", retention_ms=24 * HOUR_MS)
    assert three.produce() == ErrorCode.NONE
    for broker_id in (0, 1, 2):
        three.faults.set_clock(25 * HOUR_MS, broker_id)

    def first_offset():
        with three.peer(three.partition().leader_id) as peer:
            return peer.offset("t", 0, timestamp=-2)

    wait_for(lambda: first_offset() == 1)
    with pytest.raises(LocalError, match="does not go back"):
        three.faults.set_clock(0, 0)


def test_a_broker_that_is_attended_ends_with_the_connection(three):
    attends = FaultSocket(three.directory.faults(2))
    attends.ask({"do": "attend"})
    attends.close()
    wait_for(lambda: three.supervisor.status()["brokers"][2]["state"] == "crashed")


def test_faults_are_refused_where_they_were_not_asked_for(tmp_path):
    directory = ClusterDirectory(tmp_path / "D")
    supervisor = Supervisor(directory, say=print)
    supervisor.up(UpOptions(brokers=1))
    try:
        with pytest.raises(LocalError, match="odradek up --faults"):
            ClusterFaults(directory).slow(0, ms=1)
    finally:
        supervisor.kill_all()


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([[0, 1]], "at least two groups"),
        ([[0], [7]], "7 is not a broker"),
        ([[0], ["stores"]], "'stores' is not"),
        ([[0, "clients"], ["clients"]], "'clients' is in two groups"),
        ([[0], [0, 1]], "0 is in two groups"),
    ],
)
def test_partitions_that_are_none_are_explained(groups, why):
    with pytest.raises(LocalError, match=why):
        cuts(groups, [0, 1, 2])


def test_a_client_that_is_named_is_in_its_own_group_only():
    found = cuts([[0, "client:a"], [1, "clients"], [2]], [0, 1, 2])

    reached = {
        client: [broker for broker, cut in found.items() if not cut.cuts_client(client)]
        for client in ("a", "b")
    }
    assert reached == {"a": [0], "b": [1]}
