"""What may differ between a page and a run, and what may not."""

import pytest
from tests.documentation.masks import Bindings, as_on_page, is_same_line, matched, ports


def same(page, actual, bindings=None):
    return is_same_line(page, actual, bindings or Bindings())


@pytest.mark.parametrize(
    ("page", "actual"),
    [
        ("serves 127.0.0.1:9092", "serves 127.0.0.1:31007"),
        ("at http://localhost:8080/metrics", "at http://localhost:20011/metrics"),
        ("broker 0 (pid 4711)", "broker 0 (pid 3)"),
        ("id 12345678-1234-1234-1234-1234567890ab", "id 87654321-1234-1234-1234-1234567890ff"),
        ("TopicId: dTPhqz0ATveeR1oRF7yJxQ", "TopicId: F2-N_qD4Su6aQx0bZbd5gA"),
        ("TopicId: w-EebpdkSeujpSZke_2Naw Part", "TopicId: kSHrfJFETwibDuGocTBHng Part"),
        ("TopicId: w-EebpdkSeujpSZke_2Naw", "TopicId: -EebpdkSeujpSZke_2Naw-"),
        ('"topic_id":"w-EebpdkSeujpSZke_2Naw"', '"topic_id":"kSHrfJFETwibDuGocTBHng"'),
        ("since 10:00:00", "since 23:59:59"),
        ("2026-01-31 10:00:00,123 INFO", "2027-12-01 11:12:13,456 INFO"),
        ("CreateTime:1767225600000", "CreateTime:1799999999999"),
        ("copied in 0.42 s", "copied in 17 s"),
        (
            "9000 records, 1,234.5 records/sec (1.2 MB/sec)",
            "9000 records, 7 records/sec (3 MB/sec)",
        ),
        ("30 records in 0.1 s (1,007/s)", "30 records in 2.5 s (12/s)"),
        ("copied: 3.9 MB", "copied: 4.4 MB"),
        ("caught up 2 s ago", "caught up now"),
        ("Replicas: 0,1,2 Isr: 0,1,2", "Replicas: 0,1,2 Isr: 2,1,0"),
        ("(leader 0, epoch 1, ISR 0,1)", "(leader 0, epoch 1, ISR 1,0)"),
        ("a   1   b", "a  1 b"),
    ],
)
def test_what_differs_from_run_to_run_is_masked(page, actual):
    assert same(page, actual)


@pytest.mark.parametrize(
    ("page", "actual"),
    [
        ("broker 1", "broker 2"),
        ("offset 17", "offset 18"),
        ("10 ms", "10 s since"),
        ("3 MiB", "4 MiB"),
        ("3 MiB", "3 MB"),
        ("since 10:00:00", "since never"),
        ("pid 4711", "pid none"),
        ("ab", "a b"),
        ("Isr: 0,1,2", "Isr: 0,1"),
        ("Replicas: 0,1", "Replicas: 1,0"),
    ],
)
def test_everything_else_is_compared(page, actual):
    assert not same(page, actual)


def test_a_port_is_one_port_in_the_whole_page():
    bindings = Bindings()

    assert same("127.0.0.1:9092", "127.0.0.1:20001", bindings)
    assert same("127.0.0.1:9092", "127.0.0.1:20001", bindings)
    assert not same("127.0.0.1:9092", "127.0.0.1:20002", bindings)
    assert not same("127.0.0.1:9093", "127.0.0.1:20001", bindings)


def test_a_command_of_the_page_gets_the_ports_and_ids_of_the_run():
    bindings = Bindings()
    same(
        "id 12345678-1234-1234-1234-1234567890ab",
        "id 00000000-1111-1234-1234-1234567890ab",
        bindings,
    )
    same("at 127.0.0.1:9092", "at 127.0.0.1:20001", bindings)

    assert bindings.in_command("up --port 9092; t --server localhost:9092,127.0.0.1:9093") == (
        "up --port 20001; t --server localhost:20001,127.0.0.1:9093"
    )
    assert bindings.in_command("echo 9092") == "echo 9092"
    assert bindings.in_command("x 12345678-1234-1234-1234-1234567890ab").startswith("x 00000000")
    assert bindings.on_page("127.0.0.1:20001 127.0.0.1:20002") == "127.0.0.1:9092 127.0.0.1:20002"


def test_the_ports_that_a_command_names():
    text = "up --port 9092 --http-port=8080\nclientPort=2181 localhost:9093 9999"

    assert list(ports(text)) == [9092, 8080, 2181, 9093]


@pytest.mark.parametrize(
    ("page", "actual", "is_same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "...", "d"], ["a", "d"], True),
        (["...", "b", "...", "d"], ["a", "b", "c", "d"], True),
        (["...", "b", "..."], ["a", "c"], False),
        (["a", "...", "a"], ["a"], False),
        (["..."], [], True),
    ],
)
def test_three_dots_stand_for_any_lines(page, actual, is_same):
    assert (matched(page, actual, Bindings()) is not None) == is_same


def test_lines_that_differ_in_masks_stay_as_they_are_on_the_page():
    page = ["served 127.0.0.1:9092 (pid 4711)", "old", "took 3 ms"]
    actual = ["served 127.0.0.1:20001 (pid 12)", "new at 127.0.0.1:20001", "took 9 ms"]
    bindings = Bindings()
    bindings.bind("address", "9092", "20001")

    assert as_on_page(page, actual, bindings) == [
        "served 127.0.0.1:9092 (pid 4711)", "new at 127.0.0.1:9092", "took 3 ms",
    ]  # fmt: skip
