"""`odradek why`: each trouble in a sentence, with its cause, its time and its cure."""

import json
from datetime import UTC, datetime

import pytest

from odradek.cli import why, why_log
from odradek.cli.main import run
from odradek.cli.why_sentences import Picture, explain_broker, explain_topic
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterState, Wanted
from odradek.local.options import Wishes, write_options

NOW = datetime(2026, 5, 4, 10, 30, tzinfo=UTC)
MOVE = (
    "kafka-leader-election --bootstrap-server b:9 --election-type preferred --topic t --partition 3"
)


def partition(**changed):
    return {
        "topic": "t", "partition": 3, "state": "OnlinePartition", "leader": 1, "leader_epoch": 5,
        "isr": [1, 2], "recovering": False, "replicas": [2, 1], "adding": [], "removing": [],
        "dead": [], "on_failed_dirs": [],
        **changed,
    }  # fmt: skip


def at(minute, verdict, *, number=1, broker=None, cause="broker 2 went away", **rest):
    about = {"topic": None, "partition": None} if broker is not None else {
        "topic": "t", "partition": 3,
    }  # fmt: skip
    return {
        "at_ms": int(NOW.timestamp() * 1000) - (30 - minute) * 60_000,
        "number": number, "verdict": verdict, "broker": broker,
        "cause": {"says": cause}, "says": f"{verdict} said", "before": None, "after": None,
        "detail": "", **about, **rest,
    }  # fmt: skip


GONE = at(1, "BROKER_GONE", broker=2)
BACK = at(2, "BROKER_JOINED", broker=2)
ELECTED = at(1, "LEADER_ELECTED", number=2, before={"isr": [1, 2]},
             after={"leader": 1, "isr": [1]})  # fmt: skip


def picture(*partitions, journal=(), brokers=(1, 2), percent=(2, 25), **changed):
    state = {
        "controller_id": 1,
        "brokers": {str(id_): {} for id_ in brokers},
        "shutting_down": [],
        "rebalance": {"in_seconds": 212.3, "percentage_max": 10},
        "imbalance": {"2": {"led_by_others": percent[0], "should_lead": percent[1]}},
        "topic": {"name": "t", "exists": True, "being_deleted": False, "deletion_waits": None},
        "partitions": list(partitions),
        **changed,
    }
    return Picture(
        state, journal, NOW, bootstrap="b:9", local={1: "running", 2: "running"},
        time=lambda ms: datetime.fromtimestamp(ms / 1000, UTC),
    )  # fmt: skip


HEAD = "t-3 has leader 1, not its preferred 2 since 10:01:00, because broker 2 went away; "
OUT = "t-3: replica 2 is out of sync since 10:01:00, because broker 2 went away; "


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (
            picture(partition(leader=2)),
            ["t-3 is well: its preferred 2 leads, all are in sync"],
        ),
        (
            picture(partition(), journal=[GONE, ELECTED, BACK]),
            [
                HEAD + "broker 2 went away at 10:01:00 and came back at 10:02:00; "
                f"imbalance 8 % is not above 10 %; next check in 212 s; run {MOVE} to move it now"
            ],
        ),
        (
            picture(partition(), percent=(3, 25), rebalance={
                "in_seconds": None, "percentage_max": 10}),
            [
                ("t-3 has leader 1, not its preferred 2; imbalance 12 % is above 10 %, but "
                "auto.leader.rebalance.enable is false: nobody gives it back; "
                f"run {MOVE} to move it now")
            ],
        ),
        (
            picture(partition(isr=[1], dead=[2]), journal=[GONE, ELECTED], brokers=(1,)),
            [
                HEAD + "broker 2 went away at 10:01:00; start it: odradek start 2",
                OUT + "broker 2 went away at 10:01:00; start it: odradek start 2",
            ],
        ),
        (
            picture(partition(isr=[1]), journal=[GONE, ELECTED, BACK]),
            [
                HEAD + "broker 2 went away at 10:01:00 and came back at 10:02:00; "
                "replica 2 is not in sync yet: it has to catch up first",
                OUT + "it is copying what it missed, and joins by itself when it has all",
            ],
        ),
        (
            picture(partition(isr=[1], on_failed_dirs=[2])),
            [
                ("t-3 has leader 1, not its preferred 2; "
                "its log directory on broker 2 has failed: mend the disk, restart it"),
                ("t-3: replica 2 is out of sync; "
                "its log directory has failed: mend the disk, restart broker 2"),
            ],
        ),
        (
            picture(partition(), shutting_down=[2]),
            ["t-3 has leader 1, not its preferred 2; broker 2 is about to leave"],
        ),
        (
            picture(partition(leader=-1, isr=[2], dead=[2]), brokers=(1,), journal=[
                GONE, at(1, "LEFT_WITHOUT_LEADER", number=3)]),
            [
                ("t-3 has no leader since 10:01:00, because broker 2 went away: only 2 may lead, "
                "for only there is everything that was acknowledged (broker 2 went away at "
                "10:01:00); start it: odradek start 2, or, if its records may be lost, let another "
                f"lead: {MOVE.replace('preferred', 'unclean')}")
            ],
        ),
        (
            picture(partition(leader=None, isr=[], dead=[2, 1]), brokers=()),
            [
                "t-3 never had a leader: none of 2,1 was alive; start it: odradek start 2"
            ],
        ),
        (
            picture(partition(leader=2, replicas=[2, 3, 1], adding=[3], removing=[1], dead=[3]),
                    journal=[at(5, "REASSIGNMENT_STARTED", cause="a reassignment was asked for")]),
            [
                ("t-3 moves to 2,3 since 10:05:00, because a reassignment was asked for: 3 not in "
                "sync yet, 3 not even there: start it; "
                "kafka-reassign-partitions --cancel takes it back")
            ],
        ),
        (
            picture(partition(leader=2, recovering=True)),
            [
                ("t-3 was given a leader from outside the ISR: records that were acknowledged "
                "before may be lost")
            ],
        ),
        (picture(), ["topic t has no partition 3"]),
        (
            picture(topic={"exists": False, "being_deleted": False}, journal=[
                {**at(9, "TOPIC_DELETED"), "partition": None}]),
            ["there is no topic t; it was deleted at 10:09:00"],
        ),
        (
            picture(partition(leader=2), journal=[
                {**at(9, "DELETION_HALTED"), "partition": None}],
                topic={"exists": True, "being_deleted": True,
                       "deletion_waits": "its replica on broker 2 is offline"}),
            [
                ("topic t is to be deleted, and waits since 10:09:00: its replica on broker 2 is "
                "offline; it goes on when that broker serves again"),
                "t-3 is well: its preferred 2 leads, all are in sync",
            ],
        ),
        (
            Picture(None, [], NOW),
            [("no controller answers, so how things stand cannot be said; odradek status says "
             "which brokers run")],
        ),
    ],
)  # fmt: skip
def test_a_topic_is_explained(found, sentences):
    told = explain_topic(found, "t", 3)
    end = told.index("") if "" in told else len(told)
    assert told[:end] == sentences


