"""The shipped clients (`odradek.client`) in the simulator, with its faults and checks.

    ShippedProducer    idempotent; each record that it reports as delivered has to be read
    ShippedConsumer    a member of a group with one of the four assignors, or two of them
    ShippedMover       consumes, produces and commits its offsets in one transaction

Their code is unchanged: they take the event loop, and with it the network, from their process, and
random numbers and time as arguments. Each runs in a process of its own, which is killed at times;
another process continues with the same transactional id or instance id.

    a consumer misses nothing    it gets each record from its first offset on, in order
    committed offsets            see `sim/clients/groups.py` (GroupBook); in the end the group has
                                 read every acknowledged record
    exactly once                 see `odradek.sim.clients.movers.Moves`
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.client.cluster import Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.errors import ClientTimeoutError
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.sim.checks.history import Facts, Topic, value_of
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.groups import GROUP_OVER_S, GroupBook, Place
from odradek.sim.clients.movers import Moves
from odradek.sim.clients.transactions import (
    TIMEOUT_MS,
    TOPIC,
    Fate,
    Ledger,
    Transaction,
    make_topic,
)

if TYPE_CHECKING:
    from odradek.client.producer.batches import Delivery
    from odradek.sim.clients.workload import Workload

GROUP: Final = "shipped"
MOVERS: Final = "shipped-movers"  # a group
COPIED: Final = "copied"  # the topic that they write to
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_RANGE: Final = f"{_PACKAGE}RangeAssignor"
_COOPERATIVE: Final = f"{_PACKAGE}CooperativeStickyAssignor"
# All members of a group use the same choice.
ASSIGNORS: Final = (
    (_RANGE,),
    (f"{_PACKAGE}RoundRobinAssignor",),
    (f"{_PACKAGE}StickyAssignor",),
    (_COOPERATIVE,),
    (_RANGE, _COOPERATIVE),
)
_SESSION_MS: Final = 3_000
_HEARTBEAT_MS: Final = 500
_POLL_INTERVAL_MS: Final = 4_000
_DELIVERY_MS: Final = 10_000
_BLOCK_MS: Final = 6_000
_API_MS: Final = 5_000
_COMMITS_MAX: Final = 3
_RUN_S: Final = 25.0  # the mean time until a process is killed
_RECORDS_MAX: Final = 8


def client_settings(client: Client) -> ClientSettings:
    """The common settings; timeouts and the metadata's age are drawn."""
    return ClientSettings(
        bootstrap_servers=tuple(client.servers.split(",")),
        client_id=client.process.name,
        request_timeout_ms=client.random.choice((1_500, 3_000)),
        api_timeout_ms=_API_MS,
        connection_setup_timeout_ms=2_000,
        metadata_age_ms_max=client.random.choice((2_000, 300_000)),
    )


def member_settings(client: Client, group_id: str, assignors: tuple[str, ...]) -> ConsumerSettings:
    """The settings of a member, with commits by the application or in a transaction."""
    return ConsumerSettings(
        client=client_settings(client),
        group_id=group_id,
        offset_reset="earliest",
        commits_by_itself=False,
        session_timeout_ms=_SESSION_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        poll_interval_ms_max=_POLL_INTERVAL_MS,
        assignors=assignors,
    )


async def _connected(client: Client) -> Cluster:
    return await Cluster.connect(
        client_settings(client), wait_ms=_API_MS, draw=client.random.random
    )


class GivenUpError(OdradekError):
    """The outcome of a transaction is not known: only another producer can continue."""


class Restarted:
    """A client that is killed at times, and started again in another process."""

    def __init__(
        self, workload: "Workload", name: str, live: Callable[[Client], Awaitable[None]]
    ) -> None:
        self._workload = workload
        self._name = name
        self._live = live
        self._random = workload.cluster.randomness(name)

    async def run(self) -> None:
        """Start one process after the other, until the workload ends."""
        starts = 0
        while not self._workload.is_over:
            starts += 1
            client = self._workload.client(f"{self._name}.{starts}")
            task = client.run(self._once(client))
            await asyncio.wait({task}, timeout=self._random.expovariate(1 / _RUN_S) + 2.0)
            if task.done() or not self._workload.is_over:
                self._workload.happened["shipped clients killed"] += not task.done()
                client.process.kill()
                self._workload.cluster.network.host_died(client.process.name, power=False)
            await asyncio.sleep(self._random.uniform(0.05, 1.0))

    async def _once(self, client: Client) -> None:
        # Like an application, the caller starts the client again after any error it documents.
        with suppress(*TROUBLE):
            await self._live(client)


