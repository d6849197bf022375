"""Verifies with the coordinator that partitions are in a transaction, before the first append.

KIP-890. Without verification a delayed batch that arrives after the marker of its transaction opens
one that no request ends: the last stable offset stays in front of it. Only the first batch of a
transaction in a partition is verified; then the transaction is open there
(`odradek.log.producer_state`).

    verify only    version 1: the producer has added the partitions. Not done without
                   `transaction.partition.verification.enable`
    add            version 2: the partition's leader adds it; the client does not

The coordinator on this broker is called; another one gets AddPartitionsToTxn, one request at a time
for each broker, with all verifications that wait. A coordinator that is ending the transaction
before answers CONCURRENT_TRANSACTIONS. Where partitions are added the request is then repeated for
a short time: in version 2 a producer does not wait for the markers.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peer_book import PeerBook
from odradek.broker.cluster.peers import PeerError
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.broker.coordinators.coordinator_log import coordinator_partition
from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.tasks import Tasks
from odradek.log.producer_state import ProducerState, Verification
from odradek.model.clock import Clock
from odradek.model.errors import ErrorCode
from odradek.model.names import TRANSACTION_TOPIC
from odradek.model.partition import TopicPartition
from odradek.record.batch import NO_SEQUENCE
from odradek.txn.transaction import VERSION_2
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Errors = Mapping[TopicPartition, ErrorCode]

QUESTIONS_AT_ONCE: Final = 1_000
# Kafka: add.partitions.to.txn.retry.backoff.ms and .max.ms
_AGAIN_S: Final = 0.02
ATTEMPTS: Final = 5


@dataclass(slots=True, eq=False)
class Question:
    """Partitions of one transaction that are to be verified."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    add: bool
    answered: Callable[[Errors], None]
    again: Callable[[], None]  # called before each further attempt
    holds: Callable[[], bool]  # whether no marker was written since the request
    attempts: int = 0

    def fail(self, error: ErrorCode) -> None:
        """Answer with this error for all partitions."""
        self.answered(dict.fromkeys(self.partitions, error))


