"""A silent store, and a broker that runs and is cut off from it, are found and not "started"."""

import pytest

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller, clock
from odradek.plan.doctor import diagnose
from odradek.plan.facts import ClusterFacts, Severity

NOW_MS = WallMs(1_700_000_000_000)
SINCE_MS = NOW_MS - 60_000
AT = clock(SINCE_MS, NOW_MS)
LED_BY_0 = Replicas((0, 1), 5, 0, (0,))


def report(silent_ms=None, unregistered_ms=None, zookeeper="z:2181"):
    return {
        "began_ms": 0, "log_dirs": (), "cleaner": {"is_enabled": True, "given_up": ()},
        "unknown_options": (), "refusals": (),
        "store": {
            "zookeeper": zookeeper, "silent_ms": silent_ms, "unregistered_ms": unregistered_ms,
        },
    }  # fmt: skip


def findings(reports, registered=(0, 1), held=LED_BY_0, **caller):
    return diagnose(
        ClusterFacts(
            picture=ClusterPicture(
                dict.fromkeys(registered), {TopicPartition("t", 0): held}, {"t": 1}
            ),
            caller=Caller("b:9", **caller),
            wall_ms=NOW_MS,
            reports=reports,
        )
    )


def test_a_zookeeper_that_answers_no_broker():
    reports = {0: report(SINCE_MS), 1: report(SINCE_MS - 1, SINCE_MS)}
    finding = findings(reports)[0]

    assert (finding.severity, finding.kind) == (Severity.CRITICAL, "store")
    assert finding.subject == "ZooKeeper at z:2181"
    assert finding.why.startswith(f"it answers no broker since {AT} (brokers 0 and 1)")
    assert "Do not restart brokers" in str(finding.fix)


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        ((SINCE_MS, None), "it runs, and gets no answer from ZooKeeper at z:2181 since "),
        (
            (None, SINCE_MS),
            "it runs, and has lost its session with ZooKeeper at z:2181 since ",
        ),
    ],
)
def test_a_broker_that_is_cut_off_and_answers_is_not_to_be_started(cut, why):
    store, replicas = findings({0: report(), 1: report(*cut)}, [0], options=("--dir", "d"),
                               local={0: "running", 1: "running"})  # fmt: skip

    assert (store.kind, store.subject) == ("store", "broker 1")
    assert store.why.startswith(why + AT)
    assert "it is not registered any more" in store.why
    assert "the broker registers again by itself" in str(store.fix)
    assert (replicas.kind, replicas.subject) == ("under-replicated", "t-0")
    assert replicas.why.startswith("broker 1 runs, and is not registered with the store")
    assert str(replicas.fix).startswith("see what is said of broker 1")
    assert "start 1" not in f"{store.fix}{replicas.fix}"


def test_a_broker_whose_session_has_not_ended_yet_is_still_registered():
    (finding,) = findings({0: report(), 1: report(SINCE_MS)}, held=Replicas((0, 1), 5, 0, (0, 1)))

    assert "other brokers still take it for registered" in finding.why


def test_an_embedded_store_is_named_with_its_option():
    (finding,) = findings({0: report(unregistered_ms=SINCE_MS, zookeeper=None)},
                          held=Replicas((0, 1), 5, 0, (0, 1)))  # fmt: skip

    assert "the embedded store" in finding.why
    assert "odradek.store.path" in str(finding.fix)


def test_brokers_that_reach_their_store_and_older_ones_have_no_finding():
    old = {name: value for name, value in report().items() if name != "store"}

    assert findings({0: report(), 1: old}, held=Replicas((0, 1), 5, 0, (0, 1))) == []
