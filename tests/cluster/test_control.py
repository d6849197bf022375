"""Three broker processes: reassignments, elections, deletions and failed disks."""

import json
import pathlib
import resource
import signal
import subprocess
import sys

import pytest
from control import BROKER, TOPIC, ThreeBrokers, wait_for

from odradek.controller.effects import RecordDecisions
from odradek.controller.recording import TermReplay
from odradek.model.errors import ErrorCode

NONE = [ErrorCode.NONE]
TEN = [b"%d" % n for n in range(10)]


@pytest.fixture
def three(make_broker, tmp_path):
    return ThreeBrokers(make_broker, tmp_path)


def topic_node(three, topic="t"):
    node = three.node(f"/brokers/topics/{topic}")
    return node["partitions"], node["adding_replicas"], node["removing_replicas"]


def moved(three, *ids, topic="t"):
    """Wait until partition 0 has these replicas, all in sync, and no other broker has files."""

    def arrived():
        found = three.partition(topic)
        return found.replica_nodes == list(ids) and set(found.isr_nodes) == set(ids)

    wait_for(arrived)
    # The brokers are notified first; the znode is written last.
    wait_for(lambda: topic_node(three, topic) == ({"0": list(ids)}, {}, {}))
    for broker in {1, 2, 3} - set(ids):
        wait_for(lambda broker=broker: not three.holds(broker, topic))


def test_a_partition_moves_grows_and_shrinks_and_loses_nothing(three):
    three.create("t", [1])
    three.write("t", TEN)

    assert three.reassign("t", {0: [2]}) == NONE
    moved(three, 2)
    state = three.state("t")
    # The leader epochs as in Apache Kafka: new replicas, election of 2, 1 leaves the ISR.
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (2, 3, [2])
    assert three.values("t") == 10

    assert three.reassign("t", {0: [2, 1, 3]}) == NONE
    moved(three, 2, 1, 3)
    three.write("t", TEN)

    assert three.reassign("t", {0: [3, 1]}) == NONE
    moved(three, 3, 1)
    assert three.partition("t").leader_id == 3
    assert three.values("t") == 20


def test_a_reassignment_to_a_stopped_broker_is_refused_and_a_waiting_one_can_be_cancelled(three):
    three.create("t", [1, 2])
    three.write("t", TEN)
    assert three.reassign("t", {0: None}) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    three.brokers[3].kill()
    wait_for(lambda: len(three.metadata().brokers) == 2)
    assert three.reassign("t", {0: [1, 3]}) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]

    three.brokers[3].start()
    wait_for(lambda: len(three.metadata().brokers) == 3)
    three.brokers[3].process.send_signal(signal.SIGSTOP)  # registered, and it copies nothing
    try:
        assert three.reassign("t", {0: [1, 3]}) == NONE
        assert three.reassigning() == {"t-0": ([1, 3, 2], [3], [2])}
        assert topic_node(three) == ({"0": [1, 3, 2]}, {"0": [3]}, {"0": [2]})
        assert three.reassign("t", {0: None}) == NONE
    finally:
        three.brokers[3].process.send_signal(signal.SIGCONT)
    assert three.reassigning() == {}
    moved(three, 1, 2)


def test_a_reassignment_continues_under_the_next_controller(three):
    controller = three.controller
    stays, other = sorted({1, 2, 3} - {controller})
    three.create("t", [stays])
    three.write("t", TEN)
    three.brokers[other].process.send_signal(signal.SIGSTOP)
    assert three.reassign("t", {0: [other]}) == NONE
    three.brokers[controller].kill()
    three.brokers[other].process.send_signal(signal.SIGCONT)

    moved(three, other)
    assert three.controller != controller
    assert three.values("t") == 10


def test_elections_are_held_on_demand(three):
    three.create("t", [1, 2])
    three.write("t", TEN)
    assert three.elect("t") == ErrorCode.ELECTION_NOT_NEEDED
    three.brokers[1].stop()
    wait_for(lambda: three.partition("t").leader_id == 2)
    assert three.elect("t") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    three.brokers[1].start()
    wait_for(lambda: set(three.partition("t").isr_nodes) == {1, 2})
    assert three.partition("t").leader_id == 2
    assert three.elect("t") == ErrorCode.NONE
    assert three.partition("t", at=three.controller).leader_id == 1

    # Only 2 has the last records; without it only an unclean election makes 1 the leader.
    three.brokers[1].kill()
    three.write("t", TEN)
    three.brokers[2].kill()
    three.brokers[1].start()
    wait_for(lambda: {b.node_id for b in three.metadata().brokers} == {1, 3})
    assert three.partition("t").leader_id == -1
    assert three.elect("t", unclean=True) == ErrorCode.NONE
    wait_for(lambda: three.partition("t").leader_id == 1)
    state = three.state("t")
    assert (state["isr"], state["leader_recovery_state"]) == ([1], 1)
    # Its recovery state is RECOVERED with the next change of the ISR.
    three.brokers[2].start()
    wait_for(lambda: "leader_recovery_state" not in three.state("t"))
    assert three.state("t")["isr"] == [1, 2]


