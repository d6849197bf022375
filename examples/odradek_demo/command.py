"""`odradek demo`: the main job on real data (`flights.py`), or with --small one broker, no Spark.

The small demo writes records to one broker, kills it with kill -9 and reads them back. The records
are the lines of Python's standard library on this machine: the key is the file's name, so that the
lines of a file are in one partition and in order. Each of the four partitions is written with
another codec. After the restart of the broker the acknowledged records are read and compared:
count, order, and a checksum of every byte. The rates are those of this client in pure Python, which
handles each record on its own; bench/versus_kafka.py measures the broker.
"""

import asyncio
import hashlib
import pathlib
import signal
import sysconfig
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from odradek.cli.odradek.local import say
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import LATEST, list_offsets
from odradek.client.fetch.requests import FetchLimits, Wanted, fetch
from odradek.local.directory import ClusterDirectory
from odradek.local.options import UpOptions, read_log_dirs
from odradek.local.supervisor import Supervisor
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.extras import install
from odradek.model.partition import TopicPartition
from odradek.record.batch import has_valid_crc, iter_batches
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch, iter_records
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek_demo import flights as demo_flights
from odradek_demo.flights import Story
from odradek_demo.result import DemoFailedError

TOPIC: Final = "python-lines"
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP)
RECORDS_MAX: Final = 100_000
_BATCH_RECORDS: Final = 500
_FETCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Lines:
    """The records of one partition: how many, how large, and the checksum of all their bytes."""

    records: int = 0
    text_bytes: int = 0
    checksum: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        self.records += 1
        self.text_bytes += len(record.key) + len(record.value)
        self.checksum.update(
            b"%d %s %d %s" % (len(record.key), record.key, len(record.value), record.value)
        )


