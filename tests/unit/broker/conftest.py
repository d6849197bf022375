"""The controllers and admins of a few brokers on one store in memory, in simulated time."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

import odradek.sim.world.loop as sim
from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.admin.topics import TopicAdmin
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.topic_ids import draw_topic_id
from odradek.broker.controller.channels import ControllerChannels
from odradek.broker.controller.election import ControllerElection
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.dynamic_config import DynamicConfig
from odradek.broker.serving.session import Session
from odradek.broker.serving.tasks import Tasks
from odradek.config.broker import BrokerConfig
from odradek.coord import layout
from odradek.coord.layout_config import encode_config, topic_entity
from odradek.coord.memory import MemoryStore, MemoryTree, RequestFate
from odradek.coord.store import Create
from odradek.model.cluster import Broker, EndPoint
from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, TopicPartition
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class LoopClock:
    def __init__(self) -> None:
        self.wall_offset_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.monotonic_ms() + self.wall_offset_ms

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class NoLogEnds:
    """No broker answers the request for its log end offsets."""

    def find(self, wanted, found):
        asyncio.get_running_loop().call_soon(found, {name: {} for name in wanted.replicas})


class Options:
    isr_min = 1
    deletion_enabled = True
    unclean_allowed = False
    rebalance_enabled = True
    rebalance_interval_seconds = 300
    rebalance_percentage = 10


class Notebook:
    def __init__(self) -> None:
        self.decisions = []
        self.notes = []

    def record(self, decision):
        self.decisions.append(decision)

    def note(self, text):
        self.notes.append(text)

    note_names = note


class Denied:
    """An authorizer that refuses what is listed."""

    def __init__(self, *denied) -> None:
        self.denied = denied

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return (operation, resource_type, name) not in self.denied


class FakeLoggers:
    def __init__(self) -> None:
        self.present = {"root": "INFO", "odradek": "INFO"}

    def levels(self):
        return self.present

    def check(self, levels):
        assert set(levels) <= set(self.present)

    def set(self, logger, level):
        self.present[logger] = level or "INFO"


class FakeBroker:
    """Carries out the controller's requests, unless it is set to fail."""

    def __init__(self) -> None:
        self.received = []
        self.cache: MetadataCache | None = None
        self.deaf = False  # whether it ignores UpdateMetadata
        self.unreachable = 0  # the number of requests that fail
        self.partition_errors: dict[tuple[str, int], ErrorCode] = {}
        self.error = ErrorCode.NONE

    async def send(self, request):
        await asyncio.sleep(0.001)
        if self.unreachable:
            self.unreachable -= 1
            raise ConnectionRefusedError("no broker listens")
        self.received.append(request)
        match request:
            case LeaderAndIsrRequest():
                topics = [
                    LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            LeaderAndIsrPartitionError(
                                partition_index=p.partition_index,
                                error_code=self.partition_errors.get(
                                    (topic.topic_name, p.partition_index), ErrorCode.NONE
                                ),
                            )
                            for p in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ]
                return LeaderAndIsrResponse(error_code=self.error, topics=topics)
            case UpdateMetadataRequest():
                if self.cache is not None and not self.deaf:
                    self.cache.update(request)
                return UpdateMetadataResponse(error_code=self.error)
            case StopReplicaRequest():
                return StopReplicaResponse(error_code=self.error)

    def requests(self, kind):
        return [request for request in self.received if isinstance(request, kind)]

    def leaders(self) -> dict[TopicPartition, int]:
        """The metadata that UpdateMetadata has announced."""
        answer = {}
        for request in self.requests(UpdateMetadataRequest):
            for topic in request.topic_states:
                for state in topic.partition_states:
                    name = TopicPartition(topic.topic_name, state.partition_index)
                    answer[name] = state.leader
        return {name: leader for name, leader in answer.items() if leader != -2}


