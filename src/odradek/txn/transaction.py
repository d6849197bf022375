"""One transaction: its states, and what each change makes of it.

States and the states they may be entered from:

    EMPTY            <- EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT     the id has no open transaction
    ONGOING          <- ONGOING, EMPTY, COMPLETE_*                 partitions have been added
    PREPARE_COMMIT   <- ONGOING                                    decided; markers are on the way
    PREPARE_ABORT    <- ONGOING; in version 2 also EMPTY, COMPLETE_*
    COMPLETE_COMMIT  <- PREPARE_COMMIT                             all markers are written
    COMPLETE_ABORT   <- PREPARE_ABORT
    DEAD             <- EMPTY, COMPLETE_*                          the id expires: a tombstone
    PREPARE_EPOCH_FENCE                                            a name; see below

Kafka goes from ONGOING to PREPARE_ABORT by way of PREPARE_EPOCH_FENCE when the coordinator aborts
a transaction: it raises the producer's epoch first. That state is never written, and here the two
are one step (`fenced`). The name stays because tools filter by it.

An epoch of 32,766 is the last that a producer gets: the one above it is needed to fence it. After
it a producer gets another producer id.

In version 2 (KIP-890) each end of a transaction raises the epoch, so delayed requests and batches
of a transaction that has ended are fenced. The markers carry the new epoch to the partitions.

A `Transaction` is a value. A change makes another one, which takes effect when it is written.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from odradek.model.clock import WallMs
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = (1 << 15) - 1

# The version of the transaction protocol of a client (KIP-890). Kafka writes version 1 as 0.
VERSION_1: Final = 0  # one epoch for all transactions of a producer
VERSION_2: Final = 2


class State(IntEnum):
    """The state of a transaction, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


STATE_NAMES: Final[Mapping[State, str]] = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
_AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
_PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
VALID_PREVIOUS: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: _AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: _AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _AT_REST,
    State.PREPARE_EPOCH_FENCE: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id as its coordinator has it. Times are wall time in milliseconds."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH  # NO_EPOCH: the id is new, and not written yet
    # Before the last change, whose answer the producer may not have received (KIP-360).
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    next_producer_id: int = NO_PRODUCER_ID  # the producer id from its end on (version 2)
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    updated_ms: int
    client_version: int = VERSION_1

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open: the id may begin one, or expire."""
        return self.state in _AT_REST

    @property
    def is_prepared(self) -> bool:
        """Whether its end is decided, and some markers may not be written yet."""
        return self.state in _PREPARED

    @property
    def commits(self) -> bool:
        """Of a transaction that is prepared or complete: whether it is committed."""
        return self.state in {State.PREPARE_COMMIT, State.COMPLETE_COMMIT}

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs another producer id."""
        return is_exhausted(self.producer_epoch)

    def left_ms(self, wall_ms: WallMs) -> int:
        """How long it may stay open, at most its whole time-out (a wall clock may jump back).

        -1: it is open for too long.
        """
        return min(max(self.started_ms + self.timeout_ms - wall_ms, -1), self.timeout_ms)

    def may_expire(self, wall_ms: WallMs, expiration_ms: int) -> bool:
        """Whether the id is not used for `transactional.id.expiration.ms`."""
        return self.is_at_rest and self.updated_ms + expiration_ms <= wall_ms


def is_exhausted(producer_epoch: int) -> bool:
    """Whether an epoch is the last that a producer gets."""
    return producer_epoch >= EPOCH_MAX - 1


# ------------------------------------------------------------------------------------ changes


