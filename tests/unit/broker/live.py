"""One whole broker in simulated time, and clients that talk to it frame by frame.

Clock, disk, store and network are the test's. The network has no delay: what a client sends is
handled before `send` returns, so that a test sees what is answered at once and what waits.
"""

import asyncio
import contextlib
import random

import odradek.sim.world.loop as sim
from odradek.broker.server import Broker
from odradek.broker.serving.session import AllowAll
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.errors import ErrorCode
from odradek.record.batch import iter_batches, read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.disk import SimulatedDisk
from odradek.wire.api_keys import APIS, response_class
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LOG_DIRS = ("/data/a", "/data/b")
STORY_S = 86_400
BEFORE_TOPIC_IDS = 12  # the last version of Fetch in which topics go by name
PROPERTIES = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://b0:9092",
    "log.dirs": ",".join(LOG_DIRS),
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Transport(asyncio.Transport):
    """The broker's end of a connection: what it writes is read by a test's client."""

    def __init__(self, peer: "Peer", host: str, own_socket: object = None) -> None:
        super().__init__({"peername": (host, 4711), "socket": own_socket})
        self.peer = peer
        self.reading = True
        self.connection = None

    def write(self, data):
        if not self.peer.closed:
            self.peer.data_received(bytes(data))

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True
        asyncio.get_running_loop().call_soon(self.peer.pump)

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.peer.closed

    def close(self):
        if not self.peer.closed:
            self.peer.hang_up()

    abort = close


class OwnSocket:
    """What a connection may send files to; nothing arrives there."""

    def setsockopt(self, *_):
        pass

    def fileno(self):
        return 17


class Network:
    """Listeners by port; no delay, no loss."""

    def __init__(self) -> None:
        self.listening = {}

    async def listen(self, make_protocol, host, port):
        return Listening(self, make_protocol, port or 20_000 + len(self.listening))

    def peer(self, port, host, own_socket=None):
        return Peer(self.listening[port].make_protocol(), host, own_socket)

    async def connect(self, make_protocol, host, port):
        """Connections of the broker to other brokers: there are none."""
        raise ConnectionRefusedError(f"{host}:{port}")


class Listening:
    def __init__(self, network, make_protocol, port):
        if port in network.listening:
            raise OSError(98, "Address already in use")
        self.network, self.make_protocol, self.port = network, make_protocol, port
        network.listening[port] = self

    def close(self):
        self.network.listening.pop(self.port, None)


class Peer:
    """A client's connection: requests go out, responses come in, in order."""

    def __init__(self, connection, host, own_socket=None) -> None:
        self.connection = connection
        self.closed = False
        self.awaited = []
        self.client_id = "peer"
        self._correlation_id = 0
        self._received = bytearray()
        self._to_send = bytearray()
        self.transport = Transport(self, host, own_socket)
        connection.connection_made(self.transport)

    # ------------------------------------------------------------------------ requests

    def send(self, request, version=None, *, answered=True):
        """Send a request; a future of its response."""
        key = request.SCHEMA.api_key
        version = APIS[key].last if version is None else version
        self._correlation_id += 1
        future = asyncio.get_running_loop().create_future()
        if answered:
            self.awaited.append((key, version, self._correlation_id, future))
        self.send_frame(
            encode_request_header(key, version, self._correlation_id, self.client_id)
            + encoder(type(request), version)(request)
        )
        return future

    async def ask(self, request, version=None):
        return await self.send(request, version)

    def send_frame(self, *frames):
        """Send a frame, or several that arrive together."""
        for frame in frames:
            self._to_send += len(frame).to_bytes(4, "big") + frame
        self.pump()

    def pump(self):
        """Pass on the bytes that the broker is willing to read."""
        while self._to_send and self.transport.reading and not self.closed:
            room = self.connection.get_buffer(len(self._to_send))
            count = min(len(room), len(self._to_send))
            room[:count] = self._to_send[:count]
            del self._to_send[:count]
            self.connection.buffer_updated(count)
            # No other connection is ready in this turn.
            self.connection.send_ready()

    def expect_frame(self):
        """A future of the next frame, for requests that `send` cannot encode."""
        future = asyncio.get_running_loop().create_future()
        self.awaited.append((None, None, None, future))
        return future

    # ----------------------------------------------------------------------- responses

    def data_received(self, data):
        self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < size + 4:
                return
            frame = bytes(self._received[4 : size + 4])
            del self._received[: size + 4]
            self._frame(frame)

    def _frame(self, frame):
        assert self.awaited, "a response without a request"
        key, version, correlation_id, future = self.awaited.pop(0)
        if key is None:
            future.set_result(frame)
            return
        view = memoryview(frame)
        reported, position = decode_response_header(view, 0, key, version)
        assert reported == correlation_id, "responses keep the order of the requests"
        response, end = decoder(response_class(key), version)(view, position)
        assert end == len(frame)
        future.set_result(response)

    # ------------------------------------------------------------------------ the end

    def hang_up(self):
        """Close the connection from either side; the broker notices it in the next turn."""
        if not self.closed:
            self.closed = True
            for *_, future in self.awaited:
                future.cancel()
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


