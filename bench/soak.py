"""Three brokers, real clients and faults for hours: no record lost or duplicated, no growth.

    ./run bench soak [--minutes 120] [--store embedded|zookeeper] [--rate 200] [--seed 1]
                     [--pause 15] [--keep DIR]

Real processes on loopback: three brokers, a ZooKeeper where `--store` asks for one, librdkafka's
idempotent and transactional producers and a group of its consumers, our own producer and a group of
ours that copies a topic in transactions, and administration that moves replicas, elects leaders,
creates topics and deletes them. Meanwhile brokers are killed, paused, stopped and restarted in
turn, and ZooKeeper is killed. Each load writes `--rate` records a second.

At the end all brokers run and everything is compared: every acknowledged record exists once and in
order, committed transactions are complete, aborted ones are not read, the group has read every
record, the copy equals the source, replicas are equal byte by byte, no broker's log has a stack
trace. The process of each broker that ran longest is checked for growth of memory, files, threads,
if it ran for 50 minutes: at each time one broker is only paused, for at least an hour
(kit/soak_plan.py), so that 60 minutes check broker 1 and 180 minutes check all three.

One JSON line a run is appended to bench/results/soak_processes.jsonl. Exit code 1 if anything is
wrong; the brokers' logs and the list of faults are then kept in the directory of the last line.
"""

import asyncio
import hashlib
import json
import pathlib
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from confluent_kafka.admin import AdminClient
from kit import ensemble, machine, mixed, raw
from kit.results import keep_result
from kit.soak_faults import Faults
from kit.soak_loads import (
    PARTITIONS,
    Copiers,
    Ledger,
    NativeNumbered,
    Operators,
    OurNumbered,
    Readers,
    restore,
)
from kit.soak_pace import Clients
from kit.soak_watch import Watch

NUMBERS = (1, 2, 3)
SOURCE, OWN, LEDGER, COPY = TOPICS = ["idempotent", "own", "ledger", "copied"]
READY_S = 120.0
HEAL_S = 300.0
TRACES = ("Traceback (most recent call last)", "was never retrieved", "was never awaited")
OPTIONS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "log.segment.bytes": str(64 * 2**20),
}


@contextmanager
def cluster(home: pathlib.Path, store: str) -> Iterator[tuple[dict[int, mixed.OurBroker], Any]]:
    """Three brokers that serve, and the ZooKeeper they use, if any."""
    zookeeper = ensemble.Ensemble(home / "zookeeper", 1) if store == "zookeeper" else None
    options = OPTIONS if zookeeper else {**OPTIONS, "odradek.store.path": str(home / "store.db")}
    address = zookeeper.address if zookeeper else None
    brokers = {n: mixed.OurBroker(home / f"broker-{n}", address, n, options) for n in NUMBERS}
    try:
        for broker in brokers.values():
            broker.start()
        for broker in brokers.values():
            raw.wait_for_brokers(broker.address, len(brokers), timeout_s=READY_S)
        yield brokers, zookeeper
    finally:
        for broker in brokers.values():
            broker.end()
        if zookeeper is not None:
            zookeeper.close()


def store_restarter(zookeeper: Any) -> Callable[[float], None] | None:
    """A function that kills the ZooKeeper server and restarts it some seconds later."""
    if zookeeper is None:
        return None
    (server,) = zookeeper.servers

    def restart(away_s: float) -> None:
        server.kill()
        time.sleep(away_s)
        server.start()
        server.wait()

    return restart


def run(  # noqa: PLR0913 - the options of the command
    home: pathlib.Path,
    store: str,
    row: dict[str, Any],
    *,
    duration_s: float,
    rate: float,
    seed: int,
    pause_s: float,
) -> None:
    """Run one soak. Its figures are in `row`, also if a comparison fails.

    Raises:
        Exception: a check failed, the cluster does not recover, or a load has ended by itself.
    """
    with cluster(home, store) as (brokers, zookeeper):
        clients = Clients(",".join(broker.address for broker in brokers.values()))
        for topic in TOPICS:
            raw.create_topic(brokers[1].address, topic, PARTITIONS, replication=len(brokers))
        loads = {
            "acknowledged": NativeNumbered(clients, SOURCE, rate),
            "acknowledged to ours": OurNumbered(clients, OWN, rate),
            "transactions": Ledger(clients, LEDGER, rate),
            "transactions of copiers": Copiers(clients, SOURCE, COPY),
        }
        readers = Readers(clients, SOURCE)
        operators = Operators(clients.bootstrap, TOPICS, list(NUMBERS), pause_s=20.0)
        workers = [*loads.values(), readers, operators]
        faults = Faults(
            brokers, store_restarter(zookeeper), seed=seed, duration_s=duration_s, pause_s=pause_s
        )
        watch = Watch(lambda: {f"broker {n}": broker.pid for n, broker in brokers.items()})
        for worker in workers:
            worker.start()
        stopped: set[int] = set()
        try:
            faults.run(lambda: must_live(workers))
            say("the faults are over: waiting for all replicas to be in sync")
            stop(operators, stopped)
            heal(clients, brokers)
            for worker in workers:
                say(f"ending {type(worker).__name__}")
                stop(worker, stopped)
        finally:
            (home / "story.txt").write_text("\n".join(faults.story) + "\n")
            watch.stop()
            for worker in workers:
                worker_ended(worker)
        row |= {
            "faults": dict(sorted(faults.counts.items())),
            "operators": dict(sorted(operators.counts.items())),
            **{name: load.count for name, load in loads.items()},
            "unsure transactions": loads["transactions"].outcomes.count("unsure"),
            "clients that did not end": clients.abandoned,
            "growth": {n: found.growth() for n, found in sorted(watch.longest().items())},
        }
        say("comparing what is there with what was acknowledged")
        heal(clients, brokers)
        for load in loads.values():
            load.check()
        readers.check()
        for broker in brokers.values():
            broker.stop()
        say("comparing replicas")
        compare_replicas(home)
        compare_logs(home)


