"""The command-line tools of Apache Kafka 3.9 and 4.x do their work on our broker and our files."""

import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Iterator

import pytest
from harness import Cluster
from java_tools import Tool, line, tool
from rounds import CODECS

pytestmark = pytest.mark.jvm

COUNTER = itertools.count()

__all__ = ["line", "tool"]  # fixtures


@pytest.fixture
def topic(tool: Tool, line: str) -> Iterator[str]:
    """A topic of two partitions, deleted afterwards."""
    name = f"tools-{line}-{next(COUNTER)}-{id(tool):x}"
    tool("topics", "--create", "--topic", name, "--partitions", "2")
    yield name
    tool("topics", "--delete", "--topic", name)


def test_a_topic_is_created_described_extended_listed_and_deleted(tool: Tool, line: str) -> None:
    name = f"life-{line}-{id(tool):x}"
    config = ["--config", "retention.ms=3600000"]
    created = tool("topics", "--create", "--topic", name, "--partitions", "3", *config)
    assert f"Created topic {name}." in created
    described = tool("topics", "--describe", "--topic", name)
    assert re.search(rf"Topic: {name}\s.*PartitionCount: 3\s+ReplicationFactor: 1", described)
    assert "retention.ms=3600000" in described
    assert len(re.findall(r"Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    tool("topics", "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tool("topics", "--describe", "--topic", name)
    assert name in tool("topics", "--list").split()
    tool("topics", "--delete", "--topic", name)
    assert name not in tool("topics", "--list").split()


def test_console_lines_come_back_as_they_were_typed(tool: Tool, line: str, topic: str) -> None:
    lines = [f"key-{n}\tvalue {n} zwölf" for n in range(20)]
    reader, formatter = (
        ("--property", "--property") if line == "3.9"
        else ("--reader-property", "--formatter-property")
    )  # fmt: skip
    parse = [reader, "parse.key=true", reader, "key.separator=\t"]
    tool("console-producer", "--topic", topic, *parse, stdin="\n".join(lines) + "\n")
    read = []
    for partition, end in ends(tool, topic).items():
        where = ["--partition", str(partition), "--offset", "earliest"]
        show = [formatter, "print.key=true", "--max-messages", str(end)]
        if end:
            output = tool("console-consumer", "--topic", topic, *where, *show)
            read += output.strip("\n").split("\n")
    assert sorted(read) == sorted(lines)


def ends(tool: Tool, topic: str, time: str = "-1") -> dict[int, int]:
    """Offsets of a topic's partitions at a time."""
    output = tool("get-offsets", "--topic", topic, "--time", time)
    return {
        int(p): int(end) for p, end in re.findall(rf"^{topic}:(\d+):(\d+)$", output, re.MULTILINE)
    }


def test_offsets_are_listed_and_records_deleted(
    tool: Tool, topic: str, tmp_path: pathlib.Path, cluster: Cluster
) -> None:
    performance(tool, cluster, topic, 5_000)
    assert sum(ends(tool, topic).values()) == 5_000
    assert ends(tool, topic, "earliest") == {0: 0, 1: 0}
    (partition, end) = max(ends(tool, topic).items(), key=lambda item: item[1])
    file = tmp_path / "delete.json"
    wanted = {"topic": topic, "partition": partition, "offset": end // 2}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    output = tool("delete-records", "--offset-json-file", str(file))
    assert f"low_watermark: {end // 2}" in output
    assert ends(tool, topic, "earliest")[partition] == end // 2
    assert ends(tool, topic)[partition] == end


def performance(tool: Tool, cluster: Cluster, topic: str, count: int, *options: str) -> None:
    """Kafka's own producer benchmark."""
    load = ["--num-records", str(count), "--throughput", "-1", "--record-size", "100"]
    props = ["--producer-props", f"bootstrap.servers={cluster.bootstrap}", *options]
    output = tool("producer-perf", "--topic", topic, *load, *props, bootstrap=False)
    assert f"{count} records sent" in output


def test_configs_are_altered_described_and_deleted(tool: Tool, topic: str) -> None:
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tool("configs", *entity, "--alter", "--add-config", "max.message.bytes=123456")
    assert "max.message.bytes=123456" in tool("configs", *entity, "--describe")
    tool("configs", *entity, "--alter", "--delete-config", "max.message.bytes")
    assert "123456" not in tool("configs", *entity, "--describe")


def test_the_tools_support_every_api_of_the_broker(tool: Tool) -> None:
    output = tool("api-versions")
    assert "Produce(0)" in output
    assert "UNKNOWN(" not in output


def replica_directories(tool: Tool, topic: str) -> list[pathlib.Path]:
    """The log directories of a topic's replicas, from the broker."""
    output = tool("log-dirs", "--describe", "--topic-list", topic)
    (found,) = [json.loads(each) for each in output.splitlines() if each.startswith("{")]
    return [
        pathlib.Path(directory["logDir"]) / replica["partition"]
        for broker in found["brokers"]
        for directory in broker["logDirs"]
        for replica in directory["partitions"]
    ]


def test_dump_log_reads_segments_and_indexes_without_complaint(
    tool: Tool, topic: str, cluster: Cluster
) -> None:
    # Small segments and an index entry for nearly every batch: more that can be wrong.
    small = "segment.bytes=200000,index.interval.bytes=1000"
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tool("configs", *entity, "--alter", "--add-config", small)
    for codec in CODECS:
        options = [f"compression.type={codec}", "batch.size=4000"]
        performance(tool, cluster, topic, 10_000, *options)
    directories = replica_directories(tool, topic)
    if not all(directory.exists() for directory in directories):
        pytest.skip(f"the broker's files are not on this machine: {directories}")

    def dumped(*arguments: str, files: Iterable[pathlib.Path]) -> str:
        names = ",".join(map(str, files))
        output = tool("dump-log", *arguments, "--files", names, bootstrap=False)
        assert "isvalid: false" not in output
        return output

    segments = [path for each in directories for path in sorted(each.glob("*.log"))]
    output = dumped("--deep-iteration", files=segments)
    assert len(re.findall(r"^\| offset: ", output, re.MULTILINE)) == 10_000 * len(CODECS)
    assert set(re.findall(r"compresscodec: (\w+)", output)) == set(CODECS)
    # An active segment's indexes are preallocated, and trimmed when it is closed.
    closed = [path for each in directories for path in sorted(each.glob("*.log"))[:-1]]
    assert len(closed) > 4
    indexes = [path.with_suffix(suffix) for path in closed for suffix in (".index", ".timeindex")]
    output = dumped("--index-sanity-check", files=indexes)
    assert output.count("passed sanity check") == len(indexes)
    assert output.count("Dumping") == len(indexes)
    assert len(re.findall(r"^offset: ", dumped(files=indexes), re.MULTILINE)) > len(indexes)
    snapshots = [path for each in directories for path in each.glob("*.snapshot")]
    assert "producerId: " in dumped(files=snapshots)
