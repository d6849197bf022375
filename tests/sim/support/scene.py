"""Scenarios written by hand: which broker leads, which links work, which broker is killed when.

There are four simulated brokers. The last is the controller and has no replica, so that it can be
cut off from the others alone; the others hold the only partition. Records are appended to the
leader's log directly, and count as acknowledged when a produce request would be answered.
"""

import asyncio
import random
from dataclasses import replace

from tests.sim.support.stage import TOPIC, TWO_IN_SYNC, Witness, held, make

from odradek.coord import layout, layout_odradek
from odradek.coord.store import Create, Delete
from odradek.record.batch import iter_batches
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import ProcessState, SimulatedCluster
from odradek.sim.world.network import SimulatedLoop
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

BROKERS = 4
LAG_S = 5.0
PROPERTIES = {
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "auto.leader.rebalance.enable": "false",
    "controller.socket.timeout.ms": "1000",
}


async def until(true, *, within_s=60.0, every_s=0.02, what="", is_needed=True):
    """Wait for a condition. With `is_needed` false, the wait ends without it, too."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not true():
        if loop.time() > deadline_s:
            break
        await asyncio.sleep(every_s)
    else:
        return
    assert not is_needed, what or "it did not come true"


class Unlucky(random.Random):
    """After a power loss, only the names of files that were not flushed are left."""

    def randrange(self, *_):
        return 0

    def randint(self, _, last):
        return last

    def random(self):
        return 0.99


class LostError(AssertionError):
    """The loss that a scenario is about; no other failed assertion raises it."""


def must(is_so, what):
    """Raise `LostError` unless a scenario ends as it has to."""
    if not is_so:
        raise LostError(what)


class Scene:
    """The cluster and the faults of a scenario."""

    def __init__(self, cluster, client):
        self.cluster = cluster
        self.client = client
        self.controller = cluster.brokers[-1]

    @property
    def brokers(self):
        return self.cluster.brokers[:-1]

    # ------------------------------------------------------------------------ faults

    def cut(self, source, target):
        """Drop what `source` sends to `target`."""
        self.cluster.network.cut(source.name, target.name)

    def part(self, one, other):
        self.cut(one, other)
        self.cut(other, one)

    def heal(self, *pairs):
        """Restore these links, or all."""
        links = [(source.name, target.name) for source, target in pairs]
        self.cluster.network.heal(links or None)

    def join(self, one, other):
        self.heal((one, other), (other, one))

    def lose_power(self, broker):
        """Cut the power; everything that was not flushed is lost."""
        disk = broker.disk
        usual, disk.rng = disk.rng, Unlucky()
        try:
            broker.lose_power()
        finally:
            disk.rng = usual

    def delay_store(self, broker, operation, delay_ms):
        """Delay the store's responses to an operation of a broker, and all later ones."""
        store = broker.store
        usual = store.fate

        def fate(requested):
            drawn = usual(requested)
            return replace(drawn, answer_delay_ms=delay_ms) if requested == operation else drawn

        store.fate = fate

    async def restart(self, broker):
        """Kill and start a broker; another becomes leader, and it rejoins the ISR."""
        broker.kill()
        await until(lambda: broker.id not in self.state.isr)
        broker.start()
        await self.in_sync(*self.brokers_of_topic)

    def write_store(self, *operations):
        """Write to the store directly, as an administrator may."""
        for operation in operations:
            self.cluster.tree.write(
                lambda draft, operation=operation: draft.single(operation, session=0)
            )

    async def prefer(self, leader):
        """Elect the preferred replica, as kafka-preferred-replica-election does by the znode."""
        path = layout.PREFERRED_REPLICA_ELECTION
        self.write_store(Create(path, layout.encode_partitions([TOPIC])))
        await until(lambda: self.state.leader == leader.id)
        await until(lambda: self.cluster.tree.find(path) is None)

    def depose(self):
        """Delete `/controller`, so that another controller is elected."""
        self.write_store(Delete(layout.CONTROLLER))

    async def reduce_isr_to(self, broker):
        """Kill all other replicas, and wait until only this one is in sync."""
        for other in self.brokers_of_topic:
            if other is not broker:
                other.kill()
        await until(lambda: set(self.state.isr) == {broker.id} and self.leads(broker))

    def registration(self, broker):
        """The broker epoch in the store; None if the broker is not registered."""
        node = self.cluster.tree.find(layout.broker_path(broker.id))
        return node and node.created_id

    async def registered_again(self, broker, before):
        await until(lambda: self.registration(broker) not in (None, before))

    # ---------------------------------------------------------------------- state

    @property
    def state(self):
        """The partition's stored leader and ISR."""
        return self.stored.leader_and_isr

    @property
    def stored(self):
        path = layout.partition_state_path(TOPIC)
        node = self.cluster.tree.find(path)
        return layout.decode_partition_state(TOPIC, node.data, partition_epoch=node.version)

    @property
    def history(self):
        """The stored history of its ISRs, if it belongs to the stored state."""
        node = self.cluster.tree.find(layout_odradek.isr_history_path(TOPIC))
        if node is None or not node.data:
            return None
        history = layout_odradek.decode_isr_history(TOPIC, node.data)
        is_valid = history.partition_epoch == self.state.partition_epoch
        return history if is_valid else None

    @property
    def brokers_of_topic(self):
        node = self.cluster.tree.find(layout.topic_path("t"))
        return [
            self.cluster.brokers[id_]
            for id_ in layout.decode_topic("t", node.data).assignments[0].replicas
        ]

    def leads(self, broker):
        """Whether it is the leader, by the stored state and by its own."""
        partition, state = held(broker), self.state
        return (
            state.leader == broker.id
            and partition is not None
            and partition.leader is not None
            and partition.leader_epoch == state.leader_epoch
        )

    async def led_by(self, broker):
        await until(lambda: self.leads(broker), what=f"{broker.name} does not lead")

    async def in_sync(self, *brokers):
        """Wait until the ISR is exactly these, and their logs end alike."""
        ids = {broker.id for broker in brokers}

        def are():
            logs = [held(broker) and held(broker).log for broker in brokers]
            return (
                set(self.state.isr) == ids
                and all(logs)
                and len({log.leo for log in logs}) == 1
                and any(map(self.leads, brokers))
            )

        await until(are, what=f"{sorted(ids)} are not in sync")


