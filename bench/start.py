"""How fast a broker starts, empty and with many partitions, and its memory.

    ./run bench start [--partitions 10000] [--runs 5] [--target kafka]
    ./run bench start --brokers 3 [--runs 5] [--target kafka]
    ./run bench start --killed 20 [--partitions 10000] [--wait 900]

An empty broker is started `--runs` times: the time from starting its process to its first Metadata
response. Then one broker gets its partitions, in topics of a hundred, is stopped cleanly and
started again: the time to the first Metadata response, and until every partition has a leader and
one of them accepts a record.

With more than one broker: from an empty directory until all are registered, a topic with as
many replicas exists and has accepted a record with acks=all; then the memory of each broker, and
the processor time of the idle cluster.

With `--killed` one broker gets that many GiB in batches of 16 kB, in all its partitions alike. It
is killed (kill -9) when its recovery points have reached the ends of the logs, or after `--wait`
seconds, and started again. Its recovery points are written every ten seconds instead of every
minute. What it reads at the start is counted, in the page cache or not.

One JSON line is appended to bench/results/start.jsonl.
"""

import os
import pathlib
import signal
import statistics
import tempfile
import time
from typing import Any

import click
from kit import machine, raw
from kit.results import keep_result
from kit.small_requests import ACKS_ALL, ACKS_LEADER, error_of, receive_frame, request
from kit.targets import TARGETS, Target

PARTITIONS_PER_TOPIC = 100
_TIMEOUT_S = 300.0
_SETTLE_S, _IDLE_S = 5.0, 30.0
_VALUE_BYTES = 16_000
_IN_FLIGHT = 16
_CHECKPOINTS = {"log.flush.offset.checkpoint.interval.ms": "10000"}


def start_empty(kind: str, runs: int) -> list[float]:
    """Seconds to the first Metadata response, each on a directory of its own."""
    seconds = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            target: Target = TARGETS[kind](pathlib.Path(folder) / kind)
            try:
                target.start()
                seconds.append(target.start_s)
            finally:
                target.end()
    return seconds


