"""Our tools on Apache Kafka's brokers: 2.8, 3.9 (both on ZooKeeper) and 4 (KRaft).

What a broker does not support is reported as by Kafka's own tools. The output of the
administrative tools is compared with Kafka's own in `test_our_tools`.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import apache
import pytest
import raw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.hanging import leave_hanging
from tests.recorded.clusters import wait_until

pytestmark = pytest.mark.jvm

BROKERS = 3
RACKS = ("a", "b", "c")
AUTHORIZER = {
    "2.8": "kafka.security.authorizer.AclAuthorizer",
    "3.9": "kafka.security.authorizer.AclAuthorizer",
    "4": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
HEAP = "512M"


class Kafka(NamedTuple):
    """Brokers of a line, racks and an authorizer included."""

    line: str
    bootstrap: str
    brokers: list[apache.Broker]


@pytest.fixture(scope="module", params=("2.8", "3.9", "4"))
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    line = request.param
    properties = {
        "authorizer.class.name": AUTHORIZER[line],
        "super.users": "User:ANONYMOUS",
        "auto.leader.rebalance.enable": "false",
        "zookeeper.session.timeout.ms": "6000",
        # Else no transaction can be left hanging; what is too old to verify does not know it.
        "transaction.partition.verification.enable": "false",
    }
    with apache.running(
        line, tmp_path_factory.mktemp("apache"), BROKERS,
        racks=RACKS, properties=properties, heap=HEAP,
    ) as brokers:  # fmt: skip
        yield Kafka(line, ",".join(broker.address for broker in brokers), brokers)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(kafka: Kafka, tmp_path: pathlib.Path) -> Run:
    """One call of ours: `run("topics --list")`, against the brokers of the test."""

    def call(words: str, *, stdin: str = "", expect: int = 0) -> subprocess.CompletedProcess[str]:
        tool, *arguments = shlex.split(words)
        if "--bootstrap-server" not in words and "{servers}" not in words:
            where = ["--bootstrap-server", kafka.bootstrap]
            before = tool in ("transactions", "features")  # what follows their verb is the verb's
            arguments = [*where, *arguments] if before else [*arguments, *where]
        arguments = [word.replace("{servers}", kafka.bootstrap) for word in arguments]
        done = subprocess.run(
            [sys.executable, "-m", "odradek", tool, *arguments],
            input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return done

    return call


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())
    run(f"topics --create --topic {name} --partitions 3 --replication-factor 3")
    return name


def test_a_topic_is_created_and_its_options_change(run: Run, topic: str) -> None:
    described = run(f"topics --describe --topic {topic}").stdout
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    run(f"configs --alter --topic {topic} --add-config retention.ms=3600000")
    output = run(f"configs --describe --topic {topic}").stdout
    assert "retention.ms=3600000 sensitive=false" in output
    run(f"topics --alter --topic {topic} --partitions 5")
    assert "PartitionCount: 5" in run(f"topics --describe --topic {topic}").stdout
    run(f"topics --delete --topic {topic}")
    assert topic not in run("topics --list").stdout.split()


def test_lines_are_produced_and_consumed_and_a_groups_offsets_are_kept(
    run: Run, topic: str
) -> None:
    lines = [f"line {n}" for n in range(30)]
    run(f"console-producer --topic {topic}", stdin="\n".join(lines) + "\n")
    read = f"console-consumer --topic {topic} --group {topic}-g --max-messages 30"
    came = run(f"{read} --from-beginning --timeout-ms 30000").stdout.splitlines()
    assert sorted(came) == sorted(lines)

    described = run(f"consumer-groups --describe --group {topic}-g").stdout
    rows = [row.split() for row in described.splitlines() if row.startswith(f"{topic}-g")]
    assert sum(int(row[3]) for row in rows) == 30
    assert {row[5] for row in rows} == {"0"}
    assert f"{topic}-g" in run("consumer-groups --list").stdout.split()
    reset = "--reset-offsets --to-earliest --execute"
    run(f"consumer-groups --group {topic}-g {reset} --topic {topic}")
    described = run(f"consumer-groups --describe --group {topic}-g").stdout
    assert sum(int(r.split()[5]) for r in described.splitlines() if topic in r) == 30
    run(f"consumer-groups --delete --group {topic}-g")
    assert f"{topic}-g" not in run("consumer-groups --list").stdout.split()


def test_offsets_are_listed_and_records_deleted(
    run: Run, topic: str, tmp_path: pathlib.Path
) -> None:
    run(f"console-producer --topic {topic}", stdin="x\n" * 9)
    ends = run(f"get-offsets --topic {topic}").stdout.splitlines()
    assert sum(int(end.rpartition(":")[2]) for end in ends) == 9
    wanted = [{"topic": topic, "partition": n, "offset": -1} for n in range(3)]
    (tmp_path / "d.json").write_text(json.dumps({"version": 1, "partitions": wanted}))
    run("delete-records --offset-json-file d.json")
    assert run(f"get-offsets --topic {topic} --time earliest").stdout.splitlines() == ends


def test_a_partition_is_measured(run: Run, topic: str) -> None:
    load = "--num-records 5000 --record-size 100 --throughput -1"
    props = "--producer-props bootstrap.servers={servers} acks=all"
    printed = run(f"producer-perf-test --topic {topic} {load} {props}").stdout
    assert "5000 records sent" in printed
    printed = run(f"consumer-perf-test --topic {topic} --messages 5000 --timeout 30000").stdout
    assert len(printed.splitlines()) == 2, printed
    assert "Avg latency" in run(f"e2e-latency {{servers}} {topic} 20 1 100").stdout


def test_directories_versions_and_features_are_listed(run: Run, kafka: Kafka, topic: str) -> None:
    output = run(f"log-dirs --describe --topic-list {topic}").stdout.splitlines()
    (found,) = [json.loads(line) for line in output if line.startswith("{")]
    assert len(found["brokers"]) == BROKERS
    versions = run("broker-api-versions").stdout
    assert versions.count("(id: ") == BROKERS
    assert "Produce(0): " in versions
    features = run("features describe").stdout
    assert ("metadata.version" in features) == (kafka.line == "4")


def test_acls_are_kept(run: Run, topic: str) -> None:
    run(f"acls --add --allow-principal User:alice --operation Read --topic {topic}")
    listed = run(f"acls --list --topic {topic}").stdout
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
    run(f"acls --remove --topic {topic} --force")
    assert "alice" not in run(f"acls --list --topic {topic}").stdout


def test_transactions_are_listed_or_an_error_is_printed(run: Run, kafka: Kafka) -> None:
    old = kafka.line == "2.8"
    done = run("transactions list", expect=int(old))
    assert ("TransactionalId" in done.stdout) != old
    assert any(text in done.stderr for text in ("UnsupportedVersion", "does not support")) == old


def test_replicas_move_as_planned(run: Run, kafka: Kafka, topic: str) -> None:
    run("topics --create --topic lop --replica-assignment 1:2,1:2,1:2,1:2")
    run("console-producer --topic lop", stdin="some\n" * 100)
    plan = json.loads(run("plan rebalance --json").stdout)
    assert plan["copied"] > 0
    done = run("plan rebalance --execute --throttle 50MB --batch 2")
    assert "throttles cleared" in done.stderr
    assert run("plan rebalance").stdout == "No change is needed.\n"
    run("plan replication-factor --topic lop --replication-factor 1 --execute")
    run("plan drain 2 --json", expect=1)  # others have three replicas, of three brokers
    run(f"topics --delete --topic {topic}")
    output = json.loads(run("doctor --json").stdout)
    assert [f for f in output["findings"] if f["kind"] in ("throttle", "under-replicated")] == []
    run("topics --delete --topic lop")


def test_partitions_and_elections_are_measured(run: Run) -> None:
    done = run("plan partitions --target 100MB --seconds 0.5 --json")
    output = json.loads(done.stdout)
    assert output["producer_bytes_s"] > 0
    assert output["elections_measured"] == 50
    assert output["election_ms"] > 0
    assert "odradek-plan-" not in run("topics --list").stdout


@pytest.mark.usefixtures("topic")
def test_the_doctor_finds_a_broker_that_is_down(run: Run, kafka: Kafka) -> None:
    """It also reports the rules that it skips because a broker is too old."""
    output = json.loads(run("doctor --json").stdout)
    assert [f for f in output["findings"] if f["severity"] == "critical"] == []
    old = {"retention"} if kafka.line == "2.8" else set()
    assert (output["not_examined"], set(output["unavailable"])) == ({}, {"reports"} | old)
    last = kafka.brokers[-1]
    last.process.kill()
    last.process.wait()
    try:
        first = f"cluster list-endpoints --bootstrap-server {kafka.brokers[0].address}"
        wait_until(lambda: len(run(first).stdout.splitlines()) == BROKERS)  # one is the heading
        wait_until(lambda: not run("topics --describe --unavailable-partitions").stdout)
        found = {f["kind"]: f for f in json.loads(run("doctor --json").stdout)["findings"]}
        assert "broker 3 is offline" in found["under-replicated"]["why"]
    finally:
        last.start()
        last.wait()
        raw.wait_for_brokers(kafka.brokers[0].address, BROKERS, timeout_s=60)


def test_a_hanging_transaction_is_found_and_aborted_as_the_doctor_proposes(
    run: Run, kafka: Kafka, topic: str
) -> None:
    if kafka.line == "2.8":
        pytest.skip("brokers before 3.0 do not describe producers")

    leave_hanging(kafka.bootstrap, topic)

    def hanging(expect: int) -> list[dict[str, str]]:
        output = json.loads(run("doctor --json", expect=expect).stdout)
        return [f for f in output["findings"] if f["kind"] == "hanging"]

    (finding,) = hanging(expect=1)
    run(finding["fix"].removeprefix("kafka-"))
    assert hanging(expect=0) == []