@pytest.mark.parametrize("whose", ["topic", "brokers"])
def test_allowing_unclean_election_elects_at_once(three, whose):
    three.create("t", [1, 2])
    three.write("t", TEN)
    three.brokers[1].kill()
    three.write("t", TEN)
    three.brokers[2].kill()
    three.brokers[1].start()
    wait_for(lambda: {b.node_id for b in three.metadata().brokers} == {1, 3})
    assert three.partition("t").leader_id == -1

    kind, name = (TOPIC, "t") if whose == "topic" else (BROKER, "")
    three.configure(kind, name, unclean_leader_election_enable="true")
    wait_for(lambda: three.partition("t").leader_id == 1)


def test_a_topic_is_deleted_when_its_last_broker_has_restarted(three):
    three.create("t", [1, 2], [2, 3])
    three.write("t", TEN)
    victim = 2 if three.controller != 2 else 1
    three.brokers[victim].kill()
    wait_for(lambda: len(three.metadata().brokers) == 2)
    assert three.delete("t", timeout_ms=5_000) == ErrorCode.NONE
    assert three.node("/admin/delete_topics/t") is not None
    assert three.holds(victim, "t")

    three.brokers[victim].start()
    wait_for(lambda: three.node("/brokers/topics/t") is None)
    wait_for(lambda: three.node("/admin/delete_topics/t") is None)
    for broker in three.brokers:
        wait_for(lambda broker=broker: not three.holds(broker, "t"))


def test_the_leader_moves_away_from_a_directory_that_fails(three):
    # As many topics as it takes for one to be in the directory that will fail.
    topics = [f"t{n}" for n in range(4)]
    for topic in topics:
        three.create(topic, [1, 2])
        three.write(topic, TEN)
    directory = pathlib.Path(three.brokers[1].options["log.dirs"].partition(",")[0])
    lost = [topic for topic in topics if (directory / f"{topic}-0").is_dir()]
    assert 0 < len(lost) < len(topics)
    # No file of broker 1 may grow further than this: its disk is full.
    limit = 4 << 20
    resource.prlimit(three.brokers[1].pid, resource.RLIMIT_FSIZE, (limit, limit))
    three.write(lost[0], [b"x" * 500_000] * 10)

    for topic in topics:
        leader = 2 if topic in lost else 1
        wait_for(lambda topic=topic, leader=leader: three.partition(topic).leader_id == leader)
        assert three.values(topic) == 10 if topic != lost[0] else three.values(topic) >= 20
    shown = three.partition(lost[0])
    assert (shown.offline_replicas, shown.isr_nodes) == ([1], [2])
    # The notification was read and deleted.
    assert three.node("/log_dir_event_notification/log_dir_event_0000000000") is None


