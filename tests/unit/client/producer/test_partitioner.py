"""Partitions of keys as in Java, and sticky partitions of records without a key."""

import pytest

from odradek.client.producer.partitioner import StickyPartition, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From Apache Kafka's own test of Utils.murmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_has_the_values_of_java(key, expected):
    assert murmur2(key) == expected


def test_a_key_always_goes_to_the_same_partition():
    assert partition_of_key(b"foobar", 12) == (-790332482 & 0x7FFFFFFF) % 12
    assert partition_of_key(b"", 7) == (murmur2(b"") & 0x7FFFFFFF) % 7


def test_records_without_key_stay_until_a_batch_is_full():
    sticky = StickyPartition(100)

    chosen = [sticky.choose([0, 1, 2], 40, drawn) for drawn in (0.5, 0.9, 0.99, 0.99, 0.0)]

    assert chosen == [1, 1, 2, 2, 0]


def test_after_a_record_larger_than_a_batch_the_partition_changes():
    sticky = StickyPartition(100)

    assert [sticky.choose([0, 1], 500, 0.0) for _ in range(3)] == [0, 1, 0]


def test_the_partition_changes_when_it_has_no_leader():
    sticky = StickyPartition(1000)

    assert sticky.choose([0, 1], 1, 0.0) == 0
    assert sticky.choose([1], 1, 0.9) == 1
