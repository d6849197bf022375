"""The risks of a plan are reported, and nothing else."""

import pytest

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.move_risks import move_risks
from odradek.plan.movement import MovementPlan
from odradek.plan.reassignment import plan_to

T = TopicPartition("t", 0)


def risks(before, after, *, in_sync, isr_min=1, leader=None):
    leader = in_sync[0] if leader is None and in_sync else leader
    held = Replicas(before, 100, -1 if leader is None else leader, in_sync)
    picture = ClusterPicture(dict.fromkeys(range(6)), {T: held}, {"t": isr_min})
    plan = MovementPlan({T: before}, {T: after}, {T: 100}, 0, 0.0, 0.0, 0.0)
    return [(risk.kind, str(risk)) for risk in move_risks(picture, plan)]


@pytest.mark.parametrize(
    ("before", "after", "given", "kinds"),
    [
        ((0, 1), (0, 2), {"in_sync": (0, 1)}, []),
        ((0,), (1,), {"in_sync": (0,)}, []),  # copied first, and only then taken away
        ((0, 1, 2), (0, 1, 3), {"in_sync": (0, 2)}, ["behind"]),
        ((0, 1, 2), (1, 2, 3), {"in_sync": (0,)}, ["none-in-sync"]),
        ((0, 1, 2), (0, 3, 4), {"in_sync": (0,), "isr_min": 2}, ["under-min-isr"]),
        ((0, 1), (2, 3), {"in_sync": (0,), "leader": -1}, ["offline"]),
        ((0, 1, 2), (0,), {"in_sync": (0, 1, 2), "isr_min": 2}, ["factor"]),
        ((0, 1, 2), (0,), {"in_sync": (1,), "isr_min": 2}, ["none-in-sync", "factor"]),
        ((0, 1), (0, 1), {"in_sync": (0,), "isr_min": 2}, []),  # it is not changed
    ],
)
def test_of_each_partition_the_worst_risk_is_reported(before, after, given, kinds):
    assert [kind for kind, _ in risks(before, after, **given)] == kinds


def test_the_broker_that_must_stay_up_is_named():
    ((_, text),) = risks((0, 1, 2), (1, 2, 3), in_sync=(0,))

    assert text == (
        "t-0: none of those that stay (1,2) is in sync; broker 0 has to stay up until they have "
        "caught up"
    )


def test_partitions_with_the_same_risk_are_reported_together():
    partitions = [TopicPartition("t", n) for n in range(7)]
    held = Replicas((0, 1), 100, -1, (0,))
    picture = ClusterPicture({1: None, 2: None}, dict.fromkeys(partitions, held))
    plan = MovementPlan(
        dict.fromkeys(partitions, (0, 1)), dict.fromkeys(partitions, (1, 2)), {}, 0, 0.0, 0.0, 0.0
    )
    (risk,) = move_risks(picture, plan)

    assert risk.partitions == tuple(partitions)
    assert str(risk).startswith("t-0, t-1, t-2, t-3, t-4 and 2 more: there is no leader")
    assert "until broker 0 runs again" in str(risk)


class CountedRacks(dict):
    """Racks by broker; `looks` counts how often all of them are looked at."""

    looks = 0

    def values(self):
        self.looks += 1
        return super().values()


def test_the_racks_of_all_brokers_are_looked_at_once_and_not_for_each_replica():
    racks = CountedRacks({0: "a", 1: "b", 2: "c"})
    names = [TopicPartition("t", number) for number in range(50)]
    picture = ClusterPicture(racks, {name: Replicas((0, 1), 1, 0, (0, 1)) for name in names})
    plan = plan_to(picture, dict.fromkeys(names, (0, 2)))

    assert move_risks(picture, plan) == []
    assert racks.looks == 1
