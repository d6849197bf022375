"""Java's order and format, compared with outputs of Kafka's tools."""

import pytest

from odradek.cli.kafka.support.java import double, hash_order, partition_hash, string_hash


def test_strings_hash_as_in_java():
    assert string_hash("") == 0
    assert string_hash("t4") == 3648
    assert string_hash("polygenelubricants") == 1 << 31  # the smallest int of Java
    assert string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_topics_come_in_the_order_that_kafka_39_described_them_in():
    topics = ["a.b", "e2", "t1", "t2", "t3", "t4"]

    assert hash_order(topics, string_hash, expected=6) == ["t4", "a.b", "e2", "t1", "t2", "t3"]


def test_a_map_that_grew_has_the_order_of_its_last_size():
    names = [f"n{number}" for number in range(40)]

    assert hash_order(names, string_hash) == hash_order(names, string_hash, expected=64)


def test_keys_of_one_bucket_stay_in_order():
    assert hash_order([("a", 1), ("a", 17)], partition_hash, expected=1) == [("a", 1), ("a", 17)]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1024.0, "1024.0"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (2147483647.0, "2.147483647E9"),
        (-12345678.5, "-1.23456785E7"),
        (1e22, "1.0E22"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_written_as_java_writes_them(number, text):
    assert double(number) == text
