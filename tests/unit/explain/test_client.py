"""`odradek why client`: which requests were refused, and what the client lacks."""

import json

import pytest
from tests.unit.broker.live import play, produce

from odradek.broker.admin.acls import ACL_AUTHORIZER
from odradek.broker.incidents import REFUSALS_OF_A_CLIENT_MAX, Incidents, Lacks
from odradek.explain.client import explain_client
from odradek.explain.reports import NOT_OURS, Asked
from odradek.model.acl import AclEntry, AclOperation, ResourcePattern, ResourceType
from odradek.plan.commands import Caller, clock
from odradek.plan.denied import lacking
from odradek.wire.messages.describe_state import DescribeStateRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.metadata import MetadataRequest

NOW_MS = 1_700_000_000_000
CALLER = Caller(bootstrap="b:9")


def refusal(**changed):
    lacks = {
        "principal": "User:app", "operation": "Write", "resource_type": "Topic", "name": "orders",
        "is_denied": False,
    }  # fmt: skip
    return {
        "what": "Produce", "host": "10.0.0.7", "client_id": "app", "software": "librdkafka 2.3.0",
        "lacks": lacks | changed.pop("lacks", {}), "count": 2, "first_ms": NOW_MS - 60_000,
        "last_ms": NOW_MS - 1_000, **changed,
    }  # fmt: skip


def explained(*refusals, client_id="app"):
    reports = {1: {"broker": {"refusals": list(refusals), "began_ms": NOW_MS - 90_000}}}
    return [str(line) for line in explain_client(Asked(CALLER, reports), client_id, NOW_MS)]


def test_what_a_client_lacks_is_named_with_the_command_that_grants_it():
    assert explained(refusal()) == [
        (
            "broker 1 refused client app of 10.0.0.7 (librdkafka 2.3.0) 2 times since "
            f"{clock(NOW_MS - 60_000, NOW_MS)}, last at {clock(NOW_MS - 1_000, NOW_MS)}: Produce: "
            "User:app may not Write on Topic orders, because no ACL allows it"
        ),
        (
            "to allow it: kafka-acls --bootstrap-server b:9 --add --allow-principal User:app "
            "--operation Write --topic orders"
        ),
    ]


@pytest.mark.parametrize(
    ("resource_type", "name", "argument"),
    [
        ("Cluster", "kafka-cluster", "--operation Write --cluster"),
        ("Group", "a b", "--operation Write --group 'a b'"),
        ("TransactionalId", "x", "--operation Write --transactional-id x"),
        ("DelegationToken", "t", "--operation Write --delegation-token t"),
        ("User", "User:b", "--operation Write --user-principal User:b"),
    ],
)
def test_every_resource_has_its_argument(resource_type, name, argument):
    lacks = {"resource_type": resource_type, "name": name}

    assert explained(refusal(lacks=lacks))[1].endswith(argument)


def test_a_deny_is_found_with_why_denied():
    first, second = explained(refusal(lacks={"is_denied": True}, count=1))

    assert first.endswith("may not Write on Topic orders, because an ACL denies it")
    assert second == (
        "to allow it: odradek why denied --bootstrap-server b:9 --principal User:app --host "
        "10.0.0.7 --operation Write --topic orders names the ACL and the command that removes it"
    )


def test_refusals_of_other_kinds_are_listed_too():
    (line,) = explained(refusal() | {"lacks": None, "what": "Produce to t: MESSAGE_TOO_LARGE"})

    assert line.endswith(": Produce to t: MESSAGE_TOO_LARGE")


def test_a_client_that_was_not_refused():
    (line,) = explained(refusal(), client_id="other")

    assert line.startswith(
        "no broker has refused or throttled, or answered with an error, a request of "
    )


def test_it_is_said_that_refusals_are_not_shown():
    report = {"refusals": [], "began_ms": NOW_MS, "shows_clients": False}
    lines = explain_client(Asked(CALLER, {1: {"broker": report}}), "app", NOW_MS)

    (line,) = map(str, lines)
    assert line.startswith("broker 1: refused clients")
    assert "Alter on the cluster" in line


def test_a_report_of_an_older_broker_lacks_nothing():
    assert lacking({"what": "Produce", "host": "h"}, CALLER) is None


def test_one_client_leaves_room_for_others():
    incidents = Incidents(iter(range(1_000)).__next__)
    incidents.refused("of another", host="h", client_id="other", software="?")
    for number in range(200):
        lacks = Lacks("User:a", "Read", "Topic", f"t-{number}", is_denied=False)
        incidents.refused("Fetch", host="h", client_id="app", software="?", lacks=lacks)
    kept = incidents.as_json()

    assert [each["lacks"]["name"] for each in kept if each["client_id"] == "app"] == [
        f"t-{number}" for number in reversed(range(200 - REFUSALS_OF_A_CLIENT_MAX, 200))
    ]
    assert kept[-1]["what"] == "of another"


