"""Scenarios written by hand: which broker leads, which links work, which broker is killed when.

There are four simulated brokers. The last is the controller and has no replica, so that it can be
cut off from the others alone; the others hold the only partition. Records are appended to the
leader's log directly, and count as acknowledged when a produce request would be answered.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from odradek.controller.isr_history import IsrHistory
from odradek.coord import layout, layout_odradek
from odradek.coord.memory import RequestFate
from odradek.coord.store import Create, Delete, Operation
from odradek.coord.tree import Draft, TreeNode
from odradek.model.partition import LeaderAndIsr
from odradek.record.batch import iter_batches
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.scenes.replicas import (
    TOPIC,
    TWO_IN_SYNC,
    NoWitness,
    held,
    leading,
    log_of,
    replica,
)
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import ProcessState, SimulatedBroker, SimulatedCluster
from odradek.sim.world.network import SimulatedLoop
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

BROKERS: Final = 4
LAG_S: Final = 5.0
PROPERTIES: Final = {
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "auto.leader.rebalance.enable": "false",
    "controller.socket.timeout.ms": "1000",
}
NO_PROPERTIES: Final[Mapping[str, str]] = {}
NO_RACKS: Final[Mapping[int, str]] = {}


async def until(
    true: Callable[[], bool],
    *,
    within_s: float = 60.0,
    every_s: float = 0.02,
    what: str = "",
    is_needed: bool = True,
) -> None:
    """Wait for a condition. With `is_needed` false, the wait ends without it, too.

    Raises:
        AssertionError: the condition did not become true in time.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not true():
        if loop.time() > deadline_s:
            assert not is_needed, what or "it did not come true"
            return
        await asyncio.sleep(every_s)


class Unlucky(random.Random):
    """After a power loss, only the names of files that were not flushed are left."""

    def randrange(self, *_: Any) -> int:
        return 0

    def randint(self, _: int, last: int) -> int:
        return last

    def random(self) -> float:
        return 0.99


def _write(operation: Operation, draft: Draft) -> Any:
    return draft.single(operation, session=0)


def _is_running(broker: SimulatedBroker) -> bool:
    return broker.state is ProcessState.RUNNING


def _not_recorded(sentence: str) -> None:
    del sentence


class LostError(AssertionError):
    """The loss that a scenario is about; no other failed assertion raises it."""


def must(is_so: bool, what: object) -> None:
    """Check how a scenario ends.

    Raises:
        LostError: it does not end as it has to.
    """
    if not is_so:
        raise LostError(what)


