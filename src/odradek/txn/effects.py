"""What a transaction coordinator may ask for."""

from dataclasses import dataclass

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.txn.transaction import NO_EPOCH, NO_PRODUCER_ID, VERSION_1, Transaction


@dataclass(frozen=True, slots=True)
class Append:
    """Write this to the coordinator's partition, on all replicas in sync; say what became of it.

    There is never more than one for an id. `again`: it failed a moment ago, so wait a little.
    """

    transactional_id: str
    transaction: Transaction | None  # None: the id is forgotten
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell who asked."""

    request: int
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Have the leaders of these partitions write how the transaction ends, until all have.

    `client_version`: in version 2 the producer epoch is above that of the transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int = VERSION_1


Effect = Append | Answer | WriteMarkers
