"""`odradek why`: each problem is a sentence with its cause, its time and what to do."""

import json
from dataclasses import replace
from datetime import datetime

import pytest

from odradek.cli.main import run
from odradek.explain import log as state_change_log
from odradek.explain import reports
from odradek.explain.sentences import Picture, explain_broker, explain_topic
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, TargetState
from odradek.local.options import UpOptions, write_options
from odradek.plan.commands import Caller

NOW = datetime(2026, 5, 4, 10, 30).astimezone()
NOW_MS = int(NOW.timestamp() * 1000)
MOVE = (
    "kafka-leader-election --bootstrap-server b:9 --election-type preferred --topic t --partition 3"
)


def texts(lines):
    return [str(line) for line in lines]


def partition(**changed):
    return {
        "topic": "t", "partition": 3, "state": "OnlinePartition", "leader": 1, "leader_epoch": 5,
        "isr": [1, 2], "recovering": False, "replicas": [2, 1], "adding": [], "removing": [],
        "dead": [], "on_failed_dirs": [],
        **changed,
    }  # fmt: skip


def at(minute, verdict, *, number=1, broker=None, cause="broker 2 went offline", **rest):
    about = {"topic": None, "partition": None} if broker is not None else {
        "topic": "t", "partition": 3,
    }  # fmt: skip
    return {
        "at_ms": NOW_MS - (30 - minute) * 60_000,
        "number": number, "verdict": verdict, "broker": broker,
        "cause": {"says": cause}, "says": f"{verdict} said", "before": None, "after": None,
        "detail": "", **about, **rest,
    }  # fmt: skip


GONE = at(1, "BROKER_GONE", broker=2)
OLDER = "broker 1 registered with an older copy of the log directories"
BACK = at(2, "BROKER_JOINED", broker=2)
ELECTED = at(1, "LEADER_ELECTED", number=2, before={"isr": [1, 2]},
             after={"leader": 1, "isr": [1]})  # fmt: skip


def picture(
    *partitions, journal=(), brokers=(1, 2), percent=(2, 25), caller=None, directories=None,
    isr_min=1, failing=None, **changed,
):  # fmt: skip
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
    caller = caller or Caller("b:9", local={1: "running", 2: "running"})
    entry = {"leader": 1, "topic": None, "partition": None, "problem": failing,
             "since_ms": GONE["at_ms"]}  # fmt: skip
    problems = {2: [entry]} if failing else {}
    return Picture(
        state, journal, NOW_MS, caller, directories or {}, isr_min, fetch_problems=problems
    )  # fmt: skip


