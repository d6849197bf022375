"""Plans made and executed on a real Odradek cluster, and the doctor's findings."""

import asyncio
import contextlib
import json
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from odradek.client.admin.topics import describe_topics
from odradek.client.cluster import Cluster
from odradek.record.records import Record, build_batch

pytest.importorskip("scipy", reason="the extra `plan`")

from peers import Peer
from tests.hanging import begin, leave_hanging


def odradek(*arguments, expect=0):
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "D"
    # Otherwise no hanging transaction can be created.
    output = odradek("up", "--brokers", "3", "--dir", path, "--detach", "--",
                   "transaction.partition.verification.enable=false")  # fmt: skip
    yield output.stdout.strip().splitlines()[-1]
    odradek("down", "--dir", path)


def now_ms():
    """A timestamp within the retention time."""
    return time.time_ns() // 1_000_000


def asked(bootstrap, work):
    async def ask():
        async with await Cluster.bootstrap(bootstrap) as cluster:
            return await work(cluster)

    return asyncio.run(ask())


def replicas(bootstrap, topic):
    async def work(cluster):
        (found,) = await describe_topics(cluster, [topic])
        return {p.partition_index: list(p.replica_nodes) for p in found.partitions}

    return asked(bootstrap, work)


def lopsided(bootstrap, topic, count=6, *, batches=1, records=50):
    """A topic with records of which broker 2 has no replica."""
    assignment = ",".join(["0:1"] * count)
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", topic,
            "--replica-assignment", assignment)  # fmt: skip
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    del host
    batch = bytes(build_batch([Record(None, b"x" * 500, now_ms()) for _ in range(records)]))
    with Peer(int(port)) as peer:
        deadline_s = time.monotonic() + 30
        for partition in [p for p in range(count) for _ in range(batches)]:
            while peer.produce(topic, partition, batch).error_code:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)


def test_a_rebalance_is_planned_and_executed_and_leaves_no_throttle(bootstrap):
    lopsided(bootstrap, "lop")
    plan = json.loads(
        odradek("plan", "rebalance", "--bootstrap-server", bootstrap, "--json").stdout
    )
    assert plan["copied"] > 0
    assert plan["gap"] < 0.01
    assert replicas(bootstrap, "lop") == {n: [0, 1] for n in range(6)}  # nothing was done yet

    done = odradek("plan", "rebalance", "--bootstrap-server", bootstrap, "--execute",
                   "--throttle", "50MB", "--batch", "2")  # fmt: skip
    assert "throttles cleared" in done.stderr
    counts = [sum(b in held for held in replicas(bootstrap, "lop").values()) for b in range(3)]
    assert max(counts) - min(counts) <= 1
    again = odradek("plan", "rebalance", "--bootstrap-server", bootstrap)
    assert again.stdout == "No change is needed.\n"
    reported = json.loads(odradek("doctor", "--bootstrap-server", bootstrap, "--json").stdout)
    assert [f for f in reported["findings"] if f["kind"] in ("throttle", "under-replicated")] == []


def throttles(bootstrap):
    """The options of brokers and topics that throttle replication."""
    reported = odradek("configs", "--bootstrap-server", bootstrap, "--describe", "--entity-type",
                   "brokers").stdout  # fmt: skip
    reported += odradek("configs", "--bootstrap-server", bootstrap, "--describe", "--entity-type",
                    "topics").stdout  # fmt: skip
    return "replication.throttled" in reported


def until(holds):
    deadline_s = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)  # polled: there is no event to wait for from outside


def moving(bootstrap):
    return odradek("reassign-partitions", "--bootstrap-server", bootstrap, "--list").stdout