@click.command
@click.option("--small", is_flag=True, help="One broker and no Spark; takes a few seconds.")
@click.option(
    "--out", type=click.Path(path_type=pathlib.Path), default="odradek-demo", show_default=True,
    help="The directory for the chart and the report.",
)  # fmt: skip
def demo(*, small: bool, out: pathlib.Path) -> None:
    """Run a cluster and Spark on real data, kill a broker, and check the result.

    Leaves no process behind, and only two files: the chart and the report.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lacking = [] if small else demo_flights.missing()
    if lacking:
        say(f"the whole demo needs {', '.join(lacking)}: {install('demo')}")
        say("running the small demo, without Spark")
    with tempfile.TemporaryDirectory(prefix="odradek-demo-") as path:
        folder = pathlib.Path(path)
        play = not small and not lacking
        directory = ClusterDirectory(folder / "cluster" if play else folder)
        supervisor = Supervisor(directory, say=say)
        try:
            if play:
                demo_flights.play(folder, out, say)
            else:
                story = Story(say)
                with story.never_silent():
                    _play(supervisor, directory, story)
        finally:
            with Story(say, doing=lambda: "the brokers stop").never_silent():
                if directory.load() is not None:
                    supervisor.down()
    say("all brokers are stopped, and their files are deleted")


def _play(supervisor: Supervisor, directory: ClusterDirectory, story: Story) -> None:
    story.doing = lambda: "the broker starts"
    supervisor.up(UpOptions())
    bootstrap = supervisor.status()["bootstrap"]
    story.add(f"a broker serves {bootstrap}")

    story.doing = lambda: "the lines of Python's standard library are written"
    begun_s = time.monotonic()
    written = asyncio.run(write(bootstrap))
    write_s = time.monotonic() - begun_s
    story.add(f"wrote the lines of Python's standard library to topic {TOPIC}")

    story.doing = lambda: "the broker starts again"
    supervisor.kill(0)
    story.add("killed the broker (kill -9)")
    supervisor.start(0)
    story.add("the broker serves again")

    story.doing = lambda: "the records are read and compared"
    begun_s = time.monotonic()
    read = asyncio.run(read_back(bootstrap))
    read_s = time.monotonic() - begun_s
    compare(written, read)
    story.add("read them back: every record is there, in order, byte for byte")
    data = pathlib.Path(read_log_dirs(directory, 0)[0])
    Console().print(_table(written, data, write_s=write_s, read_s=read_s))


# ------------------------------------------------------------------------------------- writing


def lines_of_the_library() -> Iterator[Record]:
    """Each line of Python's modules as a record with its file's name as key."""
    count = 0
    now_ms = time.time_ns() // 1_000_000
    for file in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for line in file.read_bytes().splitlines():
            yield Record(file.name.encode(), line, now_ms)
            count += 1
            if count == RECORDS_MAX:
                return


async def write(bootstrap: str) -> list[Lines]:
    """Create the topic and write all records, each partition with its codec."""
    partitions: list[list[Record]] = [[] for _ in CODECS]
    for record in lines_of_the_library():
        assert record.key is not None
        partitions[zlib.crc32(record.key) % len(partitions)].append(record)
    async with await Cluster.bootstrap(bootstrap) as cluster:
        await _create_topic(cluster)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_write_partition(cluster, partition, records))
                for partition, records in enumerate(partitions)
            ]
    return [task.result() for task in tasks]


async def _create_topic(cluster: Cluster) -> None:
    controller = await cluster.controller()
    topic = CreatableTopic(name=TOPIC, num_partitions=len(CODECS), replication_factor=1)
    answer = await controller.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    _check(answer.topics[0].error_code, answer.topics[0].error_message)


async def _write_partition(cluster: Cluster, partition: int, records: Sequence[Record]) -> Lines:
    leader = await cluster.leader(TopicPartition(TOPIC, partition))
    acknowledged = Lines()
    for start in range(0, len(records), _BATCH_RECORDS):
        chunk = records[start : start + _BATCH_RECORDS]
        data = PartitionProduceData(
            index=partition, records=build_batch(chunk, codec=CODECS[partition])
        )
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        answer = await leader.request(request, ProduceResponse)
        outcome = answer.responses[0].partition_responses[0]
        _check(outcome.error_code, outcome.error_message)
        if outcome.base_offset != acknowledged.records:
            raise DemoFailedError(
                f"{TOPIC}-{partition}: batch at offset {outcome.base_offset}, "
                f"expected at {acknowledged.records}"
            )
        for record in chunk:
            acknowledged.add(record)
    return acknowledged


# ------------------------------------------------------------------------------------- reading


async def read_back(bootstrap: str) -> list[Lines]:
    """Read every partition from its start to its end."""
    async with await Cluster.bootstrap(bootstrap) as cluster, asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_read_partition(cluster, partition))
            for partition in range(len(CODECS))
        ]
        await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def _read_partition(cluster: Cluster, index: int) -> Lines:
    partition = TopicPartition(TOPIC, index)
    end = (await list_offsets(cluster, {partition: LATEST}))[partition].offset
    leader = await cluster.leader(partition)
    limits = FetchLimits(_FETCH_BYTES, _FETCH_BYTES)
    read = Lines()
    while read.records < end:
        wanted = Wanted(cluster.topic_id(TOPIC), read.records, _FETCH_BYTES)
        data = (await fetch(leader, {partition: wanted}, limits))[partition]
        _check(data.error_code, None)
        before = read.records
        _count(memoryview(data.records or b""), read)
        if read.records == before:
            raise DemoFailedError(f"{partition}: no record at offset {before}, the end is {end}")
    return read


def _count(records: memoryview, read: Lines) -> None:
    for position, header in iter_batches(records):
        if not has_valid_crc(records, position, header):
            raise DemoFailedError(f"the batch at offset {header.base_offset} is damaged")
        for record in iter_records(records[position : position + header.size_bytes]):
            # A fetch returns whole batches, so the first one may begin below the fetch offset.
            if record.offset == read.records:
                read.add(record)


# ----------------------------------------------------------------------------------- verdicts


def compare(written: Sequence[Lines], read: Sequence[Lines]) -> None:
    """Check that the records read are the acknowledged ones.

    Raises:
        DemoFailedError: a partition differs; names it and the difference.
    """
    for partition, (there, here) in enumerate(zip(written, read, strict=True)):
        if there.records != here.records:
            raise DemoFailedError(
                f"{TOPIC}-{partition}: {there.records} records written, {here.records} read"
            )
        if there.checksum.digest() != here.checksum.digest():
            raise DemoFailedError(f"{TOPIC}-{partition}: the checksums differ")


def _check(code: int, message: str | None) -> None:
    if code:
        raise ApiError(ErrorCode(code), message)


def _table(written: Sequence[Lines], data: pathlib.Path, *, write_s: float, read_s: float) -> Table:
    table = Table(title=f"topic {TOPIC}")
    table.add_column("partition")
    table.add_column("codec")
    for heading in ("records", "text", "on disk", "checksum"):
        table.add_column(heading, justify="right")
    for partition, lines in enumerate(written):
        files = (data / f"{TOPIC}-{partition}").iterdir()
        stored = sum(file.stat().st_size for file in files if file.suffix == ".log")
        table.add_row(
            str(partition),
            CODECS[partition].name.lower(),
            f"{lines.records:,}",
            f"{lines.text_bytes / 1e6:.2f} MB",
            f"{stored / 1e6:.2f} MB",
            lines.checksum.hexdigest()[:12],
        )
    records = sum(lines.records for lines in written)
    table.caption = (
        f"{records:,} records: written at {records / write_s:,.0f}/s, read at "
        f"{records / read_s:,.0f}/s by this Python client"
    )
    return table
