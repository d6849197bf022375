"""Clients that want more than their quotas, some that want less, and who sets the quotas.

limited-producer-N   8 requests a second, of more bytes than most quotas allow
limited-consumer-N   reads all partitions again and again, with large answers, as fast as it goes
modest-producer      fewer bytes than any quota: it must never wait
modest-consumer      the same, with answers far below a quota
limited-asker        many requests that are cheap in bytes

Throttled clients do not wait by themselves, so that only the muted connection holds them back; some
give up and connect again. The administrator, who must not be held back, and the reader that checks
every record have limits of their own that are never reached.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.client.connection import Connection
from odradek.model.errors import RETRIABLE, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.quota.precedence import Entity, Part
from odradek.record.batch import Bytes
from odradek.sim.checks.quotas import CONSUMER, OPTIONS, PRODUCER, REQUEST, USER
from odradek.sim.clients.admins import Administrator
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.producers import ALL, SimulatedProducer
from odradek.sim.clients.readers import Reader
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

# In a second: bytes, and percent of the processor.
RATES: Final = {
    PRODUCER: (5_000.0, 15_000.0, 40_000.0),
    CONSUMER: (20_000.0, 60_000.0, 120_000.0),
    REQUEST: (1.0, 2.0, 5.0),
}
SHARED: Final = 5.0  # the limit that all clients share is higher
NEVER_REACHED: Final = 1e12
UNLIMITED: Final = ("admin", "judge", "reader-0", "quota-admin")
TIMEOUTS_MS: Final = (6_000, 30_000)
STEADY_TOPICS: Final = 2
SEGMENT_BYTES: Final = ("1000000",)  # large answers come from large segments
BY_NAME: Final = 12  # the last version of Fetch that names topics

Changes = dict[str, float | None]


class LimitedProducer(SimulatedProducer):
    """A plain producer: what it sends again is written, and counted, again."""

    def __init__(self, workload: "Workload", client: Client, name: str, *, modest: bool) -> None:
        super().__init__(workload, client, name)
        self._is_idempotent, self._acks = False, self._random.choice((1, ALL))
        self._sizes = (1, 2) if modest else (10, 20, 40)
        self._each_second = 2.0 if modest else 8.0


class LimitedConsumer:
    """Reads all partitions from their beginning to their end, again and again."""

    def __init__(self, workload: "Workload", client: Client, *, modest: bool) -> None:
        self._workload = workload
        self._client = client
        self._random = client.random
        self._pause_s, self._bytes_max = (0.5, 2_000) if modest else (0.02, 1 << 20)
        self._offsets: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Fetch until the workload ends."""
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            try:
                await self._fetch_some()
            except TROUBLE:
                await self._client.begin_anew()

    async def _fetch_some(self) -> None:
        """One fetch of what the leader of a random partition leads."""
        partitions = [
            TopicPartition(topic.name, index)
            for topic in self._workload.topics
            for index in range(topic.partitions)
        ]
        if not partitions:
            return
        self._random.shuffle(partitions)
        leader = await self._client.leader(partitions[0])
        metadata = (await self._client.cluster()).metadata
        broker = metadata.leader(partitions[0])
        there = [each for each in partitions if metadata.leader(each) == broker]
        if await self._fetch(leader, there):
            await self._client.refresh(sorted({each.topic for each in there}))
            await self._client.pause()

    async def _fetch(self, leader: Connection, partitions: list[TopicPartition]) -> bool:
        """Whether some of the partitions have moved."""
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=self._bytes_max)
        for each in partitions:
            wanted = FetchPartition(
                partition=each.partition,
                fetch_offset=self._offsets.get(each, 0),
                partition_max_bytes=self._bytes_max,
            )
            request.topics.append(FetchTopic(topic=each.topic, partitions=[wanted]))
        answer = await leader.request(request, FetchResponse, version_max=BY_NAME)
        moved = False
        for topic in answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                error = ErrorCode(data.error_code)
                if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._offsets[partition] = max(0, data.log_start_offset)
                elif error:
                    moved = True
                    if error not in RETRIABLE:
                        self._workload.unexpected(f"Fetch of {partition}: {error.name}")
                else:
                    self._follow(partition, data.records or b"", data.high_watermark)
        return moved

    def _follow(self, partition: TopicPartition, records: Bytes, high_watermark: int) -> None:
        """Go on behind the last complete batch, or again at the beginning."""
        position, offset = 0, self._offsets.get(partition, 0)
        while position + 61 <= len(records):
            base = int.from_bytes(records[position : position + 8], "big")
            end = position + 12 + int.from_bytes(records[position + 8 : position + 12], "big")
            if end > len(records):
                break
            last = int.from_bytes(records[position + 23 : position + 27], "big")
            offset, position = base + last + 1, end
        self._offsets[partition] = 0 if offset >= high_watermark else offset


