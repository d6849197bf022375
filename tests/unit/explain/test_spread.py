"""When `odradek why topic` says that clients do not spread over the partitions."""

import pytest

from odradek.explain.spread import RECORDS_MIN, explain_spread
from odradek.plan.commands import Caller


def explained(reports):
    return [str(line) for line in explain_spread(reports, Caller(bootstrap="b:9"))]


def report(*replicas):
    return {"replicas": list(replicas)}


def led(partition, leo, start=0, epoch=1, role="leader"):
    return {
        "topic": "t",
        "partition": partition,
        "role": role,
        "leader_epoch": epoch,
        "leo": leo,
        "log_start_offset": start,
    }


def test_a_partition_with_most_records_is_named_with_its_broker():
    reports = {0: report(led(0, 100), led(2, 100)), 1: report(led(1, 5_000), led(3, 200))}
    (line,) = explained(reports)
    assert line.startswith(
        "t-1 has 93% of the topic's 5,400 records, an even share of 4 partitions is 25%, "
        "and of all on broker 1 96%: broker 1 does that part of the work alone, with one core"
    )
    assert line.endswith("odradek plan partitions --bootstrap-server b:9 --keys-topic t")


@pytest.mark.parametrize(
    "ends",
    [
        [RECORDS_MIN],  # one partition has them all
        [1, RECORDS_MIN - 2],  # too few records
        [400, 1_000],  # 71 % of two
        [300, 300, 1_000],  # 62 % of three
        [1_000, 1_000, 1_000, 2_900],  # 49 % of four
    ],
)
def test_an_even_topic_and_a_small_one_are_not_named(ends):
    assert not explained({0: report(*(led(n, end) for n, end in enumerate(ends)))})


@pytest.mark.parametrize("ends", [[300, 1_000], [200, 200, 1_000], [900, 900, 900, 2_900]])
def test_an_uneven_topic_is_named(ends):
    assert explained({0: report(*(led(n, end) for n, end in enumerate(ends)))})


def test_records_that_are_deleted_do_not_count():
    assert not explained({0: report(led(0, 9_000, start=8_000), led(1, 1_000))})


def test_followers_and_former_leaders_do_not_count():
    reports = {
        0: report(led(0, 1_000, epoch=2), led(1, 1_000)),
        1: report(led(0, 90_000, epoch=1), led(1, 90_000, role="follower")),
    }
    assert not explained(reports)
