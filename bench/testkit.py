"""How long a test waits for a cluster of the test kit, its memory, and tests in a second.

    ./run bench testkit [--runs 5] [--tests 50] [--kafka]
    ./run bench testkit --quick [--kafka]     one cluster of each kind, five tests; nothing is kept

For clusters of one and three brokers, in the test's process and as processes:

    first_ready_s   a Python program starts, imports the kit, and all brokers serve
    first_cpu_s     the processor time that it takes, of the program and its brokers
    ready_s         the same for the next clusters of the program; and close_s, until all is gone
    rss_mib         of that whole program, with its brokers where they are processes
    shared          tests a second that share a cluster: each makes a topic, writes three records
                    with acks=all and asserts that they are there
    own             the same with a cluster for each test

With --kafka also Apache Kafka 3.9.2 with ZooKeeper, started by this script: `ready_s` is until all
brokers list each other, `rss_mib` and `cpu_s` are of the brokers, and `shared` is as above, by the
same client.

One JSON line is appended to bench/results/testkit.jsonl.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import click
from kit import machine
from kit.results import keep_result
from kit.targets import ApacheKafka

from odradek.client.loop_thread import LoopThread
from odradek.testkit import KafkaCluster
from odradek.testkit.clients import READ_COMMITTED, Clients

RECORDS = [(None, b"one"), (None, b"two"), (None, b"three")]
_FIRST = """
from odradek.testkit import KafkaCluster
cluster = KafkaCluster({brokers}, processes={processes})
cluster.open()
print(*(cluster.pid(each) for each in range({brokers}) if {processes}), flush=True)
import sys
sys.stdin.read()
cluster.close()
"""


def first(brokers: int, *, processes: bool) -> tuple[float, float, float]:
    """Of the first cluster of a new program until it serves: seconds, processor time, MiB."""
    begun_s = time.monotonic()
    program = _FIRST.format(brokers=brokers, processes=processes)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        pids = [running.pid, *map(int, running.stdout.readline().split())]
        ready_s = time.monotonic() - begun_s
        rss_mib, cpu_s = machine.rss_mib(pids), machine.cpu_time(pids).total_s
        running.stdin.close()  # it ends
    return ready_s, cpu_s, rss_mib


def of_kit(brokers: int, *, processes: bool, runs: int, tests: int) -> dict[str, Any]:
    """The figures of one kind of cluster."""
    ready, close = [], []
    for _ in range(runs):
        begun_s = time.monotonic()
        cluster = KafkaCluster(brokers, processes=processes)
        cluster.open()
        ready.append(time.monotonic() - begun_s)
        begun_s = time.monotonic()
        cluster.close()
        close.append(time.monotonic() - begun_s)
    with KafkaCluster(brokers, processes=processes) as cluster:
        begun_s = time.monotonic()
        for number in range(tests):
            one_test(cluster, f"topic-{number}")
        shared = tests / (time.monotonic() - begun_s)
    begun_s = time.monotonic()
    for _ in range(runs):
        with KafkaCluster(brokers, processes=processes) as cluster:
            one_test(cluster, "topic")
    own = runs / (time.monotonic() - begun_s)
    firsts = [first(brokers, processes=processes) for _ in range(runs)]
    return {
        "first_ready_s": spread([ready_s for ready_s, _, _ in firsts]),
        "first_cpu_s": spread([cpu_s for _, cpu_s, _ in firsts]),
        "ready_s": spread(ready),
        "close_s": spread(close),
        "rss_mib": spread([rss_mib for _, _, rss_mib in firsts]),
        "shared_tests_per_s": round(shared, 2),
        "own_tests_per_s": round(own, 2),
    }


def one_test(cluster: KafkaCluster, topic: str) -> None:
    cluster.topic(topic)
    cluster.produce(topic, *RECORDS)
    cluster.assert_records(topic, RECORDS)


def of_kafka(brokers: int, runs: int, tests: int) -> dict[str, Any]:
    """The same of Apache Kafka with ZooKeeper."""
    ready, cpu, rss, shared = [], [], [], 0.0
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            begun_s = time.monotonic()
            target = ApacheKafka(pathlib.Path(folder) / "kafka", brokers=brokers)
            try:
                target.start()
                ready.append(time.monotonic() - begun_s)
                cpu.append(machine.cpu_time(target.pids()).total_s)
                rss.append(machine.rss_mib(target.pids()))
                if run == runs - 1:
                    shared = shared_by(target.bootstrap, min(3, brokers), tests)
            finally:
                target.end()
    return {
        "ready_s": spread(ready),
        "cpu_s": spread(cpu),
        "rss_mib": spread(rss),
        "shared_tests_per_s": round(shared, 2),
    }


def shared_by(bootstrap: str, replicas: int, tests: int) -> float:
    """Tests a second, by the client of the kit."""
    thread, clients = LoopThread("bench"), Clients(bootstrap)
    try:
        begun_s = time.monotonic()
        for number in range(tests):
            topic = f"topic-{number}"
            thread.run(clients.create_topic(topic, 1, replicas, {}))
            thread.run(clients.produce(topic, RECORDS, None))
            found = thread.run(clients.records(topic, READ_COMMITTED))
            assert [(each.key, each.value) for each in found] == RECORDS
        return tests / (time.monotonic() - begun_s)
    finally:
        thread.close()


def spread(seen: list[float]) -> dict[str, float]:
    """The least, the median and the most."""
    return {
        "min": round(min(seen), 3),
        "median": round(statistics.median(seen), 3),
        "max": round(max(seen), 3),
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--runs", default=5, show_default=True, help="Clusters of each kind.")
@click.option("--tests", default=50, show_default=True, help="Tests that share a cluster.")
@click.option("--kafka", is_flag=True, help="Also Apache Kafka.")
@click.option("--quick", is_flag=True, help="One cluster of each kind; append nothing.")
def main(*, runs: int, tests: int, kafka: bool, quick: bool) -> None:
    """Measure, append to the results, print."""
    if quick:
        runs, tests = 1, 5
    described = machine.describe()
    result: dict[str, Any] = {
        "machine": described,
        "runs": runs,
        "tests": tests,
    }
    for brokers in (1, 3):
        for processes in (False, True):
            name = f"{'processes' if processes else 'in-process'}, {brokers}"
            result[name] = of_kit(brokers, processes=processes, runs=runs, tests=tests)
            print(name, json.dumps(result[name]), flush=True)
        if kafka:
            result[f"kafka, {brokers}"] = of_kafka(brokers, min(runs, 3), tests)
            print(f"kafka, {brokers}", json.dumps(result[f"kafka, {brokers}"]), flush=True)
    if quick:
        return
    keep_result("testkit", result)


if __name__ == "__main__":
    main()