def _start(workload: "Workload", name: str, live: Callable[[Client], Awaitable[None]]) -> None:
    workload.client(name).run(Restarted(workload, name, live).run())


# ----------------------------------------------------------------------------------- producing


class ShippedProducer:
    """An idempotent producer that writes to all existing topics."""

    def __init__(self, workload: "Workload", name: str, each_second: float) -> None:
        self._workload = workload
        self._name = name
        self._each_second = each_second
        self._sent = 0

    async def live(self, client: Client) -> None:
        """Send records until the workload ends."""
        settings = ProducerSettings(
            client=client_settings(client),
            linger_ms=client.random.choice((0, 0, 20)),
            batch_bytes=client.random.choice((600, 16_384)),
            block_ms_max=_BLOCK_MS,
            delivery_timeout_ms=_DELIVERY_MS,
            in_flight_max=client.random.choice((1, 5)),
        )
        producer = Producer(
            await _connected(client),
            settings,
            draw=client.random.random,
            wall_ms=self._workload.wall_ms,
        )
        while not self._workload.is_over:
            await asyncio.sleep(client.random.expovariate(self._each_second))
            if self._workload.topics:
                await self._send(client, producer, client.random.choice(self._workload.topics))
        await producer.close(_DELIVERY_MS)

    async def _send(self, client: Client, producer: Producer, topic: Topic) -> None:
        facts = self._workload.history.of(topic, client.random.randrange(topic.partitions))
        for _ in range(client.random.choice((1, 2, 5, 12))):
            key = f"{self._name}/{self._sent}".encode()
            self._sent += 1
            self._workload.history.sending(key, topic, facts.index, idempotent=True)
            # `send` raises before the record is in a batch: no buffer memory, or no metadata.
            with suppress(*TROUBLE):
                delivery = await producer.send(
                    topic.name, value_of(key), key=key, partition=facts.index
                )
                delivery.when_done(partial(self._delivered, facts, key))

    def _delivered(self, facts: Facts, key: bytes, delivery: "Delivery") -> None:
        happened = self._workload.happened
        if delivery.error is not None:
            happened["shipped records given up"] += 1
            return
        offset = delivery.result().offset
        happened["shipped records delivered"] += 1
        if facts.topic.is_doomed:
            return
        if offset >= 0:  # a leader may not have the offset of a duplicate batch
            self._workload.history.acked(facts, offset, [key])
        self._workload.succeeded()


# ----------------------------------------------------------------------------------- consuming


@dataclass(slots=True)
class GroupReads:
    """The offsets that the members of a group have read."""

    workload: "Workload"
    book: GroupBook
    read: dict[int, set[int]] = field(default_factory=dict)  # offsets by partition

    def missing(self, topic: Topic) -> list[str]:
        """The acknowledged records that no member has read."""
        return [
            f"{topic.name}-{index}@{offset}"
            for index in range(topic.partitions)
            for offset in sorted(
                self.workload.history.of(topic, index).acked - self.read.get(index, set())
            )
        ]


