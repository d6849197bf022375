"""Placement against known assignments and against those that Apache Kafka 3.9 computed."""

import pathlib

import pytest

from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.placement.assign import assign, place
from odradek.placement.assign_rack_aware import alternate_racks, assign_rack_aware
from odradek.placement.balance import leader_imbalance
from odradek.placement.expand import expand
from odradek.placement.manual import check_added, check_new
from odradek.placement.walk import RoundStart

TWO_RACKS = {0: "r1", 1: "r1", 2: "r1", 3: "r2", 4: "r2", 5: "r2"}


def numbered(*replicas):
    return dict(enumerate(replicas))


@pytest.mark.parametrize(
    ("brokers", "start", "assignment"),
    [
        pytest.param(
            [0, 1, 2, 3], RoundStart(3, 2), numbered((3, 2, 0), (0, 3, 1), (1, 0, 2)),
            id="4 brokers, 3 partitions, RF 3",
        ),
        pytest.param(
            [0, 1, 2, 3], RoundStart(3, 1),
            numbered((3, 1, 2), (0, 2, 3), (1, 3, 0), (2, 0, 1), (3, 2, 0)),
            id="4 brokers, 5 partitions, RF 3",
        ),
        pytest.param(
            [0, 1, 2, 3], RoundStart(1, 2),
            numbered(
                (1, 0, 2), (2, 1, 3), (3, 2, 0), (0, 3, 1), (1, 2, 3),
                (2, 3, 0), (3, 0, 1), (0, 1, 2), (1, 3, 0),
            ),
            id="4 brokers, 9 partitions, RF 3",
        ),
        pytest.param(
            [0, 1, 2, 3, 4], RoundStart(0, 0),
            numbered(
                (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
                (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
            ),
            id="5 brokers, 10 partitions, RF 3, fixed start 0",
        ),
    ],
)  # fmt: skip
def test_racks_unknown(brokers, start, assignment):
    found = assign(brokers, partitions=len(assignment), replication_factor=3, start=start)

    assert found == assignment
    racks = dict.fromkeys(reversed(brokers))
    assert found == place(racks, partitions=len(found), replication_factor=3, start=start)


def test_racks_of_all_brokers_are_set():
    found = assign_rack_aware(TWO_RACKS, partitions=2, replication_factor=3, start=RoundStart(3, 0))

    assert found == {0: (4, 2, 5), 1: (2, 5, 0)}
    assert found == place(TWO_RACKS, partitions=2, replication_factor=3, start=RoundStart(3, 0))


def test_racks_alternate():
    three_racks = TWO_RACKS | {6: "r3", 7: "r3", 8: "r3"}

    assert alternate_racks(TWO_RACKS) == [0, 3, 1, 4, 2, 5]
    assert alternate_racks(three_racks) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert alternate_racks({5: "b", 1: "b", 2: "a", 3: "b"}) == [2, 1, 3, 5]


RECORDED = (pathlib.Path(__file__).parent / "apache_kafka_3_9.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize("line", RECORDED)
def test_as_apache_kafka_places(line):
    given, _, expected = line.partition(" -> ")
    fields = dict(word.split("=") for word in given.split())
    brokers = (entry.split(":") for entry in fields["brokers"].split(","))
    racks = {int(broker): None if rack == "-" else rack for broker, rack in brokers}
    start, first = int(fields["start"]), int(fields["first"])

    found = place(
        racks,
        partitions=int(fields["partitions"]),
        replication_factor=int(fields["factor"]),
        start=RoundStart(start, start, first_partition=first),
    )

    assert " ".join(",".join(map(str, replicas)) for replicas in found.values()) == expected
    assert list(found) == list(range(first, first + len(found)))


def test_racks_can_be_ignored():
    start = RoundStart(0, 0)
    found = place(
        TWO_RACKS | {6: None}, partitions=3, replication_factor=2, start=start, rack_aware=False
    )

    assert found == {0: (0, 1), 1: (1, 2), 2: (2, 3)}


def refusal(attempt):
    with pytest.raises(ApiError) as refused:
        attempt()
    return refused.value.code, refused.value.message


@pytest.mark.parametrize(
    ("partitions", "factor", "code", "message"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (-1, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (
            1, 0, ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0.",
        ),
        (
            1, 5, ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 5 larger than available brokers: 4.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_placed_is_refused(partitions, factor, code, message):
    brokers = dict.fromkeys(range(4))
    found = refusal(
        lambda: place(
            brokers, partitions=partitions, replication_factor=factor, start=RoundStart(0, 0)
        )
    )

    assert found == (code, message)


def test_racks_on_some_brokers_only_are_refused():
    racks = {1: "r1", 2: None}
    found = refusal(
        lambda: place(racks, partitions=1, replication_factor=1, start=RoundStart(0, 0))
    )

    assert found == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Not all brokers have rack information for replica rack aware assignment.",
    )


# ------------------------------------------------------------------------------- expansion


def test_new_partitions_continue_the_assignment_as_in_apache_kafka():
    # Recorded from Kafka: t2 on brokers 1-4 had (2,1), (3,4), (1,2); three more were added.
    existing = numbered((2, 1), (3, 4), (1, 2))

    assert expand(existing, dict.fromkeys((1, 2, 3, 4)), partitions=6) == {
        3: (1, 3), 4: (2, 1), 5: (3, 2)
    }  # fmt: skip


def test_expansion_begins_beside_a_first_replica_that_is_not_registered():
    existing = numbered((3, 1))
    brokers = dict.fromkeys((1, 2, 4, 5))

    assert expand(existing, brokers, partitions=2)[1][0] == 5  # at (1 + index of 4) % 4
    assert expand(numbered((9, 1)), brokers, partitions=2)[1][0] == 2  # unknown: from the start


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        (2, "Topic currently has 3 partitions, which is higher than the requested 2."),
        (3, "Topic already has 3 partitions."),
    ],
)
def test_a_topic_only_grows(partitions, message):
    existing = numbered((1,), (2,), (3,))

    found = refusal(lambda: expand(existing, dict.fromkeys((1, 2, 3)), partitions=partitions))

    assert found == (ErrorCode.INVALID_PARTITIONS, message)


def test_added_partitions_may_have_a_manual_assignment():
    existing = numbered((1, 2), (2, 3))
    brokers = dict.fromkeys((1, 2, 3))

    found = expand(existing, brokers, partitions=4, manual=[[3, 1], [1, 2]])

    assert found == {2: (3, 1), 3: (1, 2)}


# ---------------------------------------------------------------------- manual assignment


def test_a_new_topic_may_have_a_manual_assignment():
    assert check_new({1: [1, 2], 0: [0, 1]}, brokers={0, 1, 2}) == {0: (0, 1), 1: (1, 2)}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ({0: [1], 1: [1, 2]}, "All partitions should have the same number of replicas"),
        ({}, "All partitions should have the same number of replicas"),
        ({0: [], 1: []}, "Cannot have replication factor of 0 for partition id 0."),
        ({0: [1, 1]}, "Duplicate replica assignment found: 0: 1,1"),
        ({0: [1], 2: [2]}, "partitions should be a consecutive 0-based integer sequence"),
        ({-1: [1], 0: [2]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: [9], 1: [-1]}, "Unknown broker(s) in replica assignment: -1, 9."),
    ],
)
def test_an_invalid_assignment_of_a_new_topic_is_refused(assignment, message):
    found = refusal(lambda: check_new(assignment, brokers={1, 2}))

    assert found == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ([[9, 1]], "Unknown broker(s) in replica assignment: 9."),
        ([[1, 2]], "Increasing the number of partitions by 2 but 1 assignments provided."),
        ([[1, 2], []], "Cannot have replication factor of 0 for partition id 3."),
        (
            [[1, 2], [1, 1]],
            "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 3.",
        ),
        (
            [[1], [1, 2, 3]],
            (
                "Inconsistent replication factor between partitions, partition 0 has 2 while "
                "partitions [2, 3] have replication factors [1, 3], respectively."
            ),
        ),
    ],
)
def test_an_invalid_assignment_of_added_partitions_is_refused(assignments, message):
    existing = numbered((1, 2), (2, 3))
    found = refusal(lambda: check_added(assignments, added=2, existing=existing, brokers={1, 2, 3}))

    assert found == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


# ------------------------------------------------------------------------------- balance


def test_the_imbalance_of_a_broker_is_of_its_preferred_partitions():
    a, b, c, d = (TopicPartition("t", number) for number in range(4))

    found = leader_imbalance([(d, 2, 1), (c, 1, None), (b, 1, -1), (a, 1, 1)])

    assert list(found) == [1, 2]
    assert (found[1].preferred_count, found[1].led_by_others) == (3, [b])
    assert (found[2].preferred_count, found[2].led_by_others, found[2].ratio) == (1, [d], 1.0)


def test_the_limit_itself_is_not_exceeded():
    partitions = [(TopicPartition("t", number), 1, 1 if number else 2) for number in range(10)]
    imbalance = leader_imbalance(partitions)[1]

    assert imbalance.ratio == 0.1
    assert not imbalance.exceeds(10)
    assert imbalance.exceeds(9)