class TransactionVerification:
    """The verifications of one broker."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        broker_id: int,
        cache: MetadataCache,
        counts: CoordinatorCounts,
        peers: PeerBook,
        own: TransactionShell,
        replicas: ReplicaManager,
        is_enabled: Callable[[], bool],
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        """`own` has the coordinators on this broker."""
        self._broker_id = broker_id
        self._cache = cache
        self._counts = counts
        self._peers = peers
        self._own = own
        self._replicas = replicas
        self.is_enabled = is_enabled
        self._clock = clock
        self._tasks = tasks
        self._waiting: dict[int, list[Question]] = {}  # by broker
        self._asking: set[int] = set()

    def ask(self, question: Question) -> Errors | None:
        """The answer, or None: then `answered` is called with it."""
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator is None:
            return dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator != self._broker_id:
            self._waiting.setdefault(coordinator, []).append(question)
            if coordinator not in self._asking:
                self._asking.add(coordinator)
                self._tasks.start(self._ask(coordinator), f"verification by {coordinator}")
            return None
        if not question.add:
            return self._own.verify(
                question.transactional_id,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                partitions=question.partitions,
            )
        self._tasks.start(self._add_here(question), "partitions join a transaction")
        return None

    def _coordinator_of(self, transactional_id: str) -> int | None:
        count = self._counts.of(TRANSACTION_TOPIC)
        if not count:
            return None
        index = coordinator_partition(transactional_id, count)
        partition = self._cache.partition(TRANSACTION_TOPIC, index)
        leader = self._cache.leader_of(partition) if partition is not None else -1
        return leader if leader >= 0 else None

    async def _add_here(self, question: Question) -> None:
        error = await self._own.add_partitions(
            question.transactional_id,
            producer_id=question.producer_id,
            producer_epoch=question.producer_epoch,
            partitions=question.partitions,
            client_version=VERSION_2,
        )
        await self._answer(question, dict.fromkeys(question.partitions, error))

    async def _answer(self, question: Question, errors: Errors) -> None:
        """Answer, or send the request once more.

        In version 2 a producer begins a transaction while the markers of its last one are written.
        A marker that is written between request and answer is not of the present transaction, but
        only the coordinator knows that.
        """
        is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if (
            question.add
            and question.attempts < ATTEMPTS
            and (is_busy or not (any(errors.values()) or question.holds()))
        ):
            question.attempts += 1
            if is_busy:
                await asyncio.sleep(_AGAIN_S)
            question.again()
            known = self.ask(question)
            if known is None:
                return
            errors = known
        question.answered(errors)

    # --------------------------------------------------------------------------- offsets

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
    ) -> Callable[[], ErrorCode]:
        """For offsets of a group: see `TransactionVerifier` in `group_shell`."""
        guard = _Guard(self._replicas, self._clock, partition, producer_id, producer_epoch)
        if not (add or self.is_enabled()) or guard.is_open():
            return _no_error
        guard.begin()
        answered: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        errors = self.ask(
            Question(
                transactional_id,
                producer_id,
                producer_epoch,
                [partition],
                add,
                answered.set_result,
                guard.begin,
                lambda: guard.check() is ErrorCode.NONE,
            )
        )
        error = (errors if errors is not None else await answered)[partition]
        if error is ErrorCode.NONE:
            return guard.check
        translated = _GROUP_ERRORS.get(error, error)
        return lambda: translated

    # ------------------------------------------------------------------ another broker's

    async def _ask(self, coordinator: int) -> None:
        try:
            while questions := self._next_batch(coordinator):
                await self._ask_all(coordinator, questions)
        finally:
            self._asking.discard(coordinator)

    def _next_batch(self, coordinator: int) -> list[Question]:
        """Those for one request, which can have a transactional id in one form only."""
        batch: list[Question] = []
        left: list[Question] = []
        ways: dict[str, tuple[int, int, bool]] = {}
        for question in self._waiting.pop(coordinator, []):
            way = question.producer_id, question.producer_epoch, question.add
            fits = len(batch) < QUESTIONS_AT_ONCE
            if fits and ways.setdefault(question.transactional_id, way) == way:
                batch.append(question)
            else:
                left.append(question)
        if left:
            self._waiting[coordinator] = left
        return batch

    async def _ask_all(self, coordinator: int, questions: list[Question]) -> None:
        try:
            peer = self._peers.to(coordinator)
            answer = await peer.ask(_request(questions), AddPartitionsToTxnResponse)
        except PeerError:
            for question in questions:
                question.fail(ErrorCode.NETWORK_EXCEPTION)
            return
        errors_of = {
            (result.transactional_id, TopicPartition(topic.name, partition.partition_index)): (
                ErrorCode(partition.partition_error_code)
            )
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        otherwise = ErrorCode(answer.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
        for question in questions:
            errors = {
                partition: errors_of.get((question.transactional_id, partition), otherwise)
                for partition in question.partitions
            }
            self._tasks.start(self._answer(question, errors), "verification")


class _Guard:
    """Checks that no marker was written between the coordinator's answer and the append.

    The group coordinator appends offsets without checking sequences.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._partition = partition
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._verification: Verification | None = None

    def _producers(self) -> ProducerState | None:
        held = self._replicas.get(*self._partition)
        return held.log.producers if held is not None and held.log is not None else None

    def is_open(self) -> bool:
        """Whether its transaction is open in this partition."""
        producers = self._producers()
        return producers is not None and producers.has_open_transaction(
            self._producer_id, self._producer_epoch
        )

    def begin(self) -> None:
        """The request is sent now."""
        producers = self._producers()
        if producers is not None:
            self._verification = producers.begin_verification(
                self._producer_id,
                self._producer_epoch,
                NO_SEQUENCE,
                wall_ms=self._clock.wall_ms(),
            )

    def check(self) -> ErrorCode:
        """The error for the append; NONE if the coordinator's answer still holds."""
        producers = self._producers()
        if self.is_open() or (
            producers is not None
            and self._verification is not None
            and producers.is_verified(self._producer_id, self._verification)
        ):
            return ErrorCode.NONE
        return ErrorCode.INVALID_TXN_STATE


def _no_error() -> ErrorCode:
    return ErrorCode.NONE


# The errors of TxnOffsetCommit, as Kafka translates them.
_GROUP_ERRORS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Not the group's coordinator is meant, which the producer would look for, but the other.
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def _request(questions: list[Question]) -> AddPartitionsToTxnRequest:
    transactions: dict[str, tuple[Question, set[TopicPartition]]] = {}
    for question in questions:
        _, partitions = transactions.setdefault(question.transactional_id, (question, set()))
        partitions.update(question.partitions)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                verify_only=not question.add,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=[index for _, index in group])
                    for topic, group in groupby(sorted(partitions), key=itemgetter(0))
                ],
            )
            for name, (question, partitions) in transactions.items()
        ]
    )
