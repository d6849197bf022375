"""What the simulated brokers of a scenario hold: replicas, their logs and the records in them."""

from collections.abc import Iterator
from typing import Final

from odradek.broker.replication.partition import Partition
from odradek.log.log import Log
from odradek.model.partition import TopicPartition
from odradek.record.batch import BatchHeader, iter_batches
from odradek.record.records import Record, iter_records
from odradek.replica.leader import LeaderReplica
from odradek.sim.world.cluster import SimulatedBroker
from odradek.sim.world.disk import Crash

TOPIC: Final = TopicPartition("t", 0)
TWO_IN_SYNC: Final = {"min.insync.replicas": "2"}


class NoWitness:
    """Keeps the violations, and checks nothing else."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def loaded(self, broker: SimulatedBroker) -> None: ...

    def started(self, broker: SimulatedBroker) -> None: ...

    def dying(self, broker: SimulatedBroker) -> None: ...

    def died(self, broker: SimulatedBroker, how: Crash) -> None: ...

    def put_back(self, broker: SimulatedBroker) -> None: ...

    def stopped(self, broker: SimulatedBroker) -> None: ...

    def violated(self, what: str) -> None:
        self.violations.append(what)


def held(broker: SimulatedBroker, partition: TopicPartition = TOPIC) -> Partition | None:
    """The replica on a broker; None if there is none, or the broker does not run."""
    runs = broker.is_up and broker.broker is not None
    return broker.running.replicas.get(*partition) if runs else None


def replica(broker: SimulatedBroker, partition: TopicPartition = TOPIC) -> Partition:
    """The replica on a broker.

    Raises:
        LookupError: there is none, or the broker does not run.
    """
    found = held(broker, partition)
    if found is None:
        raise LookupError(f"{broker.name} has no replica of {partition}")
    return found


def leading(broker: SimulatedBroker, partition: TopicPartition = TOPIC) -> LeaderReplica:
    """The replica on a broker, as leader.

    Raises:
        LookupError: the broker does not lead the partition.
    """
    leader = replica(broker, partition).leader
    if leader is None:
        raise LookupError(f"{broker.name} does not lead {partition}")
    return leader


def log_of(broker: SimulatedBroker, partition: TopicPartition = TOPIC) -> Log:
    """The log of the replica on a broker.

    Raises:
        LookupError: there is no replica.
    """
    return replica(broker, partition).held_log()


def leo(broker: SimulatedBroker) -> int:
    return log_of(broker).leo


def high_watermark(broker: SimulatedBroker) -> int:
    return log_of(broker).high_watermark


def contents(broker: SimulatedBroker, partition: TopicPartition = TOPIC) -> list[bytes]:
    """The values of all records in the log of a replica."""
    return [bytes(record.value or b"") for _, record in records_of(log_of(broker, partition))]


def records_of(log: Log) -> Iterator[tuple[BatchHeader, Record]]:
    """All records of a log, each with the header of its batch."""
    for segment in log.segments:
        data = memoryview(segment.file.read_now(0, segment.size))
        for position, header in iter_batches(data):
            batch = data[position : position + header.size_bytes]
            for record in iter_records(batch):
                yield header, record