ALL = (
    "kafka-leader-election --bootstrap-server b:9 --election-type preferred --all-topic-partitions"
)
HEAD = (
    "t-3: broker 1 leads instead of the preferred replica 2 since 10:01:00 because broker 2 went "
    "offline; "
)
OUT = "t-3: replica 2 is out of sync since 10:01:00 because broker 2 went offline; "
WELL = "the preferred replica leads, and all replicas are in sync"
GONE_SINCE = (
    " since 10:01:00 because broker 2 is offline (its process was killed); odradek start 2 --dir D"
)
AWAY = "broker 2 is offline since 10:01:00 (its process was killed); odradek start 2 --dir D"
KILLED = Caller("b:9", ("--dir", "D"), {1: "running", 2: "killed"})
CRASHED = Caller("b:9", ("--dir", "D"), {2: "crashed"}, {2: "/data: No space left on device"})


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (picture(partition(leader=2)), [f"t-3: {WELL}"]),
        (
            picture(partition(), journal=[GONE, ELECTED, BACK]),
            [
                HEAD + "broker 2 is registered again since 10:02:00; 8 % of its partitions are "
                "led by others, the limit is 10 %: the next check, in 212 s, leaves it so; to move "
                f"leadership now: {MOVE}"
            ],
        ),
        (
            picture(partition(), percent=(3, 25), rebalance={
                "in_seconds": None, "percentage_max": 10}),
            [
                ("t-3: broker 1 leads instead of the preferred replica 2; 12 % of its partitions "
                "are led by others, the limit is 10 %, but auto.leader.rebalance.enable is false: "
                f"leadership does not move back; to move leadership now: {MOVE}")
            ],
        ),
        (
            picture(partition(isr=[1], dead=[2]), journal=[GONE, ELECTED], brokers=(1,),
                    caller=KILLED),
            [
                "t-3: broker 1 leads instead of the preferred replica 2" + GONE_SINCE,
                "t-3: replica 2 is out of sync" + GONE_SINCE,
            ],
        ),
        (
            picture(partition(isr=[1], dead=[2]), journal=[GONE, ELECTED], brokers=(1,),
                    caller=Caller("b:9")),
            [
                f"t-3: {each} since 10:01:00 because broker 2 is offline; start broker 2 on its "
                "host (odradek server-start server.properties, or its service)"
                for each in ("broker 1 leads instead of the preferred replica 2",
                             "replica 2 is out of sync")
            ],
        ),
        (
            picture(partition(isr=[1]), journal=[GONE, ELECTED, BACK]),
            [
                HEAD + "broker 2 is registered again since 10:02:00; replica 2 is not in "
                "sync yet: it leads again after it has caught up",
                OUT + "it copies what it misses, and joins the ISR by itself",
            ],
        ),
        (
            picture(partition(isr=[1]), journal=[GONE, ELECTED, BACK], failing="no route"),
            [
                HEAD + "broker 2 is registered again since 10:02:00; replica 2 is not in "
                "sync yet: it leads again after it has caught up",
                OUT + "broker 2 cannot fetch from broker 1 since 10:01:00: no route; let broker 2 "
                "reach broker 1 (network, firewall, listener): then it catches up by itself",
            ],
        ),
        (
            picture(partition(isr=[1], on_failed_dirs=[2]), directories={2: [
                {"path": "/d/a", "is_offline": False},
                {"path": "/d/b", "is_offline": True, "why": "/d/b: Input/output error",
                 "since_ms": ELECTED["at_ms"]}]}),
            [
                f"t-3: {what}; log directory /d/b of broker 2 is offline since 10:01:00 "
                "(/d/b: Input/output error); repair the disk, then odradek restart 2"
                for what in ("broker 1 leads instead of the preferred replica 2",
                             "replica 2 is out of sync")
            ],
        ),
        (
            picture(partition(), shutting_down=[2]),
            ["t-3: broker 1 leads instead of the preferred replica 2; broker 2 is shutting down"],
        ),
        (
            picture(partition(leader=-1, isr=[1], dead=[2]), brokers=(1,), caller=KILLED,
                    journal=[at(1, "LEFT_WITHOUT_LEADER", number=3, cause=OLDER)]),
            [
                (f"t-3: no leader since 10:01:00 because {OLDER}: clients can neither write nor "
                "read; broker 1 may lack acknowledged records that broker 2 may have (broker 2 is "
                "offline (its process was killed)); odradek start 2 --dir D; or, if records may be "
                "lost: kafka-leader-election --bootstrap-server b:9 --election-type unclean "
                "--topic t --partition 3"),
            ],
        ),
        (
            picture(partition(leader=-1, isr=[2], dead=[2]), brokers=(1,), caller=CRASHED,
                    journal=[GONE, at(1, "LEFT_WITHOUT_LEADER", number=3)]),
            [
                ("t-3: no leader since 10:01:00 because broker 2 is offline (its process has ended "
                "by itself: /data: No space left on device): clients can neither write nor read; "
                "only broker 2 may lead, because every acknowledged record is only there; odradek "
                "start 2 --dir D; or, if records may be "
                f"lost: {MOVE.replace('preferred', 'unclean')}")
            ],
        ),
        (
            picture(partition(leader=None, isr=[], dead=[2, 1]), brokers=()),
            [
                ("t-3: no leader yet: none of its replicas (2, 1) was registered when it was "
                "created; odradek restart 2")
            ],
        ),
        (
            picture(partition(leader=2, replicas=[2, 3, 1], adding=[3], removing=[1], dead=[3]),
                    journal=[at(5, "REASSIGNMENT_STARTED", cause="a reassignment was asked for")],
                    caller=Caller(local={3: "stopped"})),
            [
                ("t-3: it is being moved to brokers 2 and 3 since 10:05:00: replica 3 is not in "
                "sync yet and broker 3 is offline: odradek start 3; to take it back: "
                "kafka-reassign-partitions --cancel --reassignment-json-file FILE")
            ],
        ),
        (
            picture(partition(leader=2, recovering=True), journal=[
                at(5, "LEADER_ELECTED_UNCLEAN", after={"leader": 2, "isr": [2]})]),
            [
                ("t-3: its leader was elected from outside the ISR since 10:05:00 (unclean "
                "election): records that were acknowledged before may be lost")
            ],
        ),
        (
            picture(partition(leader=2, replicas=[2], isr=[2]), isr_min=2),
            [
                ("t-3: acks=all is refused (NOT_ENOUGH_REPLICAS): it has 1 replica and "
                "min.insync.replicas is 2; add replicas (odradek plan, "
                "kafka-reassign-partitions), or kafka-configs --bootstrap-server b:9 --alter "
                "--entity-type topics --entity-name t --add-config min.insync.replicas=1")
            ],
        ),
        (
            picture(partition(leader=1, replicas=[1, 2], isr=[1]), isr_min=2, journal=[ELECTED]),
            [
                ("t-3: acks=all is refused (NOT_ENOUGH_REPLICAS) since 10:01:00: 1 in sync and "
                "min.insync.replicas is 2; see the replicas that are out of sync"),
                OUT + "it copies what it misses, and joins the ISR by itself",
            ],
        ),
        (
            # The preferred replica is another one since a reassignment, not since the creation.
            picture(partition(leader=1, replicas=[2, 1]), percent=(3, 25), journal=[
                at(1, "LEADER_ELECTED", after={"leader": 1, "isr": [1]},
                   cause="the topic was created"),
                at(7, "REASSIGNMENT_COMPLETED", number=2)]),
            [
                ("t-3: broker 1 leads instead of the preferred replica 2 since 10:07:00 because a "
                "reassignment changed the replicas; 12 % of its partitions are led by others, the "
                "limit is 10 %: the next check, in 212 s, moves leadership back; to move "
                f"leadership now: {MOVE}")
            ],
        ),
        (picture(), ["topic t has no partition 3"]),
        (
            picture(topic={"exists": False, "being_deleted": False}, journal=[
                {**at(9, "TOPIC_DELETED"), "partition": None}]),
            ["topic t does not exist: it was deleted at 10:09:00"],
        ),
        (
            picture(partition(leader=2), journal=[
                {**at(9, "DELETION_HALTED"), "partition": None}],
                topic={"exists": True, "being_deleted": True,
                       "deletion_waits": "its replica on broker 2 is offline"}),
            [
                ("topic t: its deletion waits since 10:09:00: its replica on broker 2 is offline; "
                "it continues when that broker serves again"),
                f"t-3: {WELL}",
            ],
        ),
        (
            Picture(None, [], NOW_MS, Caller("b:9"), foreign=[1, 2]),
            [
                ("the controller reports no decisions: it runs on a broker that is not Odradek's "
                "(brokers 1 and 2); what Kafka's protocol offers is in odradek doctor "
                "--bootstrap-server b:9 and kafka-topics --bootstrap-server b:9 --describe")
            ],
        ),
        (
            Picture(None, [], NOW_MS, Caller(local={1: "stopped", 2: "paused", 3: "running"})),
            [("no controller answers, so the state of the cluster is not known; odradek start 1; "
             "odradek resume 2")],
        ),
    ],
)  # fmt: skip
def test_a_topic_is_explained(found, sentences):
    lines = texts(explain_topic(found, "t", 3))
    end = lines.index("") if "" in lines else len(lines)
    assert lines[:end] == sentences


