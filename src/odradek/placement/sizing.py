"""How many partitions a topic needs, and what they cost. Rules on figures.

One partition takes what one producer writes to it and gives what one consumer reads of it, so
much a second. For a target a topic needs

    target / Tp   partitions for its producers      Tp: what one partition takes
    target / Tc   partitions for its consumers      Tc: what one partition gives

and so the larger of the two. `target / max(Tp, Tc)`, a formula that is often quoted, is how many
the faster side needs alone: a lower bound, with which the slower side stays below the target.

What the count costs:

    buffers       each producer may fill a batch for each partition: batch.size x partitions
    fetches       each consumer may be answered max.partition.fetch.bytes for each partition that
                  it reads, and fetch.max.bytes by each broker; one that reads all is the worst case
    descriptors   a segment's log and its two indexes, for each replica on a broker
    memory        what a broker holds for each replica
    election      when a broker dies, its partitions get other leaders, one after the other
"""

from math import ceil
from typing import Final, NamedTuple

BATCH_BYTES: Final = 16_384
# Of each segment: log, offset index, time index.
FILES_A_SEGMENT: Final = 3


class Throughput(NamedTuple):
    """What one partition takes from producers and gives to consumers, bytes a second."""

    producer: float
    consumer: float


class Needed(NamedTuple):
    """How many partitions a target needs."""

    for_producers: int
    for_consumers: int
    lower_bound: int  # target / max(Tp, Tc): the formula, and what it is

    @property
    def partitions(self) -> int:
        """Enough for both."""
        return max(self.for_producers, self.for_consumers)


class CostRules(NamedTuple):
    """What one replica, or one election, costs on a cluster."""

    batch_bytes: int = BATCH_BYTES
    partition_fetch_bytes: int = 1 << 20  # max.partition.fetch.bytes
    fetch_bytes: int = 50 << 20  # fetch.max.bytes
    replica_bytes: int = 13_000  # memory of a broker for one idle replica
    election_ms: float = 2.0  # for each partition that a dead broker led
    segments: int = 2  # of each replica


class Cost(NamedTuple):
    """What a number of partitions costs."""

    producer_buffer_bytes: int
    consumer_buffer_bytes: int
    replicas_a_broker: int
    descriptors_a_broker: int
    memory_a_broker_bytes: int
    election_ms: float


def needed_partitions(target: float, throughput: Throughput) -> Needed:
    """The partitions that a target of bytes a second needs; all figures above zero."""
    assert target > 0, target
    assert min(throughput) > 0, throughput
    return Needed(
        ceil(target / throughput.producer),
        ceil(target / throughput.consumer),
        ceil(target / max(throughput)),
    )


def cost_of(partitions: int, *, replication_factor: int, brokers: int, rules: CostRules) -> Cost:
    """What so many partitions cost, spread evenly."""
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