def say(what: str) -> None:
    """Print a line of progress."""
    click.echo(f"{time.strftime('%H:%M:%S')} {what}", err=True)


def stop(worker: Any, stopped: set[int]) -> None:
    """Stop a load once."""
    if id(worker) not in stopped:
        stopped.add(id(worker))
        worker.stop()


def must_live(workers: list[Any]) -> None:
    """Raise the error that has ended one of the loads, if one has."""
    for worker in workers:
        for each in getattr(worker, "members", [worker]):
            each.must_live()


def worker_ended(worker: Any) -> None:
    """End a load's threads after a failure."""
    for each in getattr(worker, "members", [worker]):
        each.ended.set()


def heal(clients: Clients, brokers: dict[int, mixed.OurBroker]) -> None:
    """Give every partition three replicas again, and wait until all are in sync."""
    asyncio.run(restore(clients.bootstrap, TOPICS, list(NUMBERS)))
    admins = [AdminClient({"bootstrap.servers": clients.bootstrap})]

    def in_sync() -> bool:
        seen = admins[0].list_topics(timeout=30).topics
        return all(
            len(seen[topic].partitions) == PARTITIONS
            and all(set(p.isrs) == set(brokers) for p in seen[topic].partitions.values())
            for topic in TOPICS
        )

    try:
        mixed.until("all replicas are in sync", in_sync, timeout_s=HEAL_S)
    finally:
        clients.close("admin client", admins.clear)


def compare_replicas(home: pathlib.Path) -> None:
    """Check that all replicas of a partition have the same bytes.

    Raises:
        AssertionError: two differ.
    """
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            sums = {n: digest(home / f"broker-{n}/data/{topic}-{partition}") for n in NUMBERS}
            assert len(set(sums.values())) == 1, f"replicas of {topic}-{partition} differ: {sums}"


def digest(log: pathlib.Path) -> str:
    """The digest of a log's segments, concatenated."""
    found = hashlib.sha256()
    for segment in sorted(log.glob("*.log")):
        with segment.open("rb") as file:
            while chunk := file.read(2**20):
                found.update(chunk)
    return found.hexdigest()[:16]


def compare_logs(home: pathlib.Path) -> None:
    """Check that no broker logged a stack trace.

    Raises:
        AssertionError: its log has a stack trace.
    """
    for number in NUMBERS:
        lines = (home / f"broker-{number}/broker.log").read_text(errors="replace").splitlines()
        for at, line in enumerate(lines):
            if any(trace in line for trace in TRACES):
                around = "\n".join(lines[max(0, at - 2) : at + 30])
                raise AssertionError(f"broker {number} logged a stack trace:\n{around}")


@click.command()
@click.option("--minutes", default=120.0, show_default=True, help="How long faults go on.")
@click.option("--store", type=click.Choice(["embedded", "zookeeper"]), default="embedded")
@click.option("--rate", default=200.0, show_default=True, help="Records a second of each load.")
@click.option("--seed", default=1, show_default=True, help="Decides the order of faults.")
@click.option("--pause", "pause_s", default=15.0, show_default=True, help="Seconds between faults.")
@click.option(
    "--keep", type=click.Path(path_type=pathlib.Path), help="The directory of the brokers."
)
def main(
    minutes: float, store: str, rate: float, seed: int, pause_s: float, keep: pathlib.Path | None
) -> None:
    """Run one soak, print and append its result."""
    home = keep or pathlib.Path(tempfile.mkdtemp(prefix="odradek-soak-"))
    row: dict[str, Any] = {
        **machine.describe(), "store": store,
        "minutes": minutes, "rate": rate, "seed": seed,
    }  # fmt: skip
    say(f"{store}: {minutes:g} minutes, in {home}")
    try:
        run(home, store, row, duration_s=minutes * 60, rate=rate, seed=seed, pause_s=pause_s)
    except Exception as error:  # also a load's own: the run has its row in any case
        traceback.print_exc()
        row["failed"] = f"{type(error).__name__}: {error}"[:1000]
    growing = {name: found["grows"] for name, found in row.get("growth", {}).items()}
    if any(growing.values()) and "failed" not in row:
        row["failed"] = f"grows: {growing}"
    keep_result("soak_processes", row)
    click.echo(json.dumps(row, indent=2))
    if "failed" in row:
        click.echo(f"what brokers logged, and story.txt: {home}", err=True)
        sys.exit(1)
    if keep is None:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