def test_what_was_decided_is_told_last_and_the_newest_of_it():
    many = [at(n, "LEADER_ELECTED", number=n, after={"leader": 9, "isr": [9]}) for n in range(20)]
    told = explain_topic(picture(partition(leader=2), journal=many), "t")
    assert told[1:3] == ["", "what the controller decided:"]
    assert told[3] == "  10:08:00  LEADER_ELECTED said"
    assert told[-1] == "  10:19:00  LEADER_ELECTED said"
    yesterday = {**ELECTED, "at_ms": ELECTED["at_ms"] - 86_400_000}
    told = explain_topic(picture(partition(leader=2), journal=[yesterday]), "t")
    assert told[-1] == "  2026-05-03 10:01:00  LEADER_ELECTED said"


def test_many_partitions_that_are_well_are_counted():
    told = explain_topic(picture(*(partition(leader=2, partition=n) for n in range(20))), "t")
    assert len(told) == 9
    assert told[-1] == "and so are 12 more"


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (
            picture(partition(), partition(leader=2), journal=[GONE, BACK]),
            [
                "broker 2 is registered (broker 2 went away at 10:01:00 and came back at 10:02:00)",
                "it holds 2 partitions and leads 1",
                ("others lead 2 of 25 partitions that it should lead: imbalance 8 % is not above "
                "10 %; next check in 212 s; run kafka-leader-election --bootstrap-server b:9 "
                "--election-type preferred --all-topic-partitions to move them now"),
            ],
        ),
        (
            picture(partition(leader=-1, isr=[2]), partition(partition=4, isr=[1]), brokers=(1,)),
            [
                ("broker 2 is not registered: broker 2 is not there (its process here: running); "
                "start it: odradek start 2"),
                "it holds 2 partitions and leads 0",
                "t-3 cannot be led by anybody else: start it: odradek start 2",
                "it is out of sync on t-4",
            ],
        ),
        (
            picture(partition(isr=[1], on_failed_dirs=[2]), controller_id=2, shutting_down=[2],
                    percent=(0, 1), journal=[
                        at(3, "BROKER_FENCED", broker=2, detail="an old life")]),
            [
                "broker 2 is registered, and is the controller",
                "broker 2 is leaving: it gives up what it leads",
                "it holds 1 partitions and leads 0",
                ("a log directory of broker 2 has failed, and t-3 with it: mend the disk, restart "
                "the broker"),
                "broker 2 was fenced at 10:03:00: an old life",
            ],
        ),
    ],
)  # fmt: skip
def test_a_broker_is_explained(found, sentences):
    told = explain_broker(found, 2)
    end = told.index("") if "" in told else len(told)
    assert told[:end] == sentences