class Scene:
    """The cluster and the faults of a scenario."""

    def __init__(self, cluster: SimulatedCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.controller = cluster.brokers[-1]
        # What clients got, for the recorder of a story.
        self.note: Callable[[str], None] = _not_recorded

    @property
    def brokers(self) -> list[SimulatedBroker]:
        return self.cluster.brokers[:-1]

    # ------------------------------------------------------------------------ faults

    def cut(self, source: SimulatedBroker, target: SimulatedBroker) -> None:
        """Drop what `source` sends to `target`."""
        self.cluster.network.cut(source.name, target.name)

    def part(self, one: SimulatedBroker, other: SimulatedBroker) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def heal(self, *pairs: tuple[SimulatedBroker, SimulatedBroker]) -> None:
        """Restore these links, or all."""
        links = [(source.name, target.name) for source, target in pairs]
        self.cluster.network.heal(links or None)

    def join(self, one: SimulatedBroker, other: SimulatedBroker) -> None:
        self.heal((one, other), (other, one))

    def lose_power(self, broker: SimulatedBroker) -> None:
        """Cut the power; everything that was not flushed is lost."""
        disk = broker.disk
        usual, disk.rng = disk.rng, Unlucky()
        try:
            broker.lose_power()
        finally:
            disk.rng = usual

    def delay_store(self, broker: SimulatedBroker, operation: str, delay_ms: int) -> None:
        """Delay the store's responses to an operation of a broker, and all later ones.

        Raises:
            LookupError: the broker does not run.
        """
        store = broker.store
        if store is None:
            raise LookupError(f"{broker.name} does not run")
        usual = store.fate

        def fate(requested: str) -> RequestFate:
            drawn = usual(requested)
            return replace(drawn, answer_delay_ms=delay_ms) if requested == operation else drawn

        store.fate = fate

    def cut_from_the_store(self, broker: SimulatedBroker) -> None:
        """Lose what the broker sends to the store, until its session there has expired.

        Raises:
            LookupError: the broker does not run.
        """
        if broker.store is None:
            raise LookupError(f"{broker.name} does not run")
        broker.store.cut()

    async def restart(self, broker: SimulatedBroker) -> None:
        """Kill and start a broker; another becomes leader, and it rejoins the ISR."""
        broker.kill()
        await until(lambda: broker.id not in self.state.isr)
        broker.start()
        await self.in_sync(*self.brokers_of_topic)

    def write_store(self, *operations: Operation) -> None:
        """Write to the store directly, as an administrator may."""
        for operation in operations:
            self.cluster.tree.write(partial(_write, operation))

    async def prefer(self, leader: SimulatedBroker) -> None:
        """Elect the preferred replica, as kafka-preferred-replica-election does by the znode."""
        path = layout.PREFERRED_REPLICA_ELECTION
        self.write_store(Create(path, layout.encode_partitions([TOPIC])))
        await until(lambda: self.state.leader == leader.id)
        await until(lambda: self.cluster.tree.find(path) is None)

    def depose(self) -> None:
        """Delete `/controller`, so that another controller is elected."""
        self.write_store(Delete(layout.CONTROLLER))

    async def reduce_isr_to(self, broker: SimulatedBroker) -> None:
        """Kill all other replicas, and wait until only this one is in sync."""
        for other in self.brokers_of_topic:
            if other is not broker:
                other.kill()
        await until(lambda: set(self.state.isr) == {broker.id} and self.leads(broker))

    def registration(self, broker: SimulatedBroker) -> int | None:
        """The broker epoch in the store; None if the broker is not registered."""
        node = self.cluster.tree.find(layout.broker_path(broker.id))
        return None if node is None else node.created_id

    async def registered_again(self, broker: SimulatedBroker, before: int | None) -> None:
        await until(lambda: self.registration(broker) not in (None, before))

    # ---------------------------------------------------------------------- state

    @property
    def state(self) -> LeaderAndIsr:
        """The partition's stored leader and ISR."""
        return self.stored.leader_and_isr

    @property
    def stored(self) -> layout.LeaderIsrAndControllerEpoch:
        node = self._node(layout.partition_state_path(TOPIC))
        return layout.decode_partition_state(TOPIC, node.data, partition_epoch=node.version)

    @property
    def history(self) -> IsrHistory | None:
        """The stored history of its ISRs, if it belongs to the stored state."""
        node = self.cluster.tree.find(layout_odradek.isr_history_path(TOPIC))
        if node is None or not node.data:
            return None
        history = layout_odradek.decode_isr_history(TOPIC, node.data)
        is_valid = history.partition_epoch == self.state.partition_epoch
        return history if is_valid else None

    @property
    def brokers_of_topic(self) -> list[SimulatedBroker]:
        node = self._node(layout.topic_path("t"))
        return [
            self.cluster.brokers[id_]
            for id_ in layout.decode_topic("t", node.data).assignments[0].replicas
        ]

    def _node(self, path: str) -> TreeNode:
        node = self.cluster.tree.find(path)
        if node is None:
            raise LookupError(path)
        return node

    def leads(self, broker: SimulatedBroker) -> bool:
        """Whether it is the leader, by the stored state and by its own."""
        partition, state = held(broker), self.state
        return (
            state.leader == broker.id
            and partition is not None
            and partition.leader is not None
            and partition.leader_epoch == state.leader_epoch
        )

    async def led_by(self, broker: SimulatedBroker) -> None:
        await until(lambda: self.leads(broker), what=f"{broker.name} does not lead")

    async def in_sync(self, *brokers: SimulatedBroker) -> None:
        """Wait until the ISR is exactly these, and their logs end alike."""
        ids = {broker.id for broker in brokers}

        def are() -> bool:
            found = [held(broker) for broker in brokers]
            ends = {partition.log.leo for partition in found if partition and partition.log}
            return (
                set(self.state.isr) == ids
                and all(partition is not None and partition.log for partition in found)
                and len(ends) == 1
                and any(map(self.leads, brokers))
            )

        await until(are, what=f"{sorted(ids)} are not in sync")


def append(broker: SimulatedBroker, *values: bytes, **batch: Any) -> int:
    """Append records as a produce request does. Returns the end offset."""
    partition = replica(broker)
    for value in values:
        data = memoryview(build_batch([Record(None, value, timestamp=EPOCH_MS)], **batch))
        ((_, header),) = iter_batches(data)
        partition.append(
            data,
            header,
            monotonic_ms=broker.clock.monotonic_ms(),
        )
    return log_of(broker).leo


async def is_committed(broker: SimulatedBroker, *values: bytes, within_s: float = 3.0) -> bool:
    """Produce with acks=all. Returns whether the records are acknowledged."""
    if leading(broker).is_under_min_isr:
        return False
    end = append(broker, *values)
    deadline_s = asyncio.get_running_loop().time() + within_s
    while asyncio.get_running_loop().time() < deadline_s:
        partition = held(broker)
        if partition is None or partition.leader is None:
            return False
        if log_of(broker).high_watermark >= end:
            return not partition.leader.is_under_min_isr
        await asyncio.sleep(0.001)
    return False


async def read_committed(client: Client) -> list[bytes]:
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
            bytes(record.value or b"")
            for at, header in iter_batches(view)
            for record in iter_records(view[at : at + header.size_bytes])
        ]


