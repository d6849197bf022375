"""The loads of a soak; each records what brokers acknowledged to it.

    load        client                            what must be true at the end
    Numbered    librdkafka or ours, idempotent    each acknowledged record once, in order, no other
    Ledger      librdkafka, transactional         committed transactions whole, aborted ones not
    Readers     librdkafka, a cooperative group   every record was read before it was committed
    Copiers     ours, read-transform-write        in the copy each record of the source once
    Operators   ours, administration              nothing: they move replicas, create and delete
    topics

A load runs in a thread of its own until `stop`; it retries what a fault prevented. `check` raises
an AssertionError that describes the fault.
"""

import asyncio
import contextlib
import random
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kit import mixed
from kit.soak_checks import ABORTED, COMMITTED, UNSURE, broken_transactions, difference, never_read
from kit.soak_pace import Clients, Pace
from odradek.client.admin.partitions import alter_reassignments, elect_leaders
from odradek.client.admin.topics import NewTopic, create_topics, delete_topics
from odradek.client.cluster import Cluster
from odradek.client.consumer.consumer import Consumer as OurConsumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.client.producer.batches import Delivery
from odradek.client.producer.producer import Producer as OurProducer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition as OurPartition

PARTITIONS: Final = 3
PREFERRED: Final = 0
DRAIN_S: Final = 300.0
COLLECT_S: Final = 1.0  # after each transaction of a copier: the next copies more than one record
_GIVING_UP: Final = (OdradekError, ConnectionError, TimeoutError)
_END: Final = -191  # librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF
_NATIVE: Final = {
    "log_level": 2,  # faults are intended
    "request.timeout.ms": 5_000,
    "socket.timeout.ms": 6_000,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
}


class Work:
    """A thread that works until it is stopped; its failure is raised by `stop`."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error

    def run(self) -> None:
        """Work until `ended` is set."""
        raise NotImplementedError

    def must_live(self) -> None:
        """Raise the error that has ended it, if one has."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End, and wait for what is in flight."""
        self.ended.set()
        self._thread.join(DRAIN_S)
        if self._thread.is_alive():
            raise TimeoutError(f"{type(self).__name__} does not end")
        self.must_live()


def records_of(clients: Clients, topic: str, partition: int) -> Iterator[Any]:
    """The records of a partition with read_committed, up to its last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": clients.bootstrap,
            "group.id": "soak-check",
            "log_level": 2,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        idle_s = time.monotonic() + 30
        while time.monotonic() < idle_s:
            # It returns before the timeout only with as many as requested.
            for message in consumer.consume(10_000, timeout=0.3):
                idle_s = time.monotonic() + 30
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == _END:
                    return
                else:
                    raise KafkaException(error)
        raise TimeoutError(f"{topic}-{partition}: no record and no end for 30 s")
    finally:
        clients.close("consumer of the check", consumer.close)


def wait_for_end(clients: Clients, group: str, topic: str) -> None:
    """Wait until a group has committed the end of every partition of a topic."""
    asked = Consumer({"bootstrap.servers": clients.bootstrap, "group.id": group, "log_level": 2})

    def is_at_end(partition: int) -> bool:
        here = TopicPartition(topic, partition)
        _, end = asked.get_watermark_offsets(here, timeout=30)
        (committed,) = asked.committed([here], timeout=30)
        return bool(committed.offset == end)

    try:
        mixed.until(
            f"{group} has read all of {topic}",
            lambda: all(is_at_end(partition) for partition in range(PARTITIONS)),
            timeout_s=DRAIN_S,
        )
    finally:
        clients.close("consumer that reads committed offsets", asked.close)


class Numbered(Work):
    """Numbers its records, and keeps for each partition the acknowledged ones, in order."""

    def __init__(self, clients: Clients, topic: str, by_second: float) -> None:
        super().__init__()
        self.topic = topic
        self.acknowledged = {partition: array("q") for partition in range(PARTITIONS)}
        self.clients = clients
        self.by_second = by_second
        self.failed: list[object] = []

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        return sum(map(len, self.acknowledged.values()))

    def check(self) -> None:
        """Compare the topic's records with the acknowledged ones."""
        assert self.failed == [], f"{self.topic}: given up: {self.failed[:3]}"
        for partition, acknowledged in self.acknowledged.items():
            found = records_of(self.clients, self.topic, partition)
            there = array("q", (int(message.value()) for message in found))
            wrong = difference(acknowledged, there)
            assert wrong is None, f"{self.topic}-{partition}: {wrong}"


