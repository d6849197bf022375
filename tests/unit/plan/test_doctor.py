"""What is wrong is told with the command that mends it, and nothing is told where nothing is."""

import pytest

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.doctor import Address, Facts, Group, Move, Producer, Severity, diagnose

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 10_000_000


def facts(partitions=None, racks=None, isr_min=None, **more):
    racks = {0: "a", 1: "b", 2: "c"} if racks is None else racks
    partitions = {
        P0: Replicas((0, 1), 5, 0, (0, 1)), P1: Replicas((1, 2), 5, 1, (1, 2))
    } if partitions is None else partitions  # fmt: skip
    return Facts(
        picture=ClusterPicture(racks, partitions, isr_min or {}),
        bootstrap="b:9092",
        now_ms=NOW_MS,
        **more,
    )


def only(given):
    (finding,) = diagnose(given)
    return finding


def test_a_sound_cluster():
    assert diagnose(facts()) == []


def test_a_partition_without_a_leader():
    finding = only(facts({P0: Replicas((3,), 5, -1, (3,))}))

    assert (finding.severity, finding.kind, finding.subject) == (
        Severity.CRITICAL,
        "offline",
        "t-0",
    )
    assert "broker 3 is away" in finding.why
    assert finding.mend == "start broker 3 (odradek start 3)"


def test_nobody_in_sync_is_there_although_replicas_are():
    finding = only(facts({P0: Replicas((0, 1), 5, -1, ())}))

    assert finding.kind == "offline"
    assert "--election-type UNCLEAN --topic t --partition 0" in finding.mend


def test_fewer_in_sync_than_acks_all_needs():
    finding = only(facts({P0: Replicas((0, 3), 5, 0, (0,))}, isr_min={"t": 2}))

    assert (finding.severity, finding.kind) == (Severity.CRITICAL, "under-min-isr")
    assert "broker 3 is away" in finding.why


def test_a_replica_that_is_away():
    finding = only(facts({P0: Replicas((0, 3), 5, 0, (0,)), P1: Replicas((1, 3), 5, 1, (1,))}))

    assert (finding.kind, finding.subject) == ("under-replicated", "t-0, t-1")
    assert "odradek plan drain 3 --bootstrap-server b:9092" in finding.mend


def test_a_follower_that_is_behind():
    finding = only(facts({P0: Replicas((0, 1), 5, 0, (0,))}))

    assert finding.kind == "under-replicated"
    assert "alive and not in sync" in finding.why


def test_a_replica_that_is_being_made_is_no_fault():
    given = facts({P0: Replicas((0, 1), 5, 0, (0,))}, moves={P0: Move((1,), ())})

    assert diagnose(given) == []


def test_leaders_elsewhere_than_preferred():
    finding = only(facts({P0: Replicas((0, 1), 5, 1, (0, 1)), P1: Replicas((1, 2), 5, 1, (1, 2))}))

    assert (finding.kind, finding.severity) == ("leader-skew", Severity.NOTE)
    assert "--election-type PREFERRED" in finding.mend


def test_racks_on_some_brokers_only():
    finding = only(facts(racks={0: "a", 1: "b", 2: None}))

    assert (finding.kind, finding.subject) == ("racks", "broker 2")


def test_replicas_that_share_a_rack():
    finding = only(facts(racks={0: "a", 1: "a", 2: "b"}))

    assert (finding.kind, finding.subject) == ("same-rack", "t-0")
    assert "odradek plan rebalance" in finding.mend


def test_throttles_that_nobody_needs_any_more():
    given = {
        "broker_throttles": {0: {"leader.replication.throttled.rate": "5"}, 1: {}},
        "topic_throttles": {"t": {"leader.replication.throttled.replicas": "*"}},
    }
    finding = only(facts(**given))

    assert finding.kind == "throttle"
    assert "--entity-type brokers --entity-name 0 --delete-config" in finding.mend
    assert "--entity-type topics --entity-name t --delete-config" in finding.mend
    assert diagnose(facts(**given, moves={P0: Move((2,), ())})) == []


def test_a_reassignment_that_waits_for_a_broker():
    finding = only(facts(moves={P0: Move((7,), (0,))}))

    assert (finding.kind, finding.subject) == ("stuck", "t-0")
    assert "broker 7 is away" in finding.why


@pytest.mark.parametrize(("age_ms", "hangs"), [(1_199_999, False), (1_200_001, True)])
def test_a_transaction_that_is_open_for_too_long(age_ms, hangs):
    found = diagnose(facts(open_transactions={P0: [Producer(9, 1, 42, NOW_MS - age_ms)]}))

    assert bool(found) is hangs
    if hangs:
        assert "abort --topic t --partition 0 --start-offset 42" in found[0].mend


def test_a_group_that_nobody_reads_for():
    groups = [Group("old", "Empty", 5), Group("done", "Empty", 0), Group("busy", "Stable", 900)]

    assert only(facts(groups=groups)).subject == "group old"


def test_records_from_the_future():
    finding = only(facts(newest_timestamps={P0: NOW_MS + 48 * 3_600_000, P1: NOW_MS}))

    assert (finding.kind, finding.subject) == ("retention", "t-0")
    assert "48 hours ahead" in finding.why


def test_a_name_that_cannot_be_resolved():
    addresses = {0: Address("b0", 9092), 1: Address("b1.inner", 9092, "Name or service not known")}
    finding = only(facts(addresses=addresses))

    assert (finding.severity, finding.subject) == (Severity.CRITICAL, "broker 1")
    assert "b1.inner:9092" in finding.why


def test_a_broker_that_does_not_answer():
    finding = only(facts(unreachable={2: "h:1: Connection refused"}))

    assert (finding.severity, finding.kind, finding.subject) == (
        Severity.CRITICAL, "unreachable", "broker 2"
    )  # fmt: skip


def test_the_worst_comes_first():
    given = facts(
        {P0: Replicas((3,), 5, -1, (3,)), P1: Replicas((1, 2), 5, 2, (1, 2))},
        groups=[Group("g", "Empty", 1)],
        racks={1: None, 2: "c"},
    )

    severities = [finding.severity for finding in diagnose(given)]
    assert severities == sorted(severities)
    assert severities[0] is Severity.CRITICAL
