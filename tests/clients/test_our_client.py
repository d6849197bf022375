"""Our own producer, consumer and their tools on a real cluster of Odradek or Apache Kafka."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid

import fetch
import harness
import pytest

import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.errors import IllegalStateError
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition

WITHIN_S = 60
CLASS = "org.apache.kafka.clients.consumer.{}Assignor"
STRATEGIES = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")


def name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


async def topic(cluster: harness.Cluster, partitions: int = 1) -> str:
    made = name("ours")
    async with await Cluster.bootstrap(cluster.bootstrap) as connected:
        outcomes = await admin.create_topics(connected, [admin.NewTopic(made, partitions, 1)])
    assert set(outcomes.values()) == {None}
    return made


def producer(cluster: harness.Cluster, **properties: str):
    text = {n.replace("_", "."): value for n, value in properties.items()}
    settings = ProducerSettings.from_properties({"bootstrap.servers": cluster.bootstrap, **text})
    return Producer.open(settings)


def consumer(cluster: harness.Cluster, **properties: str):
    text = {n.replace("_", "."): value for n, value in properties.items()}
    settings = ConsumerSettings.from_properties(
        {
            "bootstrap.servers": cluster.bootstrap,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": "100",
            **text,
        }
    )
    return Consumer.open(settings)


def play(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, WITHIN_S))


async def read(it: Consumer, count: int) -> list:
    records: list = []
    while len(records) < count:
        records += await it.poll(1000)
    return records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_written_records_are_read(cluster: harness.Cluster, codec: str) -> None:
    async def main() -> None:
        made = await topic(cluster)
        async with await producer(cluster, compression_type=codec, linger_ms="5") as it:
            deliveries = [
                await it.send(made, b"%d" % i, key=b"k", headers=[("h", b"x"), ("n", None)])
                for i in range(500)
            ]
            assert [(await d).offset for d in deliveries] == list(range(500))
        async with await consumer(cluster) as it:
            partition = TopicPartition(made, 0)
            it.assign([partition])
            records = await read(it, 500)
            assert [record.value for record in records] == [b"%d" % i for i in range(500)]
            assert records[0].headers == (("h", b"x"), ("n", None))
            it.seek(partition, 498)
            assert [record.offset for record in await read(it, 2)] == [498, 499]
            assert await it.end_offsets([partition]) == {partition: 500}
            assert (await it.offsets_for_times({partition: 0}))[partition].offset == 0

    play(main())


def test_an_iteration_ends_after_its_time_out(cluster: harness.Cluster) -> None:
    async def main() -> None:
        made = await topic(cluster, partitions=3)
        async with await producer(cluster) as it:
            for i in range(30):
                await it.send(made, b"v", partition=i % 3)
        settings = {"group_id": name("g"), "consumer_timeout_ms": "3000"}
        async with await consumer(cluster, **settings) as it:
            it.subscribe([made])
            assert len([record async for record in it]) == 30

    play(main())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_and_take_over(cluster: harness.Cluster, strategy: str) -> None:
    async def main() -> None:
        made, group = await topic(cluster, partitions=4), name("g")
        settings = {
            "group_id": group,
            "partition_assignment_strategy": CLASS.format(strategy),
        }
        async with await consumer(cluster, **settings) as first:
            first.subscribe([made])
            while len(first.assignment()) < 4:
                await first.poll(100)
            async with await consumer(cluster, **settings) as second:
                second.subscribe([made])
                while (len(first.assignment()), len(second.assignment())) != (2, 2):
                    await asyncio.gather(first.poll(100), second.poll(100))
                assert not set(first.assignment()) & set(second.assignment())
            while len(first.assignment()) < 4:
                await first.poll(100)

    play(main())


def test_offsets_are_committed_and_fetched(cluster: harness.Cluster) -> None:
    async def main() -> None:
        made, group = await topic(cluster), name("g")
        async with await producer(cluster) as it:
            for i in range(10):
                await it.send(made, b"%d" % i)
        async with await consumer(cluster, group_id=group, max_poll_records="4") as it:
            it.subscribe([made])
            assert len(await read(it, 4)) == 4
            await it.commit()
        async with await consumer(cluster, group_id=group) as it:
            it.subscribe([made])
            assert [record.offset for record in await read(it, 6)] == [4, 5, 6, 7, 8, 9]
            await it.commit({TopicPartition(made, 0): OffsetAndMetadata(7, metadata="mine")})
            committed = await it.committed([TopicPartition(made, 0)])
            assert committed[TopicPartition(made, 0)][::2] == (7, "mine")

    play(main())


def test_a_pattern_finds_its_topics(cluster: harness.Cluster) -> None:
    async def main() -> None:
        made = await topic(cluster)
        async with await producer(cluster) as it:
            await it.send(made, b"v")
        async with await consumer(cluster, group_id=name("g")) as it:
            it.subscribe_pattern(f"{made[:-2]}.*")
            assert [record.topic for record in await read(it, 1)] == [made]

    play(main())


def test_a_transaction_is_read_completely_or_not_at_all(cluster: harness.Cluster) -> None:
    async def main() -> None:
        made, group = await topic(cluster, partitions=2), name("g")
        source = TopicPartition(made, 0)
        async with (
            await producer(cluster, transactional_id=name("x")) as it,
            await consumer(cluster, group_id=group) as member,
        ):
            await it.init_transactions()
            for i in range(6):
                it.begin_transaction()
                await it.send(made, b"%d" % i, partition=0)
                await it.send(made, b"%d" % i, partition=1)
                offsets = {source: OffsetAndMetadata(100 + i)}
                await it.send_offsets(offsets, member.group_metadata())
                if i % 3 == 1:
                    await it.abort_transaction()
                else:
                    await it.commit_transaction()
            assert (await member.committed([source]))[source].offset == 105
        async with await consumer(cluster, isolation_level="read_committed") as it:
            it.assign([source, TopicPartition(made, 1)])
            values = [record.value for record in await read(it, 8)]
            assert sorted(values) == sorted([b"0", b"2", b"3", b"5"] * 2)

    play(main())


def test_an_earlier_producer_with_the_same_id_is_fenced(cluster: harness.Cluster) -> None:
    async def main() -> None:
        made, identity = await topic(cluster), name("x")
        async with (
            await producer(cluster, transactional_id=identity) as former,
            await producer(cluster, transactional_id=identity) as present,
        ):
            await former.init_transactions()
            await present.init_transactions()
            former.begin_transaction()

            async def go_on() -> None:
                await former.send(made, b"zombie")
                await former.commit_transaction()

            with pytest.raises((ApiError, IllegalStateError)):
                await go_on()
            present.begin_transaction()
            await present.send(made, b"alive")
            await present.commit_transaction()
        async with await consumer(cluster, isolation_level="read_committed") as it:
            it.assign([TopicPartition(made, 0)])
            assert [record.value for record in await read(it, 1)] == [b"alive"]

    play(main())


def test_it_runs_on_uvloop(cluster: harness.Cluster) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        made = await topic(cluster)
        async with await producer(cluster) as it:
            assert (await (await it.send(made, b"v"))).offset == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), WITHIN_S))


# ---------------------------------------------------------------------------------- the tools


def tool(*arguments: str, given: str = "", timeout_s: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "odradek", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_lines_are_produced_and_consumed(cluster: harness.Cluster) -> None:
    made = play(topic(cluster))
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", made)

    written = tool(
        *("console-producer", *at, "--property", "parse.key=true"),
        *("--property", "parse.headers=true", "--property", "null.marker=N"),
        given="h1:x,h2:y\tkey\tvalue\nN\tN\tlast\n",
    )
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")

    shown = tool(
        *("console-consumer", *at, "--from-beginning", "--max-messages", "2"),
        *("--property", "print.key=true", "--property", "print.headers=true"),
    )
    assert shown.stdout == "h1:x,h2:y\tkey\tvalue\nNO_HEADERS\tnull\tlast\n"
    assert shown.stderr == "Processed a total of 2 messages\n"
    assert shown.returncode == 0


def test_the_measuring_tools_end_with_their_figures(cluster: harness.Cluster) -> None:
    made = play(topic(cluster))

    written = tool(
        *("producer-perf-test", "--topic", made, "--num-records", "2000"),
        *("--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}"),
    )
    assert written.stdout.startswith("2000 records sent, "), written.stderr
    assert written.stdout.endswith(" ms 99.9th.\n")

    at = ("--bootstrap-server", cluster.bootstrap, "--topic", made)
    shown = tool("consumer-perf-test", *at, "--messages", "2000", "--hide-header")
    figures = shown.stdout.strip().split(", ")
    assert figures[2] == "0.1907", shown.stdout + shown.stderr
    assert figures[4] == "2000"

    way = tool("e2e-latency", cluster.bootstrap, made, "3", "all", "10")
    assert way.returncode == 0, way.stderr
    assert "Percentiles: 50th = " in way.stdout


def test_the_verifiable_tools_report_the_same_records(cluster: harness.Cluster) -> None:
    made = play(topic(cluster))
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", made)

    written = tool("verifiable-producer", *at, "--max-messages", "5", "--repeating-keys", "2")
    events = [json.loads(line) for line in written.stdout.splitlines()]
    assert [event["name"] for event in events] == [
        "startup_complete",
        *["producer_send_success"] * 5,
        "shutdown_complete",
        "tool_data",
    ]
    assert [event["key"] for event in events[1:6]] == ["0", "1", "0", "1", "0"]
    assert (events[-1]["sent"], events[-1]["acked"]) == (5, 5)

    shown = tool("verifiable-consumer", *at, "--group-id", name("g"), "--max-messages", "5")
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    assert events[1]["name"] == "partitions_assigned"
    read_so_far = [
        e["partitions"][0]["maxOffset"] for e in events if e["name"] == "records_consumed"
    ]
    assert read_so_far[-1] == 4
    commits = [e for e in events if e["name"] == "offsets_committed"]
    assert commits[-1]["offsets"] == [{"topic": made, "partition": 0, "offset": 5}]
    assert [event["name"] for event in events[-2:]] == ["partitions_revoked", "shutdown_complete"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_consumer_in_order(
    cluster: harness.Cluster, number: int, code: int
) -> None:
    made = play(topic(cluster))
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", made)
    tool("console-producer", *at, given="v\n")

    command = [sys.executable, "-m", "odradek", "console-consumer", *at, "--from-beginning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v\n"
        process.send_signal(number)
        _, output = process.communicate(timeout=60)
    assert output == b"Processed a total of 1 messages\n"
    assert process.returncode == code


def test_equal_replicas_are_reported_as_equal(cluster: harness.Cluster) -> None:
    made = play(topic(cluster))
    tool("console-producer", "--bootstrap-server", cluster.bootstrap, "--topic", made, given="v\n")

    command = [
        *(sys.executable, "-m", "odradek", "replica-verification"),
        *("--broker-list", cluster.bootstrap, "--topics-include", made),
        *("--report-interval-ms", "200", "--max-wait-ms", "100", "--time", "-2"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            output = [process.stdout.readline().decode() for _ in range(2)]
        finally:
            process.kill()
    assert output[0].endswith(": verification process is started\n")
    assert output[1].endswith(
        f": max lag is 0 for partition {made}-0 at offset 1 among 1 partitions\n"
    )


# ------------------------------------------------------------------------- among Java's members


@pytest.mark.jvm
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_with_javas_member(cluster: harness.Cluster, strategy: str) -> None:
    async def main() -> None:
        made, group = await topic(cluster, partitions=4), name("g")
        command = fetch.java(
            "3.9",
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", made, "--group", group),
            *("--from-beginning", "--property", "print.partition=true"),
            *("--consumer-property", "heartbeat.interval.ms=100"),
            "--consumer-property",
            f"partition.assignment.strategy={CLASS.format(strategy)}",
        )
        settings = {
            "group_id": group,
            "partition_assignment_strategy": CLASS.format(strategy),
            "max_poll_records": "1",
        }
        java = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            async with await consumer(cluster, **settings) as ours:
                ours.subscribe([made])
                while len(ours.assignment()) != 2:
                    await ours.poll(100)
                theirs = {0, 1, 2, 3} - {p.partition for p in ours.assignment()}
                async with await producer(cluster) as it:
                    for partition in range(4):
                        await it.send(made, b"v", partition=partition)
                mine = {record.partition for record in await read(ours, 2)}
                assert mine == {0, 1, 2, 3} - theirs
                assert java.stdout is not None
                output = {(await java.stdout.readline()).decode() for _ in range(2)}
                assert output == {f"Partition:{partition}\tv\n" for partition in theirs}
                java.kill()
                await java.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                java.kill()
            await java.wait()

    play(main())
