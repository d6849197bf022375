"""Disks that are nearly full or full: what is proposed works on them."""

import pytest

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller
from odradek.plan.doctor import diagnose
from odradek.plan.facts import ClusterFacts, Severity

NOW_MS = WallMs(1_700_000_000_000)
GIB = 1 << 30
STORE = "/d/coordination.db"


def report(data=(100 * GIB, 50 * GIB), store=None):
    total, usable = data
    directory = {"path": "/d", "is_offline": False, "since_ms": None, "why": "",
                 "total_bytes": total, "usable_bytes": usable}  # fmt: skip
    disk = store and {"path": STORE, "total_bytes": store[0], "usable_bytes": store[1]}
    return {
        "began_ms": 0, "log_dirs": [directory], "unknown_options": [], "refusals": [],
        "cleaner": {"is_enabled": True, "given_up": []},
        "store": {"zookeeper": None, "silent_ms": None, "unregistered_ms": None, "disk": disk},
    }  # fmt: skip


def findings(*reports, partitions=None, **caller):
    return diagnose(
        ClusterFacts(
            picture=ClusterPicture(dict.fromkeys((0, 1)), partitions or {}),
            caller=Caller("b:9", **caller),
            wall_ms=NOW_MS,
            reports=dict(enumerate(reports)),
        )
    )


def test_on_a_full_disk_no_command_is_proposed_because_each_would_write_there():
    full = (100 * GIB, 4_096)
    store, data = findings(report(full, full))

    assert (store.severity, store.subject) == (Severity.CRITICAL, f"the embedded store, {STORE}")
    assert "full, with 4096 bytes left: nothing can be stored" in store.why
    assert data.subject == "broker 0, /d"
    assert store.fix.commands == data.fix.commands == ()
    assert str(data.fix).startswith("free space on that disk at once")


def test_while_the_store_is_full_only_a_command_that_does_not_write_to_it_is_proposed():
    _, data = findings(report((100 * GIB, 5 * GIB), (GIB, 0)))

    (command,) = data.fix.commands
    assert str(command) == "kafka-delete-records --bootstrap-server b:9 --offset-json-file FILE"
    assert STORE in str(data.fix)


def test_with_room_for_the_store_the_options_of_a_topic_can_be_set():
    nearly = (100 * GIB, 5 * GIB)
    (finding,) = findings(report(nearly, nearly))  # one disk is one finding

    assert (finding.severity, finding.subject) == (Severity.WARNING, "broker 0, /d")
    assert "kafka-configs" in str(finding.fix.commands[0])


def test_a_store_on_a_disk_of_its_own_is_a_finding_before_it_is_full():
    reports = [report(store=(10 * GIB, GIB >> 1)), report(store=(10 * GIB, GIB >> 1))]
    (finding,) = findings(*reports)  # one store of both brokers

    assert (finding.severity, finding.kind) == (Severity.WARNING, "disk")
    assert finding.why.startswith("its disk is 95 % full: 0.5 of 10.0 GiB are left; when it is")


@pytest.mark.parametrize("store", [None, (10 * GIB, 9 * GIB)])
def test_a_store_with_room_or_on_zookeeper_is_no_finding(store):
    assert findings(report(store=store)) == []


def test_a_broker_that_ended_because_the_store_was_full_needs_room_first():
    reason = f"coordination store {STORE}: database or disk is full"
    (finding,) = findings(options=("--dir", "D"), local={0: "crashed"}, ends={0: reason})

    assert str(finding.fix).startswith("make room there")
    assert str(finding.fix).endswith("then odradek start 0 --dir D")


LOST = {"topic": "t", "partition": 0, "at_ms": NOW_MS - 5, "kind": "damage", "path": "/d/t-0",
        "bytes": 9, "high_watermark": 9, "has_committed": True, "span": "x",
        "why": "y"}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "leader", "fix"),
    [
        ("damage", 1, "nothing has to be done: broker 0 copies from the leader"),
        ("damage", 0, "no other replica gives back the lost records of t-0"),
        ("damage", -1, "no other replica gives back"),
        ("truncation", 1, "no other replica gives back"),
    ],
)
def test_what_is_to_be_done_about_lost_records_depends_on_who_leads(kind, leader, fix):
    held = Replicas((0, 1), 5, leader, (0, 1))
    found = findings(
        {**report(), "cuts": [{**LOST, "kind": kind}]}, partitions={TopicPartition("t", 0): held}
    )
    (finding,) = [each for each in found if each.kind == "cut"]

    assert str(finding.fix).startswith(fix)
    assert str(finding.fix.commands[0]).startswith("odradek why topic t --partition 0")