def start_full(kind: str, partitions: int) -> dict[str, float]:
    """Create, stop, start: seconds and memory."""
    topics = [f"topic-{n}" for n in range(partitions // PARTITIONS_PER_TOPIC)]
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        target: Target = TARGETS[kind](pathlib.Path(folder) / kind)
        try:
            target.start()
            seen = {"empty_rss_mib": machine.rss_mib(target.pids())}
            begun_s = time.monotonic()
            for topic in topics:
                raw.create_topic(target.bootstrap, topic, PARTITIONS_PER_TOPIC)
            seen["create_s"] = time.monotonic() - begun_s
            seen["created_rss_mib"] = machine.rss_mib(target.pids())
            begun_s = time.monotonic()
            target.halt()
            seen["stop_s"] = time.monotonic() - begun_s
            begun_s = time.monotonic()
            target.start()
            wait_until_led(target.bootstrap, topics)
            write_one(target.bootstrap, topics[-1], partition=PARTITIONS_PER_TOPIC - 1)
            seen["start_all_led_s"] = time.monotonic() - begun_s
            seen["start_s"] = target.start_s
            seen["started_rss_mib"] = machine.rss_mib(target.pids())
            seen["start_cpu_s"] = machine.cpu_time(target.pids()).total_s
            return seen
        finally:
            target.end()


def start_killed(partitions: int, gib: float, wait_s: float) -> dict[str, float]:
    """Fill one broker of ours, kill it, start it: seconds, and what it reads."""
    topics = [f"topic-{n}" for n in range(partitions // PARTITIONS_PER_TOPIC)]
    batches = max(1, int(gib * 2**30 / partitions / _VALUE_BYTES))
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        home = pathlib.Path(folder) / "odradek"
        target = TARGETS["odradek"](home, properties=_CHECKPOINTS)
        try:
            target.start()
            for topic in topics:
                raw.create_topic(target.bootstrap, topic, PARTITIONS_PER_TOPIC)
                _fill(target.bootstrap, topic, batches)
            before_s = machine.cpu_time(target.pids()).total_s
            begun_s = time.monotonic()
            checkpoint = home / "broker-0" / "data" / "recovery-point-offset-checkpoint"
            while (left := _unsettled(checkpoint, partitions, batches)) and (
                time.monotonic() < begun_s + wait_s
            ):
                time.sleep(1)
            seen = {
                "unsettled_partitions": float(left),
                "settle_s": time.monotonic() - begun_s,
                "settle_cpu_s": machine.cpu_time(target.pids()).total_s - before_s,
            }
            os.kill(target.pids()[0], signal.SIGKILL)
            begun_s = time.monotonic()
            target.start()
            wait_until_led(target.bootstrap, topics)
            write_one(target.bootstrap, topics[-1], partition=PARTITIONS_PER_TOPIC - 1)
            return seen | {
                "start_all_led_s": time.monotonic() - begun_s,
                "start_s": target.start_s,
                "started_rss_mib": machine.rss_mib(target.pids()),
                "start_cpu_s": machine.cpu_time(target.pids()).total_s,
                "start_read_mib": machine.read_mib(target.pids()),
            }
        finally:
            target.end()


def _fill(address: str, topic: str, batches: int) -> None:
    """Write that many batches to each partition."""
    with raw.connect(address) as connection:
        for partition in range(PARTITIONS_PER_TOPIC):
            frame = request(topic, partition, value_bytes=_VALUE_BYTES)
            for number in range(batches + _IN_FLIGHT):
                if number < batches:
                    connection.sendall(frame)
                if number >= _IN_FLIGHT and error_of(receive_frame(connection), topic):
                    raise RuntimeError(f"{topic}-{partition}: a batch was refused")


def _unsettled(checkpoint: pathlib.Path, partitions: int, batches: int) -> int:
    """How many partitions have a recovery point before the end of their log."""
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return partitions - sum(int(line.split()[2]) >= batches for line in lines)


def start_cluster(kind: str, brokers: int, runs: int) -> dict[str, float]:
    """Seconds until a replicated topic has a record; memory, and processor time when idle."""
    seconds, rss_mib, idle = [], 0.0, 0.0
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            target: Target = TARGETS[kind](pathlib.Path(folder) / kind, brokers=brokers)
            try:
                begun_s = time.monotonic()
                target.start()
                raw.create_topic(
                    target.bootstrap.partition(",")[0], "first", 1, replication=min(brokers, 3)
                )
                write_one(target.bootstrap.partition(",")[0], "first", partition=0, acks=ACKS_ALL)
                seconds.append(time.monotonic() - begun_s)
                if run == runs - 1:
                    rss_mib = max(machine.rss_mib([pid]) for pid in target.pids())
                    time.sleep(_SETTLE_S)
                    before = machine.cpu_time(target.pids()).total_s
                    time.sleep(_IDLE_S)
                    idle = (machine.cpu_time(target.pids()).total_s - before) / _IDLE_S
            finally:
                target.end()
    return {
        "first_record_s": statistics.median(seconds),
        "largest_broker_rss_mib": rss_mib,
        "idle_percent_of_a_core": 100 * idle,
    }


def wait_until_led(address: str, topics: list[str]) -> None:
    """Return when all partitions of these topics have a leader."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        leaders = [
            leader
            for topic in raw.metadata(address, topics).topics.values()
            for leader in topic.leaders
        ]
        if len(leaders) == len(topics) * PARTITIONS_PER_TOPIC and min(leaders) >= 0:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{address}: not all partitions have leaders")


def write_one(address: str, topic: str, *, partition: int, acks: int = ACKS_LEADER) -> None:
    """Write a record to a partition's leader."""
    seen = raw.metadata(address, [topic])
    leader = seen.brokers[seen.topics[topic].leaders[partition]]
    with raw.connect(leader) as connection:
        connection.sendall(request(topic, partition, acks))
        if error_code := error_of(receive_frame(connection), topic):
            raise RuntimeError(f"the broker answers error {error_code}")


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option(
    "--partitions",
    type=click.IntRange(min=PARTITIONS_PER_TOPIC),
    default=10_000,
    show_default=True,
    help="Of the full broker.",
)
@click.option("--runs", default=5, show_default=True, help="Starts of the empty broker.")
@click.option("--brokers", default=1, show_default=True, help="More than one: a cluster.")
@click.option("--target", "kind", type=click.Choice(list(TARGETS)), default="odradek")
@click.option("--killed", default=0.0, help="GiB of logs of a broker that is killed.")
@click.option("--wait", default=900.0, show_default=True, help="Until it is killed, at most.")
def main(
    *, partitions: int, runs: int, brokers: int, kind: str, killed: float, wait: float
) -> None:
    """Measure, append to the results, print."""
    before = machine.describe()
    result: dict[str, Any] = {
        "target": kind,
        "brokers": brokers,
        "machine": before,
    }
    if killed:
        figures = start_killed(partitions, killed, wait)
        result |= {"partitions": partitions, "gib": killed}
        print(f"{partitions:,} partitions with {killed:g} GiB, killed:")
    elif brokers > 1:
        figures = start_cluster(kind, brokers, runs)
        print(f"{kind}, {brokers} brokers (median of {runs} starts):")
    else:
        empty = start_empty(kind, runs)
        figures = start_full(kind, partitions)
        result |= {"partitions": partitions, "empty_start_s": [round(each, 3) for each in empty]}
        middle = statistics.median(empty)
        print(f"{kind}: start to first Metadata {middle:.2f} s (median of {runs})")
        print(f"with {partitions:,} partitions:")
    result |= {key: round(value, 3) for key, value in figures.items()}
    keep_result("start", result)
    for key, value in figures.items():
        name, _, unit = key.rpartition("_")
        if name.startswith("idle"):
            print(f"  {'idle':16} {value:9.2f} % of a core")
            continue
        unit = "MiB" if unit == "mib" else "" if unit == "partitions" else unit
        print(f"  {name.removesuffix('_rss').replace('_', ' '):16} {value:9.2f} {unit}")


if __name__ == "__main__":
    main()
