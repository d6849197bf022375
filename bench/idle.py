"""What a broker with many partitions and connections costs while nothing happens.

    ./run bench idle [--partitions 10000] [--connections 2000] [--brokers 3] [--seconds 60]
                     [--target kafka]

The topics have a hundred partitions each and as many replicas as there are brokers, three at most.
Each partition gets one record, and each connection sends one Metadata request. Then nothing is
sent: measured are the processor time of each broker, its resident memory (RSS; PSS counts pages
that processes share in equal parts) and its open files. One JSON line is appended to
bench/results/idle.jsonl.
"""

import pathlib
import socket
import struct
import tempfile
import time
from typing import Any

import click
from kit import machine, raw
from kit.results import keep_result
from kit.small_requests import ACKS_ALL, error_of, receive_frame, request
from kit.targets import TARGETS, Target

PARTITIONS_PER_TOPIC = 100
_SETTLE_S = 10.0


def measure(
    target: Target, *, partitions: int, connections: int, brokers: int, seconds: float
) -> dict[str, float]:
    """Fill a cluster, open the connections, wait: the figures of the busiest broker."""
    target.start()
    seen = {"empty_rss_mib": _largest(machine.rss_mib, target)}
    topics = [f"topic-{n}" for n in range(partitions // PARTITIONS_PER_TOPIC)]
    for topic in topics:
        raw.create_topic(_controller(target), topic, PARTITIONS_PER_TOPIC,
                         replication=min(brokers, 3))  # fmt: skip
    seen["created_rss_mib"] = _largest(machine.rss_mib, target)
    write_all(target, topics)
    seen["written_rss_mib"] = _largest(machine.rss_mib, target)
    opened = connect_all(target, topics[0], connections)
    try:
        time.sleep(_SETTLE_S)
        before = {pid: machine.cpu_time([pid]) for pid in target.pids()}
        begun_s = time.monotonic()
        time.sleep(seconds)
        waited_s = time.monotonic() - begun_s
        used = [machine.cpu_time([pid]) - before[pid] for pid in target.pids()]
        seen["rss_mib"] = _largest(machine.rss_mib, target)
        seen["pss_mib"] = _largest(machine.pss_mib, target)
        seen["open_files"] = _largest(machine.open_files, target)
        seen["idle_percent_of_a_core"] = 100 * max(each.total_s for each in used) / waited_s
        seen["system_percent_of_a_core"] = 100 * max(each.system_s for each in used) / waited_s
    finally:
        for connection in opened:
            connection.close()
    return seen


def _largest(figure: Any, target: Target) -> float:
    return max(float(figure([pid])) for pid in target.pids())


def _controller(target: Target) -> str:
    """The controller's address; broker ids are 0, 1, 2 in the order of the list, or 1, 2, 3."""
    seen = raw.metadata(target.bootstrap.partition(",")[0])
    return seen.brokers[seen.controller]


def write_all(target: Target, topics: list[str]) -> None:
    """Write a record to each partition, with acks=all."""
    seen = raw.metadata(target.bootstrap.partition(",")[0], topics)
    links = {broker: raw.connect(address) for broker, address in seen.brokers.items()}
    for topic in topics:
        leaders = seen.topics[topic].leaders
        for partition, leader in enumerate(leaders):
            links[leader].sendall(request(topic, partition, ACKS_ALL))
        for leader in leaders:
            if error_code := error_of(receive_frame(links[leader]), topic):
                raise RuntimeError(f"{topic}: the broker answers error {error_code}")
    for link in links.values():
        link.close()


def connect_all(target: Target, topic: str, count: int) -> list[socket.socket]:
    """Connections that have sent one request each, to all brokers in turn."""
    body = struct.pack(">i", 1) + raw.text(topic) + b"\0"
    addresses = target.bootstrap.split(",")
    opened = []
    for n in range(count):
        connection = raw.connect(addresses[n % len(addresses)])
        raw.call(connection, raw.frame(raw.METADATA, 4, body))
        opened.append(connection)
    return opened


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--partitions", default=10_000, show_default=True, help="In topics of a hundred.")
@click.option("--connections", default=2_000, show_default=True, help="To all brokers together.")
@click.option("--brokers", default=1, show_default=True, help="Of the cluster.")
@click.option("--seconds", default=60.0, show_default=True, help="How long nothing is sent.")
@click.option("--target", "kind", type=click.Choice(list(TARGETS)), default="odradek")
def main(*, partitions: int, connections: int, brokers: int, seconds: float, kind: str) -> None:
    """Measure, append to the results, print."""
    result: dict[str, Any] = {
        "target": kind,
        "brokers": brokers,
        "partitions": partitions,
        "connections": connections,
        "machine": machine.describe(),
    }
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        target: Target = TARGETS[kind](pathlib.Path(folder) / kind, brokers=brokers)
        try:
            figures = measure(target, partitions=partitions, connections=connections,
                              brokers=brokers, seconds=seconds)  # fmt: skip
        finally:
            target.end()
    result |= {key: round(value, 3) for key, value in figures.items()}
    keep_result("idle", result)
    print(f"{kind}, {brokers} broker(s), {partitions:,} partitions, {connections:,} connections:")
    for key, value in figures.items():
        print(f"  {key.replace('_', ' '):26} {value:9.2f}")


if __name__ == "__main__":
    main()
