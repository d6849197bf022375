"""The transaction coordinator of one partition of `__transaction_state`: events in, effects out.

A change of a transaction takes effect when it is written: until `Appended` reports the outcome of
the append it is `pending`. There is one pending change for an id; a request for another gets
CONCURRENT_TRANSACTIONS and is sent again. The way from PREPARE_* to COMPLETE_* is pending as well,
from the moment in which the markers are sent until COMPLETE_* is written.

    InitProducerId    EMPTY with the next epoch. A transaction that is ONGOING is aborted in an
                      epoch that its producer does not have, and the request gets
                      CONCURRENT_TRANSACTIONS: the client sends it again
    AddPartitions     ONGOING
    EndTransaction    PREPARE_*; answered when that is written. Then markers, then COMPLETE_*
    TimeoutsDue       which transactions are ONGOING for too long: `TimedOut` for each
    TimedOut          PREPARE_ABORT: as if another producer had sent InitProducerId
    ExpirationDue     DEAD: a tombstone

A change whose append failed did not happen, and the client sends its request again. The record may
be in the log all the same; the next change is then behind it. Only the last step, from markers to
COMPLETE_*, is repeated until it succeeds, because no request waits for it.

The coordinator epoch is the leader epoch of the partition. A machine is used for one of them: the
next leader makes another from the log (`Replayed`), and `Loaded` sends the markers of all
transactions that are prepared.

Comments quote what Kafka answers where it is not obvious.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from odradek.model.clock import Now, WallMs
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
from odradek.model.invariants import hold
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import (
    Loaded,
    MarkerReplayed,
    Note,
    RecordSkipped,
    Replayed,
    Resigned,
)
from odradek.record.records import Record
from odradek.txn.effects import Answer, Append, Effect, Proceed, ProducerAnswer, WriteMarkers
from odradek.txn.events import (
    AddPartitions,
    Appended,
    EndTransaction,
    Event,
    ExpirationDue,
    InitProducerId,
    MarkersWritten,
    TimedOut,
    TimeoutsDue,
)
from odradek.txn.records import decode_record
from odradek.txn.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    VALID_PREVIOUS,
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

# What a failed append is answered with, as Kafka translates it. Other errors stay as they are.
_APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
# How many ids are removed by one `ExpirationDue`; the others by the next.
EXPIRED_AT_ONCE: Final = 1_000


class _Entry:
    """A transaction as it is written, and its change that is pending."""

    __slots__ = ("_deadline", "current", "pending", "request", "success", "unmarked")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.pending: Transaction | None = None
        self.request: int | None = None  # that waits for the change
        self.success: ErrorCode = ErrorCode.NONE  # its answer when the change is written
        # While markers are written: the partitions that have none yet.
        self.unmarked: frozenset[TopicPartition] | None = None
        # Of which transaction, by its id, epoch and beginning; and until when, monotonic time.
        self._deadline: tuple[tuple[int, int, int], int] | None = None

    def has_timed_out(self, now: Now) -> bool:
        """Whether it has been open for longer than its producer's time-out.

        The log holds the wall time of its beginning, which a new coordinator starts from. After
        the first look monotonic time counts: a wall clock that jumps, or that of another broker,
        would abort the transaction too early, or keep it open for as long as the jump was.
        """
        current = self.current
        if current.state is not State.ONGOING:
            return False
        which = current.producer_id, current.producer_epoch, current.started_ms
        if self._deadline is None or self._deadline[0] != which:
            self._deadline = which, now.monotonic_ms + current.left_ms(now.wall_ms)
        return self._deadline[1] < now.monotonic_ms

    @property
    def is_expiring(self) -> bool:
        """Whether the tombstone of its id is being written."""
        return self.pending is not None and self.pending.state is State.DEAD

    @property
    def described(self) -> Transaction:
        """The transaction; while markers are written, with the partitions that have none yet."""
        if self.unmarked is None:
            return self.current
        return replace(self.current, partitions=self.unmarked)

    def validate(self) -> None:
        """Check what holds after every event.

        Raises:
            InvariantError: something does not hold.
        """
        current, pending, unmarked = self.current, self.pending, self.unmarked
        hold(NO_EPOCH <= current.producer_epoch <= EPOCH_MAX, current, "the epoch is out of range")
        hold(current.state is not State.DEAD, current, "it has expired")
        if current.is_at_rest:
            hold(not current.partitions, current, "it has partitions")
        if unmarked is not None:
            hold(current.is_prepared, current, "markers are being written")
            hold(unmarked <= current.partitions, current, "%s are not in it", unmarked)
        hold(self.request is None or pending is not None, current, "a request waits for no change")
        if pending is not None:
            is_one = pending.transactional_id == current.transactional_id
            hold(is_one, current, "becomes %s", pending)
            hold(current.state in VALID_PREVIOUS[pending.state], current, "becomes %s", pending)
            is_same = pending.producer_id == current.producer_id
            grows = pending.producer_epoch >= current.producer_epoch
            hold(grows or not is_same, current, "epoch %s is lower", pending.producer_epoch)


class TransactionMachine:
    """The coordinator of the transactional ids of one partition, for one leader epoch."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._is_loaded = False
        self._has_resigned = False

    def validate(self) -> None:
        """Check what holds after every event: called by the simulator and by tests.

        Raises:
            InvariantError: something does not hold.
        """
        owners: dict[int, str] = {}
        for name, entry in self._entries.items():
            entry.validate()
            transaction = entry.current
            hold(transaction.transactional_id == name, name, "has %s", transaction)
            owner = owners.setdefault(transaction.producer_id, name)
            hold(owner == name, name, "has producer id %s of %s", transaction.producer_id, owner)
            if transaction.is_prepared and self._is_loaded:
                hold(entry.unmarked is not None, name, "is prepared, and gets no markers")

    # ----------------------------------------------------------------------------- queries

    def __len__(self) -> int:
        """The number of transactional ids."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Transaction]:
        """Every transaction, see `find`."""
        for entry in self._entries.values():
            if not entry.is_expiring:
                yield entry.described

    def find(self, transactional_id: str) -> Transaction | None:
        """The transaction as it is written; its partitions are those that have no marker yet."""
        entry = self._entries.get(transactional_id)
        return None if entry is None or entry.is_expiring else entry.described

    def needs_producer_id(self, transactional_id: str, expected_epoch: int) -> bool:
        """Whether to allocate a producer id before an `InitProducerId` is handed in."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return True
        expected = None if expected_epoch == NO_EPOCH else expected_epoch
        return entry.current.is_at_rest and needs_producer_id(entry.current, expected)

    def ends_producer_id(self, transactional_id: str, client_version: int) -> bool:
        """Whether to allocate one before an `EndTransaction`: it uses the last epoch."""
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

        A pending change is not considered: the partition's leader checks again at the append.
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

    # ------------------------------------------------------------------------------ events

    def handle(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of event
        self, event: Event, now: Now
    ) -> list[Effect]:
        """Take one event; return what is to be done about it, in this order."""
        if self._has_resigned:
            return _refused(event)
        match event:
            case InitProducerId():
                return self._init_producer_id(event, now.wall_ms)
            case AddPartitions():
                return self._add_partitions(event, now.wall_ms)
            case EndTransaction():
                return self._end_transaction(event, now.wall_ms)
            case Appended():
                return self._appended(event, now.wall_ms)
            case MarkersWritten():
                return self._markers_written(event, now.wall_ms)
            case TimeoutsDue():
                return self._timeouts_due(now)
            case TimedOut(transactional_id):
                return self._timed_out(transactional_id, now.wall_ms)
            case ExpirationDue(expiration_ms):
                return self._expiration_due(expiration_ms, now.wall_ms)
            case Replayed(records):
                return self._replayed(records)
            case MarkerReplayed():
                return []  # there are none in this topic
            case Loaded():
                return self._loaded(now.wall_ms)
            case Resigned():
                return self._resigned()
        assert_never(event)

    # ------------------------------------------------------------------------- leadership

    def _replayed(self, records: Iterable[Record]) -> list[Effect]:
        """The last record of an id counts."""
        effects: list[Effect] = []
        for record in records:
            try:
                stored = decode_record(record.key, record.value)
            except (ApiError, MalformedRequestError) as error:
                effects.append(RecordSkipped(record.offset, str(error)))
                continue
            if stored is None:
                continue
            if stored.transaction is None:
                self._entries.pop(stored.transactional_id, None)
            else:
                self._entries[stored.transactional_id] = _Entry(stored.transaction)
        return effects

    def _loaded(self, wall_ms: WallMs) -> list[Effect]:
        """Go on with what an earlier coordinator has decided."""
        self._is_loaded = True
        prepared_ones = [entry for entry in self._entries.values() if entry.current.is_prepared]
        effects: list[Effect] = []
        if prepared_ones:
            effects.append(
                Note(f"writes the markers of {len(prepared_ones)} prepared transactions")
            )
        for entry in prepared_ones:
            effects += self._send_markers(entry, wall_ms)
        return effects

    def _resigned(self) -> list[Effect]:
        self._has_resigned = True
        return [
            _without_id(entry.request, ErrorCode.NOT_COORDINATOR)
            for entry in self._entries.values()
            if entry.request is not None
        ]

    # ------------------------------------------------------------------------ InitProducerId

    def _init_producer_id(  # noqa: PLR0911 - one for each answer
        self, event: InitProducerId, wall_ms: WallMs
    ) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        expected = None if event.producer_id == NO_PRODUCER_ID else event.producer_epoch
        if entry is None:
            if event.fresh_producer_id is None:  # it expired after `needs_producer_id` was read
                return [_without_id(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)]
            entry = self._entries[event.transactional_id] = _Entry(
                Transaction(
                    transactional_id=event.transactional_id,
                    producer_id=event.fresh_producer_id,
                    timeout_ms=event.timeout_ms,
                    updated_ms=wall_ms,
                )
            )
        if entry.pending is not None:
            return [_without_id(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)]
        transaction = entry.current
        if expected is not None and not _may_be(transaction, event.producer_id, expected):
            return [_without_id(event.request, ErrorCode.PRODUCER_FENCED)]
        if transaction.is_prepared:
            return [_without_id(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if transaction.state is State.ONGOING:
            ended = fenced(transaction, wall_ms=wall_ms)
            return self._write(entry, ended, event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        begun = initialized(
            transaction,
            timeout_ms=event.timeout_ms,
            expected_epoch=expected,
            fresh_producer_id=event.fresh_producer_id,
            wall_ms=wall_ms,
        )
        if isinstance(begun, ErrorCode):
            return [_without_id(event.request, begun)]
        return self._write(entry, begun, event.request)

    # ------------------------------------------------------------------------- AddPartitions

    def _add_partitions(self, event: AddPartitions, wall_ms: WallMs) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            return [_without_id(event.request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
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
                wall_ms=wall_ms,
                client_version=event.client_version,
            )
            return self._write(entry, grown, event.request)
        return [_without_id(event.request, error)]

    # ------------------------------------------------------------------------ EndTransaction

    def _end_transaction(self, event: EndTransaction, wall_ms: WallMs) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            return [_without_id(event.request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        if event.client_version >= VERSION_2:
            verdict = _end_in_version_2(entry, event)
        else:
            verdict = _end_in_version_1(entry, event)
        transaction = entry.current
        if verdict is None:
            ending = prepared(
                transaction,
                commit=event.commit,
                wall_ms=wall_ms,
                client_version=event.client_version,
                fresh_producer_id=event.fresh_producer_id if transaction.is_exhausted else None,
            )
            return self._write(entry, ending, event.request)
        if verdict is ErrorCode.NONE:
            return [_answer(event.request, transaction)]
        return [_without_id(event.request, verdict)]

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

    def _appended(self, event: Appended, wall_ms: WallMs) -> list[Effect]:
        entry = self._entries[event.transactional_id]
        change, request = entry.pending, entry.request
        assert change is not None, event
        if event.error is not ErrorCode.NONE:
            return self._not_written(entry, change, _APPEND_ERRORS.get(event.error, event.error))
        entry.pending = entry.request = entry.unmarked = None
        if change.state is State.DEAD:
            del self._entries[event.transactional_id]
            return []
        entry.current = change
        effects: list[Effect] = []
        if request is not None:
            effects.append(
                _without_id(request, entry.success)
                if entry.success is not ErrorCode.NONE
                else _answer(request, change)
            )
        if change.is_prepared:
            effects += self._send_markers(entry, wall_ms)
        return effects

    def _not_written(self, entry: _Entry, change: Transaction, error: ErrorCode) -> list[Effect]:
        if entry.unmarked is not None and error is not ErrorCode.NOT_COORDINATOR:
            return [Append(change.transactional_id, change, again=True)]
        request, entry.pending, entry.request = entry.request, None, None
        if entry.current.producer_epoch == NO_EPOCH:  # its first record failed
            del self._entries[change.transactional_id]
        return [] if request is None else [_without_id(request, error)]

    # -------------------------------------------------------------------------------- markers

    def _send_markers(self, entry: _Entry, wall_ms: WallMs) -> list[Effect]:
        transaction = entry.current
        entry.pending = completed(transaction, wall_ms=wall_ms)
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

    def _markers_written(self, event: MarkersWritten, wall_ms: WallMs) -> list[Effect]:
        entry = self._entries.get(event.transactional_id)
        if (
            entry is None
            or not entry.unmarked
            or (entry.current.producer_id, entry.current.producer_epoch)
            != (event.producer_id, event.producer_epoch)
        ):
            return []  # of a transaction that has ended
        entry.unmarked -= event.partitions
        if entry.unmarked:
            return []
        entry.pending = completed(entry.current, wall_ms=wall_ms)
        return [Append(event.transactional_id, entry.pending)]

    # ---------------------------------------------------------------------------------- time

    def _timeouts_due(self, now: Now) -> list[Effect]:
        overdue = [
            name
            for name, entry in self._entries.items()
            if entry.pending is None and entry.has_timed_out(now)
        ]
        if not overdue:
            return []
        note = Note(f"aborts {len(overdue)} transactions that are open for too long")
        return [note, *(Proceed(TimedOut(name)) for name in overdue)]

    def _timed_out(self, transactional_id: str, wall_ms: WallMs) -> list[Effect]:
        entry = self._entries.get(transactional_id)
        if entry is None or entry.pending is not None or entry.current.state is not State.ONGOING:
            return []
        return self._write(entry, fenced(entry.current, wall_ms=wall_ms))

    def _expiration_due(self, expiration_ms: int, wall_ms: WallMs) -> list[Effect]:
        effects: list[Effect] = []
        for entry in self._entries.values():
            transaction = entry.current
            if entry.pending is None and transaction.may_expire(wall_ms, expiration_ms):
                effects += self._write(entry, dead(transaction))
                if len(effects) == EXPIRED_AT_ONCE:
                    break
        return effects


# ------------------------------------------------------------------------------------- rules


def _may_be(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether a producer with this id and epoch may be the current one; its epoch is checked later.

    It may have the producer id before, in its last epoch, when the answer with the present one did
    not reach it.
    """
    return (
        transaction.producer_epoch == NO_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.last_producer_id and is_exhausted(producer_epoch))
    )


def _end_in_version_1(  # noqa: PLR0911 - one for each answer
    entry: _Entry, event: EndTransaction
) -> ErrorCode | None:
    """The error for a request to end a transaction; None: end it.

    All transactions of a producer have the same epoch. So a request that is delayed until the next
    transaction is open ends that one: the anomaly of version 1 (KAFKA-17754).
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
    return ErrorCode.NONE  # a retry


def _end_in_version_2(  # noqa: PLR0911 - one for each answer
    entry: _Entry, event: EndTransaction
) -> ErrorCode | None:
    """The same in version 2, where each transaction has an epoch of its own.

    The epoch before the current one is that of the transaction that ended last: its producer did
    not get the answer. An abort in the current epoch is valid even if no partition was added: the
    producer does not know whether its first record was appended (KIP-890).
    """
    transaction = entry.current
    if entry.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_retry = _is_of_last_transaction(transaction, event)
    if transaction.producer_id != event.producer_id and not is_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if is_retry:
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
        return ErrorCode.CONCURRENT_TRANSACTIONS  # the last epoch was reached meanwhile
    return None


def _is_of_last_transaction(transaction: Transaction, event: EndTransaction) -> bool:
    """Whether a request to end a transaction means the one that ended last."""
    if transaction.producer_epoch == EPOCH_MAX:
        return False  # no producer has that epoch
    if transaction.producer_id == event.producer_id:
        return transaction.producer_epoch == event.producer_epoch + 1
    return (
        transaction.last_producer_id == event.producer_id
        and transaction.producer_epoch == 0
        and event.producer_epoch == EPOCH_MAX - 1
    )


def _answer(request: int, transaction: Transaction) -> Answer:
    """No error: with the producer id and epoch with which the producer goes on."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return Answer(request, ProducerAnswer(ErrorCode.NONE, transaction.next_producer_id, 0))
    return Answer(
        request,
        ProducerAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch),
    )


def _without_id(request: int, error: ErrorCode) -> Answer:
    return Answer(request, ProducerAnswer(error))


def _refused(event: Event) -> list[Effect]:
    """The answer of a coordinator that has resigned."""
    if isinstance(event, InitProducerId | AddPartitions | EndTransaction):
        return [_without_id(event.request, ErrorCode.NOT_COORDINATOR)]
    return []
