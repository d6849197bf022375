"""Situations that show only in the errors and throttle times that brokers count of clients."""

import shlex

import pytest

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.client_errors import advice, described, errors_of
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller, clock
from odradek.plan.doctor import diagnose
from odradek.plan.facts import RECENT_MS, ClusterFacts

NOW_MS = WallMs(1_700_000_000_000)
CALLER = Caller("b:9092")


def error(api, name, **changed):
    return {
        "api": api, "error": name, "client_id": "a", "host": "10.0.0.7", "topic": "", "group": "",
        "instance_id": "", "transactional_id": "", "count": 5, "first_ms": NOW_MS - 60_000,
        "last_ms": NOW_MS - 1_000,
    } | changed  # fmt: skip


def throttle(**changed):
    return {
        "client_id": "a", "host": "10.0.0.7", "option": "producer_byte_rate", "rate": 1000.0,
        "user": "", "client": "a", "count": 9, "total_ms": 30_000, "first_ms": NOW_MS - 60_000,
        "last_ms": NOW_MS - 1_000,
    } | changed  # fmt: skip


def report(errors=(), throttles=()):
    return {
        "began_ms": 0, "log_dirs": (), "cleaner": {"is_enabled": True, "given_up": ()},
        "unknown_options": (), "refusals": (), "errors": errors, "throttles": throttles,
    }  # fmt: skip


def findings(*errors, throttles=(), topics=("orders",)):
    partitions = {TopicPartition(name, 0): Replicas((0,), 5, 0, (0,)) for name in topics}
    return diagnose(
        ClusterFacts(
            picture=ClusterPicture({0: None}, partitions, {}),
            caller=CALLER,
            wall_ms=NOW_MS,
            reports={0: report(errors, throttles)},
        )
    )


def only(*errors, **more):
    (finding,) = findings(*errors, **more)
    return finding


FENCED = error("EndTxn", "PRODUCER_FENCED", transactional_id="pay")


def test_two_producers_with_one_transactional_id():
    finding = only(
        FENCED | {"count": 1},
        error("Produce", "INVALID_PRODUCER_EPOCH", transactional_id="pay", client_id="b", count=1),
    )

    assert (finding.kind, finding.subject) == ("transactional-id", "transactional.id pay")
    assert "client a of 10.0.0.7 and client b of 10.0.0.7" in finding.why
    assert "EndTxn and Produce got INVALID_PRODUCER_EPOCH and PRODUCER_FENCED" in finding.why
    assert str(finding.fix).endswith("odradek why transaction pay --bootstrap-server b:9092")


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"count": 3, "first_ms": NOW_MS - 11_001}, 1),
        ({"count": 3, "first_ms": NOW_MS - 10_999}, 0),
        ({"count": 2, "first_ms": NOW_MS - 11_001}, 0),
        ({"last_ms": NOW_MS - RECENT_MS - 1, "first_ms": 0}, 0),
    ],
)
def test_a_producer_that_was_replaced_once_is_not_one_of_two(changed, found):
    assert len(findings(FENCED | changed)) == found


def test_two_consumers_with_one_instance_id():
    finding = only(error("Heartbeat", "FENCED_INSTANCE_ID", group="g", instance_id="i", count=1))

    assert (finding.kind, finding.subject) == ("instance-id", "group g, group.instance.id i")
    assert (
        f"Heartbeat got FENCED_INSTANCE_ID once at {clock(NOW_MS - 1_000, NOW_MS)}" in finding.why
    )
    assert str(finding.fix).endswith("odradek why group g --bootstrap-server b:9092")


def test_two_applications_in_one_group():
    finding = only(error("JoinGroup", "INCONSISTENT_GROUP_PROTOCOL", group="g"))

    assert (finding.kind, finding.subject) == ("group-protocol", "group g")
    assert finding.why.startswith("client a of 10.0.0.7 cannot join it")


