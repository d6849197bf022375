"""What security costs: brokers with it beside a broker without, under the same load.

    ./run bench secure [--case WORD] [--rounds 4] [--seconds 3]

Case `authorizer`: a broker without an authorizer, and brokers that enforce 1, 100 and 10,000 ACLs.
All run at the same time and only one has load. Each load on a broker with ACLs is measured between
two on the broker without, and the ratio is to their mean, so that other work on the machine affects
both. A request is a Produce of one record of 100 bytes; a large one has 64 KiB of them. The time of
a processor for each request is less affected by other work than the requests a second are.

Case `transport`: our broker and Apache Kafka's, over SASL_SSL with SCRAM against PLAINTEXT: the
share of the throughput that is left, and how many times the processor time of the broker grows.

Case `logins`: a storm of a thousand TLS handshakes with SCRAM log-ins, fifty at once: how many a
second, the broker's processor time for each (with that of another client, which sends one small
request after the other), and the other client's p99.

One JSON line is appended to bench/results/secure.jsonl, except with --quick.
"""

import asyncio
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import click
from kit import cases, machine, mixed, secured_cases
from kit.results import keep_result
from rich.console import Console
from rich.table import Table

from odradek.broker.admin.acls import ACL_AUTHORIZER
from odradek.cli.store import opened_store
from odradek.coord.layout_security import acl_path, encode_acls
from odradek.coord.store import Create
from odradek.model.acl import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)

ACLS = (1, 100, 10_000)
AT_ONCE = 1_000
CLIENT = "User:ANONYMOUS"
# The loss of requests a second, or the growth of processor time, that is allowed.
LOSS_MAX = 0.03


def bindings(count: int) -> list[Binding]:
    """ACLs on topics: the first one allows what the load does, the others are of other users."""

    def binding(kind: ResourceType, name: str, principal: str, *, prefixed: bool) -> Binding:
        entry = AclEntry(principal, "*", AclOperation.ALL, allowed=True)
        return Binding(ResourcePattern(kind, name, prefixed), entry)

    others = (
        binding(ResourceType.TOPIC, f"other-{n}", f"User:u{n}", prefixed=n % 2 == 0)
        for n in range(count - 1)
    )
    own = binding(ResourceType.TOPIC, "load", CLIENT, prefixed=True)
    cluster = binding(ResourceType.CLUSTER, CLUSTER_NAME, CLIENT, prefixed=False)
    return [own, cluster, *others]


