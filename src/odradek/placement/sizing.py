"""How many partitions a topic needs, and what they cost. Pure arithmetic.

The throughput of one partition is limited by one producer that writes to it and one consumer that
reads it. For a target throughput a topic needs

    target / Tp   partitions for its producers      Tp: throughput of a producer to one partition
    target / Tc   partitions for its consumers      Tc: throughput of a consumer of one partition

and so the larger of the two. `target / max(Tp, Tc)`, a formula that is often quoted, is the number
that the faster side needs: a lower bound, with which the slower side stays below the target.

What partitions cost:

    buffers       each producer may fill a batch for each partition: batch.size x partitions
    fetches       each consumer may be answered max.partition.fetch.bytes for each partition that
                  it reads, and fetch.max.bytes by each broker; one that reads all is the worst case
    descriptors   a segment's log and its two indexes, for each replica on a broker
    memory        what a broker holds for each replica
    election      when a broker fails, its partitions get other leaders, one after the other
"""

from math import ceil
from typing import Final, NamedTuple

BATCH_BYTES: Final = 16_384
# Of each segment: log, offset index, time index.
FILES_A_SEGMENT: Final = 3


class Throughput(NamedTuple):
    """The throughput of one partition for one producer and for one consumer, bytes a second."""

    producer: float
    consumer: float


class Needed(NamedTuple):
    """The number of partitions that a target throughput needs."""

    for_producers: int
    for_consumers: int
    lower_bound: int  # target / max(Tp, Tc)

    @property
    def partitions(self) -> int:
        return max(self.for_producers, self.for_consumers)


class CostRules(NamedTuple):
    """The cost of one replica and of one election, and the clients' buffer settings."""

    batch_bytes: int = BATCH_BYTES
    partition_fetch_bytes: int = 1 << 20  # max.partition.fetch.bytes
    fetch_bytes: int = 50 << 20  # fetch.max.bytes
    replica_bytes: int = 13_000  # memory of a broker for one idle replica
    election_ms: float = 2.0  # for each partition that a failed broker led
    segments: int = 2  # of each replica


class Cost(NamedTuple):
    """The cost of a number of partitions."""

    producer_buffer_bytes: int
    consumer_buffer_bytes: int
    replicas_a_broker: int
    descriptors_a_broker: int
    memory_a_broker_bytes: int
    election_ms: float


def needed_partitions(target: float, throughput: Throughput) -> Needed:
    """The partitions for a target in bytes a second; all arguments are above zero."""
    assert target > 0, target
    assert min(throughput) > 0, throughput
    return Needed(
        ceil(target / throughput.producer),
        ceil(target / throughput.consumer),
        ceil(target / max(throughput)),
    )


def cost_of(partitions: int, *, replication_factor: int, brokers: int, rules: CostRules) -> Cost:
    """The cost of partitions that are spread evenly over the brokers."""
    replicas = ceil(partitions * replication_factor / brokers)
    led = ceil(partitions / brokers)
    return Cost(
        rules.batch_bytes * partitions,
        min(rules.partition_fetch_bytes * partitions, rules.fetch_bytes * min(brokers, partitions)),
        replicas,
        replicas * rules.segments * FILES_A_SEGMENT,
        replicas * rules.replica_bytes,
        led * rules.election_ms,
    )