class NativeNumbered(Numbered):
    """`Numbered` by librdkafka's idempotent producer."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.clients.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "linger.ms": 5,
                **_NATIVE,
            }
        )
        pace, number = Pace(self.by_second), 0
        while not self.ended.is_set():
            if len(producer) > mixed.UNSURE_MAX:
                producer.poll(0.1)
                continue
            partition = number % PARTITIONS
            producer.produce(
                self.topic, b"%d" % number, partition=partition, on_delivery=self._delivered
            )
            number += 1
            pace.serve(producer.poll)
        assert producer.flush(DRAIN_S) == 0
        self.clients.close("idempotent producer", producer.close)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition()].append(int(message.value()))


class OurNumbered(Numbered):
    """`Numbered` by our idempotent producer."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        settings = ProducerSettings.from_properties(
            {
                "bootstrap.servers": self.clients.bootstrap,
                "delivery.timeout.ms": "300000",
                "request.timeout.ms": "5000",
                "max.block.ms": "300000",
                "linger.ms": "5",
            }
        )
        pace, number = Pace(self.by_second), 0
        under_way: list[deque[tuple[int, Delivery]]] = [deque() for _ in range(PARTITIONS)]
        async with await OurProducer.open(settings, wait_ms=60_000) as producer:
            while not self.ended.is_set():
                partition = number % PARTITIONS
                delivery = await producer.send(self.topic, b"%d" % number, partition=partition)
                under_way[partition].append((number, delivery))
                number += 1
                self._note(under_way)
                await asyncio.sleep(pace.pause_s())
            await producer.flush()
            self._note(under_way)

    def _note(self, under_way: list[deque[tuple[int, Delivery]]]) -> None:
        """Keep the acknowledged numbers; within a partition deliveries complete in order."""
        for partition, deliveries in enumerate(under_way):
            while deliveries and deliveries[0][1].is_done:
                number, delivery = deliveries.popleft()
                if delivery.error is not None:
                    self.failed.append(delivery.error)
                else:
                    self.acknowledged[partition].append(number)


class Ledger(Work):
    """librdkafka's transactional producer: every fifth transaction is aborted."""

    def __init__(self, clients: Clients, topic: str, by_second: float) -> None:
        super().__init__()
        self.topic = topic
        self.sizes: list[int] = []
        self.outcomes: list[str] = []
        self._clients = clients
        self._by_second = by_second
        self._random = random.Random(0)

    @property
    def count(self) -> int:
        """The number of committed transactions."""
        return self.outcomes.count(COMMITTED)

    def run(self) -> None:
        pace = Pace(self._by_second)
        while not self.ended.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self._clients.bootstrap,
                    "transactional.id": "soak-ledger",
                    "transaction.timeout.ms": 60_000,
                    "linger.ms": 2,
                    **_NATIVE,
                }
            )
            with contextlib.suppress(KafkaException):
                producer.init_transactions(60)
                while not self.ended.is_set():
                    size = self._random.randint(1, 20)
                    self._transaction(producer, size)
                    self.ended.wait(pace.pause_s(size))
            producer.purge()
            with contextlib.suppress(KafkaException):  # that of a fatal error, raised once more
                self._clients.close("transactional producer", producer.close)

    def _transaction(self, producer: Producer, size: int) -> None:
        number = len(self.outcomes)
        self.sizes.append(size)
        self.outcomes.append(UNSURE)
        is_kept = number % 5 != 4
        producer.begin_transaction()
        try:
            for part in range(size):
                producer.produce(
                    self.topic,
                    b"%d:%d" % (number, part),
                    partition=self._random.randrange(PARTITIONS),
                )
            if is_kept:
                self._end(producer.commit_transaction)
                self.outcomes[number] = COMMITTED
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self._end(producer.abort_transaction)
        self.outcomes[number] = ABORTED

    def _end(self, call: Any) -> None:
        deadline_s = time.monotonic() + DRAIN_S
        while True:
            try:
                call(30)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline_s:
                    raise
            else:
                return

    def check(self) -> None:
        """Compare what read_committed returns with the outcomes of the transactions."""
        seen: Counter[tuple[int, int]] = Counter()
        for partition in range(PARTITIONS):
            for message in records_of(self._clients, self.topic, partition):
                number, part = message.value().split(b":")
                seen[int(number), int(part)] += 1
        wrong = broken_transactions(self.sizes, self.outcomes, seen)
        assert not wrong, f"{len(wrong)} transactions are broken: {wrong[:3]}"