class Broker:
    """One broker, with as many ACLs on topics; 0: without an authorizer."""

    def __init__(self, home: pathlib.Path, acls: int) -> None:
        self.name = f"{acls:,} ACL{'s' * (acls != 1)}" if acls else "off"
        store = home / "coordination.db"
        home.mkdir()
        properties = {"odradek.store.path": str(store)}
        if acls:
            store.touch()
            asyncio.run(_create(store, acls))
            properties |= {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:admin"}
        properties |= {"offsets.topic.replication.factor": "1"}
        self._broker = mixed.OurBroker(home / "broker", None, 0, properties)
        self._broker.start()
        self.bootstrap = self._broker.address
        self.start_s = 0.0

    def pids(self) -> list[int]:
        return [self._broker.pid]

    def end(self) -> None:
        self._broker.end()


async def _create(store: pathlib.Path, count: int) -> None:
    nodes = {acl_path(pattern): encode_acls([entry]) for pattern, entry in bindings(count)}
    async with opened_store(str(store)) as opened:
        for parent in {path.rpartition("/")[0] for path in nodes}:
            await opened.create(parent, make_parents=True)
        paths = list(nodes)
        for begin in range(0, len(paths), AT_ONCE):
            some = paths[begin : begin + AT_ONCE]
            await opened.multi([Create(path, nodes[path]) for path in some])


def small(broker: Broker, topic: str, seconds: float) -> dict[str, float]:
    sizes = cases.Sizes(small_seconds=seconds)
    figures = cases.small_requests(broker, topic, sizes, connections=16, depth=1)  # type: ignore[arg-type]
    return {
        "a_second": figures["requests_per_s"],
        "cpu_us": figures["broker_us_per_request"],
    }


def produce(broker: Broker, topic: str, seconds: float) -> dict[str, float]:
    sizes = cases.Sizes(native_records=int(seconds * 1_000_000))
    figures = cases.native_produce(broker, topic, sizes, partitions=6, acks="1")  # type: ignore[arg-type]
    return {
        "a_second": figures["records_per_s"],
        "cpu_us": figures["broker_cpu_s"] / sizes.native_records * 1e6,
    }


LOADS: dict[str, Callable[[Broker, str, float], dict[str, float]]] = {
    "small requests": small,
    "produce, 6 partitions": produce,
}


def authorizer(rounds: int, seconds: float, say: Console) -> list[dict[str, Any]]:
    """Figures of each load with each number of ACLs, as ratios to those without an authorizer."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        brokers = [Broker(pathlib.Path(folder) / str(count), count) for count in (0, *ACLS)]
        try:
            off, *secured = brokers
            for broker in brokers:
                small(broker, "load-warm-up", seconds)
            results = []
            for load, run in LOADS.items():
                ratios: dict[str, list[dict[str, float]]] = {each.name: [] for each in secured}
                topics = (f"load-{load[:5]}-{number}" for number in range(1_000))
                before = run(off, next(topics), seconds)
                for number in range(rounds):
                    for broker in secured[:: -1 if number % 2 else 1]:
                        measured = run(broker, next(topics), seconds)
                        after = run(off, next(topics), seconds)
                        ratio = {
                            key: measured[key] * 2 / (before[key] + after[key]) for key in measured
                        }
                        ratios[broker.name].append(ratio)
                        before = after
                        say.print(f"  {load}, {broker.name}: {measured}, {ratio}")
                results += [
                    {"load": load, "acls": name, "ratios": found} for name, found in ratios.items()
                ]
            return results
        finally:
            for broker in brokers:
                broker.end()


CASES = {
    "authorizer": authorizer,
    "transport": secured_cases.transport,
    "logins": secured_cases.logins,
}


def table(name: str, results: list[dict[str, Any]]) -> Table:
    if name == "authorizer":
        return authorizer_table(results)
    return transport_table(results) if name == "transport" else logins_table(results)


def transport_table(results: list[dict[str, Any]]) -> Table:
    out = Table("load", "figure", "ours", "Kafka", "ours / Kafka", "no larger loss")
    for result in results:
        for figure, label in (("a_second", "throughput left"), ("cpu_us", "broker CPU, times")):
            ours, theirs = (
                statistics.median(ratio[figure] for ratio in result["ratios"][name])
                for name in ("odradek", "kafka")
            )
            holds = ours >= theirs if figure == "a_second" else ours <= theirs
            out.add_row(
                result["load"], label, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}",
                "yes" if holds else "NO",
            )  # fmt: skip
    return out


def logins_table(results: list[dict[str, Any]]) -> Table:
    out = Table("figure", "ours", "Kafka")
    (result,) = results
    for figure in ("logins_per_s", "broker_cpu_ms", "others_p99_ms", "others_max_ms",
                   "quiet_p99_ms"):  # fmt: skip
        middle = (
            statistics.median(each[figure] for each in result["figures"][name])
            for name in ("odradek", "kafka")
        )
        out.add_row(figure, *(f"{value:,.2f}" for value in middle))
    return out


def authorizer_table(results: list[dict[str, Any]]) -> Table:
    out = Table("load", "authorizer", "requests/s", "CPU", "least", "most", f"<= {LOSS_MAX:.0%}")
    for result in results:
        speed = statistics.median(ratio["a_second"] for ratio in result["ratios"])
        cpu = sorted(ratio["cpu_us"] for ratio in result["ratios"])
        middle = statistics.median(cpu)
        out.add_row(
            result["load"], result["acls"], f"{speed:.3f}", f"{middle:.3f}", f"{cpu[0]:.3f}",
            f"{cpu[-1]:.3f}", "yes" if middle <= 1 + LOSS_MAX else "NO",
        )  # fmt: skip
    return out


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--case", "words", multiple=True, help="Only the cases whose name has this in it.")
@click.option("--rounds", default=4, show_default=True, help="How often each is measured.")
@click.option("--seconds", default=3.0, show_default=True, help="How long each load runs.")
@click.option("--quick", is_flag=True, help="Once, for a second: does it work at all?")
def main(*, words: tuple[str, ...], rounds: int, seconds: float, quick: bool) -> None:
    """Measure, append to the results, print the table."""
    say = Console()
    if not say.is_terminal:
        say.width = 130
    before = machine.describe()
    for name, case in CASES.items():
        if words and not any(word in name for word in words):
            continue
        results = case(1 if quick else rounds, 1.0 if quick else seconds, say)
        say.print(f"{name} (load average before: {before['load_before']})", table(name, results))
        if not quick:
            line = {
                "case": name,
                "results": results,
                "machine": before,
            }
            keep_result("secure", line)


if __name__ == "__main__":
    main()
