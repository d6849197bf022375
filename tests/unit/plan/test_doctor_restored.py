"""The doctor on a store, or log directories, that were put back from a backup."""

import pytest

from odradek.plan.cluster import ClusterPicture
from odradek.plan.commands import Caller
from odradek.plan.facts import ClusterFacts, Severity
from odradek.plan.rules.restored import RESTORED_RULES

NOW_MS = 10_000_000_000
DAY_MS = 86_400_000
SOUND = {"restored": None, "disks_behind": 0, "older_directories": [], "refused_roles": []}


def restored(at_ms, broker=2):
    return {"controller_epoch": 100_003, "broker": broker, "at_ms": at_ms, "proof": "the proof"}


def findings(*ages, local=None):
    reports = {broker: {"store_age": {**SOUND, **age}} for broker, age in enumerate(ages)}
    facts = ClusterFacts(
        picture=ClusterPicture({}, {}),
        wall_ms=NOW_MS,
        caller=Caller("b:9", local=local or {}),
        reports={**reports, 7: {}, 8: {"store_age": None}},  # an older broker; one that starts
    )
    return [finding for rule in RESTORED_RULES for finding in rule(facts)]


def test_a_sound_store_is_no_finding():
    assert findings({}, {}) == []


def test_a_store_that_was_put_back_is_one_finding_for_a_day():
    ages = [{"restored": restored(NOW_MS - 2)}, {"restored": restored(NOW_MS - 1, broker=1)}]
    (finding,) = findings(*ages)
    assert (finding.severity, finding.kind) == (Severity.WARNING, "store-restored")
    assert "as broker 1 found at" in finding.why
    assert "(the proof)" in finding.why
    assert str(finding.fix.commands[0]) == "kafka-topics --bootstrap-server b:9 --describe"
    assert findings({"restored": restored(NOW_MS - DAY_MS)})
    assert findings({"restored": restored(NOW_MS - DAY_MS - 1)}) == []


@pytest.mark.parametrize(
    ("local", "restart"),
    [({1: "running"}, "odradek restart 1"), ({}, "restart broker 1")],
)
def test_roles_that_are_refused_are_named_with_both_epochs(local, restart):
    role = {"partition": "t-0", "leader_epoch": 2, "log_epoch": 7}
    (finding,) = findings({}, {"refused_roles": [role]}, local=local)
    assert (finding.severity, finding.kind) == (Severity.CRITICAL, "refused-role")
    assert finding.subject == "broker 1, t-0"
    assert "leader epoch of t-0 is 2, and the log has 7 already" in finding.why
    assert str(finding.fix).endswith(restart)


def test_log_directories_that_were_put_back_are_a_finding_of_their_broker():
    (finding,) = findings({}, {"disks_behind": 4, "older_directories": ["/d/1", "/d/2"]})
    assert (finding.kind, finding.subject, finding.broker) == ("disks-restored", "broker 1", 1)
    assert finding.why.startswith(
        "its log directories (/d/1, /d/2) were put back to an earlier copy before it started (the "
        "counter is 4 behind the stored one): it copies what they lack"
    )
    assert str(finding.fix.commands[0]) == "odradek why broker 1 --bootstrap-server b:9"