@pytest.mark.parametrize(
    ("topic", "meant"),
    [
        ("ordres", "use orders if that is meant; or create it"),
        ("payments", "correct the name; or create it"),
    ],
)
def test_a_topic_that_does_not_exist_and_the_nearest_name(topic, meant):
    finding = only(error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=topic))

    assert (finding.kind, finding.subject) == ("no-topic", f"topic {topic}")
    assert meant in str(finding.fix)


@pytest.mark.parametrize("changed", [{"topic": "orders"}, {"topic": "x", "count": 2}])
def test_a_topic_that_exists_by_now_or_was_looked_for_once_is_no_finding(changed):
    assert findings(error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", **changed)) == []


def test_a_client_with_sasl_on_a_listener_without_it():
    finding = only(error("SaslHandshake", "ILLEGAL_SASL_STATE", count=1))

    assert (finding.kind, finding.subject) == ("refused", "client a")
    assert "security.protocol" in str(finding.fix)


def test_a_throttled_client():
    finding = only(throttles=[throttle(), throttle(host="10.0.0.8", count=1, total_ms=500)])

    assert (finding.kind, finding.subject) == ("quota", "client a, producer_byte_rate")
    assert "it was throttled 10 times since" in finding.why
    assert "in all for 30 s" in finding.why or "in all for 31 s" in finding.why
    assert str(finding.fix).endswith(
        "kafka-configs --bootstrap-server b:9092 --alter --entity-type clients --entity-name a "
        "--add-config producer_byte_rate=N"
    )
    assert findings(throttles=[throttle(total_ms=999)]) == []


@pytest.mark.parametrize(
    ("user", "client", "entity"),
    [
        ("u", "", "--entity-type users --entity-name u"),
        ("u", "a", "--entity-type users --entity-name u --entity-type clients --entity-name a"),
        ("", "", "--entity-type clients --entity-name a"),
    ],
)
def test_the_quota_to_raise_is_that_of_the_user_or_of_the_client(user, client, entity):
    fix = only(throttles=[throttle(user=user, client=client)]).fix

    assert f"--alter {entity} --add-config" in str(fix)


HOSTILE = "x; touch PWNED\n$(id)\x1b[2J"


def test_names_that_clients_choose_stay_one_word_of_a_command():
    named = {
        "client_id": HOSTILE, "topic": HOSTILE, "group": HOSTILE, "instance_id": HOSTILE,
        "transactional_id": HOSTILE,
    }  # fmt: skip
    found = findings(
        *(
            error(api, name, **named)
            for api, name in (
                ("EndTxn", "PRODUCER_FENCED"),
                ("Heartbeat", "FENCED_INSTANCE_ID"),
                ("JoinGroup", "INCONSISTENT_GROUP_PROTOCOL"),
                ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"),
            )
        ),
        throttles=[throttle(client=HOSTILE)],
    )

    assert {f.kind for f in found} == {
        "transactional-id", "instance-id", "group-protocol", "no-topic", "quota",
    }  # fmt: skip
    for finding in found:
        assert str(finding.fix).isprintable()
        (told,) = finding.fix.commands
        assert any(HOSTILE in word for word in told.words)
        assert shlex.split(str(told))[0] == told.words[0]


def test_an_error_is_described_with_what_the_request_named():
    (counted,) = errors_of({1: report([error("JoinGroup", "X", group="g", instance_id="i")])})

    assert described(counted, NOW_MS) == (
        "broker 1 answered JoinGroup of client a of 10.0.0.7 (group g, group.instance.id i) with X "
        f"5 times since {clock(NOW_MS - 60_000, NOW_MS)}, the last time at "
        f"{clock(NOW_MS - 1_000, NOW_MS)}"
    )
    assert not advice(counted, (), CALLER)


def test_a_broker_that_counts_no_errors_has_none():
    assert errors_of({1: {"refusals": ()}}) == []