def test_fifty_partitions_with_one_cause_are_one_line():
    partitions = [partition(partition=n, leader=1 + 2 * (n % 2)) for n in range(50)]
    entries = [{**ELECTED, "partition": n, "number": n,
                "after": {"leader": 1 + 2 * (n % 2), "isr": [1]},
                "at_ms": ELECTED["at_ms"] + 20 * n} for n in range(50)]  # fmt: skip
    lines = texts(explain_topic(picture(*partitions, journal=entries), "t"))

    assert lines[: lines.index("")] == [
        (
            "t-0, t-1, t-2 and 47 more: brokers 1 and 3 lead instead of the preferred replica 2 "
            "since 10:01:00 because broker 2 went offline; 8 % of its partitions are led by "
            "others, the limit is 10 %: the next check, in 212 s, leaves it so; to move leadership "
            "now: "
            f"{ALL}"
        )
    ]


def test_two_brokers_that_are_away_get_a_command_each():
    caller = Caller(options=("--dir", "D"), local={1: "killed", 2: "paused"})

    found = caller.bring_all_back([2, 1])

    assert str(found) == "odradek start 1 --dir D; odradek resume 2 --dir D"
    assert [each.words[:3] for each in found.commands] == [
        ("odradek", "start", "1"), ("odradek", "resume", "2"),
    ]  # fmt: skip


