"""Runs the transaction coordinators of this broker: a machine for each partition that it leads.

    a request          becomes an event of `odradek.txn`
    `Answer`           answers the request with that number
    `Append`           is appended; `Appended` is the next event
    `WriteMarkers`     goes to `TransactionMarkers`; `MarkersWritten` is the next event
    `Proceed`          is the next event

Time-outs and expiration come from the broker's housekeeping (`abort_timed_out`, `remove_expired`).
Where the machine needs a producer id for a request, it is allocated before the event is handed in.

Requests get COORDINATOR_LOAD_IN_PROGRESS while the log is loaded, and NOT_COORDINATOR from a broker
that does not lead the partition (see `odradek.broker.coordinators.coordinator_log`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple, Protocol, assert_never

from odradek.broker.coordinators.coordinator_log import CoordinatorLog, CoordinatorTopic
from odradek.broker.coordinators.coordinator_requests import CoordinatorRequests
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.config.broker import BrokerConfig
from odradek.model.clock import Clock, WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import Loaded, Resigned
from odradek.txn.effects import Answer, Append, OwnEffect, Proceed, ProducerAnswer, WriteMarkers
from odradek.txn.events import (
    AddPartitions,
    Appended,
    EndTransaction,
    Event,
    ExpirationDue,
    InitProducerId,
    MarkersWritten,
    TimeoutsDue,
)
from odradek.txn.machine import TransactionMachine
from odradek.txn.records import encode_key, encode_value
from odradek.txn.transaction import Transaction

log = logging.getLogger(__name__)

# Between two attempts to write the end of a transaction (Kafka's client back-off).
_AGAIN_S: Final = 0.1

Coordinator = CoordinatorLog[TransactionMachine]


class MarkerWriter(Protocol):
    """Sends WriteTxnMarkers to the leaders (`TransactionMarkers`)."""

    def write(self, coordinator: Coordinator, request: WriteMarkers) -> None:
        """Write them, until all are written or the coordinator has resigned."""


class ListedTransactions(NamedTuple):
    """The answer to ListTransactions."""

    error: ErrorCode
    transactions: list[Transaction]


class TransactionShell:
    """The transaction coordinators of one broker."""

    def __init__(
        self,
        topic: CoordinatorTopic[TransactionMachine],
        *,
        markers: MarkerWriter,
        ids: ProducerIds,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.markers = markers
        self._topic = topic
        self._ids = ids
        self._clock = clock
        self._config = config
        self._call_later = call_later
        self._requests: CoordinatorRequests[ProducerAnswer] = CoordinatorRequests()
        topic.perform = self._perform
        topic.loaded = self._loaded
        topic.unloaded = self._unloaded

    # ------------------------------------------------------------------------- requests

    async def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> ProducerAnswer:
        """A producer starts, or recovers from an error."""
        if not 0 < timeout_ms <= self._config().transaction_max_timeout_ms:
            return ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return await self._ask_with_id(
            transactional_id,
            lambda machine: machine.needs_producer_id(transactional_id, producer_epoch),
            lambda request, fresh: InitProducerId(
                request=request,
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                fresh_producer_id=fresh,
            ),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> ErrorCode:
        answer = await self._ask(
            transactional_id,
            lambda request: AddPartitions(
                request=request,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=frozenset(partitions),
                client_version=client_version,
            ),
        )
        return answer.error

    async def end(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
    ) -> ProducerAnswer:
        """A producer commits or aborts."""
        return await self._ask_with_id(
            transactional_id,
            lambda machine: machine.ends_producer_id(transactional_id, client_version),
            lambda request, fresh: EndTransaction(
                request=request,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                commit=commit,
                client_version=client_version,
                fresh_producer_id=fresh,
            ),
        )

    def verify(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the open transaction (KIP-890)."""
        found = self._topic.find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        return found.machine.verify(
            transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
        )

    def transactions(self) -> ListedTransactions:
        """All transactions that are coordinated here."""
        if self._topic.is_loading:
            return ListedTransactions(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        return ListedTransactions(
            ErrorCode.NONE,
            [transaction for each in self._topic.serving for transaction in each.machine],
        )

    def describe(self, transactional_id: str) -> Transaction | ErrorCode:
        """A transaction, or why it is not here."""
        found = self._topic.find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        known = found.machine.find(transactional_id)
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if known is None else known

    # ----------------------------------------------------------------------------- time

    def wall_ms(self) -> WallMs:
        return self._clock.wall_ms()

    def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their time-outs."""
        for coordinator in self._topic.serving:
            try:
                coordinator.handle(TimeoutsDue())
            except Exception:
                log.exception("%s: some transactions are not aborted", coordinator)

    def remove_expired(self) -> None:
        """Remove ids that are not used for `transactional.id.expiration.ms`."""
        expiration_ms = self._config().transactional_id_expiration_ms
        for coordinator in self._topic.serving:
            coordinator.handle(ExpirationDue(expiration_ms))

    # ----------------------------------------------------------------------- leadership

    def _loaded(self, coordinator: Coordinator) -> None:
        coordinator.handle(Loaded())

    def _unloaded(self, coordinator: Coordinator) -> None:
        coordinator.handle(Resigned())

    # --------------------------------------------------------------------------- events

    async def _ask_with_id(
        self,
        transactional_id: str,
        needs_id: Callable[[TransactionMachine], bool],
        event: Callable[[int, int | None], Event],
    ) -> ProducerAnswer:
        """Ask, with a producer id that is allocated before if the machine needs one."""
        found = self._topic.find(transactional_id)
        fresh = None
        if not isinstance(found, ErrorCode) and needs_id(found.machine):
            try:
                fresh = await self._ids.next()
            except ApiError as error:
                return ProducerAnswer(error.code)
        return await self._ask(transactional_id, lambda request: event(request, fresh))

    async def _ask(self, transactional_id: str, event: Callable[[int], Event]) -> ProducerAnswer:
        found = self._topic.find(transactional_id)
        if isinstance(found, ErrorCode):
            return ProducerAnswer(found)
        coordinator = found
        answer = self._requests.ask(lambda number: coordinator.handle(event(number)))
        return await answer if isinstance(answer, asyncio.Future) else answer

    def markers_written(self, coordinator: Coordinator, event: MarkersWritten) -> None:
        """Called by `MarkerWriter.write` with the partitions that are done."""
        coordinator.handle(event)

    # -------------------------------------------------------------------------- effects

    def _perform(self, coordinator: Coordinator, effect: OwnEffect) -> None:
        match effect:
            case Answer(request, answer):
                self._requests.answer(request, answer)
            case Append():
                if effect.again:
                    self._call_later(_AGAIN_S, partial(self._append, coordinator, effect))
                else:
                    self._append(coordinator, effect)
            case WriteMarkers():
                self.markers.write(coordinator, effect)
            case Proceed(event):
                coordinator.handle(event)
            case _:
                assert_never(effect)

    def _append(self, coordinator: Coordinator, effect: Append) -> None:
        transaction = effect.transaction
        name = effect.transactional_id
        value = None if transaction is None else encode_value(transaction)
        coordinator.append(
            [(encode_key(name), value)],
            partial(self._appended, coordinator, name),
            # As Kafka: a record in the log that waits for its replicas is better waited for.
            timeout_ms=(
                self._config().request_timeout_ms if transaction is None else transaction.timeout_ms
            ),
        )

    def _appended(self, coordinator: Coordinator, transactional_id: str, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            log.info(
                "%s: the state of %r was not written: %s", coordinator, transactional_id, error.name
            )
        coordinator.handle(Appended(transactional_id, error))
