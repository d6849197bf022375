"""Why replicas are assigned as they are, and what the failure of a broker leaves."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.placement.assign import place
from odradek.placement.walk import RoundStart
from odradek.plan.assignment import as_picture, losses, propose

RACKS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}


def test_a_partition_is_explained_replica_by_replica():
    found = propose(RACKS, partitions=2, replication_factor=3, start=RoundStart(0, 0))

    first = found.reasons[0]
    assert found.assignment[0] == (0, 1, 2)
    assert first[0] == "0 leads: place 0 of [0, 1, 2, 3, 4, 5], for (0 + start 0) % 6 = 0"
    explained = "1 follows: place (0 + 1 + (0 x 3 racks + 0) % (6 - 1)) % 6 = 1; rack b is new"
    assert first[1] == explained
    assert len(first) == 3


def test_skipped_brokers_are_explained():
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}
    found = propose(racks, partitions=4, replication_factor=2, start=RoundStart(0, 0))
    explained = " ".join(line for reasons in found.reasons.values() for line in reasons)

    assert "skipped" in explained
    assert "(rack a has one)" in explained


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=2, max_size=7),
    known=st.booleans(),
    partitions=st.integers(1, 20),
    factor=st.integers(1, 3),
    index=st.integers(0, 9),
    shift=st.integers(0, 9),
)
def test_the_explanation_is_of_the_assignment_that_a_controller_makes(
    racks, known, partitions, factor, index, shift
):
    factor = min(factor, len(racks))
    start = RoundStart(index % len(racks), shift)
    of = {broker: rack if known else None for broker, rack in enumerate(racks)}
    found = propose(of, partitions=partitions, replication_factor=factor, start=start)

    assert found.assignment == place(
        of, partitions=partitions, replication_factor=factor, start=start
    )
    for partition, replicas in found.assignment.items():
        assert [int(line.split()[0]) for line in found.reasons[partition]] == list(replicas)


def test_what_the_loss_of_each_broker_and_rack_leaves():
    found = propose(RACKS, partitions=6, replication_factor=2, start=RoundStart(0, 0))
    picture = as_picture(RACKS, "t", found, isr_min=2)
    explained = {loss.name: loss for loss in losses(picture, {
        partition: held.brokers for partition, held in picture.partitions.items()
    })}  # fmt: skip

    assert list(explained) == [*(f"broker {b}" for b in range(6)), "rack a", "rack b", "rack c"]
    assert explained["broker 0"].leaders_moved == 1
    assert explained["broker 0"].under_min_isr == 2
    assert explained["rack a"].offline == 0
    assert explained["rack a"].leaders_moved == 2
    alone = propose({0: None, 1: None}, partitions=2, replication_factor=1, start=RoundStart(0, 0))
    picture = as_picture({0: None, 1: None}, "t", alone, isr_min=1)
    (first, _) = losses(picture, {p: held.brokers for p, held in picture.partitions.items()})
    assert (first.offline, first.under_min_isr, first.leaders_moved) == (1, 1, 0)