class ReadClock(SimulatedClock):
    """The broker's clocks. They can advance when they are read, so that work is measured."""

    ms_per_reading = 0
    read_ms = 0

    def monotonic_ms(self):
        self.read_ms += self.ms_per_reading
        return super().monotonic_ms() + int(self.read_ms)


class Chosen:
    """An authorizer, or quotas, that a test replaces while the broker runs."""

    def __init__(self, chosen) -> None:
        self.chosen = chosen

    def __getattr__(self, name):
        return getattr(self.chosen, name)


class WatchedBroker(Broker):
    """A broker whose failed tasks a test gets to see."""

    def __init__(self, *arguments, failures, **more) -> None:
        self._failures = failures
        super().__init__(*arguments, **more)

    def task_failed(self, name, error):
        self._failures.append((name, error))
        super().task_failed(name, error)


class Live:
    """A broker with its world."""

    def __init__(self, properties) -> None:
        loop = self.loop = asyncio.get_running_loop()
        self.properties = {**PROPERTIES, **properties}
        self.clock = ReadClock(loop.time, started_ms=777_000)
        self.authorizer, self.quotas = Chosen(AllowAll()), Chosen(None)
        self.random = random.Random(1)
        self.disk = SimulatedDisk(self.random, loop.call_later, wall_ms=self.clock.wall_ms)
        self.tree = MemoryTree(self.clock.wall_ms)
        self.network = Network()
        self.fatal = []
        self.is_alone = lambda: False  # as `World.is_alone`
        self.failures = []  # of tasks and callbacks
        loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self.broker = self.make()

    def make(self, **properties) -> Broker:
        """The broker after a restart, or another broker."""
        self.store = MemoryStore(self.tree)
        world = World(
            loop=self.loop,
            clock=self.clock,
            random=self.random,
            disk=self.disk,
            store=self.store,
            network=self.network,
            authorizer=self.authorizer,
            quotas=self.quotas,
            is_alone=self._is_alone,
            processor_ns=lambda: self.clock.monotonic_ms() * 1_000_000,
        )
        config = BrokerConfig({**self.properties, **dotted(properties)}, host_name="b0")
        broker = WatchedBroker(config, world, on_fatal=self.fatal.append, failures=self.failures)
        self.quotas.chosen = broker.client_quotas  # what a broker has without others
        return broker

    def _is_alone(self) -> bool:
        return self.is_alone()

    async def start(self) -> None:
        await self.broker.start()
        await self.until(lambda: self.broker.topic_admin.is_controller)

    async def restart(self, **properties) -> None:
        await self.broker.stop()
        self.broker = self.make(**properties)
        await self.start()

    def peer(self, port=9092, host="10.0.0.7", own_socket=None) -> Peer:
        """A client; with a socket, its connection may send parts of files right to that."""
        return self.network.peer(port, host, own_socket)

    async def until(self, true) -> None:
        for _ in range(20_000):
            if true():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it never became true")

    # ------------------------------------------------------------------------ partitions

    async def topic(self, name, partitions=1, **configs):
        """Create a topic as a client does. Returns its first partition."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=10_000,
        )
        response = await self.peer().ask(request)
        assert response.topics[0].error_code == 0, response.topics[0]
        return self.partition(name)

    def partition(self, name="t", index=0):
        return self.broker.replicas.get(name, index)

    def log(self, name="t", index=0):
        return self.partition(name, index).log

    async def order(
        self,
        name="t",
        *,
        leader=0,
        leader_epoch=0,
        replicas=(0, 2, 3),
        isr=None,
        partition_epoch=0,
        partitions=1,
        topic_id=None,
        is_new=True,
        session=None,
        adding=(),
        removing=(),
    ):
        """Send LeaderAndIsr as the controller of a larger cluster. Returns errors by partition."""
        # The controller in this process does not have the topic: UNKNOWN_TOPIC_ID is ignored.
        self.broker.replicas.topic_deleted = lambda _: None
        topic_id = topic_id or name.encode().ljust(16, b".")[:16]
        isr = replicas if isr is None else isr
        orders = self.broker.controller_requests
        response = await orders.leader_and_isr(
            LeaderAndIsrRequest(
                controller_epoch=orders.controller_epoch,
                broker_epoch=orders.broker_epoch,
                topic_states=[
                    LeaderAndIsrTopicState(
                        topic_name=name,
                        topic_id=topic_id,
                        partition_states=[
                            LeaderAndIsrPartitionState(
                                partition_index=index,
                                controller_epoch=orders.controller_epoch,
                                leader=leader,
                                leader_epoch=leader_epoch,
                                isr=list(isr),
                                replicas=list(replicas),
                                partition_epoch=partition_epoch,
                                is_new=is_new,
                                adding_replicas=list(adding),
                                removing_replicas=list(removing),
                            )
                            for index in range(partitions)
                        ],
                    )
                ],
            )
        )
        assert response.error_code == 0
        await orders.update_metadata(
            UpdateMetadataRequest(
                controller_id=0,
                controller_epoch=orders.controller_epoch,
                broker_epoch=orders.broker_epoch,
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name=name,
                        topic_id=topic_id,
                        partition_states=[
                            UpdateMetadataPartitionState(
                                partition_index=index,
                                leader=leader,
                                leader_epoch=leader_epoch,
                                isr=list(isr),
                                replicas=list(replicas),
                            )
                            for index in range(partitions)
                        ],
                    )
                ],
                live_brokers=[
                    UpdateMetadataBroker(
                        id=id_,
                        endpoints=[
                            UpdateMetadataEndpoint(
                                host=f"b{id_}",
                                port=9092,
                                listener="PLAINTEXT",
                                security_protocol=0,
                            )
                        ],
                    )
                    for id_ in (0, 2, 3)
                ],
            )
        )
        return {
            error.partition_index: ErrorCode(error.error_code)
            for topic in response.topics
            for error in topic.partition_errors
        }

    # --------------------------------------------------------------------------- records

    def batch(self, *values, **fields):
        """A batch of one record for each value, with the present time."""
        now_ms = self.clock.wall_ms()
        return build_batch([Record(None, value, now_ms) for value in values or (b"x",)], **fields)

    def append(self, *values, name="t", index=0, **fields):
        """Append directly to the log, for transactional batches and markers."""
        return self.append_batch(self.batch(*values, **fields), name, index)

    def append_batch(self, batch, name="t", index=0):
        return self.partition(name, index).append(
            memoryview(batch),
            read_header(batch),
            monotonic_ms=self.clock.monotonic_ms(),
        )

    def mark(self, how: ControlType, producer_id, *, name="t", index=0):
        """End a transaction with a marker."""
        marker = build_marker(
            Marker(how, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.clock.wall_ms(),
        )
        return self.append_batch(marker, name, index)

    async def end(self) -> None:
        if self.broker.state != "stopped":
            await self.broker.stop()
        assert self.failures == []


async def soon(answer):
    """The result of a woken (not timed out) request, if it comes within a moment."""
    async with asyncio.timeout(0.1):
        return await answer


def produce(batch, name="t", index=0, *, acks=1, timeout_ms=1_000, transactional_id=None):
    """A produce request of one batch, or of several: `{(topic, partition): batch}`."""
    batches = batch if isinstance(batch, dict) else {(name, index): batch}
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, number), data in batches.items():
        topics.setdefault(topic, []).append(PartitionProduceData(index=number, records=data))
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[TopicProduceData(name=t, partition_data=p) for t, p in topics.items()],
    )


def produced(response):
    """The outcome of each partition: the error, or the base offset."""
    return {
        (topic.name, part.index): ErrorCode(part.error_code) or part.base_offset
        for topic in response.responses
        for part in topic.partition_responses
    }


def fetch(offsets, **more):
    """A fetch request: `{(topic, partition): offset or FetchPartition}`; topics by name or id."""
    topics: dict[str | bytes, list[FetchPartition]] = {}
    for (topic, number), asked in offsets.items():
        wanted = asked
        if not isinstance(wanted, FetchPartition):
            wanted = FetchPartition(fetch_offset=wanted, partition_max_bytes=1 << 20)
        wanted.partition = number
        topics.setdefault(topic, []).append(wanted)
    named = [
        FetchTopic(topic_id=topic, partitions=parts)
        if isinstance(topic, bytes)
        else FetchTopic(topic=topic, partitions=parts)
        for topic, parts in topics.items()
    ]
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": named, **more})


def fetched(response):
    """The outcome of each partition: the error, or the values of the records."""
    return {
        (topic.topic or topic.topic_id, part.partition_index): (
            ErrorCode(part.error_code) or values(part.records)
        )
        for topic in response.responses
        for part in topic.partitions
    }


def part_of(response, name="t", index=0):
    """The only partition of a fetch response."""
    (found,) = (
        part
        for topic in response.responses
        for part in topic.partitions
        if (topic.topic or name, part.partition_index) == (name, index)
    )
    return found


def values(records):
    view = memoryview(records or b"")
    return [
        record.value
        for at, header in iter_batches(view)
        if not header.is_control
        for record in iter_records(view[at:])
    ]


def dotted(properties):
    """Options from names in Python's spelling."""
    return {name.replace("_", "."): str(value) for name, value in properties.items()}


def play(story, **properties):
    """Play a story: a coroutine that is given a `Live` whose broker serves.

    Raises:
        TimeoutError: it waits for what never comes.
    """

    async def main():
        live = Live(dotted(properties))
        for path in LOG_DIRS:
            live.disk.mkdir(path)
        try:
            await live.start()
            async with asyncio.timeout(STORY_S):  # in the simulation time passes while one waits
                await story(live)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await live.end()

    sim.run(main())