class Asker:
    """Sends requests that are cheap in bytes."""

    def __init__(self, workload: "Workload", client: Client) -> None:
        self._workload = workload
        self._client = client

    async def run(self) -> None:
        """Ask until the workload ends."""
        while not self._workload.is_over:
            await asyncio.sleep(self._client.random.expovariate(50.0))
            try:
                await self._client.refresh([])
            except TROUBLE:
                await self._client.begin_anew()


class QuotaAdministrator(Administrator):
    """Sets, changes and removes quotas. No other client does, so that it knows what is set."""

    def __init__(self, workload: "Workload", client: Client, limited: list[str]) -> None:
        super().__init__(workload, client)
        self.known: dict[Entity, dict[str, float]] = {}
        self.unsure: set[Entity] = set()  # a request for it had no definite response
        self._limited = limited
        self._pause_s = self._random.choice((2.0, 5.0, 10.0))

    async def run(self, steady: int = 0) -> None:
        """Change quotas until the workload ends."""
        del steady
        for name in UNLIMITED:
            never: Changes = dict.fromkeys(OPTIONS, NEVER_REACHED)
            await self._set(Entity(USER, name), never)
        await self._set(Entity(Part.ABSENT, Part.DEFAULT), self._draw(1.0))
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            name = self._random.choice(self._limited)
            entity = self._random.choice(
                (
                    Entity(Part.ABSENT, name),
                    Entity(Part.ABSENT, name),
                    Entity(USER, name),
                    Entity(Part.DEFAULT, name),
                    Entity(USER, Part.DEFAULT),
                    Entity(Part.ABSENT, Part.DEFAULT),
                    Entity(USER, Part.ABSENT),
                )
            )
            is_shared = entity == Entity(USER, Part.ABSENT)
            await self._set(entity, self._draw(SHARED if is_shared else 1.0))

    def _draw(self, factor: float) -> Changes:
        """Some limits, and others that are removed."""
        return {
            option: self._random.choice(RATES[option]) * factor
            if self._random.random() < 0.6
            else None
            for option in OPTIONS
        }

    async def _set(self, entity: Entity, changes: Changes) -> None:
        names = [("user", entity.user), ("client-id", entity.client)]
        entry = EntryData(
            entity=[
                EntityData(
                    entity_type=kind, entity_name=None if name is Part.DEFAULT else str(name)
                )
                for kind, name in names
                if name is not Part.ABSENT
            ],
            ops=[
                OpData(key=option, value=rate or 0.0, remove=rate is None)
                for option, rate in changes.items()
            ],
        )

        async def attempt() -> tuple[int, str | None]:
            controller = await self._client.controller()
            answer = await controller.request(
                AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse
            )
            return answer.entries[0].error_code, answer.entries[0].error_message

        self.unsure.add(entity)
        error = await self._insist(f"AlterClientQuotas {entity}", attempt)
        if error is ErrorCode.NONE:
            self.unsure.discard(entity)
            known = self.known.setdefault(entity, {})
            for option, rate in changes.items():
                if rate is None:
                    known.pop(option, None)
                else:
                    known[option] = rate
            self._workload.happened["changed quotas"] += 1
        elif error is not None:
            self._workload.unexpected(f"AlterClientQuotas {entity}: {error.name}")


class OneTopicAdministrator(Administrator):
    """Creates topics with large segments, and leaves them alone."""

    def __init__(self, workload: "Workload", client: Client) -> None:
        super().__init__(workload, client)
        self._changes["segment.bytes"] = SEGMENT_BYTES

    async def run(self, steady: int) -> None:
        """Create them, and change nothing afterwards."""
        for number in range(steady):
            await self._create(f"steady-{number}", retention=False)


def start_limited(workload: "Workload") -> QuotaAdministrator:
    """Start all clients of a simulation with quotas. Returns who sets the quotas."""
    draw = workload.cluster.randomness("clients")
    client = workload.client("admin")
    client.run(OneTopicAdministrator(workload, client).run(STEADY_TOPICS))
    limited = []

    def make(name: str) -> Client:
        limited.append(name)
        return workload.client(name, timeout_ms=draw.choice(TIMEOUTS_MS))

    for number in range(draw.randint(1, 2)):
        client = make(f"limited-producer-{number}")
        client.run(LimitedProducer(workload, client, f"p{number}", modest=False).run())
        client = make(f"limited-consumer-{number}")
        client.run(LimitedConsumer(workload, client, modest=False).run())
    client = make("modest-producer")
    client.run(LimitedProducer(workload, client, "modest", modest=True).run())
    client = make("modest-consumer")
    client.run(LimitedConsumer(workload, client, modest=True).run())
    client = make("limited-asker")
    client.run(Asker(workload, client).run())
    client = workload.client("reader-0")
    reader = Reader(workload, client, "reader 0")
    workload.readers.append(reader)
    client.run(reader.run())
    client = workload.client("quota-admin")
    administrator = QuotaAdministrator(workload, client, limited)
    client.run(administrator.run())
    return administrator
