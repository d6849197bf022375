"""State and requests of a transactional producer (Java's TransactionManager).

    init     get producer id and epoch; an earlier producer with this transactional id is fenced
    begin    local: nothing is sent yet
    join     AddPartitionsToTxn, before the first batch for a partition
    offsets  commit a group's offsets in the transaction
    end      commit or abort; the coordinator writes the markers

With transaction.version 2 (KIP-890), which is a finalized feature of the brokers, partition leaders
add partitions themselves, and each EndTxn returns the epoch of the next transaction. With version 1
a new epoch is requested after an abort if sequence numbers are in doubt (KIP-360).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from odradek.client.cluster import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Cluster,
)
from odradek.client.errors import ClientTimeoutError, IllegalStateError
from odradek.client.group.offsets import GroupMetadata, OffsetAndMetadata
from odradek.client.producer.batches import NO_PRODUCER, ProducerIdAndEpoch
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.net.retry import Retries
from odradek.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.wire.schema import Message

R = TypeVar("R", bound=Message)

_CLIENTS_JOIN_MAX: Final = 3
_OTHER_COORDINATOR: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_LATER: Final = (
    *_OTHER_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
)
_FATAL: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


class TransactionManagerState(Enum):
    """The state of a transactional producer, as error messages show it."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "failed for good"


