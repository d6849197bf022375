"""The cases: loads of other clients on a target, and their figures.

Each case puts one load on an otherwise idle target and returns figures: the client's report,
and the processor time of client and brokers. Before each case the disk is synced, so that data of
an earlier case is not written back during the next one, and unused memory is filled, so that
neither system pays for memory that the machine's host has taken back.
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kit import ROOT, apache, fetch, machine, raw
from kit.targets import Target

RECORD_BYTES: Final = 100
BATCHED: Final = ("batch.size=65536", "linger.ms=5")
STREAM: Final = "stream"  # written by a producer case, read by the consumer cases
_QUEUED_MAX: Final = ("queued.min.messages=1000000", "fetch.queue.backoff.ms=10")
_TIMEOUT_S: Final = 600.0

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the loads; at full size a client runs five seconds or more."""

    java_records: int = 3_000_000
    java_batched_records: int = 6_000_000
    native_records: int = 15_000_000
    warm_up_records: int = 1_000_000
    small_seconds: float = 6.0
    warm_seconds: float = 20.0  # of each case, before it is measured: a new JVM is slow

    def scaled(self, factor: float) -> "Sizes":
        """The same load, smaller by `factor`."""
        return Sizes(
            int(self.java_records * factor),
            int(self.java_batched_records * factor),
            int(self.native_records * factor),
            int(self.warm_up_records * factor),
            self.small_seconds * max(factor, 0.25),
            self.warm_seconds * factor,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One load and its name."""

    name: str
    run: Callable[[Target, str, Sizes], Figures]
    reads_stream: bool = False  # which STREAM_WRITER must have written before


def java_produce(
    target: Target, topic: str, sizes: Sizes, *, partitions: int, options: tuple[str, ...] = ()
) -> Figures:
    _create(target, topic, partitions)
    records = sizes.java_batched_records if options else sizes.java_records
    return measured(
        target, records, partial(_producer_performance, target, topic, records, options)
    )


def native_produce(
    target: Target, topic: str, sizes: Sizes, *, partitions: int, acks: str
) -> Figures:
    """librdkafka with its own defaults except acks."""
    _create(target, topic, partitions)
    records = sizes.native_records
    arguments = ["produce", target.bootstrap, topic, str(partitions), str(records)]
    arguments += [str(RECORD_BYTES), f"acks={acks}"]
    return measured(target, records, partial(run_kit, "native", *arguments))


def java_consume(target: Target, _topic: str, sizes: Sizes) -> Figures:
    """The Java consumer on one assigned partition, with kafka-consumer-perf-test's options."""
    records = sizes.native_records
    source = ROOT / "bench" / "kit" / "AssignedConsumer.java"
    arguments = [target.bootstrap, STREAM, "1", str(records)]
    command = fetch.java_class(apache.LINE, source, *arguments, heap="512M")

    def load() -> Figures:
        seen = json.loads(_output(command))
        if seen["records"] < records:
            raise RuntimeError(f"only {seen['records']} of {records} records came")
        return {"records_per_s": seen["records"] / seen["seconds"]}

    return measured(target, records, load)


def native_consume(target: Target, _topic: str, sizes: Sizes) -> Figures:
    """librdkafka on one partition, with large fetch buffers."""
    records = sizes.native_records
    arguments = ["consume", target.bootstrap, STREAM, "1", str(records), *_QUEUED_MAX]
    return measured(target, records, partial(run_kit, "native", *arguments))


def small_requests(
    target: Target, topic: str, sizes: Sizes, *, connections: int, depth: int
) -> Figures:
    """One record a request."""
    arguments = [_first(target), topic, str(_replication(target))]
    arguments += [str(connections), str(depth), str(sizes.small_seconds)]
    figures = measured(target, None, partial(run_kit, "small_requests", *arguments))
    figures["broker_us_per_request"] = figures["broker_cpu_s"] / figures["answered"] * 1e6
    return figures


def warm_up(target: Target, sizes: Sizes) -> None:
    """Let the target compile, allocate and create what is needed only once."""
    _create(target, "warm-up", 6)
    _producer_performance(target, "warm-up", sizes.warm_up_records, ())
    _producer_performance(target, "warm-up", sizes.warm_up_records, BATCHED)
    small_requests(target, "warm-up-small", sizes, connections=16, depth=1)


def run(case: Case, target: Target, topic: str, sizes: Sizes) -> Figures:
    """The figures of a case on a target that has had the same load for `warm_seconds` before."""
    until_s = time.monotonic() + sizes.warm_seconds
    turn = 0
    while time.monotonic() < until_s:
        turn += 1
        case.run(target, f"{topic}-warm-{turn}", sizes)
        if not case.reads_stream:
            raw.delete_topic(_first(target), f"{topic}-warm-{turn}")
    return case.run(target, topic, sizes)


STREAM_WRITER: Final = Case(
    "librdkafka produce, acks=1", partial(native_produce, partitions=1, acks="1")
)
CASES: Final = (
    Case("java produce, 1 partition", partial(java_produce, partitions=1)),
    Case("java produce, 6 partitions", partial(java_produce, partitions=6)),
    Case("java produce, 1 partition, 64 KiB", partial(java_produce, partitions=1, options=BATCHED)),
    Case(
        "java produce, 6 partitions, 64 KiB", partial(java_produce, partitions=6, options=BATCHED)
    ),
    STREAM_WRITER,
    Case("librdkafka produce, acks=all", partial(native_produce, partitions=1, acks="all")),
    Case("librdkafka produce, 6 partitions", partial(native_produce, partitions=6, acks="all")),
    Case("java consume", java_consume, reads_stream=True),
    Case("librdkafka consume", native_consume, reads_stream=True),
    Case("small requests", partial(small_requests, connections=16, depth=1)),
    Case("small requests, 8 deep", partial(small_requests, connections=16, depth=8)),
)
# With replicas and acks=all.
REPLICATED: Final = (
    *CASES[:4],
    Case("librdkafka produce, acks=all", partial(native_produce, partitions=1, acks="all")),
    Case("small requests, one at a time", partial(small_requests, connections=1, depth=1)),
    Case("small requests", partial(small_requests, connections=16, depth=1)),
    Case("small requests, 5 deep", partial(small_requests, connections=4, depth=5)),
)


def chosen(words: tuple[str, ...], *, brokers: int = 1) -> list[Case]:
    """The cases whose names contain one of the words; with a reader, also its writer."""
    cases = CASES if brokers == 1 else REPLICATED
    if not words:
        return list(cases)
    found = [case for case in cases if any(word in case.name for word in words)]
    if any(case.reads_stream for case in found) and STREAM_WRITER not in found:
        found.insert(0, STREAM_WRITER)
    return found


def _producer_performance(
    target: Target, topic: str, records: int, options: tuple[str, ...]
) -> Figures:
    main = "org.apache.kafka.tools.ProducerPerformance"
    arguments = ["--topic", topic, "--num-records", str(records), "--throughput", "-1"]
    arguments += ["--record-size", str(RECORD_BYTES)]
    arguments += ["--producer-props", f"bootstrap.servers={target.bootstrap}", *options]
    output = _output(fetch.java(apache.LINE, main, *arguments, heap="512M"))
    summary = output.strip().splitlines()[-1]
    found = re.search(
        r"^(\d+) records sent, ([\d.]+) records/sec .*?([\d.]+) ms avg latency.*?(\d+) ms 99th",
        summary,
    )
    if found is None or int(found[1]) != records:
        raise RuntimeError(f"ProducerPerformance ends with: {summary}")
    return {
        "records_per_s": float(found[2]),
        "avg_ms": float(found[3]),
        "p99_ms": float(found[4]),
    }


def run_kit(module: str, *arguments: str) -> Figures:
    """Run a load generator of this package in a process of its own. Returns what it reports."""
    command = [sys.executable, "-m", f"kit.{module}", *arguments]
    return dict(json.loads(_output(command, cwd=ROOT / "bench")))


def _output(command: list[str], cwd: pathlib.Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def measured(target: Target, records: int | None, load: Callable[[], Figures]) -> Figures:
    """The figures of a load, with the processor time of its client and of the brokers."""
    os.sync()
    machine.fill_memory()
    pids = target.pids()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    steal_s = machine.steal_s()
    brokers, begun_s = machine.cpu_time(pids), time.monotonic()
    figures = load()
    elapsed_s, used = time.monotonic() - begun_s, machine.cpu_time(pids) - brokers
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    client_cpu_s = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    figures |= {
        "elapsed_s": elapsed_s,
        "broker_cpu_s": used.total_s,
        "broker_system_share": used.system_s / used.total_s if used.total_s else 0.0,
        "client_cpu_s": client_cpu_s,
        # Above the brokers' and the client's own share, other work has affected the figures.
        "load": os.getloadavg()[0],
        "steal_share": (machine.steal_s() - steal_s) / elapsed_s / (os.cpu_count() or 1),
    }
    if records is not None:
        figures["broker_cpu_s_per_gb"] = used.total_s / (records * RECORD_BYTES / 1e9)
    return figures


def _create(target: Target, topic: str, partitions: int) -> None:
    raw.create_topic(_first(target), topic, partitions, replication=_replication(target))


def _replication(target: Target) -> int:
    return min(3, target.bootstrap.count(",") + 1)


def _first(target: Target) -> str:
    return target.bootstrap.partition(",")[0]
