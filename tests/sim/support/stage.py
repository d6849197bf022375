"""A few simulated brokers with one topic on three of them, for scenarios."""

import asyncio

from odradek.record.records import Record, build_batch
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.scenes.replicas import TOPIC, TWO_IN_SYNC, NoWitness, held
from odradek.sim.scenes.scene import make
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import ProcessState, SimulatedCluster
from odradek.sim.world.network import SimulatedLoop
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NO_OTHERS: dict[str, str] = {}


async def until(true, *, within_s=120.0, what=""):
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not true():
        assert loop.time() < deadline_s, what or "it did not come true"
        await asyncio.sleep(0.05)


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
    return frozenset(partition.leader.isr.committed)


def ends(cluster):
    """The log end offsets of all brokers; None for a broker without the replica."""
    partitions = [held(broker) for broker in cluster.brokers]
    return {partition and partition.log.leo for partition in partitions}


async def make_topic(client, configs):
    await make(
        client,
        CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=3,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        ),
        timeout_ms=20_000,
    )


async def is_written(client, record, *, acks=-1):
    """Send a record once. Returns whether it was acknowledged."""
    data = PartitionProduceData(index=0, records=build_batch([record]))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=2_000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    try:
        connection = await client.leader(TOPIC)
        answer = await connection.request(request, ProduceResponse)
    except TROUBLE:
        await client.begin_anew()
        return False
    if answer.responses[0].partition_responses[0].error_code:
        await client.begin_anew()
        return False
    return True


async def produce(client, acked, stop):
    number = 0
    while not stop.is_set():
        value = b"%d" % number
        if not await is_written(client, Record(None, value, timestamp=EPOCH_MS)):
            continue
        acked.append(value)
        number += 1
        await asyncio.sleep(0.02)


def play(seed, story, *, brokers=3, configs=TWO_IN_SYNC, properties=NO_OTHERS):
    """Play a scenario on a cluster whose topic has three replicas in sync."""
    loop = SimulatedLoop()
    witness = NoWitness()
    cluster = SimulatedCluster(
        loop,
        seed=seed,
        brokers=brokers,
        witness=witness,
        trace=lambda _: None,
        properties={"replica.lag.time.max.ms": "5000", **properties},
    )

    async def main():
        for broker in cluster.brokers:
            broker.start()
        await until(
            lambda: all(
                b.state is ProcessState.RUNNING and len(b.broker.metadata.brokers) == brokers
                for b in cluster.brokers
            )
        )
        client = Client(cluster, "client")
        await client.run(make_topic(client, configs))
        await until(lambda: len(in_sync(cluster)) == 3)
        await story(cluster, client)
        assert witness.violations == []

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(main())
        finally:
            cluster.bury()
