"""Each problem is found with its cause, its time and its command; a sound cluster has none."""

import pytest

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller
from odradek.plan.doctor import diagnose
from odradek.plan.facts import (
    Address,
    ClusterFacts,
    CopyProgress,
    GroupFacts,
    OpenProducer,
    RunningReassignment,
    Severity,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 10_000_000


def facts(partitions=None, racks=None, isr_min=None, **more):
    racks = {0: "a", 1: "b", 2: "c"} if racks is None else racks
    partitions = {
        P0: Replicas((0, 1), 5, 0, (0, 1)), P1: Replicas((1, 2), 5, 1, (1, 2))
    } if partitions is None else partitions  # fmt: skip
    return ClusterFacts(
        picture=ClusterPicture(racks, partitions, isr_min or {}),
        wall_ms=NOW_MS,
        **{"caller": Caller("b:9092"), **more},
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
    assert "broker 3 is offline" in finding.why
    assert str(finding.fix).startswith("start broker 3 on its host")


def test_no_in_sync_replica_is_available_although_others_are():
    finding = only(facts({P0: Replicas((0, 1), 5, -1, ())}))

    assert finding.kind == "offline"
    assert "--election-type UNCLEAN --topic t --partition 0" in str(finding.fix)


def test_fewer_in_sync_than_acks_all_needs():
    finding = only(facts({P0: Replicas((0, 3), 5, 0, (0,))}, isr_min={"t": 2}))

    assert (finding.severity, finding.kind) == (Severity.CRITICAL, "under-min-isr")
    assert "broker 3 is offline" in finding.why


def test_a_replica_that_is_offline():
    finding = only(facts({P0: Replicas((0, 3), 5, 0, (0,)), P1: Replicas((1, 3), 5, 1, (1,))}))

    assert (finding.kind, finding.subject) == ("under-replicated", "t-0 and t-1")
    assert "odradek plan drain 3 --bootstrap-server b:9092" in str(finding.fix)


def test_a_follower_that_is_behind():
    finding = only(facts({P0: Replicas((0, 1), 5, 0, (0,))}))

    assert finding.kind == "under-replicated"
    assert "the replicas on broker 1 are not in sync" in finding.why


def failing(leader, problem, partition=None):
    topic, index = partition or (None, None)
    return {
        "leader": leader, "topic": topic, "partition": index, "problem": problem,
        "since_ms": NOW_MS - 60_000,
    }  # fmt: skip


def reporting(*problems):
    return {**REPORT, "fetch_problems": problems}


def behind(**reports):
    """Broker 1 is behind in t-0 of leader 0, and in t-1 of leader 2."""
    partitions = {P0: Replicas((0, 1), 5, 0, (0,)), P1: Replicas((2, 1), 5, 2, (2,))}
    return [f for f in diagnose(facts(partitions, **reports)) if f.kind == "under-replicated"]


def test_a_follower_that_cannot_reach_one_leader_does_not_catch_up_by_itself():
    report = reporting(failing(0, "the leader does not answer"))
    cut, other = behind(reports={1: report}, caller=Caller("b:9092", local={1: "running"}))

    assert (cut.subject, other.subject) == ("t-0", "t-1")
    assert cut.why == (
        "the replicas on broker 1 are not in sync: broker 1 cannot fetch from broker 0 since "
        f"{facts().clock(NOW_MS - 60_000)}: the leader does not answer"
    )
    assert str(cut.fix).startswith("let broker 1 reach broker 0")
    assert "they are copying what they missed" in other.why
    assert str(other.fix).startswith("it ends by itself")


def test_a_follower_whose_fetches_are_refused_is_restarted():
    reason = "OFFSET_OUT_OF_RANGE (its log is 0 to 20)"
    report = reporting(failing(0, reason, P0), failing(2, reason, P0))
    refused, other = behind(reports={1: report}, caller=Caller("b:9092", local={1: "running"}))

    assert refused.subject == "t-0"
    assert refused.why.endswith(reason)
    assert "fetches of broker 1 from broker 0 fail since" in refused.why
    assert str(refused.fix).startswith("odradek restart 1: it compares its logs")
    assert [str(each) for each in refused.fix.commands] == ["odradek restart 1"]
    assert "they are copying what they missed" in other.why


def test_partitions_that_fail_for_the_same_reason_are_one_finding():
    partitions = {P0: Replicas((0, 1), 5, 0, (0,)), P1: Replicas((0, 1), 5, 0, (0,))}
    report = reporting(failing(0, "reason", P0), {**failing(0, "reason", P1), "since_ms": 1})
    finding = only(facts(partitions, reports={1: report}, isr_min={"t": 2}))

    assert (finding.kind, finding.subject) == ("under-min-isr", "t-0 and t-1")
    assert str(finding.fix).startswith("restart broker 1")


def test_an_adding_replica_is_not_a_problem():
    given = facts({P0: Replicas((0, 1), 5, 0, (0,))}, moves={P0: RunningReassignment((1,), ())})

    assert diagnose(given) == []


def test_leaders_elsewhere_than_preferred():
    finding = only(facts({P0: Replicas((0, 1), 5, 1, (0, 1)), P1: Replicas((1, 2), 5, 1, (1, 2))}))

    assert (finding.kind, finding.severity) == ("leader-skew", Severity.NOTE)
    assert "--election-type PREFERRED" in str(finding.fix)


def test_racks_on_some_brokers_only():
    finding = only(facts(racks={0: "a", 1: "b", 2: None}))

    assert (finding.kind, finding.subject) == ("racks", "broker 2")


def test_replicas_that_share_a_rack():
    finding = only(facts(racks={0: "a", 1: "a", 2: "b"}))

    assert (finding.kind, finding.subject) == ("same-rack", "t-0")
    assert "odradek plan rebalance" in str(finding.fix)


def test_throttles_without_a_reassignment():
    given = {
        "broker_throttles": {0: {"leader.replication.throttled.rate": "5"}, 1: {}},
        "topic_throttles": {"t": {"leader.replication.throttled.replicas": "*"}},
    }
    finding = only(facts(**given))

    assert finding.kind == "throttle"
    assert "--entity-type brokers --entity-name 0 --delete-config" in str(finding.fix)
    assert "--entity-type topics --entity-name t --delete-config" in str(finding.fix)
    assert [
        f.kind for f in diagnose(facts(**given, moves={P0: RunningReassignment((2,), ())}))
    ] == ["moving"]


def test_a_reassignment_that_waits_for_a_broker():
    finding = only(facts(moves={P0: RunningReassignment((7,), (0,))}))

    assert (finding.kind, finding.subject) == ("stuck", "t-0")
    assert "broker 7 is offline" in finding.why


@pytest.mark.parametrize(("age_ms", "hangs"), [(1_199_999, False), (1_200_001, True)])
def test_a_transaction_that_is_open_for_too_long(age_ms, hangs):
    found = diagnose(facts(open_transactions={P0: [OpenProducer(9, 1, 42, NOW_MS - age_ms)]}))

    assert bool(found) is hangs
    abort = "abort --topic t --partition 0 --start-offset 42"
    assert [abort in str(finding.fix) for finding in found] == [True] * hangs


def test_a_group_with_lag_and_without_members():
    groups = [
        GroupFacts("old", "Empty", 5),
        GroupFacts("done", "Empty", 0),
        GroupFacts("busy", "Stable", 900),
    ]

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
    assert "whether this host reaches it" in str(finding.fix)


def test_a_broker_that_does_not_answer_in_time_is_named_with_its_address():
    addresses = {2: Address("h", 9092)}
    finding = only(facts(addresses=addresses, unreachable={2: "no answer within 3 s"}))

    assert "whether this host reaches h:9092;" in str(finding.fix)


def test_records_that_were_deleted_before_a_group_read_them():
    finding = only(facts(groups=[GroupFacts("g", "Stable", 0, {P0: 7, P1: 1})]))

    assert (finding.kind, finding.subject) == ("deleted-unread", "group g")
    assert finding.why.startswith("8 records of t-0 and t-1 between its committed offset")
    assert "--entity-name t --add-config retention.ms=N" in str(finding.fix)


def at(age_ms, verdict, *, broker=None, partition=None, says="", by=0):
    return {"at_ms": NOW_MS - age_ms, "number": 1, "verdict": verdict, "says": says, "by": by,
            "broker": broker, "topic": None if partition is None else "t",
            "partition": partition}  # fmt: skip


HERE = Caller("b:9", ("--dir", "D"), {0: "running", 1: "killed"})
DIRECTORY = {"path": "/d", "is_offline": False, "since_ms": None, "why": "",
             "total_bytes": 1 << 34, "usable_bytes": 1 << 33}  # fmt: skip
REPORT = {
    "began_ms": NOW_MS - 5_000, "log_dirs": [DIRECTORY], "unknown_options": [], "refusals": [],
    "cleaner": {"is_enabled": True, "compacted_logs": 2, "given_up": []},
}  # fmt: skip
OPEN = {"name": "PLAINTEXT", "protocol": "PLAINTEXT", "address": "0.0.0.0:9092"}
DAY_MS = 86_400_000
GROUP = {"group": "g", "state": "Stable", "since_ms": NOW_MS - 90_000, "member_count": 2,
         "awaited": [], "rebalance_reason": "", "last_commit_ms": NOW_MS - 90_000}  # fmt: skip
ONE = Replicas((0,), 5, 0, (0,))
REBALANCING = {**GROUP, "state": "PreparingRebalance", "awaited": ["m1"],
               "rebalance_reason": "m2 left"}  # fmt: skip
REFUSED = {"what": "Produce version 99; served are 0-11", "host": "h", "client_id": "c",
           "software": "unknown unknown", "count": 7, "first_ms": NOW_MS - 9_000,
           "last_ms": NOW_MS - 1_000}  # fmt: skip
CLOCK = ClusterFacts(picture=ClusterPicture({}, {}), wall_ms=NOW_MS).clock


LOST = {"at_ms": NOW_MS - 9_000, "topic": "t", "partition": 0, "kind": "damage", "path": "/d/t-0",
        "offset": 7, "end_offset": None, "bytes": 340, "high_watermark": 9, "has_committed": True,
        "span": "the records from offset 7 on", "why": "the checksum is wrong"}  # fmt: skip


def reported(**changed):
    return {"reports": {0: {**REPORT, **changed}}}


@pytest.mark.parametrize(
    ("given", "kind", "text", "fix"),
    [
        (
            facts({P0: ONE}, isr_min={"t": 2}), "replication-factor",
            ("min.insync.replicas is 2 and there is only 1 replica: every write with acks=all is "
            "refused"), "--entity-name t --add-config min.insync.replicas=1",
        ),
        (
            facts({P0: Replicas((1,), 5, -1, (1,))}, {0: None}, caller=HERE,
                  journal=[at(5_000, "BROKER_GONE", broker=1),
                           at(4_000, "LEFT_WITHOUT_LEADER", partition=0)]), "offline",
            (f"no leader since {CLOCK(NOW_MS - 4_000)}: clients can neither write nor read; broker "
            f"1 is offline since {CLOCK(NOW_MS - 5_000)} (its process was killed)"),
            "odradek start 1 --dir D; or",
        ),
        (
            facts({P0: Replicas((0, 1, 2), 5, 0, (0,))}, {0: None}, caller=Caller(
                options=("--dir", "D"), local={1: "killed", 2: "stopped"})), "under-replicated",
            "broker 1 is offline (its process was killed); broker 2 is offline (it was stopped)",
            "odradek start 1 --dir D; odradek start 2 --dir D; or, if it stays away",
        ),
        (
            facts({P0: Replicas((0, 2), 5, 0, (0,))}, {0: None, 2: None}, caller=Caller(
                options=("--dir", "D"), local={2: "paused"})), "under-replicated",
            "the process of broker 2 is paused (SIGSTOP)", "odradek resume 2 --dir D",
        ),
        (
            facts(caller=Caller(options=("--dir", "D"), local={2: "paused"}), unreachable={2: "?"}),
            "unreachable", "does not answer: its process is paused (SIGSTOP)",
            "odradek resume 2 --dir D",
        ),
        (
            facts(unreachable={2: "b2:1: timed out"}, **reported(peers=[
                {"broker": 1, "fetched_ms": NOW_MS, "unanswered_ms": None},
                {"broker": 2, "fetched_ms": NOW_MS - 7_000, "unanswered_ms": NOW_MS - 6_000}])),
            "unreachable", f"does not answer since {CLOCK(NOW_MS - 7_000)}: b2:1", "on its host",
        ),
        (
            facts(unreachable={2: "b2:1: timed out"}, **reported(peers=[
                {"broker": 2, "fetched_ms": None, "unanswered_ms": NOW_MS - 6_000}])),
            "unreachable", f"does not answer since {CLOCK(NOW_MS - 6_000)}: b2:1", "on its host",
        ),
        (
            facts(unreachable={0: "b0:1: Connection refused"}, addresses={0: Address("b0", 1)},
                  answers_at={0: "b:9092"}), "advertised",
            "it answers at b:9092, but advertised.listeners directs clients to b0:1",
            "set advertised.listeners of broker 0 in its server.properties",
        ),
        (
            facts(unreachable={0: "b0:1: Connection refused"}, addresses={0: Address("b0", 1)},
                  answers_at={0: "b:9092"}, **reported()), "advertised",
            f"directs clients to b0:1 since {CLOCK(NOW_MS - 5_000)}, where nothing answers",
            "set advertised.listeners of broker 0 in its server.properties",
        ),
        (
            facts(addresses={0: Address("nope", 1, "not known")}, **reported()), "unresolvable",
            f"directs clients to nope:1 since {CLOCK(NOW_MS - 5_000)}, and that name",
            "to a name that clients resolve",
        ),
        (
            facts(caller=Caller(options=("--dir", "D"), local={2: "crashed"},
                                ends={2: "/d: No space left on device"})), "crashed",
            "its process has ended by itself: /d: No space left on device",
            "make room there (free space, a larger disk or quota, no limit on the size of files)",
        ),
        (
            facts(**reported(log_dirs=[{**DIRECTORY, "is_offline": True, "since_ms": NOW_MS - 9,
                                        "why": "/d: No such file or directory"}, DIRECTORY])),
            "log-dir", "offline since", "mount or restore that directory",
        ),
        (
            facts(**reported(), disk_percent=50.0), "disk",
            "its disk is 50 % full: 8.0 of 16.0 GiB are left; when it is full", "retention.bytes",
        ),
        (
            facts(**reported(log_dirs=[{**DIRECTORY, "full_since_ms": {
                "44": NOW_MS - 3_000, "45": NOW_MS - 2_000, "50": NOW_MS}}]), disk_percent=44.5),
            "disk", f"50 % full, above 44 % since {CLOCK(NOW_MS - 3_000)}: 8.0", "",
        ),
        (
            facts(**reported(cleaner={"is_enabled": False, "compacted_logs": 2, "given_up": []})),
            "cleaner", "log.cleaner.enable is false since", "set log.cleaner.enable=true",
        ),
        (
            facts(**reported(cleaner={"is_enabled": True, "compacted_logs": 2, "given_up": [
                {"partition": "c-0", "since_ms": NOW_MS, "why": "bad checksum"}]})),
            "cleaner", "the cleaner has stopped cleaning it", "restart broker 0 makes it try again",
        ),
        (
            facts(**reported(unknown_options=[{"name": "num.partitons",
                                               "similar": ["num.partitions"]}])),
            "unknown-option", "num.partitions may be meant", "server.properties of broker 0",
        ),
        (
            facts(**reported(invalid_topic_options={"t": {"retention.ms": "retention.ms=abc"}})),
            "invalid-option", "retention.ms=abc: somebody stored that",
            "kafka-configs --alter --topic t --delete-config retention.ms",
        ),
        (
            facts(unreadable_topics={"t": "znode /brokers/topics/t: not JSON"}),
            "unreadable-topic", "no broker serves it: znode /brokers/topics/t: not JSON",
            "kafka-topics --delete --topic t",
        ),
        (
            facts(**reported(exposed=[OPEN])), "in-the-clear",
            "other hosts reach PLAINTEXT://0.0.0.0:9092 since", "127.0.0.1, or to SASL_SSL",
        ),
        (
            facts(**reported(exposed=[OPEN]), caller=HERE), "in-the-clear",
            "every client may do what User:ANONYMOUS may", "odradek up --secure --dir D",
        ),
        (
            facts(**reported(exposed=[{**OPEN, "name": "http", "protocol": "HTTP"}]), caller=HERE),
            "in-the-clear", "http://0.0.0.0:9092", "odradek.http.host=127.0.0.1 in server.prop",
        ),
        (
            facts(certificates={0: NOW_MS + 9 * DAY_MS, 1: NOW_MS + 31 * DAY_MS}), "certificate",
            "expires in 9 days", "replace the certificate in ssl.keystore.location of broker 0",
        ),
        (
            facts(certificates={0: NOW_MS + 29 * DAY_MS}, caller=HERE), "certificate",
            "expires in 29 days", "odradek restart 0 --dir D, which renews it",
        ),
        (
            facts(**reported(refusals=[{**REFUSED, "what": (
                "the broker at b2:9092 refuses this broker's log-in as 'x' with PLAIN: no")}])),
            "log-in",
            "the broker at b2:9092 refuses this broker's log-in as 'x' with PLAIN: no: 7 times",
            "make user name and password the same",
        ),
        (
            facts(**reported(refusals=[{**REFUSED, "what": (
                "authentication failed: there is no user 'x' with SCRAM-SHA-512")}])),
            "refused", "there is no user 'x' with SCRAM-SHA-512", "or make the user: kafka-configs",
        ),
        (
            facts(**reported(refusals=[REFUSED, {**REFUSED, "last_ms": NOW_MS - 4_000_000},
                                       {**REFUSED, "what": "Produce to t: NOT_LEADER_OR_FOLLOWER"}
                                       ])), "refused",
            "broker 0 refused it 7 times since", "use a version of the client",
        ),
        (
            facts(moves={P0: RunningReassignment((2,), ())},
                  progress={(P0, 2): CopyProgress(5, 5, 9, 2.0)},
                  journal=[at(7_000, "REASSIGNMENT_STARTED", partition=0)]), "stuck",
            (f"the move to broker 2 makes no progress since {CLOCK(NOW_MS - 7_000)}: 0.0 of 0.0 "
            "MiB are copied and nothing arrived in 2 s"), "or cancel it: kafka-reassign-partitions",
        ),
        (
            facts(moves={P0: RunningReassignment((2,), ())},
                  broker_throttles={0: {"x.throttled.rate": "5"}}),
            "moving", "under a replication throttle", "odradek plan rebalance --cancel",
        ),
        (
            facts(journal=[at(9_000 - n, None, says=f"controller epoch {n} begins", by=n % 2)
                           for n in range(4)]), "controller",
            "the controller changed 3 times since", "zookeeper.session.timeout.ms",
        ),
        (
            facts(journal=[{**at(9_000, "BROKER_EMPTY", broker=1), "detail": "replicas there: 2"}]),
            "emptied", (f"it restarted with empty log directories since {CLOCK(NOW_MS - 9_000)} "
            "(replicas there: 2): all of them are copied"), "the right disk is mounted",
        ),
        (
            facts(**reported(cuts=[{**LOST, "has_committed": False}])), "cut",
            (f"its logs lost 340 bytes (damage) since {CLOCK(NOW_MS - 9_000)}; at "
            f"{CLOCK(NOW_MS - 9_000)} t-0 lost the records from offset 7 on: the checksum is "
            "wrong; no record that is known to be committed is among them"), "odradek why topic t",
        ),
        (
            facts(**reported(cuts=[LOST, {**LOST, "partition": 1}])), "cut",
            ("t-1 lost the records from offset 7 on: the checksum is wrong; those below the high "
            "watermark 9 were committed"), "no other replica gives back the lost records of t-0",
        ),
        (
            facts(**reported(
                log_dirs=[{**DIRECTORY, "set_aside": 2}],
                cuts=[{**LOST, "kind": "set-aside", "path": "/d/t-0.1-stray", "why": "another"}],
            )), "set-aside",
            ("2 logs there are set aside (the names end in -stray): nothing reads them; "
            f"/d/t-0.1-stray since {CLOCK(NOW_MS - 9_000)}: another"), "delete these directories",
        ),
        (
            facts(coordinated=[REBALANCING]), "group-stuck",
            "it waits for m1; it began because m2 left", "odradek why group g",
        ),
        (
            facts(coordinated=[GROUP], groups=[GroupFacts("g", "Stable", 5)]), "group-no-commit",
            "5 records wait for it and no offset is committed since",
            "kafka-consumer-groups --bootstrap-server b:9092 --describe --group g",
        ),
        (
            facts(open_transactions={P0: [OpenProducer(9, 1, 42, 0, True, "tx", NOW_MS - 61_000,
                                                   90_000)]}), "open-transaction",
            "the transaction of transactional.id tx is open since",
            f"the coordinator aborts it at {CLOCK(NOW_MS + 29_000)}",
        ),
    ],
)  # fmt: skip
def test_each_problem_has_its_cause_and_its_command(given, kind, text, fix):
    finding = only(given)

    assert finding.kind == kind
    assert text in finding.why
    assert fix in str(finding.fix)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (facts(certificates={0: NOW_MS + 1 * DAY_MS}), "expires in 1 day, at"),
        (facts(**reported(refusals=[{**REFUSED, "count": 1}])), "refused it once since"),
        (
            facts(journal=[at(9_000 - n, None, says=f"controller epoch {n} begins", by=n // 3)
                           for n in range(4)]), "(broker 0 3 times, broker 1 once)",
        ),
        (facts(groups=[GroupFacts("g", "Empty", 1)]), "1 record waits, and"),
        (facts(newest_timestamps={P0: NOW_MS + 3_600_001}), "up to 1 hour ahead"),
    ],
)  # fmt: skip
def test_one_of_something_is_not_written_as_many(given, text):
    assert text in only(given).why


@pytest.mark.parametrize(
    "given",
    [
        facts(**reported()),
        facts(coordinated=[{**REBALANCING, "since_ms": NOW_MS - 50_000}]),
        facts(coordinated=[GROUP], groups=[GroupFacts("g", "Stable", 0)]),
        facts(
            coordinated=[{**GROUP, "last_commit_ms": NOW_MS}], groups=[GroupFacts("g", "Stable", 5)]
        ),
        facts(
            open_transactions={P0: [OpenProducer(9, 1, 4, 0, True, "x", NOW_MS - 59_000, 90_000)]}
        ),
        facts(
            moves={P0: RunningReassignment((2,), ())},
            progress={(P0, 2): CopyProgress(5, 6, 9, 2.0)},
        ),
        facts(journal=[at(9_000, None, says="controller epoch 1 begins")] * 3),
        facts(journal=[at(900_000, None, says="controller epoch 1 begins")] * 9),
    ],
)
def test_a_short_problem_is_not_a_finding(given):
    assert diagnose(given) == []


def test_the_worst_comes_first():
    given = facts(
        {P0: Replicas((3,), 5, -1, (3,)), P1: Replicas((1, 2), 5, 2, (1, 2))},
        groups=[GroupFacts("g", "Empty", 1)],
        racks={1: None, 2: "c"},
    )

    severities = [finding.severity for finding in diagnose(given)]
    assert severities == sorted(severities)
    assert severities[0] is Severity.CRITICAL
