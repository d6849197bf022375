"""What is kept of groups: rebalances from reports and from polls, and the bounds."""

from odradek.model.partition import TopicPartition
from odradek.web.groups.history import GROUPS_MAX, GroupHistory, difference
from odradek.web.groups.values import (
    ObservedGroup,
    ObservedMember,
    PartitionLag,
    RebalanceSource,
    ReportedRebalance,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def member(name, *partitions):
    return ObservedMember(member_id=name, client_id="app", host="h", partitions=partitions)


def group(*members, state="Stable", wall_ms=1_000, partitions=(), rebalance=None, name="g"):
    return ObservedGroup(
        group_id=name, state=state, wall_ms=wall_ms, members=members, partitions=partitions,
        rebalance=rebalance,
    )  # fmt: skip


def test_two_polls_that_differ_show_a_rebalance():
    history = GroupHistory()
    history.observe(group(member("a", P0, P1)))
    history.observe(group(member("a", P0), member("b", P1), wall_ms=2_000))
    history.observe(group(member("b", P0, P1), wall_ms=3_000))
    history.observe(group(member("b", P0, P1), wall_ms=4_000))

    assert [(each.at_ms, each.text) for each in history.rebalances("g")] == [
        (3_000, "left: a; 1 partition moved between members that stayed"),
        (2_000, "joined: b"),
    ]
    assert {each.source for each in history.rebalances("g")} == {RebalanceSource.POLLS}


def test_a_state_alone_shows_a_rebalance():
    assert difference(group(member("a")), group(member("a"), state="PreparingRebalance")) == (
        "the state became PreparingRebalance"
    )


def test_the_coordinator_reports_each_rebalance_once():
    history = GroupHistory()
    for wall_ms, began_ms in ((1_000, 900), (2_000, 900), (3_000, 2_500)):
        reported = ReportedRebalance(generation=5, began_ms=began_ms, reason="b left", since_ms=1)
        history.observe(group(member("a"), wall_ms=wall_ms, rebalance=reported))

    assert [(each.at_ms, each.text, each.source) for each in history.rebalances("g")] == [
        (2_500, "b left", RebalanceSource.REPORT),
        (900, "b left", RebalanceSource.REPORT),
    ]


def lag(committed, end, partition=P0):
    return PartitionLag(partition=partition, committed=committed, end=end)


def test_the_lag_over_time_begins_again_when_its_partitions_change():
    history = GroupHistory()
    history.observe(group(wall_ms=1_000, partitions=(lag(0, 100),)))
    history.observe(group(wall_ms=11_000, partitions=(lag(50, 100),)))
    assert history.trend("g").direction == "falling"

    both = (lag(50, 100), lag(0, 1_000_000, P1))
    history.observe(group(wall_ms=12_000, partitions=both))

    assert [each.lag for each in history.lags("g")] == [1_000_050]
    assert history.trend("g").direction == ""


def test_end_offsets_are_shared_by_the_groups_of_a_topic():
    history = GroupHistory()
    history.observe(group(wall_ms=1_000, partitions=(lag(0, 100),)))
    history.observe(group(wall_ms=2_000, partitions=(lag(0, 200),), name="other"))

    assert history.ends(P0).passed_ms(150) == 1_500


def test_the_number_of_groups_is_bounded():
    history = GroupHistory()
    for n in range(GROUPS_MAX + 1):
        history.observe(group(partitions=(lag(0, 1),), name=f"g{n}"))

    assert history.lags("g0") == []
    assert len(history.lags(f"g{GROUPS_MAX}")) == 1
    history.keep_only(["g5"])
    assert len(history.lags("g5")) == 1
    assert history.lags("g6") == []