def test_all_brokers_that_run_are_asked_and_what_they_say_is_put_in_order(
    tmp_path, monkeypatch, capsys
):
    directory = ClusterDirectory(tmp_path / "D")
    write_options(directory, Wishes(port=9092), brokers=3)
    records = {
        id_: BrokerRecord(
            wanted=Wanted.RUNNING, http=f"http://{id_}", listeners=["PLAINTEXT://x:1"]
        )
        for id_ in range(3)
    }
    directory.save(ClusterState(up=True, brokers=records))
    running = {"bootstrap": "x:1", "brokers": [{"id": n, "state": "running"} for n in range(3)]}
    monkeypatch.setattr(why.Supervisor, "status", lambda _self: running)

    def get(url, path, query):
        if url == "http://2":
            return None
        if path == "/controller":
            reigns = url == "http://1"
            return {"reigns": reigns, **(picture().state if reigns else {})}
        minute = {"http://0": 5, "http://1": 4}[url]
        return {"entries": [{**GONE, "at_ms": minute}], "begins_ms": 3}

    monkeypatch.setattr(why, "_get", get)
    assert run(["why", "broker", "2", "--json", "--dir", str(directory.path)]) == 0
    out = capsys.readouterr()
    told = json.loads(out.out)
    assert [(e["at_ms"], e["by"]) for e in told["journal"]] == [(4, 1), (5, 0)]
    assert told["state"]["controller_id"] == 1
    assert "broker 2 does not answer" in out.err

    assert run(["why", "topic", "t", "--dir", str(directory.path)]) == 0
    assert run(["why", "topic", "t", "--dir", str(tmp_path / "nothing")]) == 1


LOGGED = """[2026-05-04 10:01:00,250] INFO t-x-3: leader elected (leader 2, epoch 1, ISR 2,0) because \
broker 1 began to shut down (odradek.state_change)
[2026-05-04 10:01:01,000] INFO 1: broker gone because broker 1 went away (odradek.state_change)
[2026-05-04 10:01:02,000] INFO t-2: topic deleted because deletion was asked for (odradek.state_change)
[2026-05-04 10:01:03,000] INFO t: deletion halted because deletion was asked for [broker 2 went away] \
(odradek.state_change)
[2026-05-04 10:01:04,000] INFO t-4: left without a leader (leader -1, epoch 2, ISR 1) because \
brokers 1 and 2 went away (odradek.state_change)
[2026-05-04 10:01:05,000] WARNING controller epoch 4 begins (odradek.state_change)
[2026-05-04 10:01:06,000] INFO stopping (odradek.broker.main)
Traceback (most recent call last): because of nothing
[2026-05-04 10:02:00,000] INFO 1: broker joined because broker 1 started (odradek.state_change)
"""  # noqa: E501 - as they stand in the log


def test_what_the_journal_has_lost_is_read_in_the_log():
    end = datetime(2026, 5, 4, 10, 1, 30).astimezone()
    lines = LOGGED.replace("\\\n", "").splitlines()
    found = list(why_log.entries(lines, before_ms=int(end.timestamp() * 1000)))
    assert [(e["verdict"], e["topic"], e["partition"], e["broker"]) for e in found] == [
        ("LEADER_ELECTED", "t-x", 3, None),
        ("BROKER_GONE", None, None, 1),
        ("TOPIC_DELETED", "t-2", None, None),
        ("DELETION_HALTED", "t", None, None),
        ("LEFT_WITHOUT_LEADER", "t", 4, None),
    ]
    elected, _, _, halted, lost = found
    assert elected["after"] == {"leader": 2, "leader_epoch": 1, "isr": [2, 0]}
    assert elected["cause"]["says"] == "broker 1 began to shut down"
    assert elected["at_ms"] == int(end.timestamp() * 1000) - 29_750
    assert halted["detail"] == "broker 2 went away"
    assert (lost["after"]["leader"], lost["cause"]["says"]) == (-1, "brokers 1 and 2 went away")


def test_a_dead_brokers_log_is_read_whole_and_a_live_ones_up_to_its_journal(
    tmp_path, monkeypatch, capsys
):
    directory = ClusterDirectory(tmp_path / "D")
    write_options(directory, Wishes(port=9092), brokers=2)
    records = {id_: BrokerRecord(wanted=Wanted.RUNNING, http=f"http://{id_}") for id_ in range(2)}
    directory.save(ClusterState(up=True, brokers=records))
    directory.log(0).parent.mkdir()
    for id_ in range(2):
        directory.log(id_).write_text(LOGGED.replace("\\\n", ""))
    running = {
        "bootstrap": "x:1",
        "brokers": [{"id": 0, "state": "running"}, {"id": 1, "state": "killed"}],
    }
    monkeypatch.setattr(why.Supervisor, "status", lambda _self: running)
    begins_ms = int(datetime(2026, 5, 4, 10, 1, 1).astimezone().timestamp() * 1000)
    answers = {
        "/journal": {"entries": [], "begins_ms": begins_ms},
        "/controller": {**picture().state, "reigns": True},
    }
    monkeypatch.setattr(why, "_get", lambda _url, path, _query: answers[path])
    told = ["why", "topic", "t-x", "--json", "--dir", str(directory.path)]
    assert run(told) == 0
    found = json.loads(capsys.readouterr().out)["journal"]
    assert [(e["verdict"], e["by"]) for e in found] == [
        ("LEADER_ELECTED", 0),
        ("LEADER_ELECTED", 1),
        ("BROKER_GONE", 1),
        ("BROKER_JOINED", 1),
    ]
