"""`kafka-replica-verification`: checks that all replicas of partitions hold the same batches.

It fetches from leaders and followers with the replica id of a debugging consumer (-2), so also
above the high watermark, until it is killed. Texts follow Kafka 3.9's `ReplicaVerificationTool`.
"""

import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.cli.connect import properties_of
from odradek.cli.failures import ToolError, log_line
from odradek.cli.kafka.clients.client_flags import check_addresses, unmade, usage_for_bad_flags
from odradek.cli.kafka.support.flags import Parser
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import list_offsets
from odradek.client.fetch.requests import DEBUGGING_CONSUMER, FetchLimits, Wanted, fetch
from odradek.client.settings import ClientSettings
from odradek.config.option import INT_MAX
from odradek.model.errors import OdradekError
from odradek.model.java_pattern import JavaPatternError, compile_java_pattern
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.record.batch import iter_batches
from odradek.wire.messages.fetch import PartitionData

_LOGGER: Final = "org.apache.kafka.tools.ReplicaVerificationTool"
_PAUSE_S: Final = 1.0


class RegexError(ToolError):
    """The text is not a regular expression."""


class Batch(NamedTuple):
    """The compared properties of one batch of one replica."""

    last_offset: int
    size_bytes: int
    crc: int


class Held(NamedTuple):
    """The fetched batches of one replica, from the fetch offset."""

    high_watermark: int
    batches: tuple[Batch, ...]


def main(arguments: Sequence[str]) -> int:
    _log("WARN", "This tool is deprecated and may be removed in a future major release.")
    parser = command_line()
    with usage_for_bad_flags(parser):
        flags = parser.begin(arguments)
    parser.require(flags, "broker-list")
    servers = flags.text("broker-list")
    check_addresses(parser, servers)
    topics = flags.text("topics-include") or flags.text("topic-white-list") or ".*"
    try:
        pattern = _pattern(topics)
        interval_ms = flags.integer("report-interval-ms", bits=64)
        verification = ReplicaVerification(
            pattern,
            fetch_bytes=flags.integer("fetch-size") or 1 << 20,
            wait_ms=1_000 if (wait := flags.integer("max-wait-ms")) is None else wait,
            interval_s=(30_000 if interval_ms is None else interval_ms) / 1000,
            begin=-1 if (begin := flags.integer("time", bits=64)) is None else begin,
        )
        settings = ClientSettings.from_properties(
            {**properties_of(flags.value("command-config")), "bootstrap.servers": servers},
            client_id="ReplicaVerificationTool",
        )
        return asyncio.run(verification.run(settings))
    except (OdradekError, ConnectionError) as error:
        sys.stdout.flush()
        print(f"{error}\n{unmade(error, 'consumer')}\n", file=sys.stderr)
        return 1


def command_line() -> Parser:
    parser = Parser("Validate that all replicas for a set of topics have the same data.")
    parser.common()
    parser.value("broker-list", metavar="host:port,...", help="Brokers to connect to. Required.")
    parser.value("command-config", metavar="file", help="Client properties, one key=value a line.")
    parser.value("topics-include", metavar="regex", help="The topics (.*).")
    parser.value("topic-white-list", metavar="regex", help="As --topics-include (deprecated).")
    parser.value("fetch-size", metavar="bytes", help="Bytes of one partition in a fetch (1048576).")
    parser.value("max-wait-ms", metavar="ms", help="How long a fetch waits (1000).")
    parser.value("report-interval-ms", metavar="ms", help="How often to report (30000).")
    parser.value("time", metavar="timestamp", help="Where to start: -1 end, -2 beginning (-1).")
    return parser


def _pattern(text: str) -> re.Pattern[str]:
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return compile_java_pattern(cleaned)
    except JavaPatternError:
        raise RegexError(f"{cleaned} is an invalid regex") from None


def _log(level: str, text: str) -> None:
    print(log_line(level, text, _LOGGER), file=sys.stderr)


def _say(text: str) -> None:
    wall_ms = real_wall_ms()
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_ms / 1000))
    print(f"{moment},{wall_ms % 1000:03}: {text}", flush=True)