class ShippedConsumer:
    """A member of the group, and its rebalance listener."""

    def __init__(self, reads: GroupReads, name: str, assignors: tuple[str, ...]) -> None:
        self._reads = reads
        self._workload = reads.workload
        self._name = name
        self._assignors = assignors
        self._places: dict[TopicPartition, Place] = {}
        self._consumer: Consumer | None = None
        # Whether the group could be deleted when the next assignment was requested, or before: the
        # consumer requests it in the background, at a time that the application does not see.
        self._may_be_former = False

    async def live(self, client: Client) -> None:
        """Read and commit until the workload ends."""
        consumer = await self.opened(client)
        while not self._workload.is_over:
            await self.once(client, consumer)
        await consumer.close(_API_MS)

    async def opened(self, client: Client) -> Consumer:
        """A new consumer that has subscribed to the topic."""
        self._places.clear()
        self._may_be_former = self._reads.book.may_be_deleted
        cluster = await _connected(client)
        settings = replace(
            member_settings(client, GROUP, self._assignors),
            poll_records_max=client.random.choice((5, 500)),
        )
        consumer = self._consumer = Consumer(cluster, settings)
        consumer.subscribe([TOPIC], self)
        return consumer

    async def once(self, client: Client, consumer: Consumer) -> None:
        """Poll, check the records, and commit at times."""
        records = await consumer.poll(client.random.choice((0, 100, 500)))
        for record in records:
            self._take(record)
        chance = client.random.random()
        if chance < 0.3 and self._places:
            await self._commit(consumer)
        elif chance < 0.31:
            self._workload.happened["shipped consumers paused"] += 1
            await asyncio.sleep(_POLL_INTERVAL_MS / 1000 * client.random.uniform(0.8, 1.5))
        elif chance < 0.4:
            await asyncio.sleep(client.random.uniform(0.0, 0.3))

    def _take(self, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        place = self._places.get(partition)
        if place is None:
            self._workload.violated(f"{self._name} reads {partition}, which it was not assigned")
            return
        if place.fetched < 0:
            place.fetched = place.offset = record.offset
        if record.offset != place.offset:
            self._workload.violated(
                f"{self._name} reads {partition} at {record.offset}; {place.offset} is next"
            )
        place.offset = record.offset + 1
        self._reads.read.setdefault(record.partition, set()).add(record.offset)
        topic = self._workload.history.topics.get(record.topic)
        if topic is not None:
            facts = self._workload.history.of(topic, record.partition)
            whole = record.key is not None and record.value == value_of(record.key)
            key = record.key if whole else None
            self._workload.history.seen(facts, record.offset, key, self._name)

    async def _commit(self, consumer: Consumer) -> None:
        book = self._reads.book
        places = {p: place for p, place in self._places.items() if place.fetched >= 0}
        offsets = {p: OffsetAndMetadata(place.offset) for p, place in places.items()}
        before, newest_given = consumer.group_metadata(), book.newest_given
        try:
            await consumer.commit(offsets)
        except TROUBLE as error:
            self._workload.happened[f"shipped commits failed: {type(error).__name__}"] += 1
            return
        if consumer.group_metadata() != before:
            return  # a rebalance came between: the commit's generation is not known
        self._workload.happened["shipped commits"] += bool(offsets)
        for partition, committed in offsets.items():
            place = Place(
                partition.partition,
                places[partition].fetched,
                places[partition].floor,
                committed.offset,
            )
            book.committed(self._name, place, newest_given, before.generation)
        if offsets:
            self._may_be_former = False  # a member of a group that has offsets

    # ------------------------------------------------------------- as the group's listener

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self.lost(partitions)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if self._places.pop(partition, None) is None:
                self._workload.violated(f"{self._name} loses {partition}, which it did not have")

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        assert self._consumer is not None
        metadata, book = self._consumer.group_metadata(), self._reads.book
        for partition in partitions:
            floor = book.confirmed.get(partition.partition, -1)
            self._places[partition] = Place(partition.partition, -1, floor, -1)
        owned = [partition.partition for partition in self._places]
        self._workload.happened["shipped rebalances"] += 1
        book.given(
            metadata.instance_id or metadata.member_id,
            metadata.generation,
            owned,
            may_be_former=self._may_be_former,
        )
        self._may_be_former = book.may_be_deleted


class ShippedLast:
    """At the end: one more member, until the group has read everything."""

    def __init__(self, reads: GroupReads, client: Client, assignors: tuple[str, ...]) -> None:
        self._reads = reads
        self._client = client
        self._member = ShippedConsumer(reads, "the last consumer", assignors)
        self._consumer: Consumer | None = None

    @property
    def has_read_all(self) -> bool:
        topic = self._reads.workload.history.topics.get(TOPIC)
        return topic is not None and not self._reads.missing(topic)

    async def read_some(self) -> None:
        try:
            if self._consumer is None:
                self._consumer = await self._member.opened(self._client)
            await self._member.once(self._client, self._consumer)
            if self.has_read_all:
                await self._consumer.close(_API_MS)
                await asyncio.sleep(GROUP_OVER_S)
        except TROUBLE:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                await consumer.close(_API_MS)
            await self._client.pause()


# ------------------------------------------------------------------------------------- moving


class ShippedMover:
    """Consume, transform, produce: with the shipped consumer and the shipped producer."""

    def __init__(
        self, moves: Moves, name: str, assignors: tuple[str, ...], workload: "Workload"
    ) -> None:
        self._moves = moves
        self._ledger = moves.ledger
        self._workload = workload
        self._name = name
        self._assignors = assignors
        self._count = 0

    async def live(self, client: Client) -> None:
        """Move until the workload ends, or the producer is fenced."""
        producer = Producer(
            await _connected(client),
            ProducerSettings(
                client=client_settings(client),
                transactional_id=self._name,
                transaction_timeout_ms=TIMEOUT_MS,
                block_ms_max=_BLOCK_MS,
                delivery_timeout_ms=_DELIVERY_MS,
            ),
            draw=client.random.random,
            wall_ms=self._workload.wall_ms,
        )
        await producer.init_transactions()
        cluster = await _connected(client)
        settings = replace(
            member_settings(client, MOVERS, self._assignors),
            poll_records_max=_RECORDS_MAX,
            reads_committed=True,
        )
        consumer = Consumer(cluster, settings)
        consumer.subscribe([TOPIC])
        while not self._workload.is_over:
            records = await consumer.poll(200)
            if records and COPIED in self._workload.history.topics:
                await self._move(client, producer, consumer, records)
        await consumer.close(_API_MS)
        await producer.close(_API_MS)

    async def _move(
        self,
        client: Client,
        producer: Producer,
        consumer: Consumer,
        records: Sequence[ConsumerRecord],
    ) -> None:
        self._count += 1
        transaction = self._ledger.begin(f"{self._name}/{self._count}")
        try:
            producer.begin_transaction()
            await self._send(client, producer, transaction, records)
            following = {
                TopicPartition(r.topic, r.partition): OffsetAndMetadata(r.offset + 1)
                for r in records
            }
            await producer.send_offsets(following, consumer.group_metadata())
            if client.random.random() < 0.03:
                self._workload.happened["pauses within a transaction"] += 1
                await asyncio.sleep(TIMEOUT_MS / 1000 * client.random.uniform(0.5, 2))
            transaction.fate = Fate.ASKED
            await self._commit(producer)
        except GivenUpError:
            raise
        except TROUBLE:
            self._workload.happened["shipped transactions aborted"] += 1
            await self._abort(producer, transaction)
            _rewind(consumer, records)
        else:
            transaction.fate = Fate.COMMITTED
            self._workload.succeeded()
            self._workload.happened["shipped transactions committed"] += 1

    async def _send(
        self,
        client: Client,
        producer: Producer,
        transaction: Transaction,
        records: Sequence[ConsumerRecord],
    ) -> None:
        topic = self._workload.history.topics[COPIED]
        for number, record in enumerate(records):
            key = f"{transaction.name}/{number}".encode()
            partition = TopicPartition(COPIED, record.partition)
            self._moves.moving(key, (record.partition, record.offset))
            self._ledger.writes(transaction, key, topic, partition)
            self._workload.history.sending(key, topic, record.partition, idempotent=True)
            await producer.send(COPIED, value_of(key), key=key, partition=record.partition)
        if client.random.random() < 0.3:
            await asyncio.sleep(client.random.uniform(0.0, 0.8))

    @staticmethod
    async def _commit(producer: Producer) -> None:
        """Commit; after a timeout the commit is repeated, because an abort is not allowed then."""
        for _ in range(_COMMITS_MAX):
            with suppress(ClientTimeoutError):
                await producer.commit_transaction()
                return
        raise GivenUpError

    async def _abort(self, producer: Producer, transaction: Transaction) -> None:
        """Abort; after a request to commit, the transaction may be committed all the same.

        Raises:
            OdradekError: it cannot be aborted: this producer cannot continue.
        """
        if transaction.fate is not Fate.ASKED:
            transaction.fate = Fate.ABORTED
        await producer.abort_transaction()


def _rewind(consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    first: Mapping[TopicPartition, int] = {
        TopicPartition(r.topic, r.partition): r.offset for r in reversed(records)
    }
    owned = set(consumer.assignment())
    for partition, offset in first.items():
        if partition in owned:
            consumer.seek(partition, offset)


# ----------------------------------------------------------------------------------- the start


def start_shipped_producer(workload: "Workload", each_second: float) -> None:
    """Start a producer that is killed and started again."""
    _start(workload, "shipped-p", ShippedProducer(workload, "shipped-p", each_second).live)


def start_shipped_group(workload: "Workload") -> None:
    """Start a producer and three consumers of one group; each is killed and started again."""
    start_shipped_producer(workload, 1.5)
    assignors = workload.cluster.randomness("assignors").choice(ASSIGNORS)
    reads = GroupReads(workload, GroupBook(workload, GROUP))
    for number in range(3):
        name = f"shipped-c{number}"
        _start(workload, name, ShippedConsumer(reads, name, assignors).live)
    workload.readers.append(ShippedLast(reads, workload.client("shipped-last"), assignors))


def start_shipped_movers(workload: "Workload", ledger: Ledger) -> None:
    moves = Moves(workload, ledger, GroupBook(workload, MOVERS))
    maker = workload.client("admin-of-copied")
    maker.run(make_topic(workload, maker, COPIED))
    assignors = workload.cluster.randomness("assignors").choice(ASSIGNORS)
    for number in range(2):
        name = f"shipped-m{number}"
        _start(workload, name, ShippedMover(moves, name, assignors, workload).live)
    workload.readers.append(moves.last)
