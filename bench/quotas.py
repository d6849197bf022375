"""Quotas: what clients get that try twice their quota, from our broker and from Apache Kafka's.

    ./run bench quotas [--case WORD] [--rounds 2] [--seconds 33]

Both brokers have the same options and quotas, and the same clients (librdkafka; Java where the name
says so). They run at the same time, and one after the other has the load, which no broker is busy
with. Each line is a figure and what the quota says that it should be:

    bytes        producers and consumers, for each of Kafka's eight levels at which a quota is set
    requests     request_percentage of the processor time, from clients that send small requests
    mutations    partitions created: those that a full bucket allows, and then the rate
    connections  made to the broker, to a listener and from an address

A rate holds on average over 11 windows of a second, so a client that tries twice as much gets that
for half of them, and nothing for the other half: three times 11 s have as much of either. Each
measurement of a broker appends one JSON line to bench/results/quotas.jsonl, except with --quick.
"""

import asyncio
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import click
from kit import apache, cases, fetch, machine, quota_clients, raw
from kit.quota_broker import LOGIN, Broker, Quota
from kit.results import keep_result
from rich.console import Console
from rich.table import Table

from odradek.security.acls import Requester
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

OTHER_HOST: Final = "127.0.0.3"
RATE: Final = 400_000
_API_VERSIONS: Final = 18


class Figure(NamedTuple):
    """What was measured, and what the quota says it should be."""

    name: str
    got: float
    quota: float


# -------------------------------------------------------------------------------- byte rates


class Load(NamedTuple):
    """Clients of one user that together try twice what a quota allows."""

    level: str
    user: str
    client_ids: tuple[str, ...]
    rate: float


def _both(rate: float) -> dict[str, float]:
    return {"producer_byte_rate": rate, "consumer_byte_rate": rate}


def _levels() -> Iterator[tuple[list[Quota], list[Load]]]:
    """Quotas at all eight levels, and the clients to which each applies.

    A level with the default user hides those below it: so they are measured one after the other.
    The quotas of the levels that are hidden are different ones.
    """
    hidden = _both(RATE * 3)
    specific: list[Quota] = [
        ({"user": "u1", "client-id": "app"}, _both(RATE)),
        ({"user": "u1", "client-id": None}, hidden),
        ({"user": "u1"}, hidden),
        ({"user": "u2", "client-id": None}, _both(RATE)),
        ({"user": "u2"}, hidden),
        ({"user": "u3"}, _both(RATE)),
        ({"user": "u4"}, _both(RATE)),
        ({"user": None, "client-id": "tool"}, _both(RATE)),
        ({"user": None, "client-id": None}, _both(RATE * 0.75)),
        ({"user": None}, hidden),
        ({"client-id": "app"}, hidden),
        ({"client-id": None}, hidden),
    ]
    yield (
        specific,
        [
            Load("user, client id", "u1", ("app",), RATE),
            Load("user, default client id", "u2", ("app",), RATE),
            Load("user", "u3", ("app",), RATE),
            Load("user, of two clients", "u4", ("app", "tool"), RATE),
            Load("default user, client id", "u5", ("tool",), RATE),
            Load("default user, default client id", "u6", ("app",), RATE * 0.75),
        ],
    )
    yield (
        [({"user": None}, _both(RATE)), ({"client-id": "app"}, hidden)],
        [Load("default user", "u7", ("app",), RATE)],
    )
    yield (
        [({"client-id": "app"}, _both(RATE)), ({"client-id": None}, _both(RATE * 0.75))],
        [
            Load("client id", "u8", ("app",), RATE),
            Load("default client id", "u9", ("tool",), RATE * 0.75),
        ],
    )


def byte_rates(broker: Broker, seconds: float) -> Iterator[Figure]:
    """Producers and consumers at each level."""
    for quotas, loads in _levels():
        clients = [
            {
                "user": load.user,
                "client_id": client_id,
                "does": does,
                "tries": 2 * load.rate / len(load.client_ids),
                "shares": f"{does}, {load.level}",
            }
            for load in loads
            for does in quota_clients.TOPICS
            for client_id in load.client_ids
        ]
        with broker.quotas(*quotas):
            arguments = [broker.address, str(seconds), json.dumps(clients)]
            rates = cases.run_kit("quota_clients", *arguments)
        got: dict[str, float] = {}
        for place, client in enumerate(clients):
            name = str(client["shares"])
            got[name] = got.get(name, 0.0) + rates[str(place)]
        for load in loads:
            for does in quota_clients.TOPICS:
                name = f"{does}, {load.level}"
                yield Figure(name, got[name], load.rate)