def initialized(
    transaction: Transaction,
    *,
    timeout_ms: int,
    expected_epoch: int | None,
    fresh_producer_id: int | None,
    wall_ms: WallMs,
) -> Transaction | ErrorCode:
    """InitProducerId: a producer starts, or recovers from an error; or the error for it.

    `expected_epoch` is the epoch in its request (KIP-360). `fresh_producer_id` is used where no
    epoch is left, see `needs_producer_id`.
    """
    _check(transaction, State.EMPTY)
    begun = replace(
        transaction,
        state=State.EMPTY,
        last_producer_id=transaction.producer_id,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIMESTAMP,
        updated_ms=wall_ms,
        client_version=VERSION_1,
    )
    epoch = transaction.producer_epoch
    if needs_producer_id(transaction, expected_epoch):
        if fresh_producer_id is None:  # it became necessary meanwhile
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return replace(
            begun,
            producer_id=fresh_producer_id,
            producer_epoch=0,
            last_producer_epoch=NO_EPOCH if expected_epoch is None else epoch,
        )
    if expected_epoch is None:
        return replace(begun, producer_epoch=epoch + 1, last_producer_epoch=NO_EPOCH)
    if epoch in {NO_EPOCH, expected_epoch}:
        return replace(begun, producer_epoch=epoch + 1, last_producer_epoch=epoch)
    if expected_epoch == transaction.last_producer_epoch:
        # A retry: the answer was lost. No other producer has started since, which would have set
        # the last epoch to NO_EPOCH.
        return begun
    return ErrorCode.PRODUCER_FENCED


def needs_producer_id(transaction: Transaction, expected_epoch: int | None) -> bool:
    """Whether this InitProducerId needs another producer id."""
    return transaction.is_exhausted and expected_epoch in {None, transaction.producer_epoch}


def with_partitions(
    transaction: Transaction,
    added: Collection[TopicPartition],
    *,
    wall_ms: WallMs,
    client_version: int,
) -> Transaction:
    """AddPartitionsToTxn: the first partitions begin the transaction."""
    _check(transaction, State.ONGOING)
    return replace(
        transaction,
        state=State.ONGOING,
        last_producer_id=transaction.producer_id,
        partitions=transaction.partitions.union(added),
        started_ms=wall_ms if transaction.is_at_rest else transaction.started_ms,
        updated_ms=wall_ms,
        client_version=client_version,
    )


def prepared(
    transaction: Transaction,
    *,
    commit: bool,
    wall_ms: WallMs,
    client_version: int = VERSION_1,
    fresh_producer_id: int | None = None,
) -> Transaction:
    """EndTxn: the end is decided."""
    state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    _check(transaction, state)
    ending = replace(
        transaction,
        state=state,
        last_producer_id=transaction.producer_id,
        # Version 2 allows to abort a transaction without partitions: it begins with its end.
        started_ms=wall_ms if transaction.is_at_rest else transaction.started_ms,
        updated_ms=wall_ms,
        client_version=client_version,
    )
    if client_version < VERSION_2:
        return ending
    return replace(
        ending,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=transaction.producer_epoch,
        next_producer_id=NO_PRODUCER_ID if fresh_producer_id is None else fresh_producer_id,
    )


def fenced(transaction: Transaction, *, wall_ms: WallMs) -> Transaction:
    """The coordinator aborts it, in an epoch that its producer does not have.

    The log may hold a transaction in epoch 32,767, because a client may have sent that epoch to a
    broker of another version. Kafka 3.9 cannot end it (`prepareFenceProducerEpoch` throws): it
    stays open, and InitProducerId gets UNKNOWN_SERVER_ERROR. Here it is aborted in that epoch; the
    next producer gets another id.
    """
    _check(transaction, State.PREPARE_ABORT)
    return replace(
        transaction,
        state=State.PREPARE_ABORT,
        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
        last_producer_id=transaction.producer_id,
        last_producer_epoch=NO_EPOCH,
        updated_ms=wall_ms,
    )


def completed(transaction: Transaction, *, wall_ms: WallMs) -> Transaction:
    """All markers are written."""
    state = State.COMPLETE_COMMIT if transaction.commits else State.COMPLETE_ABORT
    _check(transaction, state)
    ended = replace(
        transaction,
        state=state,
        last_producer_id=transaction.producer_id,
        partitions=frozenset(),
        updated_ms=wall_ms,
    )
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return ended
    return replace(
        ended,
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        next_producer_id=NO_PRODUCER_ID,
    )


def dead(transaction: Transaction) -> Transaction:
    """The transaction of an expired transactional id, before its tombstone is written."""
    _check(transaction, State.DEAD)
    return replace(transaction, state=State.DEAD)


def _check(transaction: Transaction, state: State) -> None:
    assert transaction.state in VALID_PREVIOUS[state], (transaction, state)
