"""A broker is killed or stopped: how long clients get no acknowledgement, record or commit.

    ./run bench failover [--partitions 1000] [--runs 3] [--case WORD] [--only odradek|kafka]
                         [--store zookeeper] [--quick] [--client CLIENT]

Three brokers, replication factor 3, min.insync.replicas 2; each case on a cluster of its own:

    leader killed        kill -9 of a broker that leads one partition and is not the controller
    leader stopped       SIGTERM of such a broker (controlled shutdown)
    controller killed    kill -9 of the controller, which leads a third of 1,000 partitions
    controller stopped   SIGTERM of the controller
    coordinator killed   kill -9 of the coordinator of the client's group or transactional id, which
                         neither is the controller nor leads a partition that the client uses
    coordinator stopped  SIGTERM of such a broker

The figure is the longest time between two acknowledgements, of the partition or of sixteen of
those that the broker led, by producers that send one record after the other and retry; or by
a client's producer with its own defaults (`--client`). Clients named `-consumer` are members of a
group and commit every 50 ms: their figures are the longest time between two records of one of the
three partitions, which are all written to, and between two commits. `java-transactional` commits a
transaction every few milliseconds. The cases of a coordinator are played with these clients alone.
For a kill the figure includes the time
until the failure is detected: with ZooKeeper the session's time-out, 6 s here; with our embedded
store the end of a socket. `--store` selects Odradek's store. `--quick` makes one run of each case.

One JSON line for each run is appended to
bench/results/failover.jsonl.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click
from kit import ROOT, apache, fetch, machine, raw
from kit.results import keep_result
from kit.targets import STORES, TARGETS, Target, target_of

BROKERS = 3
PROBED = 16
SETTLE_S = 12.0  # long enough for the outage to end and for producers to write again
PROPERTIES = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "6000"}
_TIMEOUT_S = 300.0


class Case(NamedTuple):
    """Which broker is ended, and how."""

    name: str
    signal: signal.Signals
    controller: bool = False
    coordinator: bool = False

    @property
    def many(self) -> bool:
        """Whether the topic has many partitions."""
        return self.controller


class Client(NamedTuple):
    """A client under measurement."""

    command: Callable[[list[str]], list[str]]
    key_type: int | None = None  # of the coordinator that it uses, as in FindCoordinator
    reads: bool = False  # what another process writes

    @property
    def has_coordinator(self) -> bool:
        """Whether it is a member of a group, or has a transactional id."""
        return self.key_type is not None


GROUP, TRANSACTIONAL_ID = 0, 1


def _module(*name: str) -> Callable[[list[str]], list[str]]:
    return lambda arguments: [sys.executable, "-m", *name, *arguments]


def _java(program: str) -> Callable[[list[str]], list[str]]:
    source = ROOT / "bench" / "kit" / f"{program}.java"
    return lambda arguments: fetch.java_class(apache.LINE, source, *arguments, heap="256M")


def _franz_go(arguments: list[str]) -> list[str]:
    return [str(fetch.go_program(fetch.HERE / "franz_go")), arguments[0], "outage", *arguments[1:]]


def _kafkajs(arguments: list[str]) -> list[str]:
    source = fetch.HERE / "kafkajs"
    modules = fetch.node_modules(source)
    return ["env", f"NODE_PATH={modules}", "node", str(source / "outage.js"), *arguments]


WRITER = _module("kit.outage")
CLIENTS: dict[str, Client] = {
    "raw": Client(WRITER),
    "librdkafka": Client(_module("kit.librdkafka_outage")),
    "java": Client(_java("ProducerOutage")),
    "java-transactional": Client(_java("ProducerOutage"), TRANSACTIONAL_ID),
    "java-consumer": Client(_java("ConsumerOutage"), GROUP, reads=True),
    "franz-go": Client(_franz_go),
    "kafkajs": Client(_kafkajs),
    **{name: Client(_module("kit.python_outage", name)) for name in ("aiokafka", "kafka-python")},
    **{
        name: Client(_module("kit.python_outage", name), GROUP, reads=True)
        for name in ("librdkafka-consumer", "aiokafka-consumer", "kafka-python-consumer")
    },
}

CASES = (
    Case("leader killed", signal.SIGKILL),
    Case("leader stopped", signal.SIGTERM),
    Case("controller killed", signal.SIGKILL, controller=True),
    Case("controller stopped", signal.SIGTERM, controller=True),
    Case("coordinator killed", signal.SIGKILL, coordinator=True),
    Case("coordinator stopped", signal.SIGTERM, coordinator=True),
)


def measure(
    home: pathlib.Path, kind: str, store: str, case: Case, partitions: int, client: str
) -> dict[str, float]:
    """One run on a cluster of its own."""
    target: Target = target_of(kind, store)(home / kind, brokers=BROKERS, properties=PROPERTIES)
    try:
        target.start()
        return _measure(target, case, partitions, client)
    finally:
        target.end()


def _measure(target: Target, case: Case, partitions: int, name: str) -> dict[str, float]:
    client = CLIENTS[name]
    addresses = target.bootstrap.split(",")
    seen = raw.metadata(addresses[0])
    ids = sorted(seen.brokers)
    controller = addresses[ids.index(seen.controller)]
    raw.create_topic(controller, "load", partitions, replication=BROKERS, timeout_s=_TIMEOUT_S)
    leaders = raw.metadata(controller, ["load"]).topics["load"].leaders
    victim = seen.controller
    if not case.controller:
        victim = next(leader for leader in leaders if leader != seen.controller)
    probed = [
        p
        for p, leader in enumerate(leaders)
        if (leader == victim) != case.coordinator or (client.reads and not case.coordinator)
    ][: PROBED if case.many else BROKERS if client.reads else 1]
    arguments = [target.bootstrap, "load", ",".join(map(str, probed))]
    own = []
    if client.key_type is not None:
        own.append(_key(controller, client.key_type, victim, has_to_be=case.coordinator))
    pid = target.pids()[ids.index(victim)]
    writers = [_start(WRITER(arguments))] if client.reads else []
    measured = _start(client.command([*arguments, *own]))
    time.sleep(1.0)
    os.kill(pid, case.signal)
    gone_s = _until_gone(pid)
    time.sleep(SETTLE_S)
    report, _ = measured.communicate("", timeout=90)
    for writer in writers:
        writer.communicate("", timeout=60)
    gaps_ms = json.loads(report)["gaps_ms"]
    commits = {"commit_gap_ms": gaps_ms.pop("commits")} if client.reads else {}
    return {"longest_gap_ms": max(gaps_ms.values()),
            "median_gap_ms": statistics.median(gaps_ms.values()),
            **commits, "process_gone_s": gone_s}  # fmt: skip


def _key(address: str, key_type: int, broker: int, *, has_to_be: bool) -> str:
    """A group or transactional id whose coordinator is this broker, or another one."""
    keys = (f"outage-{number}" for number in range(1_000))
    return next(
        key for key in keys if (raw.find_coordinator(address, key, key_type) == broker) == has_to_be
    )


def _start(command: list[str]) -> "subprocess.Popen[str]":
    """Start a client, and wait until it has reached all that it uses."""
    client = subprocess.Popen(
        command,
        cwd=ROOT / "bench",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    if client.stdout.readline() != "ready\n":
        raise RuntimeError(f"{command[0]} did not come up")
    return client


def _until_gone(pid: int) -> float:
    """Seconds until a process has ended, even if it is not waited for (a zombie process)."""
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < _TIMEOUT_S:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            break
        if state == "Z":
            break
        time.sleep(0.01)
    return time.monotonic() - begun_s


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--partitions", default=1_000, show_default=True, help="In the controller's cases.")
@click.option("--runs", default=3, show_default=True, help="Runs of each case and target.")
@click.option("--case", "word", default="", help="Only the cases whose name has this in it.")
@click.option("--only", type=click.Choice(list(TARGETS)), help="Measure one target alone.")
@click.option(
    "--store",
    type=click.Choice(list(STORES)),
    default="embedded",
    show_default=True,
    help="What coordinates ours.",
)
@click.option("--quick", is_flag=True, help="One run of each case with 100 partitions.")
@click.option("--client", type=click.Choice(list(CLIENTS)), default="raw", show_default=True)
def main(  # noqa: PLR0913 - its options
    *,
    partitions: int,
    runs: int,
    word: str,
    only: str | None,
    store: str,
    quick: bool,
    client: str,
) -> None:
    """Measure, append to the results, print."""
    if quick:
        partitions, runs = min(partitions, 100), 1
    kinds = [only] if only else list(TARGETS)
    if "kafka" in kinds:
        try:
            fetch.jars(apache.LINE)
        except fetch.UnavailableError as error:
            raise click.ClickException(str(error)) from None
    # Deleted at the end: see many_partitions.
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        for number, case in enumerate(CASES):
            if word in case.name and (CLIENTS[client].has_coordinator or not case.coordinator):
                home = pathlib.Path(folder) / str(number)
                count = partitions if case.many else BROKERS
                measured = _measure_all(home, kinds, store, case, count, client, runs)
                for kind, found in measured.items():
                    _print(case, target_of(kind, store).name, found)


def _measure_all(  # noqa: PLR0913, PLR0917 - what is measured
    home: pathlib.Path,
    kinds: list[str],
    store: str,
    case: Case,
    partitions: int,
    client: str,
    runs: int,
) -> dict[str, list[dict[str, float]]]:
    figures: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for run in range(runs):
        for kind in kinds if run % 2 == 0 else reversed(kinds):
            before = machine.describe()
            found = measure(home / str(run), kind, store, case, partitions, client)
            figures[kind].append(found)
            result: dict[str, Any] = {
                "run": run + 1,
                "target": target_of(kind, store).name,
                "case": case.name,
                "client": client,
                "partitions": partitions,
                **{key: round(value, 3) for key, value in found.items()},
                "machine": before,
            }
            keep_result("failover", result)
    return figures


def _print(case: Case, target: str, runs: list[dict[str, float]]) -> None:
    gaps = [each["longest_gap_ms"] for each in runs]
    commits = [each["commit_gap_ms"] for each in runs if "commit_gap_ms" in each]
    ended = [each["process_gone_s"] for each in runs]
    of_commits = (
        f"; of commits {statistics.median(commits):,.0f} ms"
        f" (min {min(commits):,.0f}, max {max(commits):,.0f})"
        if commits
        else ""
    )
    print(
        f"{case.name:20} {target:20} longest gap {statistics.median(gaps):8,.0f} ms"
        f" (min {min(gaps):,.0f}, max {max(gaps):,.0f}){of_commits}; process ended after"
        f" {statistics.median(ended):.2f} s"
    )


if __name__ == "__main__":
    main()
