"""Unmodified clients of Kafka 0.8 to 2.8, and clients that are configured for these versions.

    ODRADEK_OLD_CLIENTS=kafka    test Apache Kafka 3.9 instead of an Odradek broker

Each reads what a client of today has written, and that one reads what it has written; Kafka's own
tool reads the log. The broker has a real ZooKeeper, for some of these clients use it themselves.
"""

import json
import os
import pathlib
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import apache
import fetch
import pytest
import raw
from confluent_kafka import Consumer, TopicPartition
from harness import Cluster, run_program
from mixed import OurBroker, TheirBroker, until
from old import rounds as old_rounds
from old.clients import HERE, OLD_CLIENTS, SCALA, each_old_client, table
from old.rounds import Abilities
from programs import CLIENTS
from rounds import PARTITIONS, Round

TIMEOUT_S = 240
DUMP_LOG = "kafka.tools.DumpLogSegments"
KAF = "github.com/birdayz/kaf/cmd/kaf"
# The tools of each version, and what they need to use brokers instead of ZooKeeper.
CONSOLES = {"0.10.2.2": ["--new-consumer"], "1.1.1": []}
OPTIONS = {
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Site(NamedTuple):
    """One broker, its ZooKeeper, and its log directory."""

    bootstrap: str
    zookeeper: str
    data: pathlib.Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An Odradek broker, or with ODRADEK_OLD_CLIENTS=kafka one of Apache Kafka."""
    kind = TheirBroker if os.environ.get("ODRADEK_OLD_CLIENTS") == "kafka" else OurBroker
    home = tmp_path_factory.mktemp("old")
    zookeeper = apache.ZooKeeper(home / "zookeeper")
    try:
        broker = kind(home / "broker", zookeeper.address, 0, OPTIONS)
        try:
            broker.start()
            yield Site(broker.address, zookeeper.address, broker.data)
        finally:
            broker.end()
    finally:
        zookeeper.stop()


def test_the_page_lists_these_clients() -> None:
    page = (pathlib.Path(__file__).parents[3] / "docs" / "clients.md").read_text()
    assert table() in page


@pytest.mark.jvm
@pytest.mark.parametrize("name", each_old_client())
def test_old_and_new_clients_read_what_the_other_has_written(
    site: Site, name: str, tmp_path: pathlib.Path
) -> None:
    asked = old_rounds.old_rounds(f"{name}-{time.time_ns():x}", OLD_CLIENTS[name].able)
    assert faults(site.bootstrap, site.zookeeper, name, asked, tmp_path) == {}
    assert dumped(site.data, asked) == expected_dump(asked)


def test_a_client_of_kafka_0_8_needs_nothing_but_the_broker(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    name = "librdkafka-0.8.2"
    asked = old_rounds.old_rounds(f"{name}-{time.time_ns():x}", OLD_CLIENTS[name].able)
    assert faults(cluster.bootstrap, "", name, asked, tmp_path) == {}


def faults(
    bootstrap: str, zookeeper: str, name: str, asked: list[Round], folder: pathlib.Path
) -> dict[str, list[str]]:
    """Have a client play these rounds. What it or a client of today reports wrongly, by topic."""
    client = OLD_CLIENTS[name]
    command = client.command()
    old_rounds.write_beforehand(bootstrap, asked)
    file = folder / "plan.json"
    file.write_text(old_rounds.plan(asked, client.version, zookeeper))
    arguments = [bootstrap, client.scenario, str(file)]
    report = run_program([*command, *arguments], timeout_s=TIMEOUT_S)
    reported = {each["topic"]: each for each in report["rounds"]}
    found = {
        each.topic: [
            *old_rounds.problems(each, reported[each.topic], client.able),
            *old_rounds.problems_afterwards(each, old_rounds.read_afterwards(bootstrap, each)),
        ]
        for each in asked
    }
    return {topic: texts for topic, texts in found.items() if texts}


@pytest.mark.jvm
@pytest.mark.node
def test_kafkajs_lists_offsets_by_each_of_its_versions(site: Site, tmp_path: pathlib.Path) -> None:
    (asked,) = written(site, f"offsets-{time.time_ns():x}")
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"topic": asked.topic, "partitions": PARTITIONS}))

    command = [*CLIENTS["kafkajs"](), site.bootstrap, "list_offsets", str(file)]
    report = run_program(command, timeout_s=TIMEOUT_S)

    ends = [[0, len(asked.there) // PARTITIONS]] * PARTITIONS
    assert report["offsets"] == {str(version): ends for version in range(4)}


@pytest.mark.jvm
@pytest.mark.go
def test_kaf_commits_the_offsets_of_a_group(site: Site, tmp_path: pathlib.Path) -> None:
    (asked,) = written(site, f"kaf-{time.time_ns():x}")
    (tmp_path / "config").write_text("clusters: []\n")
    options = ["--config", str(tmp_path / "config"), "--brokers", site.bootstrap]
    group = f"{asked.topic}-group"
    offsets = {0: 3, 1: 0, 2: 7}
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": group})
    # kaf refuses a group that does not exist.
    consumer.commit(offsets=[TopicPartition(asked.topic, 0, 1)], asynchronous=False)

    commit = ["group", "commit", group, "--topic", asked.topic, "--noconfirm", *options]
    kaf = str(fetch.go_tool("kaf", KAF))
    output = passed([kaf, *commit, "--offset-map", json.dumps(offsets)])

    assert "Successfully committed offsets" in output
    places = [TopicPartition(asked.topic, partition) for partition in offsets]
    assert {p.partition: p.offset for p in consumer.committed(places, 30)} == offsets
    consumer.close()


@pytest.mark.jvm
@pytest.mark.parametrize("version", CONSOLES)
def test_the_console_tools_of_former_years(site: Site, version: str) -> None:
    jars = fetch.old_jars("kafka", scala=SCALA[version], kafka=version)
    topic = f"console-{version}-{time.time_ns():x}"
    group = f"{topic}-group"
    lines = [f"key {n}:value {n}" for n in range(500)]
    new = ["--bootstrap-server", site.bootstrap, *CONSOLES[version]]

    def run(main: str, *arguments: str, given: str = "") -> str:
        flags = ["-Xmx256M", f"-Dlog4j.configuration=file:{HERE / 'java' / 'log4j.properties'}"]
        level = "-Dodradek.log.level=ERROR"
        return passed(["java", *flags, level, "-cp", f"{jars}/*", main, *arguments], given)

    zookeeper = ["--zookeeper", site.zookeeper, "--topic", topic]
    created = run(
        "kafka.admin.TopicCommand", *zookeeper, "--create", "--partitions", "1",
        "--replication-factor", "1",
    )  # fmt: skip
    assert f'Created topic "{topic}"' in created
    until(
        "it has a leader",
        lambda: raw.metadata(site.bootstrap, [topic]).topics[topic].leaders == (0,),
    )
    run(
        "kafka.tools.ConsoleProducer", "--broker-list", site.bootstrap, "--topic", topic,
        "--property", "parse.key=true", "--property", "key.separator=:",
        "--compression-codec", "gzip", given="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    described = run("kafka.admin.TopicCommand", *zookeeper, "--describe")
    assert "PartitionCount:1\tReplicationFactor:1" in described
    reading = ["--topic", topic, "--from-beginning", "--property", "print.key=true"]
    reading += ["--property", "key.separator=:", "--max-messages", str(len(lines))]
    consumer = "kafka.tools.ConsoleConsumer"
    read = run(consumer, *new, *reading, "--consumer-property", f"group.id={group}")
    assert read.splitlines()[: len(lines)] == lines
    by_zookeeper = run(consumer, "--zookeeper", site.zookeeper, *reading)
    assert by_zookeeper.splitlines()[-len(lines) - 1 :][: len(lines)] == lines
    groups = run("kafka.admin.ConsumerGroupCommand", *new, "--describe", "--group", group)
    assert re.search(rf"{topic}\s+0\s+500\s+500\s+0\b", groups), groups
    deleted = run("kafka.admin.TopicCommand", *zookeeper, "--delete")
    assert "marked for deletion" in deleted


def written(site: Site, topic: str) -> list[Round]:
    """A topic that a client of today has written."""
    asked = old_rounds.old_rounds(topic, Abilities())[:1]
    old_rounds.write_beforehand(site.bootstrap, asked)
    return asked


def passed(command: list[str], given: str = "") -> str:
    """What a program that succeeds prints."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def expected_dump(asked: list[Round]) -> dict[str, tuple[int, str]]:
    """The number of records and the codec of each partition's log."""
    expected = {}
    for each in asked:
        counts = Counter(record.partition for record in (*each.there, *each.records))
        for partition, count in counts.items():
            expected[f"{each.topic}-{partition}"] = (count, each.codec)
    return expected


def dumped(data: pathlib.Path, asked: list[Round]) -> dict[str, tuple[int, str]]:
    """What Kafka's tool finds in these logs: each record, and record format v2 only.

    A client sends what does not become smaller without compression.
    """
    files = [file for each in asked for file in sorted(data.glob(f"{each.topic}-[0-9]/*.log"))]
    listed = ",".join(map(str, files))
    command = fetch.java("3.9", DUMP_LOG, "--deep-iteration", "--files", listed)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    assert not re.search(r"isvalid: false|Exception|mismatch|fail|Found ", output), output[-3000:]
    assert set(re.findall(r" magic: (\d)", output)) == {"2"}
    found = {}
    for section in done.stdout.split("Dumping ")[1:]:
        path = pathlib.Path(section.splitlines()[0])
        offsets = [int(text) for text in re.findall(r"^\| offset: (\d+) ", section, re.MULTILINE)]
        assert offsets == list(range(len(offsets))), path
        codecs = set(re.findall(r" compresscodec: (\w+)", section))
        found[path.parent.name] = (len(offsets), "+".join(codecs - {"none"}) or "none")
    return found