def test_the_newest_decisions_come_last():
    many = [at(n, "LEADER_ELECTED", number=n, after={"leader": 9, "isr": [9]}) for n in range(20)]
    lines = texts(explain_topic(picture(partition(leader=2), journal=many), "t"))
    assert lines[1:3] == ["", "the controller's decisions:"]
    assert lines[3] == "  10:08:00  LEADER_ELECTED said"
    assert lines[-1] == "  10:19:00  LEADER_ELECTED said"
    yesterday = {**ELECTED, "at_ms": ELECTED["at_ms"] - 86_400_000}
    lines = texts(explain_topic(picture(partition(leader=2), journal=[yesterday]), "t"))
    assert lines[-1] == "  2026-05-03 10:01:00  LEADER_ELECTED said"


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (
            picture(partition(), partition(leader=2), journal=[GONE, BACK]),
            [
                "broker 2 is registered since 10:02:00",
                "broker 2 holds 2 replicas and leads 1 of them",
                ("broker 2 is the preferred leader of 25 partitions, and others lead 2 of them: "
                "8 % of its partitions are led by others, the limit is 10 %: the next check, in "
                f"212 s, leaves it so; to move leadership now: {ALL}"),
            ],
        ),
        (
            picture(partition(leader=-1, isr=[2]), partition(partition=4, isr=[1]), brokers=(1,),
                    journal=[GONE], caller=KILLED),
            [
                AWAY,
                "broker 2 holds 2 replicas and leads 0 of them",
                "t-3: no leader, and only broker 2 may lead; odradek start 2 --dir D",
                "t-4: the replica on broker 2 is out of sync",
            ],
        ),
        (
            picture(partition(isr=[1], on_failed_dirs=[2]), controller_id=2, shutting_down=[2],
                    percent=(0, 1), journal=[
                        at(3, "BROKER_FENCED", broker=2, detail="a former registration"),
                        at(4, "BROKER_EMPTY", broker=2, detail="replicas there: 7")]),
            [
                "broker 2 is registered, and is the controller",
                "broker 2 is shutting down: it hands its leaderships over",
                "broker 2 holds 1 replica and leads 0 of them",
                ("t-3: offline on broker 2: a log directory of broker 2 is offline; repair the "
                "disk, then odradek restart 2"),
                (
                    "broker 2 registered with empty log directories at 10:04:00 (replicas there: "
                    "7): its replicas are copied from their leaders again, and records that no "
                    "other replica had are lost"
                ),
                "broker 2 was fenced at 10:03:00: a former registration",
            ],
        ),
        (
            picture(partition(leader=2), percent=(0, 1), caller=Caller(local={2: "paused"})),
            [
                "broker 2 is registered",
                "broker 2 does not answer: its process is paused (SIGSTOP); odradek resume 2",
                "broker 2 holds 1 replica and leads 1 of them",
            ],
        ),
        (
            replace(
                picture(partition(leader=2), percent=(0, 1)),
                older_directories={1: ["/a"], 2: ["/d/1", "/d/2"]},
            ),
            [
                "broker 2 is registered",
                "broker 2 holds 1 replica and leads 1 of them",
                ("broker 2 started with an older copy of /d/1, /d/2: what it lacks is copied from "
                "other replicas, and what no other replica has is lost"),
            ],
        ),
    ],
)  # fmt: skip
def test_a_broker_is_explained(found, sentences):
    lines = texts(explain_broker(found, 2))
    end = lines.index("") if "" in lines else len(lines)
    assert lines[:end] == sentences


