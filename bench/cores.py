"""What a broker for each core gives: measured on this machine, calculated for larger ones.

    ./run bench cores [--runs 3] [--quick]

First one broker and as many as this machine has cores (`odradek up --brokers auto`) get the same
load alternately: librdkafka writes to six partitions with one replica, and shares the cores with
the brokers. Then the processor time of a small request is measured, with one replica on one broker,
and with three replicas and acks=all on three.

From these times the requests a second of larger clusters are calculated, with replicas placed as
the controller places them, clients on other machines, and every partition receiving the same: the
busiest broker, which has one core for its requests, is the limit. It is an upper bound: memory,
network and clients are taken as unlimited. One JSON line is appended to bench/results/cores.jsonl.
"""

import pathlib
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import click
from kit import cases, machine, raw
from kit.results import keep_result
from kit.targets import Odradek
from rich.console import Console
from rich.table import Table

from odradek.local.cores import usable_cores
from odradek.placement.assign import RoundStart, place

PARTITIONS: Final = (1, 6, 16, 48, 96)
BROKERS: Final = (1, 2, 8, 16)


@contextmanager
def cluster(brokers: int) -> Iterator[Odradek]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        target = Odradek(pathlib.Path(folder) / "odradek", brokers=brokers)
        try:
            target.start()
            yield target
        finally:
            target.end()


def produce(target: Odradek, records: int) -> dict[str, float]:
    """librdkafka to six partitions with one replica."""
    topic = f"t-{time.time_ns()}"
    raw.create_topic(target.bootstrap.partition(",")[0], topic, 6)
    arguments = ["produce", target.bootstrap, topic, "6", str(records), "100", "acks=1"]
    return cases.measured(target, records, partial(cases.run_kit, "native", *arguments))


def small_us(brokers: int, seconds: float) -> float:
    """The processor time of all brokers for one small request, in microseconds."""
    with cluster(brokers) as target:
        arguments = [target.bootstrap.partition(",")[0], "small", str(brokers), "16", "1"]
        arguments.append(str(seconds))
        figures = cases.measured(target, None, partial(cases.run_kit, "small_requests", *arguments))
    return figures["broker_cpu_s"] / figures["answered"] * 1e6


def requests_per_s(
    brokers: int, partitions: int, replicas: int, *, leader_us: float, follower_us: float
) -> float:
    """What the busiest broker allows, if all partitions receive the same."""
    placed = place(
        dict.fromkeys(range(brokers)),
        partitions=partitions,
        replication_factor=replicas,
        start=RoundStart(0, 0),
    )
    busy_us = Counter[int]()
    for leader, *followers in placed.values():
        busy_us[leader] += leader_us / partitions
        for follower in followers:
            busy_us[follower] += follower_us / partitions
    return 1e6 / max(busy_us.values())


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--runs", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="Small loads, nothing recorded: does it work at all?")
def main(*, runs: int, quick: bool) -> None:
    """Measure, calculate, append to the results, print."""
    before = machine.describe()
    cores = usable_cores()
    runs, records, seconds = (1, 100_000, 1.0) if quick else (runs, 5_000_000, 8.0)
    rates: dict[int, list[float]] = {1: [], cores: []}
    for number in range(runs):
        for brokers in sorted(rates, reverse=bool(number % 2)):
            with cluster(brokers) as target:
                produce(target, records // 5)
                rates[brokers].append(produce(target, records)["records_per_s"])
    leader_us, three_us = small_us(1, seconds), small_us(3, seconds)
    follower_us = max(0.0, three_us - leader_us) / 2
    calculate = partial(requests_per_s, leader_us=leader_us, follower_us=follower_us)
    calculated = [
        {"brokers": b, "partitions": p, "replicas": r, "requests_per_s": round(calculate(b, p, r))}
        for r in (1, 3)
        for b in BROKERS
        for p in PARTITIONS
        if r <= b
    ]
    result: dict[str, Any] = {
        "produce_records_per_s": {b: [round(each) for each in of] for b, of in rates.items()},
        "leader_us": round(leader_us, 1),
        "follower_us": round(follower_us, 1),
        "calculated": calculated,
        "machine": before,
    }
    if not quick:
        keep_result("cores", result)
    _show(result)


def _show(result: dict[str, Any]) -> None:
    out = Console()
    for brokers, rates in result["produce_records_per_s"].items():
        out.print(f"{brokers} brokers: {statistics.median(rates):,.0f} records/s, librdkafka")
    out.print(f"a small request: {result['leader_us']} us, {result['follower_us']} at a follower")
    table = Table("replicas", "brokers", *(f"{p} partitions" for p in PARTITIONS))
    rows: dict[tuple[int, int], list[str]] = {}
    for each in result["calculated"]:
        row = rows.setdefault((each["replicas"], each["brokers"]), [])
        row.append(f"{each['requests_per_s']:,}")
    for (replicas, brokers), row in rows.items():
        table.add_row(str(replicas), str(brokers), *row)
    out.print(table)


if __name__ == "__main__":
    main()