def test_options_of_a_topic_reach_every_broker(three):
    three.create("t", [1, 2, 3])
    three.configure(TOPIC, "t", max_message_bytes="100")
    for leader in (1, 2, 3):
        others = [id_ for id_ in (1, 2, 3) if id_ != leader]
        assert three.reassign("t", {0: [leader, *others]}) == NONE
        assert three.elect("t") in {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
        assert three.refusal("t", b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE


def test_every_broker_reports_its_decisions_and_the_controller_its_state(three):
    three.create("t", [1, 2, 3])
    first = three.controller
    three.brokers[first].stop()
    wait_for(lambda: three.controller not in (first, -1))
    wait_for(lambda: three.http_state(three.controller, "controller?topic=t")["is_controller"])
    three.brokers[first].start()

    view = three.http_state(three.controller, "controller?topic=t")
    assert view["topic"]["exists"]
    assert view["partitions"][0]["replicas"] == [1, 2, 3]
    (other,) = {1, 2, 3} - {first, three.controller}
    assert three.http_state(other, "controller")["is_controller"] is False
    journal = three.http_state(three.controller, f"journal?broker={first}")["entries"]
    assert [e["verdict"] for e in journal if e["verdict"]][-1] == "BROKER_JOINED"
    assert not [e for e in three.http_state(other, "journal?topic=t")["entries"] if e["verdict"]]


def odradek(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_why_explains_a_restart_although_the_controller_moved(tmp_path):
    home = ["--dir", str(tmp_path / "D")]
    stay = ["--", "auto.leader.rebalance.enable=false"]  # or leadership would move back too soon
    odradek("up", "--brokers", "3", "--detach", *home, *stay)
    try:
        bootstrap = json.loads(odradek("status", "--json", *home))["bootstrap"]
        kafka = ["--bootstrap-server", bootstrap]
        assignment = ["--replica-assignment", "1:2:0,2:0:1"]
        odradek("topics", *kafka, "--create", "--topic", "t", *assignment)
        # The controller is restarted first: its decisions must be found all the same.
        first = json.loads(odradek("why", "broker", "1", "--json", *home))["state"]["controller_id"]
        odradek("restart", str(first), *home)
        odradek("restart", "1", *home)

        def reported():
            output = odradek("why", "topic", "t", "--partition", "0", *home)
            return output if "leadership does not move back" in output else None

        output = wait_for(reported)
        assert "t-0: broker 2 leads instead of the preferred replica 1 since" in output
        assert "because broker 1 began to shut down; broker 1 is registered again since" in output
        assert f"--bootstrap-server {bootstrap} --election-type preferred --topic t" in output
        assert "because the topic was created" in output
        assert "t-0: high watermark 0, the leader's LEO 0; leader 2" in output
        assert "broker 1 is registered" in odradek("why", "broker", "1", *home)

        odradek("kill", "2", *home)
        wait_for(
            lambda: f"odradek start 2 {' '.join(home)}" in odradek("why", "broker", "2", *home)
        )
        # From another host: no directory, no HTTP, and no command that works only here.
        remote = odradek("why", "broker", "2", *kafka)
        assert "broker 2 is offline since" in remote
        assert "start broker 2 on its host" in remote
    finally:
        odradek("down", *home)


def recorded(three):
    """The recording of the present controller's term, replayed: the state, and what it decided."""
    directory = three.brokers[three.controller].options["log.dirs"].split(",")[0]
    path = max(pathlib.Path(directory).glob("controller-events-*.jsonl"))
    with path.open() as lines:
        replay = TermReplay(lines)
        effects = [effect for _, effects in replay for effect in effects]
    decisions = [
        str(d) for each in effects if isinstance(each, RecordDecisions) for d in each.decisions
    ]
    context = replay.controller.context
    partitions = [
        [
            str(p.name), p.state.value, list(p.assignment.replicas), list(p.assignment.adding),
            p.leader_and_isr.leader, p.leader_and_isr.leader_epoch, list(p.leader_and_isr.isr),
        ]
        for p in context.partitions()
    ]  # fmt: skip
    epochs = {str(id_): broker.broker_epoch for id_, broker in context.brokers.items()}
    return sorted(partitions), epochs, context.controller_epoch, decisions


def reported(three):
    """The same as the controller itself reports it."""
    controller = three.controller
    partitions = []
    for topic in ("t", "u"):
        state = three.http_state(controller, f"controller?topic={topic}")
        partitions += [
            [
                f"{topic}-{p['partition']}", p["state"], p["replicas"], p["adding"],
                p["leader"], p["leader_epoch"], p["isr"],
            ]
            for p in state["partitions"]
        ]  # fmt: skip
    epochs = {id_: broker["broker_epoch"] for id_, broker in state["brokers"].items()}
    entries = three.http_state(controller, "journal?limit=10000")["entries"]
    decisions = [entry["says"] for entry in entries if entry["verdict"] is not None]
    return sorted(partitions), epochs, state["controller_epoch"], decisions


def test_the_recorded_events_of_a_controller_replay_to_its_state_and_its_decisions(
    make_broker, tmp_path
):
    three = ThreeBrokers(make_broker, tmp_path, odradek_controller_events_max_bytes=1 << 26)
    first = three.controller
    stays, killed = sorted({1, 2, 3} - {first})
    three.create("t", [first, killed], [killed, stays])
    three.create("u", [killed, first])
    wait_for(lambda: recorded(three) == reported(three))

    three.brokers[killed].kill()
    wait_for(lambda: three.partition("u").leader_id == first)
    assert three.reassign("t", {0: [first, stays]}) == NONE
    moved_to = [first, stays]
    wait_for(lambda: three.partition("t").replica_nodes == moved_to)
    wait_for(lambda: recorded(three) == reported(three))

    three.brokers[killed].start()
    wait_for(lambda: set(three.partition("u").isr_nodes) == {first, killed})
    three.brokers[first].kill()
    wait_for(lambda: three.partition("u").leader_id == killed)
    assert three.controller != first
    wait_for(lambda: recorded(three) == reported(three))
    assert three.reassign("u", {0: [stays]}) == NONE
    wait_for(lambda: three.partition("u").replica_nodes == [stays])
    wait_for(lambda: recorded(three) == reported(three))