def test_records_that_a_broker_lost_are_named_by_its_topic_and_by_itself():
    lost = {
        "at_ms": NOW_MS - 1_800_000, "topic": "t", "partition": 3,
        "kind": "damage", "path": "/d/t-3",
        "bytes": 340, "high_watermark": 9, "has_committed": True,
        "span": "the records from offset 7 on", "why": "the checksum is wrong",
    }  # fmt: skip
    aside = {
        **lost, "kind": "set-aside", "path": "/d/t-3.1-stray", "why": "another topic",
        "span": "the records from offset 0 to 8",
    }  # fmt: skip
    found = replace(
        picture(partition(leader=2)), cuts={1: [{**lost, "topic": "u"}], 2: [lost, aside]}
    )
    sentences = [
        (
            "t-3: at 10:00:00 broker 2 lost the records from offset 7 on (340 bytes): the checksum "
            "is wrong; those below the high watermark 9 were committed"
        ),
        (
            "t-3: at 10:00:00 broker 2 set its log aside as /d/t-3.1-stray, with the records from "
            "offset 0 to 8 (340 bytes): another topic"
        ),
    ]
    assert texts(explain_topic(found, "t"))[-2:] == sentences
    assert texts(explain_topic(found, "t", 3))[-2:] == sentences
    assert texts(explain_broker(found, 2))[-2:] == sentences


def test_all_brokers_that_run_are_asked_and_their_answers_are_sorted(tmp_path, monkeypatch, capsys):
    directory = ClusterDirectory(tmp_path / "D")
    write_options(directory, UpOptions(port=9092), brokers=3)
    records = {
        id_: BrokerRecord(
            wanted=TargetState.RUNNING, http=f"http://{id_}", listeners=["PLAINTEXT://x:1"]
        )
        for id_ in range(3)
    }
    directory.save(ClusterRecord(up=True, brokers=records))

    def each(n):
        return {"id": n, "state": "running", "http_token_file": f"token of {n}"}

    running = {"bootstrap": "x:1", "brokers": [each(n) for n in range(3)]}
    monkeypatch.setattr(reports.Supervisor, "status", lambda _self: running)

    def get(url, name, query, token_file):
        assert token_file == f"token of {url[-1]}"
        if url == "http://2":
            return None
        if name in ("broker", "replicas"):
            return {"log_dirs": [], "replicas": []}
        if name == "controller":
            is_active = url == "http://1"
            return {"is_controller": is_active, **(picture().state if is_active else {})}
        minute = {"http://0": 5, "http://1": 4}[url]
        return {"entries": [{**GONE, "at_ms": minute}], "begins_ms": 3}

    monkeypatch.setattr(reports, "get_report", get)
    assert run(["why", "broker", "2", "--json", "--dir", str(directory.path)]) == 0
    out = capsys.readouterr()
    lines = json.loads(out.out)
    assert [(e["at_ms"], e["by"]) for e in lines["journal"]] == [(4, 1), (5, 0)]
    assert lines["state"]["controller_id"] == 1
    assert "broker 2 does not answer" in out.err

    assert run(["why", "topic", "t", "--dir", str(directory.path)]) == 0
    assert run(["why", "topic", "t", "--dir", str(tmp_path / "nothing")]) == 1