def leo(broker):
    return held(broker).log.leo


def high_watermark(broker):
    return held(broker).log.high_watermark


def append(broker, *values, **batch):
    """Append records as a produce request does. Returns the end offset."""
    partition = held(broker)
    for value in values:
        data = memoryview(build_batch([Record(None, value, timestamp=EPOCH_MS)], **batch))
        ((_, header),) = iter_batches(data)
        partition.append(
            data, header, monotonic_ms=broker.clock.monotonic_ms(), wall_ms=broker.clock.wall_ms()
        )
    return partition.log.leo


async def is_committed(broker, *values, within_s=3.0):
    """Produce with acks=all. Returns whether the records are acknowledged."""
    if held(broker).leader.is_under_min_isr:
        return False
    end = append(broker, *values)
    deadline_s = asyncio.get_running_loop().time() + within_s
    while asyncio.get_running_loop().time() < deadline_s:
        partition = held(broker)
        if partition is None or partition.leader is None:
            return False
        if partition.log.high_watermark >= end:
            return not partition.leader.is_under_min_isr
        await asyncio.sleep(0.001)
    return False


async def read_committed(client):
    """The values that a read_committed consumer gets from the leader."""
    fetched = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[FetchTopic(topic="t", partitions=[fetched])],
    )
    while True:
        try:
            leader = await client.leader(TOPIC)
            answer = await leader.request(request, FetchResponse, version_max=12)
        except TROUBLE:
            await client.begin_anew()
            continue
        data = answer.responses[0].partitions[0]
        if data.error_code:
            await client.begin_anew()
            continue
        view = memoryview(data.records or b"")
        return [
            bytes(record.value)
            for at, header in iter_batches(view)
            for record in iter_records(view[at : at + header.size_bytes])
        ]


async def make_topic(client, replicas, configs):
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
    )
    await make(client, topic, timeout_ms=5_000)


def play(story, *, replicas=(0, 1, 2), configs=TWO_IN_SYNC, properties=None, seed=1):
    """Play a scenario. It begins with the first replica as leader, and all in sync."""
    loop = SimulatedLoop()
    cluster = SimulatedCluster(
        loop,
        seed=seed,
        brokers=BROKERS,
        witness=Witness(),
        trace=lambda _: None,
        properties=PROPERTIES | (properties or {}),
    )
    cluster.draw_notice_ms = lambda: (
        50
    )  # sessions of killed brokers end soon, unless the store is cut

    async def main():
        for broker in reversed(cluster.brokers):  # the first is the controller
            broker.start()
            await until(lambda broker=broker: broker.state is ProcessState.RUNNING)
        await until(lambda: all(len(b.broker.metadata.brokers) == BROKERS for b in cluster.brokers))
        client = Client(cluster, "client")
        scene = Scene(cluster, client)
        await client.run(make_topic(client, replicas, configs))
        await scene.in_sync(*(cluster.brokers[id_] for id_ in replicas))
        await story(scene)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(main())
        finally:
            cluster.bury()
