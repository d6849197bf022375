"""The number of partitions needed, by both formulas, and their cost."""

from odradek.placement.sizing import CostRules, Throughput, cost_of, needed_partitions

MB = 1_000_000


def test_both_sides_have_to_reach_the_target():
    needed = needed_partitions(100 * MB, Throughput(producer=10 * MB, consumer=25 * MB))

    assert (needed.for_producers, needed.for_consumers) == (10, 4)
    assert needed.partitions == 10
    assert needed.lower_bound == 4  # with which producers would reach 40 MB a second


def test_a_fraction_of_a_partition_is_rounded_up():
    needed = needed_partitions(101, Throughput(producer=10, consumer=1000))

    assert (needed.for_producers, needed.for_consumers, needed.lower_bound) == (11, 1, 1)


def test_the_buffers_of_ten_thousand_partitions():
    cost = cost_of(10_000, replication_factor=3, brokers=30, rules=CostRules())

    assert cost.producer_buffer_bytes == 163_840_000  # 156.25 MiB
    assert cost.replicas_a_broker == 1000
    assert cost.descriptors_a_broker == 6000
    assert cost.election_ms == 334 * CostRules().election_ms
