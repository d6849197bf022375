"""A broker without file descriptors for connections is a finding, and explained by `why`."""

import pytest

from odradek.explain.collected import picture_of
from odradek.explain.reports import Asked
from odradek.explain.sentences import explain_broker
from odradek.model.clock import WallMs
from odradek.plan.cluster import ClusterPicture
from odradek.plan.commands import Caller, clock
from odradek.plan.doctor import diagnose
from odradek.plan.facts import ClusterFacts, Severity

NOW_MS = WallMs(1_700_000_000_000)
AT = clock(NOW_MS - 9_000, NOW_MS), clock(NOW_MS - 1_000, NOW_MS)
REFUSED = {"refused": 7, "first_ms": NOW_MS - 9_000, "last_ms": NOW_MS - 1_000}
HOSTS = [["10.0.0.7", 80], ["10.0.0.8", 3]]


def report(count, **more):
    files = {"connections": count, "connections_max": 100, "refused": 0, "first_ms": None,
             "last_ms": None, "hosts": HOSTS, **more}  # fmt: skip
    return {
        "began_ms": 0, "log_dirs": (), "cleaner": {"is_enabled": True, "given_up": ()},
        "unknown_options": (), "refusals": (), "open_files": files,
    }  # fmt: skip


def findings(found):
    return diagnose(
        ClusterFacts(
            picture=ClusterPicture({}, {}),
            caller=Caller("b:9", ("--dir", "D"), {1: "running"}),
            wall_ms=NOW_MS,
            reports={1: found},
        )
    )


@pytest.mark.parametrize(("count", "severity"), [(100, Severity.CRITICAL), (83, Severity.WARNING)])
def test_refused_connections_are_critical_while_there_is_no_room(count, severity):
    (finding,) = findings(report(count, **REFUSED))

    assert (finding.severity, finding.kind, finding.broker) == (severity, "open-files", 1)
    assert finding.why == (
        f"it refused 7 connections since {AT[0]}, the last at {AT[1]}, because it had no file "
        f"descriptors for more; now {count} of the 100 connections for which it has file "
        "descriptors are open; most are of 10.0.0.7 (80), 10.0.0.8 (3)"
    )
    assert "LimitNOFILE=" in str(finding.fix)
    assert "odradek restart 1 --dir D" in str(finding.fix)


def test_a_broker_that_is_nearly_at_its_limit_is_named_before_it_refuses():
    (finding,) = findings(report(90, hosts=[]))

    assert finding.severity is Severity.WARNING
    assert finding.why == (
        "90 of the 100 connections for which it has file descriptors are open: further ones are "
        "refused soon"
    )


@pytest.mark.parametrize(
    "found",
    [report(89), report(5, **{**REFUSED, "last_ms": NOW_MS - 3_600_001}), {**report(5),
     "open_files": None}],
)  # fmt: skip
def test_room_and_refusals_of_long_ago_and_older_brokers_are_no_finding(found):
    assert findings(found) == []


def test_why_says_it_of_the_broker():
    state = {"is_controller": True, "brokers": {"1": {}}, "controller_id": 1, "shutting_down": [],
             "partitions": [], "imbalance": {}}  # fmt: skip
    asked = Asked(Caller("b:9"), {1: {"broker": report(100, **REFUSED), "controller": state}})
    lines = explain_broker(picture_of(asked, NOW_MS), 1)

    assert str(lines[1]).startswith(f"broker 1: it refused 7 connections since {AT[0]}")
    assert "then restart broker 1" in str(lines[1])