@contextlib.contextmanager
def executing(bootstrap, topic, log):
    """A running throttled plan that does not complete by itself."""
    # More than one fetch takes: the first one is never throttled.
    lopsided(bootstrap, topic, 2, batches=6, records=1000)
    with log.open("wb") as stderr:
        command = [sys.executable, "-m", "odradek", "plan", "replication-factor", "--topic", topic,
                   "--replication-factor", "3", "--bootstrap-server", bootstrap, "--execute",
                   "--throttle", "1", "--batch", "1"]  # fmt: skip
        process = subprocess.Popen(command, stdout=stderr, stderr=stderr)
    try:
        until(lambda: f"under way: {topic}-" in log.read_text())
        yield process
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_waits_for_the_running_batch_under_the_throttle_and_starts_no_other(
    bootstrap, tmp_path
):
    log = tmp_path / "log"
    with executing(bootstrap, "halted", log) as process:
        process.send_signal(signal.SIGINT)
        until(lambda: "no further batch begins" in log.read_text())
        output = log.read_text()
        begun = r"0 of 2 partitions are as planned; still moving: halted-\d; the throttle of 1 B/s"
        assert re.search(begun + " stays until they are done", output)
        assert throttles(bootstrap)
        assert "to continue:   odradek plan replication-factor --topic halted" in output

        for broker in "120":  # the leader last, because only then it can complete
            odradek("configs", "--bootstrap-server", bootstrap, "--alter", "--broker", broker,
                    "--add-config", "leader.replication.throttled.rate=1000000,"
                    "follower.replication.throttled.rate=1000000")  # fmt: skip
        assert process.wait(90) == 130
    assert "1 of 2 partitions are as planned, the rest is unchanged" in log.read_text()
    assert not throttles(bootstrap)
    assert sorted(map(len, replicas(bootstrap, "halted").values())) == [2, 3]
    # With a topic on all brokers the later tests could not drain one.
    odradek("topics", "--bootstrap-server", bootstrap, "--delete", "--topic", "halted")


def test_ctrl_c_twice_leaves_the_throttle_and_prints_how_to_cancel(bootstrap, tmp_path):
    log = tmp_path / "log"
    with executing(bootstrap, "left-alone", log) as process:
        process.send_signal(signal.SIGINT)
        until(lambda: "Ctrl-C again" in log.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert "the moves under way continue; the throttle of 1 B/s stays set" in log.read_text()
    assert throttles(bootstrap)
    assert "left-alone-" in moving(bootstrap)

    (back,) = re.findall(r"to cancel:     odradek (.*--cancel)\n", log.read_text())
    assert "1 reassignments cancelled" in odradek(*shlex.split(back)).stdout
    assert not throttles(bootstrap)
    assert moving(bootstrap) == "No partition reassignments found.\n"


def test_throttles_left_by_a_killed_run_are_reported_and_cleared(bootstrap):
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "left",
            "--replica-assignment", "0:1")  # fmt: skip
    for kind, name, option in (
        ("topics", "left", "leader.replication.throttled.replicas=[0:0]"),
        ("brokers", "0", "leader.replication.throttled.rate=1000"),
    ):
        odradek("configs", "--bootstrap-server", bootstrap, "--alter", "--entity-type", kind,
                "--entity-name", name, "--add-config", option)  # fmt: skip

    def throttles():
        reported = json.loads(odradek("doctor", "--bootstrap-server", bootstrap, "--json").stdout)
        return [f["subject"] for f in reported["findings"] if f["kind"] == "throttle"]

    assert throttles() == ["broker 0, topics left"]
    odradek("plan", "rebalance", "--bootstrap-server", bootstrap, "--execute")
    assert throttles() == []


def test_a_misspelt_topic_is_answered_with_similar_names(bootstrap):
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "flights")
    near = "there is no topic 'flighst'; did you mean flights?"
    output = odradek("consume", "flighst", "--bootstrap-server", bootstrap, expect=1)
    assert near in output.stderr
    output = odradek("consume", "flights", "--partition", "7", "--bootstrap-server", bootstrap,
                   expect=1)  # fmt: skip
    assert "topic 'flights' has no partition 7: it has 1, from 0 on" in output.stderr
    output = odradek("plan", "replication-factor", "--topic", "flighst",
                     "--replication-factor", "2",
                     "--bootstrap-server", bootstrap, expect=1)  # fmt: skip
    assert "there is no topic flighst; did you mean flights?" in output.stderr


def test_a_broker_is_drained(bootstrap):
    lopsided(bootstrap, "drained", 3)
    odradek("plan", "drain", "1", "--bootstrap-server", bootstrap, "--execute")

    assert all(1 not in held for held in replicas(bootstrap, "drained").values())


