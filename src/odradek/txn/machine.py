"""The transaction coordinator of one partition of `__transaction_state`: events in, effects out.

Every change of a transaction is written before it holds: it is `pending` until `Appended` says
what became of it. A pending change is alone; whoever asks for another meanwhile is told
CONCURRENT_TRANSACTIONS and tries again. So is the way from PREPARE_* to COMPLETE_*: pending from
the moment in which the markers go out until the end is written.

    InitProducerId    EMPTY with the next epoch; of one that is ONGOING the abort, in an epoch
                      that its producer does not have, and CONCURRENT_TRANSACTIONS: it asks again
    AddPartitions     ONGOING
    EndTransaction    PREPARE_*; answered when that is written. Then markers, then COMPLETE_*
    TimedOut          ONGOING for too long (`overdue`): as if another producer had begun
    ExpirationDue     DEAD: a tombstone

A change that could not be written did not happen, and who asked for it asks again; the log may
hold it all the same, and then the next change stands behind it. Only the last step, from markers
to COMPLETE_*, is tried until it succeeds, for nobody would ask.

The coordinator epoch is the leader epoch of the partition. A machine lives for one of them: who
leads anew makes another from the log, and begins with `resume`: what is prepared gets its markers.

What Kafka answers is in the comments where it is not obvious.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
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
from odradek.txn.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_2,
    State,
    Transaction,
    completed,
    dead,
    fenced,
    initialized,
    is_exhausted,
    needs_producer_id,
    prepared,
    with_partitions,
)

# What a failed append means for who asked: Kafka's translation. What is not here stays.
_TOLD: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
# How many ids are forgotten at once: the others have time until the next look.
EXPIRED_AT_ONCE: Final = 1_000


class _Entry:
    """A transaction as it is written, and the change of it that is under way."""

    __slots__ = ("_deadline", "current", "pending", "request", "success", "unmarked")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.pending: Transaction | None = None
        self.request: int | None = None  # who waits for the change
        self.success: ErrorCode = ErrorCode.NONE  # what it is told when the change is written
        # While markers are on the way: the partitions that have none yet.
        self.unmarked: frozenset[TopicPartition] | None = None
        # Of which transaction, by its id, epoch and beginning; and until when, monotonic time.
        self._deadline: tuple[tuple[int, int, int], int] | None = None

    def has_timed_out(self, now_ms: int, monotonic_ms: int) -> bool:
        """Whether it has been open for longer than its producer wanted.

        It is written by wall time when it began, which a new coordinator goes by. From the first
        look on monotonic time is what counts: a clock that jumps, or that of another broker, would
        abort it too early, or leave it open for as long as the jump was.
        """
        current = self.current
        if current.state is not State.ONGOING:
            return False
        which = current.producer_id, current.producer_epoch, current.started_ms
        if self._deadline is None or self._deadline[0] != which:
            self._deadline = which, monotonic_ms + current.left_ms(now_ms)
        return self._deadline[1] < monotonic_ms

    @property
    def is_dying(self) -> bool:
        """Whether its id is being forgotten."""
        return self.pending is not None and self.pending.state is State.DEAD

    @property
    def seen(self) -> Transaction:
        """The transaction; while markers are on the way, with the partitions that have none."""
        if self.unmarked is None:
            return self.current
        return replace(self.current, partitions=self.unmarked)


class TransactionMachine:
    """The coordinator of the transactional ids of one partition, for one leader epoch."""

    def __init__(self, loaded: Mapping[str, Transaction]) -> None:
        """`loaded` is what stands in the log, see `odradek.txn.replay`."""
        self._entries = {name: _Entry(transaction) for name, transaction in loaded.items()}
        self._has_resigned = False

    # --------------------------------------------------------------------------- questions

    def __len__(self) -> int:
        """How many transactional ids are known."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Transaction]:
        """Every transaction, as it is written; of one whose markers go out, what is left."""
        for entry in self._entries.values():
            if not entry.is_dying:
                yield entry.seen

    def find(self, transactional_id: str) -> Transaction | None:
        """One of them."""
        entry = self._entries.get(transactional_id)
        return None if entry is None or entry.is_dying else entry.seen

    def needs_producer_id(self, transactional_id: str, expected_epoch: int) -> bool:
        """Whether to draw a producer id before an `InitProducerId` is handed in."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return True
        expected = None if expected_epoch == NO_EPOCH else expected_epoch
        return entry.current.is_at_rest and needs_producer_id(entry.current, expected)

    def ends_producer_id(self, transactional_id: str, client_version: int) -> bool:
        """Whether to draw one before an `EndTransaction`: it uses up the last epoch."""
        entry = self._entries.get(transactional_id)
        return client_version >= VERSION_2 and entry is not None and entry.current.is_exhausted

    def verify(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the open transaction (KIP-890).

        A change under way is not looked at: who appends checks once more.
        """
        entry = self._entries.get(transactional_id)
        if entry is None or entry.current.producer_id != producer_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        transaction = entry.current
        if transaction.producer_epoch != producer_epoch:
            return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)
        if transaction.is_prepared:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE
            if partition in transaction.partitions
            else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def overdue(self, now_ms: int, monotonic_ms: int) -> list[str]:
        """The ids whose transactions are open for too long; each is to become a `TimedOut`."""
        return [
            name
            for name, entry in self._entries.items()
            if entry.pending is None and entry.has_timed_out(now_ms, monotonic_ms)
        ]

    # ------------------------------------------------------------------------------ events

    def resume(self, now_ms: int) -> list[Effect]:
        """After loading: go on with what the coordinator before has decided."""
        return [
            effect
            for entry in self._entries.values()
            if entry.current.is_prepared
            for effect in self._send_markers(entry, now_ms)
        ]

    def handle(self, event: Event) -> list[Effect]:  # noqa: PLR0911 - one for each event
        """Take one event; the effects are to be carried out in their order."""
        if self._has_resigned:
            return _refused_by_who_resigned(event)
        match event:
            case InitProducerId():
                return self._init_producer_id(event)
            case AddPartitions():
                return self._add_partitions(event)
            case EndTransaction():
                return self._end_transaction(event)
            case Appended():
                return self._appended(event)
            case MarkersWritten():
                return self._markers_written(event)
            case TimedOut():
                return self._timed_out(event)
            case ExpirationDue():
                return self._expiration_due(event)
            case Resigned():
                return self._resigned()
        assert_never(event)

    # ------------------------------------------------------------------------ InitProducerId

    def _init_producer_id(  # noqa: PLR0911 - one for each answer
        self, event: InitProducerId
    ) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        expected = None if event.producer_id == NO_PRODUCER_ID else event.producer_epoch
        if entry is None:
            if event.fresh_producer_id is None:  # the id has been forgotten this very moment
                return [Answer(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)]
            entry = self._entries[event.transactional_id] = _Entry(
                Transaction(
                    transactional_id=event.transactional_id,
                    producer_id=event.fresh_producer_id,
                    timeout_ms=event.timeout_ms,
                    updated_ms=event.now_ms,
                )
            )
        if entry.pending is not None:
            return [Answer(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)]
        transaction = entry.current
        if expected is not None and not _may_be(transaction, event.producer_id, expected):
            return [Answer(event.request, ErrorCode.PRODUCER_FENCED)]
        if transaction.is_prepared:
            return [Answer(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if transaction.state is State.ONGOING:
            ended = fenced(transaction, now_ms=event.now_ms)
            return self._write(entry, ended, event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        begun = initialized(
            transaction,
            timeout_ms=event.timeout_ms,
            expected_epoch=expected,
            fresh_producer_id=event.fresh_producer_id,
            now_ms=event.now_ms,
        )
        if isinstance(begun, ErrorCode):
            return [Answer(event.request, begun)]
        return self._write(entry, begun, event.request)

    # ------------------------------------------------------------------------- AddPartitions

    def _add_partitions(self, event: AddPartitions) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            return [Answer(event.request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        transaction = entry.current
        error = ErrorCode.NONE
        if entry.pending is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif transaction.producer_id != event.producer_id:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif (
            transaction.producer_epoch != event.producer_epoch or event.producer_epoch == EPOCH_MAX
        ):
            error = ErrorCode.PRODUCER_FENCED
        elif transaction.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif transaction.state is not State.ONGOING or not (
            event.partitions <= transaction.partitions
        ):
            grown = with_partitions(
                transaction,
                event.partitions,
                now_ms=event.now_ms,
                client_version=event.client_version,
            )
            return self._write(entry, grown, event.request)
        return [Answer(event.request, error)]

    # ------------------------------------------------------------------------ EndTransaction

    def _end_transaction(self, event: EndTransaction) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            return [Answer(event.request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        if event.client_version >= VERSION_2:
            verdict = _end_in_version_2(entry, event)
        else:
            verdict = _end_in_version_1(entry, event)
        transaction = entry.current
        if verdict is None:
            ending = prepared(
                transaction,
                commit=event.commit,
                now_ms=event.now_ms,
                client_version=event.client_version,
                fresh_producer_id=event.fresh_producer_id if transaction.is_exhausted else None,
            )
            return self._write(entry, ending, event.request)
        if verdict is ErrorCode.NONE:
            return [_answer(event.request, transaction)]
        return [Answer(event.request, verdict)]

    # ----------------------------------------------------------------------- what was written

    def _write(
        self,
        entry: _Entry,
        change: Transaction,
        request: int | None = None,
        success: ErrorCode = ErrorCode.NONE,
    ) -> list[Effect]:
        assert entry.pending is None, entry.pending
        entry.pending, entry.request, entry.success = change, request, success
        written = None if change.state is State.DEAD else change
        return [Append(change.transactional_id, written)]

    def _appended(self, event: Appended) -> list[Effect]:
        entry = self._entries[event.transactional_id]
        change, request = entry.pending, entry.request
        assert change is not None, event
        if event.error is not ErrorCode.NONE:
            return self._not_written(entry, change, _TOLD.get(event.error, event.error))
        entry.pending = entry.request = entry.unmarked = None
        if change.state is State.DEAD:
            del self._entries[event.transactional_id]
            return []
        entry.current = change
        effects: list[Effect] = []
        if request is not None:
            effects.append(
                Answer(request, entry.success)
                if entry.success is not ErrorCode.NONE
                else _answer(request, change)
            )
        if change.is_prepared:
            effects += self._send_markers(entry, event.now_ms)
        return effects

    def _not_written(self, entry: _Entry, change: Transaction, error: ErrorCode) -> list[Effect]:
        if entry.unmarked is not None and error is not ErrorCode.NOT_COORDINATOR:
            return [Append(change.transactional_id, change, again=True)]
        request, entry.pending, entry.request = entry.request, None, None
        if entry.current.producer_epoch == NO_EPOCH:  # it never came to be
            del self._entries[change.transactional_id]
        return [] if request is None else [Answer(request, error)]

    # -------------------------------------------------------------------------------- markers

    def _send_markers(self, entry: _Entry, now_ms: int) -> list[Effect]:
        transaction = entry.current
        entry.pending = completed(transaction, now_ms=now_ms)
        entry.unmarked = transaction.partitions
        if not transaction.partitions:
            return [Append(transaction.transactional_id, entry.pending)]
        return [
            WriteMarkers(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.commits,
                transaction.partitions,
                transaction.client_version,
            )
        ]

    def _markers_written(self, event: MarkersWritten) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if (
            entry is None
            or not entry.unmarked
            or (entry.current.producer_id, entry.current.producer_epoch)
            != (event.producer_id, event.producer_epoch)
        ):
            return []  # of one that is over
        entry.unmarked -= event.partitions
        if entry.unmarked:
            return []
        entry.pending = completed(entry.current, now_ms=event.now_ms)
        return [Append(event.transactional_id, entry.pending)]

    # ---------------------------------------------------------------------------------- time

    def _timed_out(self, event: TimedOut) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if entry is None or entry.pending is not None or entry.current.state is not State.ONGOING:
            return []
        return self._write(entry, fenced(entry.current, now_ms=event.now_ms))

    def _expiration_due(self, event: ExpirationDue) -> list[Effect]:
        effects: list[Effect] = []
        for entry in self._entries.values():
            transaction = entry.current
            if entry.pending is None and transaction.may_expire(event.now_ms, event.expiration_ms):
                effects += self._write(entry, dead(transaction))
                if len(effects) == EXPIRED_AT_ONCE:
                    break
        return effects

    def _resigned(self) -> list[Effect]:
        self._has_resigned = True
        return [
            Answer(entry.request, ErrorCode.NOT_COORDINATOR)
            for entry in self._entries.values()
            if entry.request is not None
        ]


# ------------------------------------------------------------------------------------- rules


def _may_be(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether a producer that says it has these may be this one; its epoch is judged later.

    It may also have had an earlier producer id, whose epochs it has used up, and not have heard
    of the present one.
    """
    return (
        transaction.producer_epoch == NO_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.last_producer_id and is_exhausted(producer_epoch))
    )


def _end_in_version_1(  # noqa: PLR0911 - one for each answer
    entry: _Entry, event: EndTransaction
) -> ErrorCode | None:
    """What to tell who ends a transaction; None: end it.

    The epoch of a producer does not say which of its transactions is meant. So a request that
    comes late, when the next one is open, ends that: the anomaly of version 1 (KAFKA-17754).
    """
    transaction = entry.current
    if transaction.producer_id != event.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != event.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if entry.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is State.ONGOING:
        return None
    if transaction.state is State.EMPTY or transaction.commits is not event.commit:
        return ErrorCode.INVALID_TXN_STATE
    if transaction.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE  # it asks again


def _end_in_version_2(  # noqa: PLR0911 - one for each answer
    entry: _Entry, event: EndTransaction
) -> ErrorCode | None:
    """The same; here each transaction has an epoch of its own.

    The epoch before the present one names the transaction that has ended last: who asks with that
    has not heard the answer. An abort in the present epoch is right even if nothing was written:
    the producer cannot know whether its first record has come to be (KIP-890).
    """
    transaction = entry.current
    if entry.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    asks_again = _is_of_the_last(transaction, event)
    if transaction.producer_id != event.producer_id and not asks_again:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if asks_again:
        if transaction.state in {State.ONGOING, State.EMPTY}:
            return ErrorCode.PRODUCER_FENCED
        if transaction.commits is not event.commit:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.is_prepared else ErrorCode.NONE
    if (
        transaction.producer_epoch != event.producer_epoch
        or transaction.producer_epoch == EPOCH_MAX
        or transaction.is_prepared
    ):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state is not State.ONGOING and event.commit:
        return ErrorCode.INVALID_TXN_STATE
    if transaction.is_exhausted and event.fresh_producer_id is None:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # it was not foreseen that one would be needed
    return None


def _is_of_the_last(transaction: Transaction, event: EndTransaction) -> bool:
    """Whether this ends the transaction that has ended last."""
    if transaction.producer_epoch == EPOCH_MAX:
        return False  # in which nobody may go on
    if transaction.producer_id == event.producer_id:
        return transaction.producer_epoch == event.producer_epoch + 1
    return (
        transaction.last_producer_id == event.producer_id
        and transaction.producer_epoch == 0
        and event.producer_epoch == EPOCH_MAX - 1
    )


def _answer(request: int, transaction: Transaction) -> Answer:
    """All went well: with what the producer goes on."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return Answer(request, ErrorCode.NONE, transaction.next_producer_id, 0)
    return Answer(request, ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


def _refused_by_who_resigned(event: Event) -> list[Effect]:
    if isinstance(event, InitProducerId | AddPartitions | EndTransaction):
        return [Answer(event.request, ErrorCode.NOT_COORDINATOR)]
    return []
