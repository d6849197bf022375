"""Effects of the transaction coordinator's state machine."""

from dataclasses import dataclass
from typing import NamedTuple

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import SharedEffect
from odradek.txn.events import TimedOut
from odradek.txn.transaction import NO_EPOCH, NO_PRODUCER_ID, VERSION_1, Transaction


@dataclass(frozen=True, slots=True)
class Append:
    """Append this to the coordinator's partition, with acks=all; `Appended` is the outcome.

    There is never more than one for an id. `again`: the last one failed, so after a short pause.
    """

    transactional_id: str
    transaction: Transaction | None  # None: a tombstone
    again: bool = False


class ProducerAnswer(NamedTuple):
    """To `InitProducerId`, `AddPartitions`, `EndTransaction`: with what the producer goes on."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request that waits."""

    request: int
    answer: ProducerAnswer


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Have the leaders of these partitions write how the transaction ends, until all have.

    `MarkersWritten` is the outcome, in as many parts as it takes. In version 2 the producer epoch
    is above that of the transaction (`client_version`).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int = VERSION_1


@dataclass(frozen=True, slots=True)
class Proceed:
    """Hand in this event next: an error in one such step does not keep the others from theirs."""

    event: TimedOut


OwnEffect = Append | Answer | WriteMarkers | Proceed
Effect = OwnEffect | SharedEffect