class Node:
    """One broker's controller shell, and this broker as others reach it."""

    def __init__(self, cluster: "Cluster", id_: int) -> None:
        self.cluster = cluster
        self.id = id_
        self.store = MemoryStore(cluster.tree, fate=cluster.fate)
        self.journal = Notebook()
        self.clock = LoopClock()
        self.tasks = Tasks(asyncio.get_running_loop(), cluster.failed)
        self.channels = ControllerChannels(
            broker_id=id_,
            listener="PLAINTEXT",
            connect=lambda broker: cluster.brokers[broker.id],
            tasks=self.tasks,
        )
        self.shell = ControllerShell(
            store=self.store,
            election=ControllerElection(self.store, broker_id=id_, clock=self.clock),
            channels=self.channels,
            options=cluster.options,
            journal=self.journal,
            draw_id=lambda: draw_topic_id(cluster.random),
            log_ends=NoLogEnds(),
        )
        self.store.on_session_lost = self.shell.session_lost
        cache = MetadataCache(asyncio.get_running_loop(), self.clock.monotonic_ms)
        self.metadata = cluster.brokers[id_].cache = cache
        self.config = BrokerConfig({"broker.id": str(id_), **cluster.properties}, host_name="h")
        self.topic_overrides = {}
        self.client_overrides = {}
        self.dynamic = DynamicConfig(self.store, broker_id=id_, clock=self.clock, listener=self)
        self.admin = TopicAdmin(
            store=self.store,
            metadata=cache,
            controller=self.shell,
            config=lambda: self.config,
            clock=self.clock,
            random=cluster.random,
        )
        self.configs = ConfigAdmin(
            store=self.store,
            metadata=cache,
            config=lambda: self.config,
            loggers=FakeLoggers(),
            clock=self.clock,
            wait_handled=self.dynamic.wait_handled,
        )

    def session(self, *denied) -> Session:
        return Session(authorizer=Denied(*denied), client_host="127.0.0.1", listener="PLAINTEXT")

    def topic_config(self, topic, overrides):
        self.topic_overrides[topic] = dict(overrides)

    def broker_config(self, dynamic, dynamic_default):
        self.config = self.config.with_dynamic(dynamic=dynamic, dynamic_default=dynamic_default)

    def client_configs(self, configs, *, whole):
        if whole:
            self.client_overrides.clear()
        for entity, overrides in configs.items():
            self.client_overrides[entity.entity_path] = overrides

    def note(self, text):
        self.journal.note(text)

    async def start(self) -> None:
        await self.register()
        await self.dynamic.load()
        self.tasks.start(self.dynamic.run(), "dynamic config")
        self.tasks.start(self.shell.run(), "controller")
        self.shell.session_opened()

    async def register(self) -> None:
        await self.store.open()
        end_point = EndPoint(
            listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9000 + self.id
        )
        data = layout.encode_broker(Broker(id=self.id, end_points=(end_point,)), timestamp_ms=1)
        await self.store.create(layout.broker_path(self.id), data, ephemeral=True)

    async def end(self) -> None:
        await self.tasks.cancel_all()
        with contextlib.suppress(Exception):
            await self.store.close()


class Cluster:
    def __init__(self) -> None:
        self.tree = MemoryTree(lambda: 1_000_000)
        self.random = random.Random(7)
        self.brokers: dict[int, FakeBroker] = {id_: FakeBroker() for id_ in (1, 2, 3)}
        self.nodes: dict[int, Node] = {}
        self.failures = []
        self.fates = []
        self.store = MemoryStore(self.tree)
        self.properties: dict[str, str] = {}
        self.options = Options()

    def fate(self, operation: str) -> RequestFate:
        return self.fates.pop(0)(operation) if self.fates else RequestFate()

    def failed(self, name, error) -> None:
        self.failures.append((name, error))

    async def start(self, *ids: int) -> Node:
        await self.store.open()
        for path in layout.TOP_LEVEL:
            await self.store.create(path, make_parents=True)
        for id_ in ids:
            await self.add(id_)
        known = set(ids)
        await self.until(
            lambda: all(set(node.metadata.brokers) == known for node in self.nodes.values())
        )
        return self.nodes[ids[0]]

    async def add(self, id_: int) -> None:
        self.nodes[id_] = Node(self, id_)
        await self.nodes[id_].start()
        await self.until(lambda: self.active() is not None)

    def active(self) -> ControllerShell | None:
        reigning = [n.shell for n in self.nodes.values() if n.shell.term is not None]
        return reigning[0] if reigning else None

    async def until(self, true: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if true():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it never became true")

    async def create_topic(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        node = layout.TopicNode(
            topic_id=draw_topic_id(self.random),
            assignments={n: Assignment(replicas=ids) for n, ids in assignment.items()},
        )
        await self.store.multi(
            [
                Create(topic_entity(name).path, encode_config({})),
                Create(layout.topic_path(name), layout.encode_topic(node)),
            ]
        )

    async def state(self, topic: str, number: int) -> layout.LeaderIsrAndControllerEpoch:
        partition = TopicPartition(topic, number)
        data, stat = await self.store.get(layout.partition_state_path(partition))
        return layout.decode_partition_state(partition, data, partition_epoch=stat.version)

    async def end(self) -> None:
        for node in self.nodes.values():
            await node.end()
        assert not self.failures, self.failures


def play_story(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        try:
            await story(cluster)
        finally:
            await cluster.end()

    sim.run(main())


@pytest.fixture
def play() -> Callable[[Callable[[Cluster], Awaitable[None]]], None]:
    """Play a story: a coroutine that is given a cluster."""
    return play_story
