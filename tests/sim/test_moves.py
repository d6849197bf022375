"""A partition is reassigned among four simulated brokers that crash: acknowledged records stay.

Reassignments are started, replaced and cancelled, leaders elected, and brokers killed, by seed. In
the end every assigned replica is in sync, and all logs are equal.
"""

import asyncio

import pytest
from tests.sim.support.stage import in_sync, leader_of, play, produce, until

from odradek.coord import layout
from odradek.model.errors import ErrorCode
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.scenes.replicas import contents, held
from odradek.sim.scenes.scene import make
from odradek.sim.world.cluster import ProcessState
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.create_topics import CreatableTopic
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

BROKERS = 4
# The error codes that a mover may get: every other one is a violation.
EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # one of the brokers is not registered at the moment
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # from a new controller that still loads
}


def assignment(cluster):
    node = cluster.tree.find(layout.topic_path("t"))
    return layout.decode_topic("t", node.data).assignments[0]


class Mover:
    """An administrator that sends random reassignments and elections."""

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client
        self.chance = cluster.randomness("mover")
        self.answers: list[ErrorCode] = []

    async def run(self, stop):
        while not stop.is_set():
            await asyncio.sleep(self.chance.uniform(0.2, 2.5))
            what = self.chance.random()
            if what < 0.15:
                await self.elect()
            elif what < 0.3:
                await self.alter(None)
            else:
                ids = [broker.id for broker in self.cluster.brokers]
                await self.alter(self.chance.sample(ids, self.chance.choice((2, 3))))

    async def alter(self, target):
        partition = ReassignablePartition(partition_index=0, replicas=target)
        topic = ReassignableTopic(name="t", partitions=[partition])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        try:
            connection = await self.client.controller()
            answer = await connection.request(request, AlterPartitionReassignmentsResponse)
        except TROUBLE:
            await self.client.begin_anew()
            return
        error = answer.error_code or answer.responses[0].partitions[0].error_code
        self.answered(error)
        if error == ErrorCode.NOT_CONTROLLER:
            await self.client.begin_anew()

    async def elect(self):
        named = TopicPartitions(topic="t", partitions=[0])
        request = ElectLeadersRequest(topic_partitions=[named], timeout_ms=2_000)
        try:
            connection = await self.client.controller()
            answer = await connection.request(request, ElectLeadersResponse)
        except TROUBLE:
            await self.client.begin_anew()
            return
        self.answered(answer.replica_election_results[0].partition_result[0].error_code)

    def answered(self, code):
        assert code in EXPECTED, ErrorCode(code)
        self.answers.append(ErrorCode(code))


async def kill_some(cluster, chance, stop):
    while not stop.is_set():
        await asyncio.sleep(chance.uniform(1, 5))
        victim = leader_of(cluster) if chance.random() < 0.5 else chance.choice(cluster.brokers)
        if victim is None or not victim.is_up:
            continue
        if chance.random() < 0.3 and victim.state is ProcessState.RUNNING:
            await victim.stop()
        else:
            victim.kill()
        await asyncio.sleep(chance.uniform(0.1, 4))
        if not victim.is_up:
            victim.start()


def holders_of(cluster):
    return [broker for broker in cluster.brokers if broker.id in assignment(cluster).replicas]


def is_settled(cluster):
    now = assignment(cluster)
    if now.is_being_reassigned or in_sync(cluster) != frozenset(now.replicas):
        return False
    partitions = [held(broker) for broker in holders_of(cluster)]
    return all(partitions) and len({partition.log.leo for partition in partitions}) == 1


@pytest.mark.parametrize("seed", [*range(1, 9), 41, 48])
def test_no_acknowledged_record_is_lost_by_reassignments_and_crashes(seed):
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        admin = Client(cluster, "mover")
        mover = Mover(cluster, admin)
        moving = admin.run(mover.run(stop))
        deaths = asyncio.ensure_future(kill_some(cluster, cluster.randomness("deaths"), stop))
        await asyncio.sleep(60)
        stop.set()
        await asyncio.gather(producer, moving, deaths)
        for broker in cluster.brokers:
            if not broker.is_up:
                broker.start()
        await until(lambda: is_settled(cluster), what="it does not settle")
        holders = holders_of(cluster)
        logs = [contents(broker) for broker in holders]
        assert all(log == logs[0] for log in logs)
        assert set(acked) <= set(logs[0]), "an acknowledged record is lost"
        assert len(acked) > 50
        assert mover.answers.count(ErrorCode.NONE) > 5

    checked_often = {"leader.imbalance.check.interval.seconds": "7"}
    play(seed, story, brokers=BROKERS, properties=checked_often)


def test_replicas_that_are_added_to_idle_partitions_join_one_after_the_other_at_once():
    """Without new records, no later fetch would make the leader look at them again."""

    def isrs(cluster):
        held = (
            broker.broker.replicas.get("idle", n) for broker in cluster.brokers for n in range(12)
        )
        return [set(p.leader.isr.committed) for p in held if p is not None and p.leader is not None]

    async def story(cluster, client):
        idle = CreatableTopic(name="idle", num_partitions=12, replication_factor=1)
        await client.run(make(client, idle, timeout_ms=20_000))
        target = [broker.id for broker in cluster.brokers]
        partitions = [ReassignablePartition(partition_index=n, replicas=target) for n in range(12)]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="idle", partitions=partitions)]
        )
        connection = await client.run(client.controller())
        answer = await client.run(connection.request(request, AlterPartitionReassignmentsResponse))
        assert answer.error_code == ErrorCode.NONE
        await until(
            lambda: isrs(cluster) == [set(target)] * 12,
            within_s=3,
            what="a follower waits for its leader to look again",
        )

    play(3, story, brokers=BROKERS, properties={"replica.lag.time.max.ms": "30000"})
