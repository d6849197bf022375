"""The journal of causes and the controller's state, as JSON."""

import json
import logging

import pytest

from odradek.broker.controller.journal import DecisionJournal
from odradek.broker.controller.view import control_routes
from odradek.broker.viewer import Operator
from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.coord import layout
from odradek.model.partition import LeaderAndIsr, TopicPartition

CAUSE = Cause(CauseKind.BROKER_FAILED, (2,))
STATE = LeaderAndIsr(leader=1, leader_epoch=3, isr=(1,), partition_epoch=4, leader_recovery_state=1)


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def journal(entries_max=100) -> DecisionJournal:
    made = DecisionJournal(Clock(), entries_max=entries_max)
    made.note("controller epoch 1 begins")
    made.record(Decision(Verdict.BROKER_GONE, 2, CAUSE))
    for name in (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)):
        made.record(Decision(Verdict.LEADER_ELECTED_UNCLEAN, name, CAUSE, None, STATE))
    made.record(Decision(Verdict.DELETION_HALTED, "t", CAUSE, detail="broker 2 is dead"))
    made.record(Decision(Verdict.BROKER_JOINED, 1, CAUSE))
    return made


def read(response):
    assert response.status == 200, response
    body = response.body
    return json.loads(body if isinstance(body, bytes) else b"".join(body))


def asked(made, **query):
    class NoShell:
        pass

    routes = control_routes(NoShell(), made, Operator(), broker_id=7)
    return read(routes["journal"]({key: str(value) for key, value in query.items()}))


def subjects(answer):
    return [(e["topic"], e["partition"], e["broker"]) for e in answer["entries"] if e["verdict"]]


def test_an_unclean_election_is_logged_as_a_warning(caplog):
    caplog.set_level(logging.INFO)
    journal()
    warned = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len([text for text in warned if "leader elected from outside the ISR" in text]) == 3


BROKERS_ABOUT = [(None, None, 2), (None, None, 1)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"topic": "u"}, [(None, None, 2), ("u", 0, None), (None, None, 1)]),
        (
            {"topic": "t", "partition": 1},
            [(None, None, 2), ("t", 1, None), ("t", None, None), (None, None, 1)],
        ),
        ({"broker": 2}, [(None, None, 2)]),
        ({"limit": 2}, [("t", None, None), (None, None, 1)]),
        ({"limit": 0}, []),
    ],
)
def test_the_journal_is_searched_by_topic_partition_and_broker(query, found):
    assert subjects(asked(journal(), **query)) == found


def test_an_entry_has_its_time_its_cause_and_what_changed():
    answer = asked(journal(), topic="u")
    assert answer["broker_id"] == 7
    (entry,) = [e for e in answer["entries"] if e.get("topic") == "u"]
    assert entry == {
        "at_ms": 1006,
        "number": 5,
        "topic": "u",
        "partition": 0,
        "broker": None,
        "verdict": "LEADER_ELECTED_UNCLEAN",
        "says": (
            "u-0: leader elected from outside the ISR (leader 1, epoch 3, ISR 1) because "
            "broker 2 went offline"
        ),
        "cause": {"kind": "BROKER_FAILED", "brokers": [2], "says": "broker 2 went offline"},
        "before": None,
        "after": {"leader": 1, "leader_epoch": 3, "isr": [1], "recovering": True},
        "detail": "",
    }
    (note,) = [e for e in answer["entries"] if e["verdict"] is None]
    assert note["says"] == "controller epoch 1 begins"


def test_the_journal_is_bounded_and_goes_on_counting():
    made = journal(entries_max=2)
    assert [entry.number for entry in made.entries] == [6, 7]
    # Since when nothing is missing: since it was made, or since the oldest that is left.
    assert (journal().begins_ms, made.begins_ms) == (1_001, 1_007)


@pytest.mark.parametrize("query", [{"partition": "x"}, {"broker": "-1"}, {"limit": "1e3"}])
def test_a_query_parameter_that_is_not_a_number_is_refused(query):
    class NoShell:
        pass

    routes = control_routes(NoShell(), journal(), Operator(), broker_id=7)
    response = routes["journal"](query)
    assert response.status == 400
    assert b"must be a number" in response.body


def test_only_the_controller_reports_the_state_of_the_cluster(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await cluster.create_topic("t", dict.fromkeys(range(250), (1, 2)))
        await cluster.create_topic("u", {0: (2, 1)})
        await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 251)

        def view(id_, **query):
            shell = cluster.nodes[id_].shell
            route = control_routes(shell, journal(), Operator(), broker_id=id_)["controller"]
            return read(route(query))

        assert view(2) == {"broker_id": 2, "controller_id": 1, "is_controller": False}
        result = view(1, topic="t", partition="3")
        assert result["is_controller"]
        assert result["topic"] == {
            "name": "t", "exists": True, "being_deleted": False, "deletion_waits": None,
        }  # fmt: skip
        assert result["imbalance"] == {
            "1": {"should_lead": 250, "led_by_others": 0},
            "2": {"should_lead": 1, "led_by_others": 0},
        }
        assert result["rebalance"]["percentage_max"] == 10
        assert 0 < result["rebalance"]["in_seconds"] <= 300
        (partition,) = result["partitions"]
        assert partition == {
            "topic": "t", "partition": 3, "state": "OnlinePartition", "leader": 1,
            "leader_epoch": 0, "isr": [1, 2], "recovering": False, "replicas": [1, 2],
            "adding": [], "removing": [], "dead": [], "on_failed_dirs": [],
        }  # fmt: skip
        assert len(view(1, topic="t")["partitions"]) == 250
        assert len(view(1, broker="2")["partitions"]) == 251
        assert view(1, topic="none")["topic"]["exists"] is False

        await cluster.nodes[2].end()
        await cluster.until(lambda: 2 not in node.shell.machine.context.brokers)
        await cluster.store.create(layout.delete_topic_path("u"))
        halted = node.shell.machine.machines.deletion.halted
        await cluster.until(lambda: "u" in halted)
        result = view(1, topic="u")
        assert result["topic"]["deletion_waits"] == "its replica on broker 2 is offline"
        assert result["partitions"][0]["dead"] == [2]

    play(story)