async def make(client: Client, topic: CreatableTopic, *, timeout_ms: int) -> None:
    """Send CreateTopics until the topic exists."""
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
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


async def make_topic(
    client: Client, replicas: Sequence[int], configs: Mapping[str, str], *, name: str = "t"
) -> None:
    """Create a topic of one partition with these replicas."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
    )
    await make(client, topic, timeout_ms=5_000)


def play(  # noqa: PLR0913 - the cluster of a scenario
    story: Callable[[Scene], Awaitable[None]],
    *,
    replicas: Sequence[int] = (0, 1, 2),
    configs: Mapping[str, str] = TWO_IN_SYNC,
    properties: Mapping[str, str] = NO_PROPERTIES,
    racks: Mapping[int, str] = NO_RACKS,
    brokers: int = BROKERS,
    seed: int = 1,
    loop: SimulatedLoop | None = None,
) -> None:
    """Play a scenario. It begins with the first replica as leader, and all in sync.

    Without replicas there is no topic.
    """
    loop = loop or SimulatedLoop()
    cluster = SimulatedCluster(
        loop,
        seed=seed,
        brokers=brokers,
        witness=NoWitness(),
        trace=lambda _: None,
        properties=PROPERTIES | dict(properties or {}),
    )
    cluster.racks = dict(racks)
    # Sessions of killed brokers end soon, unless the store is cut.
    cluster.draw_notice_ms = lambda: 50  # type: ignore[method-assign]

    async def main() -> None:
        for broker in reversed(cluster.brokers):  # the first is the controller
            broker.start()
            await until(partial(_is_running, broker))
        await until(
            lambda: all(len(b.running.metadata.brokers) == brokers for b in cluster.brokers)
        )
        client = Client(cluster, "client")
        scene = Scene(cluster, client)
        if replicas:
            await client.run(make_topic(client, replicas, configs))
            await scene.in_sync(*(cluster.brokers[id_] for id_ in replicas))
        await story(scene)

    def same_loop() -> asyncio.AbstractEventLoop:
        return loop

    with asyncio.Runner(loop_factory=same_loop) as runner:
        try:
            runner.run(main())
        finally:
            cluster.bury()
