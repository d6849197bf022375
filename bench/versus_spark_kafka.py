"""Spark's connector for Kafka and ours on the same topics, in one session, local[2].

    ./run bench versus_spark_kafka [--runs 3] [--quick] [--case WORD] [--on odradek|kafka]

The connector at its defaults, the connector tuned, and ours, in turns; a session for each kernel
of ours (`numpy`, and `fast` where odradek-fast is installed). Ratios above 1: ours is faster. The
default connector and ours check checksums, the tuned one does not. The connector's jars are
fetched by Maven into .cache/.

    count         10 million records of 100 bytes, counted
    parquet       1 million records of 1 KB into Parquet
    write         3 million keyed records of 100 bytes, acks=all
    drain in N    the same million read by a streaming query in N triggers
    tiny          60 records, counted, after a first query

One JSON line for each kernel is appended to bench/results/versus_spark_kafka.jsonl, except by
--quick runs, which have a twentieth of the records and are too short for figures.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Any

import click
import pyarrow as pa
from kit import ROOT, fetch, machine
from kit.results import keep_result
from kit.targets import TARGETS
from rich.console import Console
from rich.table import Table

from odradek.client import arrow
from odradek.client.arrow.produce import ArrowProducerSettings

SESSION = ROOT / "bench" / "kit" / "spark_session.py"
# (case, kernel): target ratios to the connector at its defaults, and tuned.
AIMS = {
    ("count", "numpy"): (1.6, 1.0), ("count", "fast"): (2.5, 1.5),
    ("parquet", "numpy"): (1.5, 1.0), ("parquet", "fast"): (1.5, 1.0),
    ("write", "numpy"): (1.2, 1.0), ("write", "fast"): (1.2, 1.0),
    ("drain in 1", "numpy"): (1.2, None), ("drain in 1", "fast"): (1.2, None),
    ("drain in 10", "numpy"): (1.0, None), ("drain in 10", "fast"): (1.0, None),
    ("tiny", "numpy"): (3.0, None), ("tiny", "fast"): (3.0, None),
}  # fmt: skip
PARTITIONS = 4


def fill(servers: str, topic: str, records: int, size: int) -> None:
    """Write records with a key, round robin over the partitions."""
    left = records
    settings = ArrowProducerSettings(batch_bytes=64 << 10)
    while left:
        count = min(left, max(1, (64 << 20) // size))
        rows = {
            "key": pa.array([b"%09d" % n for n in range(count)]),
            "value": pa.repeat(pa.scalar(os.urandom(size - 10), pa.binary()), count),
            "partition": pa.array([n % PARTITIONS for n in range(count)], pa.int32()),
        }
        arrow.write_topic(servers, topic, pa.table(rows), settings=settings)
        left -= count


def run_session(kernel: str, given: dict[str, Any]) -> dict[str, dict[str, float]]:
    """All cases with one kernel."""
    done = subprocess.run(
        [sys.executable, str(SESSION), json.dumps(given)],
        env={**os.environ, "ODRADEK_KERNEL": kernel, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def table(results: dict[str, dict[str, dict[str, float]]]) -> Table:
    out = Table("case", "kernel", "connector s", "tuned s", "ours s", "ratio", "to tuned", "aims")
    for kernel, measured in results.items():
        for case, seconds in measured.items():
            ratio = seconds["connector"] / seconds["ours"]
            to_tuned = seconds["tuned"] / seconds["ours"]
            at_least, to_tuned_at_least = AIMS[case, kernel]
            reached = ratio >= at_least and to_tuned >= (to_tuned_at_least or 0)
            out.add_row(
                case,
                kernel,
                *(f"{seconds[engine]:.2f}" for engine in ("connector", "tuned", "ours")),
                f"{ratio:.2f}",
                f"{to_tuned:.2f}",
                f"{at_least} / {to_tuned_at_least or '-'} {'reached' if reached else 'missed'}",
            )
    return out


@click.command(help=__doc__)
@click.option("--runs", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="a twentieth of the records, one run")
@click.option("--case", default="", help="only cases with this in their name")
@click.option("--on", type=click.Choice(sorted(TARGETS)), default="odradek", show_default=True)
def main(runs: int, quick: bool, case: str, on: str) -> None:
    """Fill topics, run a session for each kernel, print and append the results."""
    scale = 20 if quick else 1
    runs = 1 if quick else runs
    small, large, written = 10_000_000 // scale, 1_000_000 // scale, 3_000_000 // scale
    say = Console()
    results: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        target = TARGETS[on](
            pathlib.Path(folder) / on, properties={"num.partitions": str(PARTITIONS)}
        )
        try:
            target.start()
            topics = {"small": "small", "large": "large", "tiny": "tiny", "sink": "sink"}
            for topic, records, size in (("small", small, 100), ("large", large, 1_000),
                                         ("tiny", 60, 100), ("sink", 1, 100)):  # fmt: skip
                fill(target.bootstrap, topic, records, size)
                say.print(f"topic {topic}: {records:,} records of {size} bytes")
            for kernel in ("numpy", *(("fast",) if find_spec("odradek_fast") else ())):
                given = {
                    "servers": target.bootstrap,
                    "topics": topics,
                    "jars": [str(jar) for jar in fetch.spark_connector()],
                    "work": folder,
                    "large": large,
                    "written": written,
                    "runs": runs,
                    "case": case,
                }
                results[kernel] = run_session(kernel, given)
                if not quick:
                    line = {
                        "kernel": kernel,
                        "target": target.name,
                        "version": target.version(),
                        "machine": machine.describe(),
                        "seconds": results[kernel],
                    }
                    keep_result("versus_spark_kafka", line)
        finally:
            target.end()
            say.print(table(results))


if __name__ == "__main__":
    main()
