"""A topic of a thousand partitions: the time until every broker has every leader.

    ./run bench many_partitions [--partitions 1000] [--runs 3] [--only odradek|kafka]
                                [--store zookeeper]

Three brokers, replication factor 3; Odradek with its embedded store, or with ZooKeeper. Measured
are, from the request to create the topic, the times to its response, and until each of the three
brokers' metadata has a leader for each partition; then of the deletion, until its response and
until no broker has the topic. One JSON line for each run is appended to
bench/results/many_partitions.jsonl.

The files of all runs are deleted at the end: ext4 does not reuse an inode that was deleted in the
last minutes, and creating a file has to skip all of these. A run after the deletion of another
run's files took three times as long, with either target.
"""

import pathlib
import statistics
import tempfile
import threading
import time
from typing import Any

import click
from kit import apache, fetch, machine, raw
from kit.results import keep_result
from kit.targets import STORES, TARGETS, Target, target_of

BROKERS = 3
_TIMEOUT_S = 300.0


def measure(home: pathlib.Path, kind: str, store: str, partitions: int) -> dict[str, float]:
    """One run on a cluster of its own: seconds."""
    target: Target = target_of(kind, store)(home / kind, brokers=BROKERS)
    try:
        target.start()
        raw.create_topic(_controller(target), "first", 1, replication=BROKERS)
        before = machine.cpu_time(target.pids())
        begun_s = time.monotonic()
        seen: dict[str, float] = {}
        watchers = [
            threading.Thread(target=_wait_until_led, args=(address, partitions, seen, begun_s))
            for address in target.bootstrap.split(",")
        ]
        for watcher in watchers:
            watcher.start()
        _create(target, partitions)
        answered_s = time.monotonic() - begun_s
        for watcher in watchers:
            watcher.join()
        used = machine.cpu_time(target.pids()) - before
        begun_s = time.monotonic()
        _delete(target)
        return {
            "create_answered_s": answered_s,
            "all_leaders_known_s": max(seen.values()),
            "create_cpu_s": used.total_s,
            "create_system_cpu_s": used.system_s,
            "delete_s": time.monotonic() - begun_s,
            "rss_mib": machine.rss_mib(target.pids()) / BROKERS,
        }
    finally:
        target.end()


def _create(target: Target, partitions: int) -> None:
    raw.create_topic(_controller(target), "many", partitions, replication=BROKERS,
                     timeout_s=_TIMEOUT_S)  # fmt: skip


def _delete(target: Target) -> None:
    raw.delete_topic(_controller(target), "many", timeout_s=_TIMEOUT_S)
    for address in target.bootstrap.split(","):
        while raw.metadata(address, ["many"]).topics["many"].leaders:
            time.sleep(0.02)


def _controller(target: Target) -> str:
    """The controller's address; broker ids are 0, 1, 2 in the order of the list, or 1, 2, 3."""
    addresses = target.bootstrap.split(",")
    seen = raw.metadata(addresses[0])
    return addresses[sorted(seen.brokers).index(seen.controller)]


def _wait_until_led(address: str, partitions: int, seen: dict[str, float], begun_s: float) -> None:
    deadline_s = begun_s + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        leaders = raw.metadata(address, ["many"]).topics["many"].leaders
        if len(leaders) == partitions and min(leaders) >= 0:
            seen[address] = time.monotonic() - begun_s
            return
        time.sleep(0.05)
    raise TimeoutError(f"{address}: not all partitions have leaders")


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--partitions", default=1_000, show_default=True, help="Of the topic.")
@click.option("--runs", default=3, show_default=True, help="Runs of each target.")
@click.option("--only", type=click.Choice(list(TARGETS)), help="Measure one target alone.")
@click.option(
    "--store",
    type=click.Choice(list(STORES)),
    default="embedded",
    show_default=True,
    help="What coordinates ours.",
)
def main(*, partitions: int, runs: int, only: str | None, store: str) -> None:
    """Measure, append to the results, print."""
    kinds = [only] if only else list(TARGETS)
    if "kafka" in kinds:
        try:
            fetch.jars(apache.LINE)
        except fetch.UnavailableError as error:
            raise click.ClickException(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        results = _measure_all(pathlib.Path(folder), kinds, store, partitions, runs)
    for kind, runs_of_it in results.items():
        name = target_of(kind, store).name
        print(f"{name}: {partitions:,} partitions, replication factor {BROKERS}")
        for key in runs_of_it[0]:
            values = [figures[key] for figures in runs_of_it]
            label, _, unit = key.rpartition("_")
            print(
                f"  {label.replace('_', ' '):20} {statistics.median(values):8.2f} {unit}"
                f"   (min {min(values):.2f}, max {max(values):.2f})"
            )


def _measure_all(
    folder: pathlib.Path, kinds: list[str], store: str, partitions: int, runs: int
) -> dict[str, list[dict[str, float]]]:
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for run in range(runs):
        for kind in kinds if run % 2 == 0 else reversed(kinds):
            before = machine.describe()
            figures = measure(folder / str(run), kind, store, partitions)
            results[kind].append(figures)
            result: dict[str, Any] = {
                "run": run + 1,
                "target": target_of(kind, store).name,
                "partitions": partitions,
                **{key: round(value, 3) for key, value in figures.items()},
                "machine": before,
            }
            keep_result("many_partitions", result)
    return results


if __name__ == "__main__":
    main()
