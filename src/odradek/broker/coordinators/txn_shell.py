"""Runs the transaction coordinators of this broker: one machine for each partition that it leads.

What the machines ask for is done here: records are appended and the outcome is told, markers are
handed to `TransactionMarkers`, answers reach those who wait. Time comes from the broker's
housekeeping (`abort_timed_out`, `forget_expired`). Producer ids are drawn before the machine is
asked, where it says that it will need one: a machine does not wait.

Who asks while the log is loaded is told COORDINATOR_LOAD_IN_PROGRESS, who asks the wrong broker
NOT_COORDINATOR (see `odradek.broker.coordinators.coordinator_log`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple, Protocol

from odradek.broker.coordinators.coordinator_log import CoordinatorLog, CoordinatorTopic
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.config.broker import BrokerConfig
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record
from odradek.txn.effects import Answer, Append, Effect, WriteMarkers
from odradek.txn.events import (
    AddPartitions,
    Appended,
    EndTransaction,
    Event,
    ExpirationDue,
    InitProducerId,
    MarkersWritten,
    Resigned,
    TimedOut,
)
from odradek.txn.machine import TransactionMachine
from odradek.txn.records import encode_key, encode_value
from odradek.txn.replay import Replay
from odradek.txn.transaction import Transaction

log = logging.getLogger(__name__)

# Between two attempts to write the end of a transaction (Kafka's client back-off).
_AGAIN_S: Final = 0.1
_NOBODY: Final = 0  # the request of an answer that was given without asking the machine


class TransactionMind:
    """One coordinator: what was replayed so far, and from then on its machine."""

    def __init__(self) -> None:
        self.machine = TransactionMachine({})
        self._replayed = Replay()

    def replay(self, record: Record, producer_id: int) -> None:
        """Take a record in.

        Raises:
            InvalidRecordError: it is damaged; nothing was taken.
        """
        del producer_id
        self._replayed.apply(record.key, record.value)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """There are none in this topic."""

    def begin(self) -> None:
        """All is replayed."""
        self.machine = TransactionMachine(self._replayed.transactions)
        self._replayed = Replay()


Coordinator = CoordinatorLog[TransactionMind]


class MarkerPost(Protocol):
    """Where markers are handed in (`TransactionMarkers`)."""

    def write(self, coordinator: Coordinator, order: WriteMarkers) -> None:
        """See that they are written, as long as the coordinator is one."""


class ListedTransactions(NamedTuple):
    """What ListTransactions tells."""

    error: ErrorCode
    transactions: list[Transaction]


class TransactionShell:
    """All transaction coordinators of one broker."""

    def __init__(
        self,
        topic: CoordinatorTopic[TransactionMind],
        *,
        markers: MarkerPost,
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
        self._requests: dict[int, asyncio.Future[Answer]] = {}
        self._count = 0
        topic.loaded = self._loaded
        topic.unloaded = self._unloaded

    # ------------------------------------------------------------------------- requests

    async def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> Answer:
        """A producer begins. See `odradek.txn.machine`."""
        if not 0 < timeout_ms <= self._config().transaction_max_timeout_ms:
            return Answer(_NOBODY, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return await self._ask_drawing(
            transactional_id,
            lambda machine: machine.needs_producer_id(transactional_id, producer_epoch),
            lambda request, fresh: InitProducerId(
                request=request,
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                fresh_producer_id=fresh,
                now_ms=self._clock.wall_ms(),
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
        """Partitions join a transaction."""
        answer = await self._ask(
            transactional_id,
            lambda request: AddPartitions(
                request=request,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=frozenset(partitions),
                client_version=client_version,
                now_ms=self._clock.wall_ms(),
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
    ) -> Answer:
        """A producer commits or aborts."""
        return await self._ask_drawing(
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
                now_ms=self._clock.wall_ms(),
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
        """Whether partitions are in the open transaction."""
        found = self._topic.find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        return found.mind.machine.verify(
            transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
        )

    def transactions(self) -> ListedTransactions:
        """Every transaction that is coordinated here."""
        if self._topic.is_loading:
            return ListedTransactions(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        return ListedTransactions(
            ErrorCode.NONE,
            [transaction for led in self._topic.serving for transaction in led.mind.machine],
        )

    def describe(self, transactional_id: str) -> Transaction | ErrorCode:
        """One transaction, or why not."""
        found = self._topic.find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        known = found.mind.machine.find(transactional_id)
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if known is None else known

    # ----------------------------------------------------------------------------- time

    def now_ms(self) -> int:
        """Wall time, by which transactions go."""
        return self._clock.wall_ms()

    def abort_timed_out(self) -> None:
        """Abort what has been open for too long."""
        now_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        for led in self._topic.serving:
            overdue = led.mind.machine.overdue(now_ms, monotonic_ms)
            if overdue:
                log.info("%s: aborts %d transactions, open for too long", led, len(overdue))
            for transactional_id in overdue:
                try:
                    self._handle(led, TimedOut(transactional_id, now_ms))
                except Exception:
                    # One that cannot be aborted must not leave all others open.
                    log.exception("%s: transaction of %r is not aborted", led, transactional_id)

    def forget_expired(self) -> None:
        """Forget ids that nobody has used for long."""
        expiration_ms = self._config().transactional_id_expiration_ms
        for led in self._topic.serving:
            self._handle(led, ExpirationDue(self._clock.wall_ms(), expiration_ms))

    # ----------------------------------------------------------------------- leadership

    def _loaded(self, led: Coordinator) -> None:
        led.mind.begin()
        effects = led.mind.machine.resume(self._clock.wall_ms())
        if effects:
            log.info("%s: goes on with %d transactions, decided before", led, len(effects))
        self._carry_out(led, effects)

    def _unloaded(self, led: Coordinator) -> None:
        self._handle(led, Resigned())

    # --------------------------------------------------------------------------- inside

    async def _ask_drawing(
        self,
        transactional_id: str,
        needs_id: Callable[[TransactionMachine], bool],
        make: Callable[[int, int | None], Event],
    ) -> Answer:
        """Ask, with a producer id that is drawn before if the machine says that it needs one."""
        found = self._topic.find(transactional_id)
        fresh = None
        if not isinstance(found, ErrorCode) and needs_id(found.mind.machine):
            try:
                fresh = await self._ids.next()
            except ApiError as error:
                return Answer(_NOBODY, error.code)
        return await self._ask(transactional_id, lambda request: make(request, fresh))

    async def _ask(self, transactional_id: str, make: Callable[[int], Event]) -> Answer:
        found = self._topic.find(transactional_id)
        if isinstance(found, ErrorCode):
            return Answer(_NOBODY, found)
        self._count += 1
        number = self._count
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._requests[number] = answered
        try:
            self._handle(found, make(number))
            return await answered
        finally:
            del self._requests[number]

    def _handle(self, led: Coordinator, event: Event) -> None:
        self._carry_out(led, led.mind.machine.handle(event))

    def _carry_out(self, led: Coordinator, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    if effect.again:
                        self._call_later(_AGAIN_S, partial(self._append, led, effect))
                    else:
                        self._append(led, effect)
                case Answer():
                    answered = self._requests.get(effect.request)
                    if answered is not None and not answered.done():
                        answered.set_result(effect)
                case WriteMarkers():
                    self.markers.write(led, effect)

    def _append(self, led: Coordinator, effect: Append) -> None:
        transaction = effect.transaction
        name = effect.transactional_id
        value = None if transaction is None else encode_value(transaction)
        led.append(
            [(encode_key(name), value)],
            partial(self._appended, led, name),
            # As Kafka: what is in the log and waits for its replicas is better waited for.
            timeout_ms=(
                self._config().request_timeout_ms if transaction is None else transaction.timeout_ms
            ),
        )

    def _appended(self, led: Coordinator, transactional_id: str, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            log.info("%s: the state of %r was not written: %s", led, transactional_id, error.name)
        self._handle(led, Appended(transactional_id, error, self._clock.wall_ms()))

    def markers_written(self, led: Coordinator, event: MarkersWritten) -> None:
        """`TransactionMarkers` tells what was written."""
        self._handle(led, event)