def test_a_long_name_is_cut():
    incidents = Incidents(iter(range(1_000)).__next__)
    lacks = Lacks("User:a", "Read", "Topic", "t" * 30_000, is_denied=False)
    incidents.refused("Fetch", host="h", client_id="app", software="?", lacks=lacks)

    assert len(incidents.as_json()[0]["lacks"]["name"]) == 200


def test_a_broker_reports_what_its_authorizer_has_refused():
    async def story(live):
        await live.topic("orders")
        authorizer = live.broker.acl_changes.authorizer
        authorizer.put(
            ResourcePattern(ResourceType.TOPIC, "denied"),
            [AclEntry("User:app", "*", AclOperation.WRITE, allowed=False)],
        )
        peer = live.peer()
        peer.connection.session.principal = "User:app"
        peer.client_id = "app"
        await peer.ask(produce(live.batch(b"x"), "orders"))
        await peer.ask(produce(live.batch(b"x"), "denied"))
        await peer.ask(InitProducerIdRequest(transactional_id=None))
        # A shorter answer is no refusal.
        await peer.ask(MetadataRequest(topics=None, include_cluster_authorized_operations=True), 10)
        answer = await live.peer().ask(DescribeStateRequest(report="broker"))
        refusals = json.loads(bytes(answer.body))["refusals"]

        assert [(each["what"], *each["lacks"].values()) for each in refusals] == [
            ("InitProducerId", "User:app", "IdempotentWrite", "Cluster", "kafka-cluster", False),
            ("Produce", "User:app", "Write", "Topic", "denied", True),
            ("Produce", "User:app", "Write", "Topic", "orders", False),
        ]
        assert {(each["client_id"], each["host"]) for each in refusals} == {("app", "10.0.0.7")}

    play(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:ANONYMOUS")


def counted(error, **changed):
    return {
        "api": "Metadata", "error": error, "client_id": "app", "host": "10.0.0.7", "topic": "",
        "group": "", "instance_id": "", "transactional_id": "", "count": 1, "first_ms": NOW_MS,
        "last_ms": NOW_MS, **changed,
    }  # fmt: skip


def explained_report(topics=(), silent=None, **report):
    report = {"refusals": [], "began_ms": NOW_MS - 90_000, **report}
    asked = Asked(CALLER, {} if silent else {1: {"broker": report}}, silent or {})
    return [str(line) for line in explain_client(asked, "app", NOW_MS, topics)]


def test_errors_of_all_apis_and_throttle_times_are_explained():
    throttle = {
        "client_id": "app", "host": "10.0.0.7", "option": "producer_byte_rate", "rate": 1000.0,
        "user": "", "client": "app", "count": 1, "total_ms": 2_000, "first_ms": NOW_MS,
        "last_ms": NOW_MS,
    }  # fmt: skip
    at = clock(NOW_MS, NOW_MS)

    assert explained_report(
        ["orders"],
        errors=[
            counted("UNKNOWN_TOPIC_OR_PARTITION", topic="ordres"),
            counted("INCONSISTENT_GROUP_PROTOCOL", api="JoinGroup", group="g", client_id="other"),
        ],
        throttles=[throttle],
    ) == [
        (
            "broker 1 answered Metadata of client app of 10.0.0.7 (topic ordres) with "
            f"UNKNOWN_TOPIC_OR_PARTITION once at {at}"
        ),
        (
            "there is no topic ordres: use orders if that is meant; or create it: kafka-topics "
            "--bootstrap-server b:9 --create --topic ordres"
        ),
        (
            f"broker 1 made client app of 10.0.0.7 wait once at {at}, in all 2.0 s: "
            "producer_byte_rate is 1000 for client app"
        ),
        (
            "if it is to have more: kafka-configs --bootstrap-server b:9 --alter --entity-type "
            "clients --entity-name app --add-config producer_byte_rate=N"
        ),
    ]


def test_a_refused_produce_is_told_once():
    told = "Produce to t: MESSAGE_TOO_LARGE"
    lines = explained_report(
        refusals=[{**refusal(), "what": told, "lacks": None}],
        errors=[counted("MESSAGE_TOO_LARGE", api="Produce", topic="t")],
    )

    assert len(lines) == 1
    assert lines[0].endswith(told)


def test_brokers_of_apache_kafka_report_no_refusals_and_that_is_said():
    (line,) = explained_report(silent={0: NOT_OURS})

    assert line.startswith("broker 0: not of Odradek, or older: refused requests")