LOGGED = """[2026-05-04 10:01:00,250] INFO t-x-3: leader elected (leader 2, epoch 1, ISR 2,0) because \
broker 1 began to shut down (odradek.state_change)
[2026-05-04 10:01:01,000] INFO 1: broker offline because broker 1 went offline (odradek.state_change)
[2026-05-04 10:01:02,000] INFO t-2: topic deleted because deletion was asked for (odradek.state_change)
[2026-05-04 10:01:03,000] INFO t: deletion halted because deletion was asked for [broker 2 went offline] \
(odradek.state_change)
[2026-05-04 10:01:04,000] INFO t-4: left without a leader (leader -1, epoch 2, ISR 1) because \
brokers 1 and 2 went offline (odradek.state_change)
[2026-05-04 10:01:05,000] WARNING controller epoch 4 begins (odradek.state_change)
[2026-05-04 10:01:06,000] INFO stopping (odradek.broker.main)
Traceback (most recent call last): because of nothing
[2026-05-04 10:02:00,000] INFO 1: broker joined because broker 1 started (odradek.state_change)
"""  # noqa: E501 - as they stand in the log


def test_what_the_journal_has_lost_is_read_in_the_log():
    end = datetime(2026, 5, 4, 10, 1, 30).astimezone()
    lines = LOGGED.replace("\\\n", "").splitlines()
    found = list(state_change_log.entries(lines, before_ms=int(end.timestamp() * 1000)))
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
    assert halted["detail"] == "broker 2 went offline"
    assert (lost["after"]["leader"], lost["cause"]["says"]) == (-1, "brokers 1 and 2 went offline")


def test_the_log_of_a_stopped_broker_is_read_whole_and_of_a_running_one_up_to_its_journal(
    tmp_path, monkeypatch, capsys
):
    directory = ClusterDirectory(tmp_path / "D")
    write_options(directory, UpOptions(port=9092), brokers=2)
    records = {
        id_: BrokerRecord(wanted=TargetState.RUNNING, http=f"http://{id_}") for id_ in range(2)
    }
    directory.save(ClusterRecord(up=True, brokers=records))
    directory.log(0).parent.mkdir()
    for id_ in range(2):
        directory.log(id_).write_text(LOGGED.replace("\\\n", ""))
    running = {
        "bootstrap": "x:1",
        "brokers": [{"id": 0, "state": "running"}, {"id": 1, "state": "killed"}],
    }
    monkeypatch.setattr(reports.Supervisor, "status", lambda _self: running)
    begins_ms = int(datetime(2026, 5, 4, 10, 1, 1).astimezone().timestamp() * 1000)
    answers = {
        "journal": {"entries": [], "begins_ms": begins_ms},
        "controller": {**picture().state, "is_controller": True},
        "broker": {"log_dirs": []},
        "replicas": {"replicas": []},
    }
    monkeypatch.setattr(reports, "get_report", lambda _url, name, *_: answers[name])
    lines = ["why", "topic", "t-x", "--json", "--dir", str(directory.path)]
    assert run(lines) == 0
    found = json.loads(capsys.readouterr().out)["journal"]
    assert [(e["verdict"], e["by"]) for e in found] == [
        ("LEADER_ELECTED", 0),
        ("LEADER_ELECTED", 1),
        ("BROKER_GONE", 1),
        ("BROKER_JOINED", 1),
    ]