class OpenTransaction(NamedTuple):
    """What another process needs to end a transaction."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    is_version_2: bool


class TransactionManager:
    """The transactions of one producer."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, transactional_id: str) -> None:
        self.state = TransactionManagerState.UNINITIALIZED
        self.identity: ProducerIdAndEpoch = NO_PRODUCER
        self.error: Exception | None = None
        self.epoch_is_in_doubt = False
        self._id = transactional_id
        self._cluster = cluster
        self._settings = settings
        # Of the open transaction.
        self.is_version_2 = False
        self._offers_version_2 = False
        self._partitions: set[TopicPartition] = set()
        self._holds_more = False  # offsets, or records of another process
        self._joining = asyncio.Lock()

    async def init(self) -> None:
        """Get a producer id and epoch, which fences earlier producers with this transactional id.

        Raises:
            ApiError: the coordinator refuses.
            ClientTimeoutError: not within `max.block.ms`.
        """
        self._must_be(TransactionManagerState.UNINITIALIZED, "initTransactions")
        await self._ask_identity()
        self.state = TransactionManagerState.READY

    def begin(self) -> None:
        """Begin a transaction. Nothing is sent yet."""
        self._must_be(TransactionManagerState.READY, "beginTransaction")
        self.is_version_2 = self._offers_version_2
        self.state = TransactionManagerState.IN_TRANSACTION

    @property
    def open_transaction(self) -> OpenTransaction:
        """The open transaction, for `resume` in another process."""
        return OpenTransaction(self._id, self.identity, self.is_version_2)

    def resume(self, transaction: OpenTransaction) -> None:
        """Continue a transaction in which another process has written."""
        self.identity, self.is_version_2 = transaction.identity, transaction.is_version_2
        self._holds_more = True
        self.state = TransactionManagerState.IN_TRANSACTION

    def holds(self, partition: TopicPartition) -> bool:
        """Whether a partition was added to the open transaction."""
        return partition in self._partitions

    def must_be_open(self) -> None:
        """Check that a record may be sent.

        Raises:
            IllegalStateError: no transaction is open, or it has failed.
        """
        self._must_be(TransactionManagerState.IN_TRANSACTION, "send")

    async def join(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction; with transaction.version 2 nothing is sent.

        Raises:
            ApiError: the coordinator refuses; the transaction can only be aborted.
            ClientTimeoutError: not within `max.block.ms`.
        """
        async with self._joining:
            new = sorted(set(partitions) - self._partitions)
            if not new or self.is_version_2:
                self._partitions.update(new)
                return
            topics: dict[str, list[int]] = {}
            for topic, partition in new:
                topics.setdefault(topic, []).append(partition)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ],
            )
            await self._ask(
                request,
                AddPartitionsToTxnResponse,
                lambda answer: [
                    result.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for result in topic.results_by_partition
                ],
                version_max=_CLIENTS_JOIN_MAX,
            )
            self._partitions.update(new)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets in the transaction.

        Raises:
            ApiError: a coordinator refuses; the transaction can only be aborted.
            ClientTimeoutError: not within `max.block.ms`.
        """
        self._must_be(TransactionManagerState.IN_TRANSACTION, "sendOffsetsToTransaction")
        if not offsets:
            return
        joining = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=group.group_id,
        )
        if not self.is_version_2:
            await self._ask(joining, AddOffsetsToTxnResponse, lambda answer: [answer.error_code])
        self._holds_more = True
        await self._ask(
            self._offset_commit(offsets, group),
            TxnOffsetCommitResponse,
            lambda answer: [
                part.error_code for topic in answer.topics for part in topic.partitions
            ],
            version_max=self._version_max,
            group_id=group.group_id,
        )

    def _offset_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), committed in sorted(offsets.items()):
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    async def end(self, *, commit: bool) -> None:
        """Commit or abort. The caller has made sure that no batch is in flight.

        Raises:
            ApiError: the coordinator refuses.
            ClientTimeoutError: not within `max.block.ms`; call it again.
        """
        if commit:
            self._must_be(TransactionManagerState.IN_TRANSACTION, "commitTransaction")
        elif self.state is not TransactionManagerState.ABORTABLE_ERROR:
            self._must_be(TransactionManagerState.IN_TRANSACTION, "abortTransaction")
        if self._partitions or self._holds_more:
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                committed=commit,
            )
            answer = await self._ask(
                request,
                EndTxnResponse,
                lambda answer: [answer.error_code],
                version_max=self._version_max,
            )
            if answer.producer_id >= 0:
                self.identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                self.epoch_is_in_doubt = False
        if self.epoch_is_in_doubt:
            await self._ask_identity()
            self.epoch_is_in_doubt = False
        self._partitions.clear()
        self._holds_more = False
        self.error = None
        self.state = TransactionManagerState.READY

    @property
    def _version_max(self) -> int | None:
        return None if self.is_version_2 else _VERSION_1_MAX

    def fail(self, error: Exception, *, by_leader: bool = False) -> None:
        """Record a failure: the transaction can only be aborted, or the producer is fenced.

        A leader may have a later epoch than the coordinator has kept (KIP-588). So
        INVALID_PRODUCER_EPOCH from a leader is not fatal: the coordinator decides at the abort.
        """
        fatal = isinstance(error, ApiError) and error.code in _FATAL
        if by_leader and isinstance(error, ApiError):
            fatal = fatal and error.code is not ErrorCode.INVALID_PRODUCER_EPOCH
        if self.state is TransactionManagerState.FATAL_ERROR:
            return
        self.error = error
        if fatal:
            self.state = TransactionManagerState.FATAL_ERROR
        elif self.state is TransactionManagerState.IN_TRANSACTION:
            self.state = TransactionManagerState.ABORTABLE_ERROR

    def _must_be(self, state: TransactionManagerState, call: str) -> None:
        if self.state is state:
            return
        if self.error is not None:
            raise IllegalStateError(
                f"Cannot execute transactional method {call}: the producer is "
                f"{self.state.value}: {self.error}"
            ) from self.error
        raise IllegalStateError(
            f"TransactionalId {self._id}: {call} needs a producer that is {state.value}; "
            f"this one is {self.state.value}"
        )

    async def _ask_identity(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
        )
        answer = await self._ask(
            request, InitProducerIdResponse, lambda answer: [answer.error_code]
        )
        self.identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def _ask(
        self,
        request: Message,
        response: type[R],
        codes_of: Callable[[R], Collection[int]],
        *,
        version_max: int | None = None,
        group_id: str | None = None,
    ) -> R:
        """Ask the transaction coordinator, or that of a group.

        Retries until there is no error, a permanent error, or `max.block.ms` have passed.
        """
        kind = TRANSACTION_COORDINATOR if group_id is None else GROUP_COORDINATOR
        key = self._id if group_id is None else group_id
        what = type(request).__name__.removesuffix("Request")
        deadline_s = asyncio.get_running_loop().time() + self._settings.block_ms_max / 1000
        retries = Retries(self._cluster.retry_pause_s, deadline_s=deadline_s)
        while True:
            answer = None
            try:
                connection = await self._cluster.coordinator(kind, key)
                if kind == TRANSACTION_COORDINATOR:
                    level = connection.features.get(_FEATURE, 0)
                    self._offers_version_2 = level >= _VERSION_2
                answer = await connection.request(request, response, version_max=version_max)
                codes = [code for code in codes_of(answer) if code]
            except ConnectionError:
                self._cluster.drop_coordinator(kind, key)
                codes = [ErrorCode.REQUEST_TIMED_OUT]
            if answer is not None and not codes:
                return answer
            lasting = [code for code in codes if code not in _LATER]
            if lasting:
                # OPERATION_NOT_ATTEMPTED only means that another partition has failed.
                errors = [c for c in lasting if c != ErrorCode.OPERATION_NOT_ATTEMPTED] or lasting
                error = ApiError(ErrorCode(errors[0]), f"{what} for {self._id}")
                self.fail(error)
                raise error
            if any(code in _OTHER_COORDINATOR for code in codes):
                self._cluster.drop_coordinator(kind, key)
            if not await retries.pause():
                raise ClientTimeoutError(
                    f"Timeout expired after {self._settings.block_ms_max}ms while awaiting {what}"
                )


_VERSION_1_MAX: Final = 4  # of EndTxn and TxnOffsetCommit
_FEATURE: Final = "transaction.version"
_VERSION_2: Final = 2
