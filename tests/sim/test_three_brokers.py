"""Three simulated brokers are one cluster: whatever dies, what was acknowledged by all stays.

The first steps of replication under a simulator; faults here are deaths of brokers, by seed.
"""

import asyncio

import pytest

from odradek.broker.partition import Partition
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.client import TROUBLE, Client
from odradek.sim.clock import EPOCH_MS
from odradek.sim.cluster import SimulatedCluster, State
from odradek.sim.network import SimulatedLoop
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = TopicPartition("t", 0)


class Witness:
    def __init__(self):
        self.violations = []

    def loaded(self, broker):
        pass

    def started(self, broker):
        pass

    def dying(self, broker):
        pass

    def died(self, broker, how):
        pass

    def stopped(self, broker):
        pass

    def violated(self, what):
        self.violations.append(what)


async def until(true, *, within_s=120.0, what=""):
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not true():
        assert loop.time() < deadline_s, what or "it did not come true"
        await asyncio.sleep(0.05)


def held(broker) -> Partition | None:
    alive = broker.is_up and broker.broker is not None
    return broker.broker.replicas.get(*TOPIC) if alive else None


def leader_of(cluster):
    for broker in cluster.brokers:
        partition = held(broker)
        if partition is not None and partition.leader is not None:
            return broker
    return None


def in_sync(cluster):
    leader = leader_of(cluster)
    partition = held(leader) if leader is not None else None
    if partition is None or partition.leader is None:
        return frozenset()
    return partition.leader.isr.committed


def ends(cluster):
    """Where the replicas' logs end; None for one that nobody holds just now."""
    partitions = [held(broker) for broker in cluster.brokers]
    return {partition and partition.log.leo for partition in partitions}


def contents(broker):
    log = held(broker).log
    values = []
    for segment in log.segments:
        data = memoryview(segment.file.read_now(0, segment.size))
        for position, header in iter_batches(data):
            batch = data[position : position + header.size_bytes]
            values += [bytes(record.value) for record in iter_records(batch)]
    return values


async def make_topic(client):
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="t",
                num_partitions=1,
                replication_factor=3,
                configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
            )
        ],
        timeout_ms=20_000,
    )
    while True:
        try:
            connection = await client.controller()
            answer = await connection.request(request, CreateTopicsResponse)
        except TROUBLE:
            await client.begin_anew()
            continue
        if answer.topics[0].error_code in (0, 36):
            return
        await client.pause()


async def produce(client, acked, stop):
    number = 0
    while not stop.is_set():
        value = b"%d" % number
        batch = build_batch([Record(None, value, timestamp=EPOCH_MS)])
        request = ProduceRequest(
            acks=-1,
            timeout_ms=2_000,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(index=0, records=batch)]
                )
            ],
        )
        try:
            connection = await client.leader(TOPIC)
            answer = await connection.request(request, ProduceResponse)
        except TROUBLE:
            await client.begin_anew()
            continue
        if answer.responses[0].partition_responses[0].error_code:
            await client.begin_anew()
            continue
        acked.append(value)
        number += 1
        await asyncio.sleep(0.02)


def play(seed, story):
    loop = SimulatedLoop()
    witness = Witness()
    cluster = SimulatedCluster(
        loop,
        seed=seed,
        brokers=3,
        witness=witness,
        trace=lambda _: None,
        properties={"replica.lag.time.max.ms": "5000", "unclean.leader.election.enable": "false"},
    )

    async def main():
        for broker in cluster.brokers:
            broker.start()
        await until(
            lambda: all(
                b.state is State.RUNNING and len(b.broker.metadata.brokers) == 3
                for b in cluster.brokers
            )
        )
        client = Client(cluster, "client")
        await client.run(make_topic(client))
        await until(lambda: len(in_sync(cluster)) == 3)
        await story(cluster, client)
        assert witness.violations == []

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(main())
        finally:
            cluster.bury()


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_all_have_acknowledged_survives_the_deaths_of_leaders(seed):
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        chance = cluster.randomness("deaths")
        epochs = set()
        for _ in range(4):
            await asyncio.sleep(chance.uniform(1, 4))
            victim = leader_of(cluster) if chance.random() < 0.7 else chance.choice(cluster.brokers)
            if victim is None or not victim.is_up:
                continue
            partition = held(victim)
            if partition is not None:
                epochs.add(partition.leader_epoch)
            victim.kill()
            await until(lambda: leader_of(cluster) is not None, what="no new leader")
            await asyncio.sleep(chance.uniform(0, 6))
            victim.start()
            await until(lambda: len(in_sync(cluster)) == 3, what="the ISR did not heal")
        stop.set()
        await producer
        await until(lambda: all(held(broker) for broker in cluster.brokers))
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        logs = [contents(broker) for broker in cluster.brokers]

        assert logs[0] == logs[1] == logs[2]
        assert set(acked) <= set(logs[0]), "an acknowledged record is gone"
        assert len(acked) > 50
        assert len(epochs) > 1

    play(seed, story)


def test_a_broker_that_stops_in_good_order_hands_over_first():
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        await asyncio.sleep(2)
        leader = leader_of(cluster)
        await leader.stop()
        assert leader_of(cluster) is not leader
        assert leader.id not in in_sync(cluster)
        before = len(acked)
        await until(lambda: len(acked) > before + 10)
        stop.set()
        await producer

    play(42, story)


def test_nobody_is_told_that_it_is_stored_while_too_few_have_it():
    async def story(cluster, client):
        leader = leader_of(cluster)
        for broker in cluster.brokers:
            if broker is not leader:
                broker.kill()
        await until(lambda: in_sync(cluster) == {leader.id})
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        await asyncio.sleep(10)
        assert acked == []
        stop.set()
        await producer

    play(7, story)


async def last_replica_loses_its_tail(cluster, client):
    """Everything is acknowledged by two at least; then one is left, and loses what it can."""
    acked, stop = [], asyncio.Event()
    producer = client.run(produce(client, acked, stop))
    await until(lambda: len(acked) > 30)
    stop.set()
    await producer
    leader = leader_of(cluster)
    for broker in cluster.brokers:
        if broker is not leader:
            broker.kill()
    await until(lambda: in_sync(cluster) == {leader.id})
    leader.lose_power()
    return leader, acked


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_last_in_sync_waits_for_others_after_losing_power_and_the_longest_log_leads(seed):
    async def story(cluster, client):
        leader, acked = await last_replica_loses_its_tail(cluster, client)
        leader.start()
        await until(lambda: leader.state is State.RUNNING)
        await asyncio.sleep(10)
        assert leader_of(cluster) is None, "nobody knows what it has lost"
        for broker in cluster.brokers:
            if broker is not leader:
                broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, what="the ISR did not heal")
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        logs = [contents(broker) for broker in cluster.brokers]
        assert logs[0] == logs[1] == logs[2]
        assert acked == logs[0][: len(acked)], "an acknowledged record is gone"

    play(seed, story)


def test_after_a_clean_stop_of_all_whoever_is_in_sync_leads_at_once():
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        await until(lambda: len(acked) > 10)
        stop.set()
        await producer
        for broker in cluster.brokers:
            await broker.stop()
        last = cluster.brokers[-1]
        last.lose_power()
        last.start()
        await until(lambda: leader_of(cluster) is last)
        assert contents(last)[: len(acked)] == acked

    play(11, story)
