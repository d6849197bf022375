"""The order and the levels of the heat strip."""

import pytest

from odradek.web.lanes.heat import HeatLevel, PartitionHealth, heat_strip, level_of, ranges

HEALTHY = {"replicas": 3, "in_sync": 3, "min_isr": 2}


def health(partition=0, **state):
    return PartitionHealth(partition=partition, **{**HEALTHY, **state})


@pytest.mark.parametrize(
    ("state", "level"),
    [
        ({}, HeatLevel.HEALTHY),
        ({"is_preferred": False}, HeatLevel.NOT_PREFERRED),
        ({"is_moving": True}, HeatLevel.MOVING),
        ({"in_sync": 2, "min_isr": 1}, HeatLevel.UNDER_REPLICATED),
        ({"in_sync": 2, "min_isr": None}, HeatLevel.UNDER_REPLICATED),
        ({"in_sync": 2}, HeatLevel.AT_MIN_ISR),
        ({"in_sync": 1, "is_moving": True}, HeatLevel.UNDER_MIN_ISR),
        ({"in_sync": 0, "has_leader": False}, HeatLevel.OFFLINE),
    ],
)
def test_a_partition_has_the_worst_level_that_is_true_of_it(state, level):
    assert level_of(health(**state)) is level


def test_the_worst_are_first_and_then_the_lowest_numbers():
    strip = heat_strip(
        "t",
        [
            health(0),
            health(1, in_sync=1),
            health(2),
            health(3, has_leader=False),
            health(4, in_sync=1),
            health(5, in_sync=1),
        ],
    )
    assert [cell.partition for cell in strip.cells] == [3, 1, 4, 5, 0, 2]
    assert strip.data == "6:3;5:1,4-5;0:0,2"
    assert strip.summary == (
        "t: 6 partitions: 1 offline (3); 3 under min.insync.replicas (1,4-5); 2 healthy."
    )
    assert [(entry.level, entry.text) for entry in strip.legend] == [
        (HeatLevel.OFFLINE, "1 offline (3)"),
        (HeatLevel.UNDER_MIN_ISR, "3 under min.insync.replicas (1,4-5)"),
        (HeatLevel.HEALTHY, "2 healthy"),
    ]


def test_a_healthy_topic_says_so():
    strip = heat_strip("t", [health(number) for number in range(1200)])
    assert strip.summary == "t: 1,200 partitions, all healthy."
    assert strip.data == "0:0-1199"


def test_many_partitions_at_a_level_are_counted_and_not_named():
    strip = heat_strip("t", [health(number, has_leader=False) for number in range(11)])
    assert strip.summary == "t: 11 partitions: 11 offline."


def test_numbers_are_written_as_ranges():
    assert ranges([1, 3, 4, 5, 9]) == "1,3-5,9"
    assert ranges([]) == ""
