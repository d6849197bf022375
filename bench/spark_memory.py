"""The memory of Spark's Python workers while they read or write far more than that.

    ./run bench spark_memory [--gib 20] [--case WORD] [--kernel numpy|fast]

The maximum resident memory of any worker (VmHWM, including libraries), local[2], on an Odradek
broker. Topics are written with zstd, so that the backlog is large only when decoded. Each case has
a Spark session, and so workers, of its own:

    batch       the backlog, records of 1 KB in 4 partitions, by one query
    stream      the same by a streaming query in 50 triggers, fetches of 64 KiB
    packed      a fifth of it in zeros: each byte fetched becomes hundreds
    large       a fifth of it in records of 1 MB, in one partition
    write       a fifth of it from Spark into a topic
    write once  the same with exactlyOnce, records of 1 MB

Aim: below 400 MiB. One JSON line is appended to bench/results/spark_memory.jsonl, except with
--gib below 20.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import click
import pyarrow as pa
from kit import ROOT, machine
from kit.results import keep_result
from kit.targets import TARGETS
from rich.console import Console
from rich.table import Table

from odradek.client import arrow
from odradek.client.arrow.produce import ArrowProducerSettings
from odradek.record.compression import Codec

SESSION = ROOT / "bench" / "kit" / "spark_memory_session.py"
AIM_MIB = 400
PARTITIONS = 4
WHOLE_GIB = 20
CHUNK_BYTES = 64 << 20
CASES = ("batch", "stream", "packed", "large", "write", "write once")
TOPICS = {"batch": "backlog", "stream": "backlog", "packed": "packed", "large": "large"}


def values(kind: str, count: int) -> list[bytes]:
    """The values of a chunk: a tenth of each is random, or nothing."""
    if kind == "packed":
        return [bytes(1_000)] * count
    size = 1_000_000 if kind == "large" else 1_000
    return [os.urandom(size // 20).hex().encode().ljust(size, b".") for _ in range(count)]


def fill(servers: str, topic: str, kind: str, size: int) -> None:
    """Write `size` bytes of values, in batches of 1 MB."""
    count = CHUNK_BYTES // (1_000_000 if kind == "large" else 1_000)
    partitions = 1 if kind == "large" else PARTITIONS
    rows = pa.table({
        "key": [b"%06d" % n for n in range(count)],
        "value": values(kind, count),
        "partition": pa.array([n % partitions for n in range(count)], pa.int32()),
    })  # fmt: skip
    # Batches are measured before they are compressed, requests afterwards.
    settings = ArrowProducerSettings(
        codec=Codec.ZSTD, batch_bytes=(1 << 20) - 4096, request_bytes_max=4 << 20
    )
    for _ in range(max(1, size // CHUNK_BYTES)):
        arrow.write_topic(servers, topic, rows, settings=settings)


def workers(pid: int) -> Iterator[tuple[int, str]]:
    """The Python processes below this one that Spark started."""
    parents: dict[int, list[int]] = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(stat[1]), []).append(int(folder.name))
    wanted = [pid]
    while wanted:
        for child in parents.get(wanted.pop(), []):
            wanted.append(child)
            try:
                command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().decode()
            except OSError:
                continue
            if "pyspark.daemon" in command or "pyspark.sql.worker" in command:
                yield child, command


def high_water_mib(pid: int) -> float:
    """The maximum resident memory of a process; 0 if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


class Watch:
    """Samples the workers of a process until it ends."""

    def __init__(self, pid: int) -> None:
        self.peaks: dict[int, float] = {}
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for pid, _ in workers(self._pid):
                self.peaks[pid] = max(self.peaks.get(pid, 0.0), high_water_mib(pid))


def run_case(given: dict[str, object], kernel: str) -> dict[str, float]:
    """Run a case in a session of its own: seconds, rows, and the workers' memory."""
    session = subprocess.Popen(
        [sys.executable, str(SESSION), json.dumps(given)],
        env={**os.environ, "ODRADEK_KERNEL": kernel, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    watch = Watch(session.pid)
    try:
        output, _ = session.communicate()
    finally:
        watch.end()
    if session.returncode:
        raise click.ClickException(f"{given['case']}: ended with {session.returncode}")
    report = json.loads(output.splitlines()[-1])
    return {
        "rows": report["rows"],
        "seconds": round(report["seconds"], 1),
        "workers": len(watch.peaks),
        "peak_mib": round(max(watch.peaks.values()), 1),
    }


@click.command(help=__doc__)
@click.option("--gib", default=WHOLE_GIB, show_default=True, type=float)
@click.option("--case", default="", help="only cases with this in their name")
@click.option("--kernel", default="numpy", type=click.Choice(["numpy", "fast"]))
def main(gib: float, case: str, kernel: str) -> None:
    """Fill topics, run each case, print and append the results."""
    whole = int(gib * (1 << 30))
    say = Console()
    results: dict[str, dict[str, float]] = {}
    filled: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        properties = {"num.partitions": str(PARTITIONS), "message.max.bytes": str(8 << 20)}
        target = TARGETS["odradek"](pathlib.Path(folder) / "cluster", properties=properties)
        try:
            target.start()
            for name in [name for name in CASES if case in name]:
                topic = TOPICS.get(name, name.replace(" ", "-"))
                if name in TOPICS and topic not in filled:
                    begun_s = time.monotonic()
                    share = whole if topic == "backlog" else whole // 5
                    fill(target.bootstrap, topic, name, share)
                    filled.add(topic)
                    say.print(f"topic {topic}: {share / (1 << 30):.1f} GiB of values, "
                              f"{time.monotonic() - begun_s:.0f} s")  # fmt: skip
                given = {
                    "servers": target.bootstrap,
                    "topic": topic,
                    "case": name,
                    "records": whole // 5 // (1_000_000 if name == "write once" else 1_000),
                    "backlog": whole // 1_000,
                }
                results[name] = run_case(given, kernel)
                say.print(f"{name}: {results[name]}")
        finally:
            target.end()
    table = Table("case", "rows", "seconds", "workers", "peak MiB", "aim")
    for name, report in results.items():
        reached = "reached" if report["peak_mib"] < AIM_MIB else "missed"
        table.add_row(name, f"{report['rows']:,.0f}", *(str(report[key]) for key in
                      ("seconds", "workers", "peak_mib")), f"{AIM_MIB} {reached}")  # fmt: skip
    say.print(table)
    if gib >= WHOLE_GIB:
        line = {"kernel": kernel, "gib": gib, "machine": machine.describe(), "cases": results}
        keep_result("spark_memory", line)


if __name__ == "__main__":
    main()