def test_a_replication_factor_is_raised(bootstrap):
    lopsided(bootstrap, "more", 3)
    odradek("plan", "replication-factor", "--topic", "more", "--replication-factor", "3",
            "--bootstrap-server", bootstrap, "--execute")  # fmt: skip

    assert {frozenset(held) for held in replicas(bootstrap, "more").values()} == {
        frozenset({0, 1, 2})
    }


def test_one_partition_is_measured_and_nothing_is_left(bootstrap):
    done = odradek("plan", "partitions", "--target", "1GB", "--bootstrap-server", bootstrap,
                   "--seconds", "0.5", "--json")  # fmt: skip
    reported = json.loads(done.stdout)

    assert reported["producer_bytes_s"] > 0
    assert reported["consumer_bytes_s"] > 0
    assert reported["partitions"] == max(reported["for_producers"], reported["for_consumers"])
    listed = odradek("topics", "--bootstrap-server", bootstrap, "--list").stdout
    assert "odradek-plan-" not in listed


def test_elections_are_measured_where_there_is_another_replica(bootstrap):
    measured = ["plan", "partitions", "--target", "1MB", "--bootstrap-server", bootstrap,
                "--seconds", "0.1"]  # fmt: skip
    reported = json.loads(odradek(*measured, "--json").stdout)
    assert reported["elections_measured"] == 50
    each_ms = reported["election_ms"]
    led = -(-reported["partitions"] // 3)
    assert reported["costs"][str(reported["partitions"])]["election_ms"] == pytest.approx(
        led * each_ms
    )

    output = odradek(*measured).stdout
    assert "measured on 50 partitions in one go" in output

    alone = odradek(*measured, "--replication-factor", "1")
    assert "modelled" in alone.stdout
    assert "with one replica there is no other leader to elect" in alone.stderr
    listed = odradek("topics", "--bootstrap-server", bootstrap, "--list").stdout
    assert "odradek-plan-" not in listed


def test_a_hanging_transaction_is_found_and_aborted_as_the_doctor_proposes(bootstrap):
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "hung",
            "--replica-assignment", "0:1")  # fmt: skip
    leave_hanging(bootstrap, "hung")

    def hanging(expect):
        reported = odradek("doctor", "--bootstrap-server", bootstrap, "--json", expect=expect)
        return [f for f in json.loads(reported.stdout)["findings"] if f["kind"] == "hanging"]

    # The follower has it in its producer state, too.
    of_follower = ["--topic", "hung", "--partition", "0", "--broker-id", "1"]
    reported = odradek("transactions", "--bootstrap-server", bootstrap, "describe-producers",
                   *of_follower).stdout  # fmt: skip
    assert len(reported.splitlines()) == 2
    (finding,) = hanging(expect=1)
    assert finding["subject"] == "hung-0"
    assert "no coordinator has it" in finding["why"]
    odradek(*shlex.split(finding["fix"].removeprefix("kafka-")))
    assert hanging(expect=0) == []


def test_an_old_transaction_of_a_coordinator_is_not_hanging(bootstrap):
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "old",
            "--replica-assignment", "0:1")  # fmt: skip
    begin(bootstrap, "old")
    reported = json.loads(odradek("doctor", "--bootstrap-server", bootstrap, "--json").stdout)

    assert [f for f in reported["findings"] if f["kind"] == "hanging"] == []


def test_keys_are_read_from_a_topic(bootstrap):
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "keyed",
            "--replica-assignment", "0")  # fmt: skip
    batch = bytes(build_batch([Record(b"key-%d" % (n % 7), b"v", now_ms()) for n in range(70)]))
    with Peer(int(bootstrap.split(",")[0].rpartition(":")[2])) as peer:
        deadline_s = time.monotonic() + 30
        while peer.produce("keyed", 0, batch).error_code:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    done = odradek("plan", "partitions", "--target", "2MB", "--producer-rate", "1MB",
                   "--consumer-rate", "1MB", "--keys-topic", "keyed", "--bootstrap-server",
                   bootstrap, "--json")  # fmt: skip
    spreads = {s["partitions"]: s for s in json.loads(done.stdout)["spreads"]}

    assert 1 in spreads, (done.stdout, done.stderr)
    assert spreads[1]["largest_share"] == 1
    assert 0 < spreads[2]["moved"] < 1