class Readers:
    """Members of one cooperative group of librdkafka, which join and leave."""

    def __init__(self, clients: Clients, topic: str, members: int = 2) -> None:
        self.topic = topic
        self.read = {partition: bytearray() for partition in range(PARTITIONS)}
        self._clients = clients
        self.members = [_Reader(clients, topic, self.read, number) for number in range(members)]

    def start(self) -> None:
        for member in self.members:
            member.start()

    def stop(self) -> None:
        """Wait until the group has committed the end of every partition, and end it."""
        try:
            wait_for_end(self._clients, "soak-readers", self.topic)
        finally:
            for member in self.members:
                member.stop()

    def check(self) -> None:
        """Check that every record was read before its offset was committed."""
        for partition, read in self.read.items():
            there = [m.offset() for m in records_of(self._clients, self.topic, partition)]
            missed = never_read(read, there)
            assert not missed, f"{self.topic}-{partition}: offsets {missed[:5]} were never read"


class _Reader(Work):
    def __init__(
        self, clients: Clients, topic: str, read: dict[int, bytearray], number: int
    ) -> None:
        super().__init__()
        self._clients = clients
        self._topic = topic
        self._read = read
        self._random = random.Random(number)

    def run(self) -> None:
        while not self.ended.is_set():
            self._membership(time.monotonic() + self._random.uniform(20, 90))
            self.ended.wait(self._random.uniform(0, 5))

    def _membership(self, until_s: float) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._clients.bootstrap,
                "group.id": "soak-readers",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 10_000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 2_000,
                "log_level": 2,
            }
        )
        consumer.subscribe([self._topic])
        while time.monotonic() < until_s and not self.ended.is_set():
            messages = [m for m in consumer.consume(500, timeout=0.5) if m.error() is None]
            for message in messages:
                self._note(message.partition(), message.offset())
            if messages:
                # Records whose offset was not committed are read again by the next owner.
                with contextlib.suppress(KafkaException):
                    consumer.commit(asynchronous=False)
        self._clients.close("consumer of soak-readers", consumer.close)

    def _note(self, partition: int, offset: int) -> None:
        read = self._read[partition]
        if offset >= len(read):
            read.extend(bytes(offset + 1 - len(read)))
        read[offset] = 1


class Asyncio(Work):
    """A coroutine of our client that is restarted whenever a fault ends it."""

    def run(self) -> None:
        asyncio.run(self._again_and_again())

    async def _again_and_again(self) -> None:
        while not self.ended.is_set():
            with contextlib.suppress(*_GIVING_UP):
                await self.attempt()
            await asyncio.sleep(0.5)

    def attempt(self) -> Coroutine[Any, Any, None]:
        """Work until `ended` is set, or a fault raises."""
        raise NotImplementedError


class Copiers:
    """Members of one group of ours that copy a topic, each batch in a transaction."""

    def __init__(self, clients: Clients, source: str, copy: str, members: int = 2) -> None:
        self.source = source
        self.copy = copy
        self._clients = clients
        self.members = [
            _Copier(clients.bootstrap, source, copy, number) for number in range(members)
        ]

    def start(self) -> None:
        for member in self.members:
            member.start()

    @property
    def count(self) -> int:
        """The number of committed transactions."""
        return sum(member.committed for member in self.members)

    def stop(self) -> None:
        """Wait until the whole source is copied, and end."""
        try:
            wait_for_end(self._clients, "soak-copiers", self.source)
        finally:
            for member in self.members:
                member.stop()

    def check(self) -> None:
        """Check that the copy has the records of the source."""
        for partition in range(PARTITIONS):
            wanted, found = (
                array("q", (int(m.value()) for m in records_of(self._clients, topic, partition)))
                for topic in (self.source, self.copy)
            )
            wrong = difference(wanted, found)
            assert wrong is None, f"{self.copy}-{partition} is no copy of {self.source}: {wrong}"


