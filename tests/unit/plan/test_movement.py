"""Plans move little, keep every rule, and claim no bound that is not proven."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.partition import TopicPartition
from odradek.plan import movement
from odradek.plan.cluster import ClusterPicture, Replicas, loads
from odradek.plan.movement import PlanError, change_replication_factor, drain, rebalance

pytest.importorskip("scipy", reason="the extra `plan`")


def picture(racks, replicas, sizes=None, in_sync=None):
    return ClusterPicture(
        racks,
        {
            TopicPartition("t", number): Replicas(
                tuple(brokers),
                (sizes or {}).get(number, 1000),
                in_sync=tuple((in_sync or {}).get(number, brokers)),
            )
            for number, brokers in enumerate(replicas)
        },
    )


def drawn(seed, brokers, racks, partitions, factor, *, spread):
    """A random cluster; `spread`: with no two replicas of a partition in one rack."""
    rng = random.Random(seed)
    racks_of = {broker: f"r{broker % racks}" for broker in range(brokers)}
    replicas = []
    for _ in range(partitions):
        if spread:
            chosen = [rng.choice([b for b in racks_of if b % racks == r])
                      for r in rng.sample(range(racks), factor)]  # fmt: skip
        else:
            chosen = rng.sample(sorted(racks_of), factor)
        replicas.append(chosen)
    return picture(racks_of, replicas, {n: rng.randrange(1, 10_000) for n in range(partitions)})


def check(before, plan, brokers, factors=None):
    """The invariants of every plan."""
    racks = {before.rack_of(broker) for broker in brokers}
    for partition, replicas in plan.after.items():
        factor = (factors or {}).get(partition, len(before.partitions[partition].brokers))
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
        in_racks = [before.rack_of(broker) for broker in replicas]
        # Never two in one rack if there are enough racks; otherwise every rack has one.
        assert len(set(in_racks)) == min(factor, len(racks))
    moved = sum(
        len(set(plan.after[p]) - set(held.brokers)) * held.size_bytes
        for p, held in before.partitions.items()
    )
    assert plan.moved_bytes == moved
    has_best_balance = plan.imbalance <= plan.imbalance_bound + 1e-6
    assert plan.bound_bytes <= moved + 1 or not has_best_balance
    assert 0 <= plan.gap <= 1


def test_a_balanced_cluster_is_not_changed():
    even = picture({0: None, 1: None, 2: None}, [(0, 1), (1, 2), (2, 0)])
    plan = rebalance(even)

    assert plan.changed == []
    assert (plan.moved_bytes, plan.imbalance) == (0, 0)


def test_a_new_broker_gets_its_share_and_nothing_else_moves():
    before = picture(dict.fromkeys(range(3)), [(0, 1)] * 6)
    plan = rebalance(before)
    held = loads(before.racks, plan.after, plan.sizes)

    check(before, plan, range(3))
    assert {load.replicas for load in held.values()} == {4}
    assert {load.leaders for load in held.values()} == {2}
    assert plan.moved_bytes == 4 * 1000
    assert plan.gap < 0.001


def test_the_smallest_partitions_move():
    sizes = {0: 9000, 1: 10, 2: 8000, 3: 20}
    before = picture(dict.fromkeys(range(2)), [(0,)] * 4, sizes)
    plan = rebalance(before)

    assert plan.moved_bytes == 30
    assert {p.partition for p in plan.moved} == {1, 3}


def test_two_replicas_in_one_rack_are_separated():
    before = picture({0: "a", 1: "a", 2: "b", 3: "b"}, [(0, 1), (2, 3), (0, 2), (1, 3)])
    plan = rebalance(before)

    check(before, plan, range(4))
    assert len(plan.moved) == 2


def test_a_rack_with_few_brokers_holds_what_the_rule_gives_it():
    # Three racks, three replicas: the only broker of rack c has to hold everything.
    before = picture({0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}, [(0, 2, 4)] * 4)
    plan = rebalance(before)

    check(before, plan, range(5))
    assert plan.imbalance == plan.imbalance_bound > 0
    assert loads(before.racks, plan.after, plan.sizes)[4].replicas == 4


def test_a_drained_broker_holds_nothing_and_the_others_keep_what_they_have():
    before = drawn(3, 6, 3, 40, 3, spread=True)
    plan = drain(before, [4])

    left = [broker for broker in before.racks if broker != 4]
    check(before, plan, left)
    for partition, held in before.partitions.items():
        assert set(held.brokers) - {4} <= set(plan.after[partition])
    assert plan.gap < 0.001


def test_a_drain_that_leaves_too_few_is_refused():
    before = picture({0: "a", 1: "b"}, [(0, 1)])
    with pytest.raises(PlanError, match="replication factor 2 needs as many brokers"):
        drain(before, [0])


def test_more_replicas_go_to_other_racks_and_all_old_ones_stay():
    before = picture({0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}, [(0,), (2,), (4,), (1,)])
    plan = change_replication_factor(before, ["t"], 3)

    check(before, plan, range(6), dict.fromkeys(before.partitions, 3))
    for partition, held in before.partitions.items():
        assert set(held.brokers) <= set(plan.after[partition])
    assert plan.moved_bytes == 8 * 1000


def test_fewer_replicas_copy_nothing():
    before = drawn(5, 6, 3, 30, 3, spread=True)
    plan = change_replication_factor(before, ["t"], 2)

    check(before, plan, before.racks, dict.fromkeys(before.partitions, 2))
    assert plan.moved_bytes == 0


RACKS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


@pytest.mark.parametrize(
    ("replicas", "in_sync", "factor", "stay"),
    [
        ((0, 2, 4), (4,), 1, {4}),
        ((0, 2, 4), (2, 4), 2, {2, 4}),
        ((0, 2, 4), (2,), 2, {2}),  # one that is behind has to stay with it
        ((4, 2, 0), (), 1, set()),  # none is in sync: any replica may stay
    ],
)
def test_in_sync_replicas_stay_when_the_factor_is_reduced(replicas, in_sync, factor, stay):
    # The other in-sync brokers hold much else, so that the balance would remove these replicas.
    much = {TopicPartition("other", n): Replicas((broker,), 10, broker, (broker,))
            for n, broker in enumerate([*in_sync] * 4)}  # fmt: skip
    held = Replicas(replicas, 1000, -1, in_sync)
    before = ClusterPicture(RACKS, {TopicPartition("t", 0): held, **much})
    plan = change_replication_factor(before, ["t"], factor)
    after = set(plan.after[TopicPartition("t", 0)])

    assert len(after) == factor
    assert after <= set(replicas)
    assert after & set(in_sync) == stay
    assert plan.moved_bytes == 0


def test_two_in_sync_in_one_rack_do_not_both_stay():
    before = picture(RACKS, [(0, 1, 2)], in_sync={0: (0, 1)})
    plan = change_replication_factor(before, ["t"], 2)
    (after,) = plan.after.values()

    assert len(set(after) & {0, 1}) == 1
    assert 2 in after
    assert plan.moved_bytes == 0


def test_a_drain_keeps_all_that_is_in_sync_and_not_drained():
    before = picture(RACKS, [(0, 2, 4)] * 6, in_sync=dict.fromkeys(range(6), (0, 4)))
    plan = drain(before, [0])

    for after in plan.after.values():
        assert {2, 4} <= set(after)
        assert len(set(after) & {1}) == 1


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_plan_that_keeps_the_racks_leaves_more_in_sync(data):
    """Compared with all sets of replicas that the racks allow."""
    racks = data.draw(st.integers(1, 3))
    racks_of = {broker: f"r{broker % racks}" for broker in range(6)}
    held = [
        data.draw(st.permutations(range(6)).map(lambda order: tuple(order[:3]))) for _ in range(4)
    ]
    in_sync = {
        number: tuple(data.draw(st.sets(st.sampled_from(replicas))))
        for number, replicas in enumerate(held)
    }
    before = picture(racks_of, held, in_sync=in_sync)
    if data.draw(st.booleans()):
        factor, away = data.draw(st.integers(1, 3)), set()
        plan = change_replication_factor(before, ["t"], factor)
    else:
        factor, away = 3, {data.draw(st.integers(0, 5))}
        plan = drain(before, sorted(away))

    brokers = sorted(set(racks_of) - away)
    check(before, plan, brokers, dict.fromkeys(before.partitions, factor))
    for partition, after in plan.after.items():
        sound = set(in_sync[partition.partition])
        held_now = set(held[partition.partition])
        most = max(
            (len(set(chosen) & sound), len(set(chosen) & held_now))
            for chosen in combinations(brokers, factor)
            if _even(chosen, racks_of, racks, factor)
        )
        assert (len(set(after) & sound), len(set(after) & held_now)) == most


def _even(chosen, racks_of, racks, factor):
    counts = [sum(racks_of[b] == f"r{r}" for b in chosen) for r in range(racks)]
    return max(counts) <= -(-factor // racks) and min(counts) >= factor // racks


def test_an_impossible_factor_is_refused():
    before = picture({0: None, 1: None}, [(0,)])
    for factor in (0, 3):
        with pytest.raises(PlanError, match=f"replication factor {factor}"):
            change_replication_factor(before, ["t"], factor)


def test_without_a_solver_the_error_has_the_command_to_install_one(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(movement, "import_module", missing)
    with pytest.raises(PlanError, match=r"-m pip install 'scipy>=[\d.]+'$"):
        rebalance(picture({0: None}, [(0,)]))


def test_nothing_to_plan():
    plan = rebalance(ClusterPicture({0: None}, {}))

    assert plan.changed == []


def test_bytes_are_balanced_by_bytes():
    before = drawn(7, 6, 3, 120, 3, spread=True)
    plan = rebalance(before, by_bytes=True)
    held = loads(before.racks, plan.after, plan.sizes)
    share = sum(load.size_bytes for load in held.values()) / 6

    check(before, plan, before.racks)
    assert max(abs(load.size_bytes - share) for load in held.values()) < 0.1 * share


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1 << 20),
    brokers=st.integers(3, 9),
    racks=st.integers(1, 4),
    partitions=st.integers(1, 30),
    factor=st.integers(1, 3),
    spread=st.booleans(),
)
def test_every_plan_keeps_the_rules(seed, brokers, racks, partitions, factor, spread):
    racks = min(racks, brokers)
    spread = spread and factor <= racks
    before = drawn(seed, brokers, racks, partitions, factor, spread=spread)
    plan = rebalance(before)

    check(before, plan, before.racks)
    leaders = [load.leaders for load in loads(before.racks, plan.after, plan.sizes).values()]
    assert sum(leaders) == partitions


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_is_better_than_the_bound_says(seed):
    """All plans of a tiny cluster, one after the other: none below the bound, none better."""
    before = drawn(seed, 4, 2, 3, 2, spread=False)
    plan = rebalance(before)
    brokers = sorted(before.racks)
    good = [
        pair for pair in combinations(brokers, 2)
        if before.rack_of(pair[0]) != before.rack_of(pair[1])
    ]  # fmt: skip
    best = None
    for a in good:
        for b in good:
            for c in good:
                counts = [sum(x in pair for pair in (a, b, c)) for x in brokers]
                if sum(max(0, n - 2, 1 - n) for n in counts) > plan.imbalance_bound + 1e-6:
                    continue
                cost = sum(
                    len(set(pair) - set(held.brokers)) * held.size_bytes
                    for pair, held in zip((a, b, c), before.partitions.values(), strict=True)
                )
                best = cost if best is None else min(best, cost)

    assert best is not None
    assert plan.bound_bytes <= best + 1
    has_best_balance = plan.imbalance <= plan.imbalance_bound + 1e-6
    assert plan.moved_bytes >= best or not has_best_balance


def test_a_plan_for_one_topic_leaves_the_order_of_others():
    others = {
        TopicPartition("__consumer_offsets", n): Replicas((0, 2, 4), 10, 0, (0, 2, 4))
        for n in range(4)
    }
    held = Replicas((0,), 10, 0, (0,))
    before = ClusterPicture(RACKS, {TopicPartition("t", 0): held, **others})
    plan = change_replication_factor(before, ["t"], 3)

    assert len(plan.after[TopicPartition("t", 0)]) == 3
    assert {p: plan.after[p] for p in others} == dict.fromkeys(others, (0, 2, 4))
