"""Simulated connections that violate the protocol: garbage, partial requests, sudden ends.

The broker has to go on serving the other clients; the checks of those clients show it.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.sim.world.cluster import PORT
from odradek.sim.world.process import MortalLoop
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.codec import encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

BYTES_MAX: Final = 4_000


class _Tool(asyncio.Protocol):
    """A connection that drops what it receives."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class Vandal:
    """Connects again and again, each time from another host."""

    def __init__(self, workload: "Workload", name: str) -> None:
        self._workload = workload
        self._name = name
        self._random = workload.cluster.randomness(name)

    async def run(self) -> None:
        """Send invalid bytes until the workload ends."""
        visits = 0
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(1 / 4))
            visits += 1
            cluster = self._workload.cluster
            process = MortalLoop(cluster.loop, f"{self._name}-{visits}")
            cluster.processes.append(process)
            cluster.network.join(process)
            process.create_task(self._visit())
            await asyncio.sleep(self._random.uniform(0.01, 3))
            process.kill()
            cluster.network.host_died(process.name, power=self._random.random() < 0.3)

    async def _visit(self) -> None:
        loop = asyncio.get_running_loop()
        broker = self._random.choice(self._workload.cluster.brokers)
        try:
            _, tool = await loop.create_connection(_Tool, broker.name, PORT)
        except OSError:
            return
        if self._random.random() < 0.3:
            tool.transport.pause_reading()
        for _ in range(self._random.randint(1, 30)):
            tool.transport.write(self._bytes())
            await asyncio.sleep(self._random.uniform(0, 0.1))
        if self._random.random() < 0.3:
            tool.transport.close()

    def _bytes(self) -> bytes:
        random = self._random
        frame = self._frame()
        match random.randrange(6):
            case 0:
                return random.randbytes(random.randint(1, BYTES_MAX))
            case 1:  # half a frame
                return frame[: random.randint(1, len(frame) - 1)]
            case 2:  # a frame with changed bytes
                damaged = bytearray(frame)
                for _ in range(random.randint(1, 5)):
                    damaged[random.randrange(4, len(damaged))] = random.randrange(256)
                return bytes(damaged)
            case 3:  # a size beyond the bytes that follow
                return random.choice((1 << 20, (1 << 31) - 1)).to_bytes(4) + frame[4:]
            case _:
                return frame

    def _frame(self) -> bytes:
        random = self._random
        message = random.choice((self._produce, self._fetch, MetadataRequest))()
        api_key = ApiKey(message.SCHEMA.api_key or 0)
        versions = APIS[api_key].decodable
        version = random.randint(max(versions.first, 3), versions.last)
        header = encode_request_header(api_key, version, random.randrange(1 << 31), self._name)
        body = encoder(type(message), version)(message)
        return (len(header) + len(body)).to_bytes(4) + header + body

    def _topic(self) -> tuple[str, bytes]:
        topics = self._workload.topics
        if not topics:
            return "nowhere", bytes(16)
        topic = self._random.choice(topics)
        return topic.name, topic.id

    def _produce(self) -> Message:
        name, _ = self._topic()
        garbage = self._random.randbytes(self._random.randint(0, 300))
        data = TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=0, records=garbage)]
        )
        return ProduceRequest(
            acks=self._random.choice((0, 1, -1)), timeout_ms=1_000, topic_data=[data]
        )

    def _fetch(self) -> Message:
        name, topic_id = self._topic()
        fetched = FetchPartition(
            partition=self._random.randint(0, 3),
            fetch_offset=self._random.randint(0, 100),
            partition_max_bytes=1 << 20,
        )
        return FetchRequest(
            max_wait_ms=self._random.choice((0, 2_000)),
            min_bytes=self._random.choice((1, 1 << 20)),
            max_bytes=1 << 20,
            session_epoch=self._random.choice((-1, 0, 5)),
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[fetched])],
        )
