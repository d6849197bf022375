"""What the script of a story can do with a simulated cluster, and how it is played.

    async def script(story): ...       waits for conditions, never for a fixed time where one exists
    perform(script, ...)               plays it, and returns the recorded run

Clients are the shipped ones, each in a process of its own. What a client gets is said by the script
with the figures that it got; all other sentences are the recorder's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.scenes.historic_rules import Patches, switched
from odradek.sim.scenes.replicas import TOPIC, TWO_IN_SYNC, NoWitness
from odradek.sim.scenes.scene import LostError, Scene, play, until
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import ProcessState, SimulatedBroker
from odradek.sim.world.disk import Crash
from odradek.web.stories.recorder import ObservedLoop, StoryRecorder
from odradek.web.stories.snapshot import Snapshot, take
from odradek.web.stories.values import StoryRun
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

COORDINATORS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "200",
}
_TIMEOUT_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorySetup:
    """The cluster of a story and what it shows."""

    replicas: tuple[int, ...] = (0, 1, 2)  # of t-0; empty: the script creates the topics
    configs: Mapping[str, str] = field(default_factory=lambda: dict(TWO_IN_SYNC))
    properties: Mapping[str, str] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)
    brokers: int = 4
    rules: tuple[Callable[[Patches], None], ...] = ()  # historic ones


class StoryCluster:
    """A simulated cluster with a recorder, on which the script of a story acts."""

    def __init__(self, scene: Scene, recorder: StoryRecorder) -> None:
        self.scene = scene
        self.recorder = recorder
        self.cluster = scene.cluster
        self.say = scene.note = recorder.say

    @property
    def brokers(self) -> list[SimulatedBroker]:
        return self.cluster.brokers

    def snapshot(self, *partitions: TopicPartition) -> Snapshot:
        """The state of the cluster now; of t-0 if no partition is named."""
        return take(self.cluster, partitions or (TOPIC,))

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        """Wait for a condition, at most a minute of simulated time."""
        await until(true, every_s=0.005, what=what)

    async def rest(self, seconds: float) -> None:
        """Let simulated time pass."""
        await asyncio.sleep(seconds)

    async def isr_is(self, *ids: int) -> None:
        """Wait until the stored ISR of t-0 is exactly these."""
        await self.until(lambda: set(self.scene.state.isr) == set(ids), f"the ISR is not {ids}")

    async def all_equal(self) -> None:
        """Wait until all replicas of t-0 end alike and have the same high watermark."""

        def are() -> bool:
            ((_, replicas),) = self.snapshot().replicas
            ends = {(found.leo, found.leo - found.high_watermark) for found in replicas}
            return len(ends) == 1 and ends.pop()[1] == 0

        await self.until(are, "the replicas differ")

    async def start(self, broker: SimulatedBroker) -> None:
        """Start a broker, and wait until it serves."""
        broker.start()
        await self.until(lambda: broker.state is ProcessState.RUNNING)

    # ------------------------------------------------------------------------ clients

    def client(self, name: str) -> Client:
        """A client process with this name."""
        return Client(self.cluster, name)

    async def admin(self, work: Callable[[Cluster], Awaitable[object]]) -> object:
        """Let an administrator send a request."""

        async def asked() -> object:
            return await work(await self.scene.client.cluster())

        return await self.scene.client.run(asked())

    async def produce(self, *values: bytes, acks: int = -1, index: int = 0) -> ErrorCode | None:
        """Send one batch to the leader of `t`, once. Returns the error; None: no response."""
        client = self.scene.client
        records = [Record(None, value, EPOCH_MS) for value in values]
        data = PartitionProduceData(index=index, records=build_batch(records))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=2_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )

        async def sent() -> ErrorCode | None:
            await self._refreshed(client)
            try:
                leader = await client.leader(TopicPartition("t", index))
                answer = await leader.request(request, ProduceResponse)
            except TROUBLE:
                await client.begin_anew()
                return None
            return ErrorCode(answer.responses[0].partition_responses[0].error_code)

        count = "1 record" if len(values) == 1 else f"{len(values)} records"
        self.say(f"A producer sends {count} with acks={'all' if acks < 0 else acks}.")
        error: ErrorCode | None = await client.run(sent())
        if error is None:
            self.say("The producer gets no response: it does not know whether they are written.")
        elif error:
            self.say(f"The producer gets the error {error.name}.")
        else:
            self.say("The producer gets its acknowledgement.")
        return error

    async def _refreshed(self, client: Client) -> None:
        """Get the metadata from a broker that answers."""
        while True:
            try:
                await client.refresh(["t"])
            except TROUBLE:
                await client.begin_anew()
                continue
            return

    def client_settings(self, client: Client) -> ClientSettings:
        """Short time-outs, so that a story has no long waits."""
        return ClientSettings(
            bootstrap_servers=tuple(client.servers.split(",")),
            client_id=client.process.name,
            request_timeout_ms=_TIMEOUT_MS,
            api_timeout_ms=2 * _TIMEOUT_MS,
            connection_setup_timeout_ms=2_000,
        )

    async def _connected(self, client: Client) -> Cluster:
        return await Cluster.connect(
            self.client_settings(client), wait_ms=_TIMEOUT_MS, draw=client.random.random
        )

    async def consumer(self, client: Client, settings: ConsumerSettings) -> Consumer:
        """The shipped consumer; call it in a task of its client's process."""
        return Consumer(await self._connected(client), settings)

    async def producer(self, client: Client, settings: ProducerSettings) -> Producer:
        """The shipped producer; call it in a task of its client's process."""
        return Producer(
            await self._connected(client),
            settings,
            draw=client.random.random,
            wall_ms=self.brokers[0].clock.wall_ms,
        )

    def kill_client(self, client: Client) -> None:
        """SIGKILL for a client."""
        self.recorder.readers.pop(client.process.name, None)
        self.say(f"The process of {client.process.name} is killed.")
        client.process.kill()
        self.cluster.network.host_died(client.process.name, power=False)