class ReplicaVerification:
    """Fetches in rounds; after each, the batches that all replicas hold are compared."""

    def __init__(
        self,
        pattern: re.Pattern[str],
        *,
        fetch_bytes: int,
        wait_ms: int,
        interval_s: float,
        begin: int,
    ) -> None:
        self._pattern = pattern
        self._fetch_bytes = fetch_bytes
        self._wait_ms = wait_ms
        self._interval_s = interval_s
        self._begin = begin
        self._next: dict[TopicPartition, int] = {}
        self._lag: tuple[int, TopicPartition | None, int] = (-1, None, -1)

    async def run(self, settings: ClientSettings) -> int:
        """Run until the process is ended; returns only if there is no topic to compare."""
        async with await Cluster.connect(settings, wait_ms=settings.api_timeout_ms) as cluster:
            await cluster.refresh(None)
            partitions = [
                partition
                for topic in sorted(cluster.metadata.topics)
                if self._pattern.fullmatch(topic)
                for partition in cluster.metadata.partitions(topic)
            ]
            if not partitions:
                _log(
                    "ERROR",
                    "No topics found. [topics-include] if specified, is either filtering out all "
                    "topics or there is no topic.",
                )
                return 1
            found = await list_offsets(cluster, dict.fromkeys(partitions, self._begin))
            self._next = {partition: listed.offset for partition, listed in found.items()}
            _say("verification process is started")
            loop = asyncio.get_running_loop()
            report_s = loop.time() + self._interval_s
            while True:
                if not await self._round(cluster):
                    await asyncio.sleep(_PAUSE_S)
                if loop.time() >= report_s:
                    self._report()
                    report_s += self._interval_s

    async def _round(self, cluster: Cluster) -> bool:
        """One round; False if a fetch from a broker has failed."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition in self._next:
            state = cluster.metadata.state(partition)
            for replica in state.replicas if state else ():
                by_broker.setdefault(replica, []).append(partition)
        answers = await asyncio.gather(
            *(self._fetch(cluster, broker, parts) for broker, parts in by_broker.items())
        )
        held: dict[TopicPartition, dict[int, Held]] = {}
        for broker, answer in zip(by_broker, answers, strict=True):
            for partition, each in answer.items():
                held.setdefault(partition, {})[broker] = each
        self._lag = (-1, None, -1)
        for partition, replicas in held.items():
            state = cluster.metadata.state(partition)
            if state is not None and len(replicas) == len(state.replicas):
                self._compare(partition, replicas)
        return all(answers)

    async def _fetch(
        self, cluster: Cluster, broker: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Held]:
        wanted = {
            partition: Wanted(
                cluster.topic_id(partition.topic), self._next[partition], self._fetch_bytes
            )
            for partition in partitions
        }
        limits = FetchLimits(INT_MAX, self._fetch_bytes, wait_ms_max=self._wait_ms)
        try:
            connection = await cluster.broker(broker)
            answer = await fetch(connection, wanted, limits, replica_id=DEBUGGING_CONSUMER)
        except (ConnectionError, OdradekError) as error:
            _log("WARN", f"Broker {broker} cannot be read: {error}")
            return {}
        return {p: _held(data) for p, data in answer.items() if not data.error_code}

    def _compare(self, partition: TopicPartition, replicas: Mapping[int, Held]) -> None:
        """Compare the batches that all replicas hold, and record the largest lag."""
        most = max(held.high_watermark for held in replicas.values())
        first = min(replicas)
        for at, mine in enumerate(replicas[first].batches):
            theirs = {r: held.batches[at : at + 1] for r, held in replicas.items()}
            if not all(theirs.values()):
                break
            for replica, (other,) in sorted(theirs.items()):
                _tell_difference(partition, (first, mine), (replica, other))
            self._next[partition] = max(other.last_offset for (other,) in theirs.values()) + 1
        lag = most - self._next[partition]
        if lag > self._lag[0]:
            self._lag = lag, partition, self._next[partition]

    def _report(self) -> None:
        lag, partition, offset = self._lag
        _say(
            f"max lag is {lag} for partition {partition} at offset {offset} among "
            f"{len(self._next)} partitions"
        )


def _held(data: PartitionData) -> Held:
    batches = tuple(
        Batch(header.last_offset, header.size_bytes, header.crc)
        for _, header in iter_batches(memoryview(data.records or b""))
    )
    return Held(data.high_watermark, batches)


def _tell_difference(
    partition: TopicPartition, mine: tuple[int, Batch], theirs: tuple[int, Batch]
) -> None:
    (first, one), (replica, other) = mine, theirs
    if one.last_offset != other.last_offset:
        _say(
            f"partition {partition}: replica {first}'s offset {one.last_offset} doesn't match "
            f"replica {replica}'s offset {other.last_offset}"
        )
    elif one.crc != other.crc:
        _say(
            f"partition {partition} has unmatched checksum at offset {one.last_offset}; replica "
            f"{first}'s checksum {one.crc}; replica {replica}'s checksum {other.crc}"
        )
