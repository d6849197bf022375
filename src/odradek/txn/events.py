"""What may happen to a transaction coordinator.

`request` is the number under which who asked waits; the `Answer` bears it. `now_ms` is wall time:
it is written, and other coordinators will go by it.
"""

from dataclasses import dataclass

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.txn.transaction import NO_EPOCH, NO_PRODUCER_ID, VERSION_1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer begins; or goes on after an error, saying what it has (KIP-360)."""

    request: int
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: int | None = None  # drawn if `needs_producer_id` said so
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions are to join a transaction, or to begin one."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = VERSION_1
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A producer commits or aborts."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = VERSION_1
    fresh_producer_id: int | None = None  # drawn if `ends_producer_id` said so
    now_ms: int


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of the append that was asked for last for this id."""

    transactional_id: str
    error: ErrorCode
    now_ms: int


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Markers of this transaction are committed in these partitions, or are not needed there."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    now_ms: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A transaction has been open for longer than its producer wanted."""

    transactional_id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class ExpirationDue:
    """It is time to look for ids that nobody has used for `transactional.id.expiration.ms`."""

    now_ms: int
    expiration_ms: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """Another broker leads the partition now; whoever waits here has to ask there."""


Event = (
    InitProducerId
    | AddPartitions
    | EndTransaction
    | Appended
    | MarkersWritten
    | TimedOut
    | ExpirationDue
    | Resigned
)
