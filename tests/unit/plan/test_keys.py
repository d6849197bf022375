"""How keys are distributed, and which would change partition."""

from odradek.client.producer.partitioner import partition_of_key
from odradek.plan.keys import count_keys, spreads

KEYS = [b"key-%d" % n for n in range(1000)]


def test_a_hot_key_makes_a_partition_large_whatever_the_count():
    keys = count_keys([b"hot"] * 500 + KEYS[:500] + [None] * 100)
    few, many = spreads(keys, [2, 50])

    assert keys.total() == 1000
    assert few.largest_share > 0.7
    assert many.largest_share >= 0.5
    assert many.skew > 25


def test_partitions_without_keys_are_counted():
    (spread,) = spreads(count_keys([b"a", b"b"]), [10])

    used = {partition_of_key(b"a", 10), partition_of_key(b"b", 10)}
    assert spread.empty == 10 - len(used)


def test_keys_that_change_partition():
    keys = count_keys(KEYS)
    same, double = spreads(keys, [6, 12], present=6)

    assert same.moved == 0
    assert 0.4 < double.moved < 0.6  # half of them, where the count doubles
    moved = sum(partition_of_key(key, 6) != partition_of_key(key, 12) for key in KEYS)
    assert double.moved == moved / 1000


def test_no_keys_at_all():
    (spread,) = spreads(count_keys([]), [3])

    assert (spread.largest_share, spread.empty, spread.moved) == (0, 3, 0)