class _Copier(Asyncio):
    def __init__(self, bootstrap: str, source: str, copy: str, number: int) -> None:
        super().__init__()
        self.committed = 0
        self._copy = copy
        self._source = source
        properties = {"bootstrap.servers": bootstrap, "request.timeout.ms": "10000"}
        self._producer = ProducerSettings.from_properties(
            {**properties, "transactional.id": f"soak-copier-{number}", "max.block.ms": "60000"}
        )
        self._consumer = ConsumerSettings.from_properties(
            {
                **properties,
                "group.id": "soak-copiers",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "session.timeout.ms": "10000",
                "max.poll.records": "500",
            }
        )

    async def attempt(self) -> None:
        async with (
            await OurProducer.open(self._producer, wait_ms=30_000) as producer,
            await OurConsumer.open(self._consumer, wait_ms=30_000) as consumer,
        ):
            await producer.init_transactions()
            consumer.subscribe([self._source])
            while not self.ended.is_set():
                records = await consumer.poll(500)
                if records:
                    await self._transaction(producer, consumer, records)
                    await asyncio.sleep(COLLECT_S)

    async def _transaction(
        self, producer: OurProducer, consumer: OurConsumer, records: list[Any]
    ) -> None:
        producer.begin_transaction()
        offsets = {}
        for record in records:
            await producer.send(self._copy, record.value, partition=record.partition)
            where = OurPartition(self._source, record.partition)
            offsets[where] = OffsetAndMetadata(record.offset + 1)
        await producer.send_offsets(offsets, consumer.group_metadata())
        await producer.commit_transaction()
        self.committed += 1


class Operators(Asyncio):
    """Move replicas, elect preferred leaders, create topics and delete them."""

    def __init__(self, bootstrap: str, topics: list[str], brokers: list[int], pause_s: float):
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._settings = ClientSettings.from_properties({"bootstrap.servers": bootstrap})
        self._topics = topics
        self._brokers = brokers
        self._pause_s = pause_s
        self._random = random.Random(0)

    async def attempt(self) -> None:
        async with await Cluster.connect(self._settings, wait_ms=30_000) as cluster:
            while not self.ended.is_set():
                await self._random.choice([self._move, self._move, self._elect, self._topic])(
                    cluster
                )
                await asyncio.sleep(self._random.expovariate(1 / self._pause_s))

    async def _move(self, cluster: Cluster) -> None:
        partition = OurPartition(self._random.choice(self._topics), self._random.randrange(3))
        replicas = self._random.sample(self._brokers, self._random.choice((2, 3, 3)))
        await alter_reassignments(cluster, {partition: replicas})
        self.counts["reassignments"] += 1

    async def _elect(self, cluster: Cluster) -> None:
        await elect_leaders(cluster, PREFERRED, None)
        self.counts["preferred elections"] += 1

    async def _topic(self, cluster: Cluster) -> None:
        name = f"passing-{self._random.getrandbits(32):x}"
        await create_topics(cluster, [NewTopic(name, 3, 3)])
        await asyncio.sleep(self._random.uniform(0, 5))
        await delete_topics(cluster, [name])
        self.counts["topics made and deleted"] += 1


async def restore(bootstrap: str, topics: list[str], brokers: list[int]) -> None:
    """Reassign every partition to all brokers again."""
    settings = ClientSettings.from_properties({"bootstrap.servers": bootstrap})
    async with await Cluster.connect(settings, wait_ms=30_000) as cluster:
        targets = {
            OurPartition(topic, partition): brokers[partition:] + brokers[:partition]
            for topic in topics
            for partition in range(PARTITIONS)
        }
        await alter_reassignments(cluster, targets)