class StoryWitness(NoWitness):
    """Says how processes end, which no later state shows."""

    def __init__(self, recorder: StoryRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def dying(self, broker: SimulatedBroker) -> None:
        """A script may have acted at this very instant: that gets a frame of its own."""
        del broker
        self._recorder.observe()

    def died(self, broker: SimulatedBroker, how: Crash) -> None:
        if how is Crash.POWER:
            self._recorder.say(
                f"Broker {broker.id} loses power: what its disk has not flushed is lost."
            )
            self._recorder.drop_log(broker.id)
        else:
            self._recorder.say(f"The process of broker {broker.id} is killed (SIGKILL).")


class StoryListener:
    """Says which partitions a member of a group is assigned, and which are revoked."""

    def __init__(self, story: StoryCluster, name: str) -> None:
        self._say = story.say
        self._name = name
        self.owned: set[TopicPartition] = set()
        story.recorder.readers[name] = self.owned

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.owned |= {*partitions}
        if partitions:
            self._say(f"{self._name} begins to read {_names(partitions)}.")

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.owned -= {*partitions}
        if partitions:
            self._say(f"{self._name} gives up {_names(partitions)}.")

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.owned -= {*partitions}
        if partitions:
            self._say(f"{self._name} has lost {_names(partitions)}.")


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(sorted(map(str, partitions)))


Script = Callable[[StoryCluster], Awaitable[None]]


def perform(title: str, script: Script, setup: StorySetup) -> StoryRun:
    """Play a script once. No other thread may run brokers meanwhile, if there are historic rules.

    Raises:
        AssertionError: a condition that the script waits for did not become true.
    """
    loop = ObservedLoop()
    recorders: list[StoryRecorder] = []
    lost: list[LostError] = []

    async def recorded(scene: Scene) -> None:
        recorder = StoryRecorder(scene.cluster, [TOPIC] if setup.replicas else [])
        recorders.append(recorder)
        recorder.begin(*_beginning(scene, setup))
        scene.cluster.witness = StoryWitness(recorder)
        loop.observe = recorder.observe
        try:
            await script(StoryCluster(scene, recorder))
        except LostError as error:
            lost.append(error)
            recorder.say(f"Damage: {_plain(error)}.")
        finally:
            recorder.observe()
            loop.observe = _nothing

    with _without_logs(), switched(*setup.rules):
        play(
            recorded,
            replicas=setup.replicas,
            configs=setup.configs,
            properties=setup.properties,
            racks=setup.racks,
            brokers=setup.brokers,
            loop=loop,
        )
    return StoryRun(title=title, frames=tuple(recorders[0].frames), is_damaged=bool(lost))


def _beginning(scene: Scene, setup: StorySetup) -> Sequence[str]:
    controller = take(scene.cluster, ()).controller
    said = [
        f"There are {len(scene.cluster.brokers)} brokers. Broker {controller} is the controller."
    ]
    if setup.replicas:
        state = scene.state
        configs = ", ".join(f"{name}={value}" for name, value in setup.configs.items())
        said.append(
            f"{TOPIC} has replicas on brokers {', '.join(map(str, setup.replicas))}, is led by "
            f"broker {state.leader} and has the ISR {', '.join(map(str, state.isr))}"
            + (f" ({configs})." if configs else ".")
        )
    return said


def _plain(error: LostError) -> str:
    detail = error.args[0] if error.args else ""
    return detail if isinstance(detail, str) else "the logs differ from what was acknowledged"


def _nothing() -> None:
    """Observes nothing before the story begins and after it has ended."""


@contextmanager
def _without_logs() -> Iterator[None]:
    """The simulated brokers log nothing: their log would be that of the page's process."""
    names = ("odradek.broker", "odradek.client", "odradek.log", "odradek.state_change")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
