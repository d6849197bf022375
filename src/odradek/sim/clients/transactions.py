"""Simulated transactions: producers that commit and abort, and what read_committed may return.

A transactor writes a few batches to a few partitions and commits or aborts, over and over. It
sends again when a response is lost, pauses until its transaction has timed out, and at times
shares its transactional id with another producer, so that one of the two is a zombie (KIP-447). A
copy of an EndTxn that was answered may arrive later, as a delayed retry does (`late_copies`).

Readers with read_committed, which skip aborted records as a consumer does, must see

    all or nothing    of each transaction every record, or none
    once              each record at one offset
    the outcome       a transaction whose commit was answered; none without a request to commit

In version 1 a late copy ends the transaction that is open when it arrives
(KAFKA-17754, found by Jepsen in 2024): aborted records are read, or committed ones are lost.
Version 2 has an epoch for each transaction, and late copies end nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Final

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.sim.checks.history import Topic, value_of
from odradek.sim.clients.client import TROUBLE, Client
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

TOPIC: Final = "moves"
YOUNG: Final = "young"  # prefix of the names of short-lived topics
PARTITIONS: Final = 3
TRANSACTIONS: Final = 1  # the kind of coordinator
GIVE_UP_S: Final = 20.0
TIMEOUT_MS: Final = 6_000
_LOOK_MS: Final = 2_000  # how often coordinators look for transactions that have timed out
# By then the transactions of stopped producers have timed out.
TRANSACTIONS_OVER_S: Final = (TIMEOUT_MS + _LOOK_MS) / 1000 + 2
_PRODUCE: Final = {1: 11, 2: 12}
_END: Final = {1: 4, 2: 5}
_ADD: Final = 3
# Another producer uses the transactional id, or the transaction has timed out.
FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# After these a producer aborts.
ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class Fate(Enum):
    """The outcome of a transaction, from its producer's view."""

    OPEN = "open"
    ASKED = "commit requested, no response"
    COMMITTED = "committed"
    ABORTED = "commit never requested"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction, its outcome and the keys that it wrote."""

    name: str
    fate: Fate = Fate.OPEN
    keys: list[bytes] = field(default_factory=list)

    def __str__(self) -> str:
        return f"transaction {self.name} ({self.fate.value})"


class Ledger:
    """All transactions, and the records that read_committed consumers have read."""

    def __init__(self, workload: "Workload") -> None:
        self.transactions: list[Transaction] = []
        self.seen: dict[bytes, tuple[TopicPartition, int]] = {}
        # Called for each key that is read, and at the end.
        self.watching: list[Callable[[bytes], None]] = []
        self.checks: list[Callable[[], None]] = []
        self._of: dict[bytes, Transaction] = {}
        self._written_to: dict[bytes, tuple[Topic, TopicPartition]] = {}
        self._offsets: dict[bytes, int] = {}
        self.workload = workload

    def begin(self, name: str) -> Transaction:
        """A producer begins a transaction."""
        transaction = Transaction(name)
        self.transactions.append(transaction)
        return transaction

    def writes(
        self, transaction: Transaction, key: bytes, topic: Topic, partition: TopicPartition
    ) -> None:
        """A record of the transaction is about to be sent."""
        transaction.keys.append(key)
        self._of[key] = transaction
        self._written_to[key] = topic, partition

    def written(self, keys: Iterable[bytes], base_offset: int) -> None:
        """A leader has acknowledged records with their offset."""
        self._offsets.update(zip(keys, count(base_offset), strict=False))

    def may_be_deleted(self, key: bytes) -> bool:
        """Whether a client has requested to delete its topic, or records up to its offset."""
        topic, partition = self._written_to[key]
        if topic.is_doomed:
            return True
        asked = self.workload.history.of(topic, partition.partition).delete_asked
        offset = self._offsets.get(key)
        return bool(asked) and (offset is None or offset < asked)

    def read(self, key: bytes, partition: TopicPartition, offset: int) -> None:
        """A read_committed consumer has read a record."""
        place = self.seen.setdefault(key, (partition, offset))
        if key in self._written_to and self._written_to[key][0].is_doomed:
            return  # a new topic of that name may have got it as well
        if place != (partition, offset):
            self.workload.violated(f"{key!r} is at {place} and at {partition}@{offset}")
        transaction = self._of.get(key)
        if transaction is not None and transaction.fate is Fate.ABORTED:
            self.workload.violated(f"{key!r} of {transaction} was read")
        for watch in self.watching:
            watch(key)

    def check(self) -> None:
        """Check every transaction, after all records have been read."""
        for transaction in self.transactions:
            seen = [key in self.seen for key in transaction.keys if not self.may_be_deleted(key)]
            if not seen:
                continue  # nothing was written, or all of it was deleted
            if transaction.fate is Fate.COMMITTED and not all(seen):
                self.workload.violated(f"{seen.count(False)} records of {transaction} are missing")
            elif transaction.fate is Fate.ASKED and any(seen) != all(seen):
                self.workload.violated(f"{seen.count(True)} of {len(seen)} of {transaction} seen")
            elif transaction.fate in {Fate.ABORTED, Fate.OPEN} and any(seen):
                self.workload.violated(f"{seen.count(True)} records of {transaction} were read")
        for check in self.checks:
            check()

    def count(self, fate: Fate) -> int:
        """The number of transactions with this outcome."""
        return sum(transaction.fate is fate for transaction in self.transactions)


class AbortError(Exception):
    """The transaction has to be aborted."""


class FencedError(Exception):
    """The producer is fenced: it has to send InitProducerId again."""


class Transactor:
    """A producer that runs one transaction after the other."""

    def __init__(
        self,
        ledger: Ledger,
        client: Client,
        name: str,
        transactional_id: str,
        options: "TransactionOptions",
    ) -> None:
        self._workload = ledger.workload
        self._client = client
        self._random = client.random
        self._name = name
        self._ledger = ledger
        self._id = transactional_id
        self._version = options.version
        self._late_copies = options.late_copies
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._joined: set[TopicPartition] = set()
        self._count = 0

    async def run(self) -> None:
        """Run transactions until the workload ends."""
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(3))
            if TOPIC not in self._workload.history.topics:
                continue
            try:
                if self._producer[0] < 0:
                    await self._init()
                with self._transaction() as transaction:
                    await self._play(transaction)
            except FencedError:
                self._producer = (-1, -1)
                await self._client.pause()

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """The next transaction; its outcome is aborted unless a commit was requested."""
        self._count += 1
        self._joined.clear()
        transaction = self._ledger.begin(f"{self._name}/{self._count}")
        try:
            yield transaction
        finally:
            if transaction.fate is Fate.OPEN:
                transaction.fate = Fate.ABORTED

    # ------------------------------------------------------------------ one transaction

    def _topic(self) -> Topic:
        """The topic to write to: often the youngest, if there are short-lived topics."""
        young = [topic for topic in self._workload.topics if topic.name.startswith(YOUNG)]
        if young and self._random.random() < 0.6:
            return young[-1] if self._random.random() < 0.5 else self._random.choice(young)
        return self._workload.history.topics[TOPIC]

    async def _play(self, transaction: Transaction) -> None:
        try:
            for _ in range(self._random.choice((1, 2, 3, 4))):
                topic = self._topic()
                index = self._random.randrange(topic.partitions)
                await self._write(transaction, topic, index, self._random.choice((1, 1, 2)))
                await self._pause()
        except AbortError:
            await self._abort()
        else:
            await self._decide(transaction)

    async def _pause(self) -> None:
        """Pause; at times for so long that the transaction times out."""
        if self._random.random() < 0.02:
            self._workload.happened["pauses within a transaction"] += 1
            await asyncio.sleep(TIMEOUT_MS / 1000 * self._random.uniform(0.5, 3))
        elif self._random.random() < 0.3:
            await asyncio.sleep(self._random.uniform(0.05, 0.8))

    async def _decide(self, transaction: Transaction) -> bool:
        """Commit or abort. Returns whether the transaction is committed."""
        commit = self._random.random() < 0.7
        if commit:
            transaction.fate = Fate.ASKED
        await self._end(commit=commit)
        if commit:
            transaction.fate = Fate.COMMITTED
            self._workload.succeeded()
        return commit

    async def _abort(self) -> None:
        """Abort; in version 1 the producer is fenced afterwards."""
        await self._end(commit=False)
        if self._version == 1:  # its sequences no longer match the leaders'
            raise FencedError("aborted") from None

    async def _write(
        self, transaction: Transaction, topic: Topic, index: int, records: int
    ) -> list[bytes]:
        """Write `records` records. Returns their keys."""
        partition = TopicPartition(topic.name, index)
        if self._version == 1 and partition not in self._joined:
            await self._join(partition)
        number = len(transaction.keys)
        keys = [f"{transaction.name}/{number + n}".encode() for n in range(records)]
        for key in keys:
            self._ledger.writes(transaction, key, topic, partition)
            self._workload.history.sending(key, topic, index, idempotent=True)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + records
        batch = build_batch(
            [Record(key, value_of(key), self._workload.wall_ms()) for key in keys],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        self._ledger.written(keys, await self._produce(topic, partition, batch))
        return keys

    async def _produce(self, topic: Topic, partition: TopicPartition, batch: bytes) -> int:
        """Send until it is acknowledged. Returns the base offset."""
        data = TopicProduceData(
            name=partition.topic,
            partition_data=[PartitionProduceData(index=partition.partition, records=batch)],
        )
        request = ProduceRequest(
            transactional_id=self._id, acks=-1, timeout_ms=2_000, topic_data=[data]
        )

        base_offset = -1

        async def ask() -> ErrorCode:
            nonlocal base_offset
            if topic.is_doomed:
                raise AbortError("the topic is being deleted")
            leader = await self._client.leader(partition)
            answer = await leader.request(
                request, ProduceResponse, version_max=_PRODUCE[self._version]
            )
            outcome = answer.responses[0].partition_responses[0]
            error, base_offset = ErrorCode(outcome.error_code), outcome.base_offset
            if error is not ErrorCode.NONE:
                await self._client.refresh([partition.topic])
            return error

        # Sending ends: a transaction that waits too long times out.
        await self._until_answered("Produce", ask)
        return base_offset

    async def _join(self, partition: TopicPartition) -> None:
        topic = AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )

        async def ask() -> ErrorCode:
            answer = await (await self._coordinator()).request(
                request, AddPartitionsToTxnResponse, version_max=_ADD
            )
            (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            return ErrorCode(result.partition_error_code)

        await self._until_answered("AddPartitionsToTxn", ask)
        self._joined.add(partition)

    async def _end(self, *, commit: bool) -> None:
        """Send EndTxn until it is answered, or given up after `GIVE_UP_S`."""
        if self._version == 1 and not self._joined:
            return  # the transaction has no partition: the coordinator has none open
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )
        version = _END[self._version]

        async def ask() -> ErrorCode:
            answer = await (await self._coordinator()).request(
                request, EndTxnResponse, version_max=version
            )
            if not answer.error_code and self._version == 2:
                self._producer = (answer.producer_id, answer.producer_epoch)
                self._sequences.clear()
            return ErrorCode(answer.error_code)

        try:
            await self._until_answered("EndTxn", ask)
        except AbortError as error:
            # The transaction has ended with the other result: the producer needs a new epoch.
            raise FencedError from error
        if self._late_copies and self._random.random() < 0.3:
            self._client.run(self._send_late(request, version))

    async def _send_late(self, request: EndTxnRequest, version: int) -> None:
        """A request that was answered long ago arrives once more; its response is dropped."""
        await asyncio.sleep(self._random.uniform(0.05, 2.0))
        try:
            coordinator = await self._coordinator()
            self._workload.happened["EndTxn once more, late"] += 1
            await coordinator.request(request, EndTxnResponse, version_max=version)
        except TROUBLE:
            pass

    # ---------------------------------------------------------------------------- inside

    async def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS
        )

        async def ask() -> ErrorCode:
            answer = await (await self._coordinator()).request(request, InitProducerIdResponse)
            if not answer.error_code:
                self._producer = (answer.producer_id, answer.producer_epoch)
                self._sequences.clear()
            return ErrorCode(answer.error_code)

        await self._until_answered("InitProducerId", ask)

    async def _coordinator(self) -> Connection:
        cluster = await self._client.cluster()
        return await cluster.coordinator(TRANSACTIONS, self._id)

    async def _until_answered(self, what: str, ask: Callable[[], Awaitable[ErrorCode]]) -> None:
        give_up_s = self._workload.now_s() + GIVE_UP_S
        was_refused = False
        while self._workload.now_s() < give_up_s and not self._workload.is_over:
            try:
                if was_refused:
                    (await self._client.cluster()).drop_coordinator(TRANSACTIONS, self._id)
                error = await ask()
            except TROUBLE:
                self._workload.happened["answers lost"] += 1
                await self._client.begin_anew()
                continue
            if error is ErrorCode.NONE:
                return
            if error in FENCED:
                self._workload.happened["producers fenced"] += 1
                raise FencedError(what)
            if error in ABORTABLE:
                raise AbortError(what)
            self._workload.expect_retriable(what, error)
            was_refused = True
            await self._client.pause()
        raise FencedError(f"{what}: given up")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """The number of transactional clients, and how they behave."""

    version: int = 2
    late_copies: bool = True
    transactors: int = 5
    movers: int = 3

    def properties(self, brokers: int) -> dict[str, str]:
        """Broker options that such a run needs."""
        return {
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": str(min(2, brokers)),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(_LOOK_MS),
            # Of __consumer_offsets: with one in-sync replica, a power loss would lose offsets.
            "min.insync.replicas": str(min(2, brokers)),
            "odradek.transaction.version.max": str(self.version),
        }


async def make_topic(workload: "Workload", client: Client, name: str = TOPIC) -> None:
    """Create a topic of `PARTITIONS` partitions, and wait until Metadata shows it."""
    replicas = workload.replication_factor
    topic = CreatableTopic(
        name=name,
        num_partitions=PARTITIONS,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(min(2, replicas)))],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    while not workload.is_over:
        try:
            controller = await client.controller()
            await controller.request(request, CreateTopicsResponse)
            (seen,) = (await client.refresh([name])).topics
        except TROUBLE:
            await client.begin_anew()
            continue
        if not seen.error_code and len(seen.partitions) == PARTITIONS:
            workload.history.topic_made(
                name, seen.topic_id, PARTITIONS, retention=False, replicas=replicas
            )
            return
        await client.pause()


def start_transactions(workload: "Workload", options: TransactionOptions) -> Ledger:
    """Start the transactors; the first two share a transactional id."""
    ledger = Ledger(workload)
    maker = workload.client("admin")
    maker.run(make_topic(workload, maker))
    for number in range(options.transactors):
        client = workload.client(f"transactor-{number}")
        name = f"id-{max(number, 1)}"
        transactor = Transactor(ledger, client, f"x{number}", name, options)
        client.run(transactor.run())
    return ledger
