"""What the doctor did not look at is said, and proves nothing about earlier findings."""

import pathlib
import re

import pytest

import odradek.plan
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.sentence import sentence
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller
from odradek.plan.doctor import examine
from odradek.plan.examination import AREA_OF, AREAS, failed
from odradek.plan.facts import ClusterFacts, Finding, Gap, Reason, Severity, gap_of

RULES = pathlib.Path(odradek.plan.__file__).parent
KIND = re.compile(r"Severity\.[A-Z]+,\s+\"([a-z-]+)\"")
P0 = TopicPartition("t", 0)
REPORT = {
    "began_ms": 0,
    "log_dirs": (),
    "cleaner": {"is_enabled": True, "given_up": ()},
    "unknown_options": (),
    "refusals": (),
}


def facts(**more):
    partitions = {P0: Replicas((0, 1), 5, 0, (0, 1))}
    return ClusterFacts(picture=ClusterPicture({0: None, 1: None}, partitions, {}), **more)


def about(kind, broker=None):
    return Finding(Severity.WARNING, kind, "x", "y", sentence("z"), broker)


def test_all_is_examined_of_brokers_that_report():
    seen = examine(facts(reports={0: REPORT, 1: REPORT}))

    assert (seen.not_examined, seen.unavailable, seen.is_sound) == ({}, {}, True)
    assert all(seen.covers(about(kind)) for kind in ("disk", "offline", "lag", "crashed"))


def test_brokers_of_apache_kafka_offer_no_reports_and_that_is_said():
    seen = examine(facts(unreported=dict.fromkeys((0, 1), Gap("not ours", Reason.NOT_OFFERED))))

    assert seen.unavailable["reports"].startswith("brokers 0 and 1: not brokers of Odradek")
    assert seen.is_sound
    assert seen.covers(about("offline"))
    assert not seen.covers(about("refused", 0))


def test_it_is_said_that_clients_are_not_shown_to_this_principal():
    hiding = REPORT | {"shows_clients": False}
    seen = examine(facts(reports={0: REPORT | {"shows_clients": True}, 1: hiding}))

    assert seen.denied["clients"].why.startswith("broker 1: refused clients")
    assert "--operation Alter --cluster" in str(seen.denied["clients"].fix)
    assert seen.unavailable == {}


def test_a_broker_without_its_report_was_not_examined():
    seen = examine(facts(reports={0: REPORT}, unreported={1: Gap("no answer within 5 s")}))

    assert seen.not_examined == {"reports": "broker 1: no answer within 5 s"}
    assert not seen.is_sound
    assert [seen.covers(about("disk", broker)) for broker in (0, 1, None)] == [True, False, False]


def test_a_broker_that_went_away_was_not_examined_and_one_that_was_removed_is():
    gone = examine(
        ClusterFacts(
            picture=ClusterPicture({0: None}, {P0: Replicas((0, 1), 5, 0, (0,))}, {}),
            reports={0: REPORT},
        )
    )

    assert [gone.covers(about("disk", broker)) for broker in (1, 7)] == [False, True]


@pytest.mark.parametrize(
    ("kind", "area"),
    [("throttle", "throttle"), ("moving", "throttle"), ("open-transaction", "hanging")],
)
def test_facts_that_could_not_be_had_prove_nothing(kind, area):
    for reason in Reason:
        assert not examine(facts(gaps={area: Gap("why", reason)})).covers(about(kind))


def test_what_a_silent_broker_knows_alone_was_not_examined():
    seen = examine(facts(unreachable={0: "no answer"}, reports={0: REPORT, 1: REPORT}))

    assert seen.not_examined == {
        **dict.fromkeys(("certificate", "lag", "throttle"), "no answer from broker 0"),
        **dict.fromkeys(("hanging", "retention"), "no leader of t-0 answers"),
    }


def test_a_failed_examination_covers_nothing():
    seen = failed("no answer")

    assert seen.not_examined.keys() == set(AREAS)
    assert not any(map(seen.covers, map(about, ("crashed", "offline", "disk", "lag"))))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(ErrorCode.UNSUPPORTED_VERSION, ""), Reason.NOT_OFFERED),
        (ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ""), Reason.DENIED),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, ""), Reason.NO_ANSWER),
        (ConnectionResetError(), Reason.NO_ANSWER),
    ],
)
def test_the_reason_why_facts_are_missing_is_data(error, reason):
    assert gap_of(error).reason is reason


CLUSTER, TOPIC = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
TRANSACTIONAL = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("area", "code", "acl"),
    [
        ("throttle", CLUSTER, "--operation DescribeConfigs --cluster"),
        ("throttle", TOPIC, "--operation DescribeConfigs --topic '*'"),
        ("stuck", CLUSTER, "--operation Describe --cluster"),
        ("lag", GROUP, "--operation Describe --group '*'"),
        ("hanging", TOPIC, "--operation Read --topic '*'"),
        ("hanging", TRANSACTIONAL, "--operation Describe --transactional-id '*'"),
        ("retention", TOPIC, "--operation DescribeConfigs --topic '*'"),
    ],
)
def test_a_missing_permission_has_the_acl_that_is_to_be_added(area, code, acl):
    gap = Gap(code.name, Reason.DENIED, code)
    seen = examine(facts(gaps={area: gap}, caller=Caller("b:9", config="reader.properties")))

    assert (seen.not_examined, seen.unavailable, [*seen.denied]) == ({}, {}, [area])
    assert seen.denied[area].why == code.name
    (command,) = seen.denied[area].fix.commands
    assert str(command) == (
        f"kafka-acls --bootstrap-server b:9 --add --allow-principal User:NAME {acl}"
    )
    assert seen.is_sound


def test_reports_that_this_client_may_not_have_are_not_taken_for_silence():
    denied, silent = Gap("refused", Reason.DENIED, CLUSTER), Gap("no answer")
    seen = examine(facts(reports={}, unreported={0: denied, 1: silent}))

    assert seen.not_examined == {"reports": "broker 1: no answer"}
    assert seen.denied["reports"].why == "broker 0: refused"
    assert "--operation Describe --cluster" in str(seen.denied["reports"])
    assert not seen.covers(about("disk", 0))


def test_the_area_of_each_kind_of_finding_is_known():
    made = {kind for path in RULES.rglob("*.py") for kind in KIND.findall(path.read_text())}

    assert made == AREA_OF.keys()