def java_byte_rate(broker: Broker, seconds: float) -> Iterator[Figure]:
    """kafka-producer-perf-test, as long as its records take at the quota."""
    records = int(RATE * seconds / 1_000)
    jaas = f'{LOGIN} username="u1" password="{quota_clients.password("u1")}";'
    options = [
        f"bootstrap.servers={broker.address}",
        "client.id=app",
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        f"sasl.jaas.config={jaas}",
        "batch.size=65536",
    ]
    with broker.quotas(({"user": "u1"}, _both(RATE))), tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(options))
        file.flush()
        command = fetch.java(
            apache.LINE, "org.apache.kafka.tools.ProducerPerformance",
            "--topic", quota_clients.TOPICS["produce"], "--num-records", str(records),
            "--record-size", "1000", "--throughput", str(2 * RATE // 1_000),
            "--producer.config", file.name,
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    summary = done.stdout.strip().splitlines()[-1]
    found = re.search(r"^(\d+) records sent, ([\d.]+) records/sec", summary)
    if found is None or int(found[1]) != records:
        raise RuntimeError(f"ProducerPerformance ends with: {summary}")
    yield Figure("produce, user, Java", float(found[2]) * 1_000, RATE)


# ------------------------------------------------------------------------ requests' time


def requests(broker: Broker, seconds: float) -> Iterator[Figure]:
    """The broker's processor time while 16 clients send small requests, as a percentage."""
    _small_requests(broker, 5)
    for percentage in (10.0, 40.0):
        idle = _processor_share(broker, lambda: time.sleep(5))
        with broker.quotas(({"user": "ANONYMOUS"}, {"request_percentage": percentage})):
            used = _processor_share(broker, partial(_small_requests, broker, seconds))
        yield Figure(f"request_percentage {percentage:g}", used - idle, percentage)


def _small_requests(broker: Broker, seconds: float) -> None:
    arguments = [broker.plain, f"small-{time.time_ns()}", "1", "16", "1", str(seconds)]
    cases.run_kit("small_requests", *arguments)


def _processor_share(broker: Broker, load: Callable[[], object]) -> float:
    before, began_s = machine.cpu_time([broker.pid]), time.monotonic()
    load()
    used = machine.cpu_time([broker.pid]) - before
    return used.total_s / (time.monotonic() - began_s) * 100


# -------------------------------------------------------------------------- partitions made


def mutations(broker: Broker, seconds: float) -> Iterator[Figure]:
    """A client that creates topics at twice its rate; the full bucket has 11 seconds' worth."""
    rate = 2.0
    # Two users, so that what the first one has taken does not count for the second.
    for user, version, how in (("u1", 7, "refused"), ("u2", 5, "throttled")):
        with broker.quotas(({"user": user}, {"controller_mutation_rate": rate})):
            made = asyncio.run(_create_topics(broker, user, version, 2 * rate, seconds))
        yield Figure(f"partitions created, {how} (v{version})", made, rate * (seconds + 11))


async def _create_topics(
    broker: Broker, user: str, version: int, tries: float, seconds: float
) -> int:
    world, client = broker.client(), Requester(f"User:{user}", apache.HOST)
    made, number, began_s = 0, 0, time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        if number > elapsed_s * tries:
            await asyncio.sleep(0.01)
            continue
        number += 1
        topic = CreatableTopic(
            name=f"made-{time.time_ns()}", num_partitions=1, replication_factor=1
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = await world.ask(client, request, version)
        made += not answer.topics[0].error_code
    world.close()
    return made


# ------------------------------------------------------------------------------ connections


def connections(broker: Broker, seconds: float) -> Iterator[Figure]:
    """Connections that are served, of twice as many that are made."""
    rate = 10
    name = "max.connection.creation.rate"
    made = partial(_connect, broker, 2.0 * rate, seconds)
    with broker.option(name, rate):
        yield Figure("connections, broker", asyncio.run(made()), rate * seconds)
    with broker.option(f"listener.name.users.{name}", rate):
        yield Figure("connections, listener", asyncio.run(made()), rate * seconds)
    with broker.quotas(({"ip": OTHER_HOST}, {"connection_creation_rate": rate})):
        served = asyncio.run(made(host=OTHER_HOST))
        yield Figure("connections, address", served, rate * seconds)


async def _connect(broker: Broker, tries: float, seconds: float, *, host: str = apache.HOST) -> int:
    """How many connections answer ApiVersions within the time."""
    served, began_s = 0, time.monotonic()

    async def one() -> None:
        nonlocal served
        try:
            reader, writer = await asyncio.open_connection(
                apache.HOST, broker.port, local_addr=(host, 0)
            )
            writer.write(raw.frame(_API_VERSIONS, 0, b""))
            await reader.readexactly(4)
            writer.close()
        except (OSError, EOFError):
            return
        served += time.monotonic() - began_s < seconds

    tasks = set()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        if len(tasks) <= elapsed_s * tries:
            tasks.add(asyncio.create_task(one()))
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    return served


# ---------------------------------------------------------------------------------- results

CASES: Final[dict[str, Callable[[Broker, float], Iterator[Figure]]]] = {
    "bytes": byte_rates,
    "java bytes": java_byte_rate,
    "requests": requests,
    "mutations": mutations,
    "connections": connections,
}


@contextmanager
def both() -> Iterator[list[Broker]]:
    """Our broker and Apache Kafka's."""
    brokers: list[Broker] = []
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        try:
            brokers.append(Broker(pathlib.Path(folder) / "ours", ours=True))
            brokers.append(Broker(pathlib.Path(folder) / "kafkas", ours=False))
            yield brokers
        finally:
            for broker in brokers:
                broker.stop()


def table(found: dict[str, dict[str, list[Figure]]]) -> Table:
    """The medians of all rounds, as shares of the quota."""
    out = Table("figure", "quota", "ours", "Kafka", "ours / quota", "Kafka / quota")
    ours, kafkas = found["odradek"], found["kafka"]
    for name, figures in ours.items():
        quota = figures[0].quota
        middle = [statistics.median(each.got for each in of[name]) for of in (ours, kafkas)]
        shares = (f"{value / quota:.3f}" for value in middle)
        out.add_row(name, f"{quota:,.0f}", *(f"{value:,.0f}" for value in middle), *shares)
    return out


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--case", "words", multiple=True, help="Only the cases whose name has this in it.")
@click.option("--rounds", default=2, show_default=True, help="How often each is measured.")
@click.option("--seconds", default=33.0, show_default=True, help="How long each load runs.")
@click.option("--quick", is_flag=True, help="Once, for two seconds: does it work at all?")
def main(*, words: tuple[str, ...], rounds: int, seconds: float, quick: bool) -> None:
    """Measure, append to the results, print the table."""
    say = Console()
    if not say.is_terminal:
        say.width = 130
    if quick:
        rounds, seconds = 1, 2.0
    described = machine.describe()
    found: dict[str, dict[str, list[Figure]]] = {}
    with both() as brokers:
        for number in range(rounds):
            for case in (name for name in CASES if not words or any(w in name for w in words)):
                for broker in brokers[:: -1 if number % 2 else 1]:
                    figures = list(CASES[case](broker, seconds))
                    for figure in figures:
                        of_broker = found.setdefault(broker.name, {})
                        of_broker.setdefault(figure.name, []).append(figure)
                        say.print(f"  {broker.name}: {figure}")
                    if not quick:
                        _append(case, broker.name, figures, seconds, described)
    say.print(table(found))


def _append(
    case: str, name: str, figures: list[Figure], seconds: float, described: dict[str, Any]
) -> None:
    line = {
        "case": case,
        "broker": name,
        "seconds": seconds,
        "figures": [figure._asdict() for figure in figures],
        "machine": described,
    }
    keep_result("quotas", line)


if __name__ == "__main__":
    main()
