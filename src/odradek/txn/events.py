"""Events of the transaction coordinator's state machine.

`request` is the number of the request that waits; the `Answer` to it has the same.
"""

from dataclasses import dataclass

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import Loaded, MarkerReplayed, Replayed, Resigned
from odradek.txn.transaction import NO_EPOCH, NO_PRODUCER_ID, VERSION_1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer starts; or it recovers from an error, with the id and epoch it has (KIP-360)."""

    request: int
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: int | None = None  # allocated where `needs_producer_id` is true


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions join a transaction; the first ones begin it."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = VERSION_1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A producer commits or aborts."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = VERSION_1
    fresh_producer_id: int | None = None  # allocated where `ends_producer_id` is true


@dataclass(frozen=True, slots=True)
class Appended:
    """Outcome of the last `Append` for this id."""

    transactional_id: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Markers of this transaction are committed in these partitions, or are not needed there."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TimeoutsDue:
    """Look for transactions that are open for longer than their producers' time-outs."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A transaction is open for longer than its producer's time-out."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ExpirationDue:
    """Look for ids that are not used for `transactional.id.expiration.ms`."""

    expiration_ms: int


Event = (
    InitProducerId
    | AddPartitions
    | EndTransaction
    | Appended
    | MarkersWritten
    | TimeoutsDue
    | TimedOut
    | ExpirationDue
    | Replayed
    | MarkerReplayed
    | Loaded
    | Resigned
)
