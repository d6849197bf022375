"""However many brokers, racks and partitions: no duplicates, an even spread, and racks apart."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.placement.assign import place
from odradek.placement.assign_rack_aware import alternate_racks
from odradek.placement.expand import expand
from odradek.placement.walk import RoundStart

STARTS = st.builds(RoundStart, st.integers(0, 100), st.integers(0, 100))
BROKERS = st.sets(st.integers(0, 1000), min_size=1, max_size=12)
EVEN_RACKS = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(
    lambda size: {rack * 10 + i: f"r{rack}" for rack in range(size[0]) for i in range(size[1])}
)
ODD_RACKS = st.dictionaries(
    st.integers(0, 1000), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12
)


def factor_for(data, brokers):
    return data.draw(st.integers(1, len(brokers)), label="replication factor")


@given(st.one_of(BROKERS.map(dict.fromkeys), ODD_RACKS), st.integers(1, 60), STARTS, st.data())
def test_every_partition_has_that_many_different_brokers(racks, partitions, start, data):
    factor = factor_for(data, racks)
    assignment = place(racks, partitions=partitions, replication_factor=factor, start=start)

    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in racks) <= 1


@given(BROKERS, st.integers(1, 3), STARTS, st.data())
def test_whole_rounds_spread_leaders_and_replicas_evenly(brokers, rounds, start, data):
    factor = factor_for(data, brokers)
    assignment = place(
        dict.fromkeys(brokers),
        partitions=rounds * len(brokers),
        replication_factor=factor,
        start=start,
    )

    leaders = Counter(replicas[0] for replicas in assignment.values())
    held = Counter(broker for replicas in assignment.values() for broker in replicas)
    assert leaders == dict.fromkeys(brokers, rounds)
    assert held == dict.fromkeys(brokers, rounds * factor)


@given(ODD_RACKS, st.integers(1, 60), STARTS, st.data())
def test_racks_are_kept_apart_as_far_as_there_are_racks(racks, partitions, start, data):
    factor = factor_for(data, racks)
    assignment = place(racks, partitions=partitions, replication_factor=factor, start=start)

    for replicas in assignment.values():
        used = {racks[broker] for broker in replicas}
        assert len(used) == min(factor, len(set(racks.values())))


@given(EVEN_RACKS, STARTS, st.data())
def test_racks_of_equal_size_hold_equally_much(racks, start, data):
    factor = data.draw(st.sampled_from([len(set(racks.values())), len(racks)]))
    assignment = place(racks, partitions=len(racks), replication_factor=factor, start=start)

    held = Counter(racks[broker] for replicas in assignment.values() for broker in replicas)
    assert len(set(held.values())) == 1


@given(ODD_RACKS)
def test_alternation_loses_no_broker_and_puts_no_rack_first_twice(racks):
    alternated = alternate_racks(racks)

    assert sorted(alternated) == sorted(racks)
    first = [racks[broker] for broker in alternated[: len(set(racks.values()))]]
    assert first == sorted(set(racks.values()))


@given(
    st.one_of(BROKERS.map(dict.fromkeys), ODD_RACKS),
    st.integers(1, 20),
    st.integers(1, 20),
    STARTS,
    st.data(),
)
def test_expansion_adds_what_is_missing_and_nothing_else(racks, present, added, start, data):
    factor = factor_for(data, racks)
    existing = place(racks, partitions=present, replication_factor=factor, start=start)

    new = expand(existing, racks, partitions=present + added)

    assert list(new) == list(range(present, present + added))
    assert all(len(set(replicas)) == factor for replicas in new.values())


@given(ODD_RACKS, st.integers(1, 30), STARTS, st.data(), st.randoms())
def test_the_order_in_which_brokers_are_named_decides_nothing(
    racks, partitions, start, data, random
):
    factor = factor_for(data, racks)
    names = list(racks.items())
    random.shuffle(names)

    one = place(racks, partitions=partitions, replication_factor=factor, start=start)
    two = place(dict(names), partitions=partitions, replication_factor=factor, start=start)

    assert one == two
