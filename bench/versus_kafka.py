"""Odradek and Apache Kafka 3.9 on this machine: throughput, latency, processor time, memory.

    ./run bench versus_kafka [--runs 3] [--quick] [--case WORD] [--only odradek|kafka]
    ./run bench versus_kafka --profile [--case WORD]    only Odradek, with a profile

Each run starts one target, warms it up, puts one load after the other on it and ends it;
then the other target, never both at once. The order alternates from run to run. A ratio is
taken within a run, ours / theirs, so that other load on the machine affects both; the table
has its median, minimum and maximum. Before each measurement a target has the same load for 20
seconds (`--warm`): a new JVM reaches a third of its rate. The table shows the largest load average
after a case and the largest share of the processors that the host took away (steal). Clients and
brokers share the processors, with both targets. Apache Kafka is fetched by Maven into .cache/ and
runs in ZooKeeper mode with the options of its own distribution and a heap of 1 GiB.

One JSON line for each target and run is appended to bench/results/versus_kafka.jsonl,
except by --quick runs, which are too short for figures.
"""

import pathlib
import statistics
import tempfile
from dataclasses import replace
from typing import Any, NamedTuple

import click
from kit import apache, cases, fetch, machine
from kit.profiled import ProfiledOdradek
from kit.results import keep_result
from kit.targets import TARGETS, Target
from rich.console import Console
from rich.table import Table

OURS, THEIRS = "odradek", "kafka"


class Row(NamedTuple):
    """One line of the table: a figure of a case, and its target ratio."""

    case: str
    figure: str
    label: str
    format: str
    at_least: float | None = None
    at_most: float | None = None


def rows(brokers: int) -> list[Row]:
    """The lines of the table, in order."""
    wanted = []
    alone = brokers == 1
    for case in cases.CASES if alone else cases.REPLICATED:
        if case.name.startswith("small"):
            slowest = 1.0 if alone else 0.8
            wanted += [
                Row(case.name, "requests_per_s", "requests/s", ",.0f", at_least=1.1),
                Row(case.name, "p50_ms", "p50 ms", ".2f", at_most=None if alone else slowest),
                Row(case.name, "p99_ms", "p99 ms", ".2f", at_most=slowest),
                Row(case.name, "broker_us_per_request", "broker CPU us/request", ".1f"),
                Row(case.name, "client_share", "load generator, cores", ".2f"),
            ]
        else:
            aim = _throughput_aim(case.name, alone=alone)
            wanted += [
                Row(case.name, "records_per_s", "records/s", ",.0f", at_least=aim),
                Row(
                    case.name,
                    "broker_cpu_s_per_gb",
                    "broker CPU s/GB",
                    ".2f",
                    at_most=0.6 if alone else 0.5,
                ),
                Row(case.name, "client_cpu_s", "client CPU s", ".1f"),
            ]
    wanted.append(Row("process", "rss_mib", "RSS after the run, MiB", ",.0f", at_most=0.15))
    wanted.append(Row("process", "start_s", "start to first Metadata, s", ".2f"))
    return wanted


def _throughput_aim(case: str, *, alone: bool) -> float:
    if not case.startswith("java produce"):
        return 1.0
    if alone:
        return 1.3
    return 1.2 if "64 KiB" in case else 1.5


def run_target(
    kind: str, *, brokers: int, sizes: cases.Sizes, wanted: list[cases.Case], say: Console
) -> dict[str, Any]:
    """One run on one target, which is started and ended for it."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        options = {"min.insync.replicas": "2"} if brokers > 1 else {}
        target: Target = TARGETS[kind](
            pathlib.Path(folder) / kind, brokers=brokers, properties=options
        )
        try:
            target.start()
            cases.warm_up(target, sizes)
            measured: dict[str, Any] = {}
            for number, case in enumerate(wanted):
                topic = cases.STREAM if case is cases.STREAM_WRITER else f"case-{number}"
                figures = cases.run(case, target, topic, sizes)
                measured[case.name] = {key: round(value, 4) for key, value in figures.items()}
                speed = figures.get("records_per_s") or figures["requests_per_s"]
                say.print(f"  {kind:8} {case.name:45} {speed:14,.0f}/s")
            rss = machine.rss_mib(target.pids())
            measured["process"] = {"rss_mib": round(rss, 1), "start_s": round(target.start_s, 3)}
            return {"target": kind, "version": target.version(), "cases": measured}
        finally:
            target.end()


def profile(*, sizes: cases.Sizes, wanted: list[cases.Case], say: Console) -> None:
    """Run each load on an Odradek broker under the profiler, and print the profile."""
    for case in wanted:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            target = ProfiledOdradek(pathlib.Path(folder) / OURS)
            try:
                target.start()
                cases.warm_up(target, sizes)
                if case.reads_stream:
                    cases.STREAM_WRITER.run(target, cases.STREAM, sizes)
                target.start_profile()
                figures = case.run(target, "profiled", sizes)
                say.print(f"{case.name}: {figures}")
                print(target.profile())
            finally:
                target.end()


def table(results: list[dict[str, Any]], brokers: int) -> Table:
    """Medians of both, and the ratios within each run."""
    out = Table("case", "figure")
    for name in ("ours", "Kafka", "ratio", "min", "max", "aim", "", "load", "steal"):
        out.add_column(name, justify="right")
    before = None
    for row in rows(brokers):
        sides = {
            kind: [
                result["cases"][row.case][row.figure]
                for result in results
                if result["target"] == kind and row.case in result["cases"]
            ]
            for kind in (OURS, THEIRS)
        }
        if not any(sides.values()):
            continue
        shown = [
            format(statistics.median(values), row.format) if values else "-"
            for values in sides.values()
        ]
        cells = [row.case if row.case != before else "", row.label, *shown, *_judged(row, sides)]
        out.add_row(*cells, *(_disturbed(row.case, results) if row.case != before else ()))
        before = row.case
    return out


def _disturbed(case: str, results: list[dict[str, Any]]) -> list[str]:
    """The largest load average and share of stolen time of a case."""
    figures = [result["cases"][case] for result in results if case in result["cases"]]
    if not all("load" in each for each in figures):
        return ["", ""]
    loads, steals = [each["load"] for each in figures], [each["steal_share"] for each in figures]
    return [f"{max(loads):.1f}", f"{max(steals):.0%}"]


def _judged(row: Row, sides: dict[str, list[float]]) -> list[str]:
    ratios = [
        ours / theirs for ours, theirs in zip(sides[OURS], sides[THEIRS], strict=False) if theirs
    ]
    if not ratios:
        return ["-", "-", "-", "", ""]
    middle = statistics.median(ratios)
    aim, verdict = "", ""
    if row.at_least is not None:
        aim, verdict = f">= {row.at_least}", "yes" if middle >= row.at_least else "NO"
    if row.at_most is not None:
        aim, verdict = f"<= {row.at_most}", "yes" if middle <= row.at_most else "NO"
    return [f"{middle:.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}", aim, verdict]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--brokers", default=1, show_default=True, help="Brokers of each cluster.")
@click.option("--runs", default=3, show_default=True, help="Runs of each target.")
@click.option("--warm", "warm_s", type=float, help="Seconds of the same load before each case.")
@click.option("--quick", is_flag=True, help="A tenth of the load, once: does it work at all?")
@click.option("--case", "words", multiple=True, help="Only the cases whose name has this in it.")
@click.option("--profile", "is_profile", is_flag=True, help="Where the time of ours goes.")
@click.option("--only", type=click.Choice(list(TARGETS)), help="Measure one target alone.")
def main(  # noqa: PLR0913 - its options
    *,
    brokers: int,
    runs: int,
    quick: bool,
    warm_s: float | None,
    words: tuple[str, ...],
    only: str | None,
    is_profile: bool,
) -> None:
    """Measure, append to the results, print the table."""
    say = Console()
    if not say.is_terminal:
        say.width = 130  # the table is for files and pipes too
    sizes = cases.Sizes().scaled(0.1) if quick else cases.Sizes()
    if warm_s is not None:
        sizes = replace(sizes, warm_seconds=warm_s)
    wanted = cases.chosen(words, brokers=brokers)
    try:
        fetch.jars(apache.LINE)  # the Java loads need them, even if Kafka itself does not run
    except fetch.UnavailableError as error:
        raise click.ClickException(str(error)) from None
    if is_profile:
        profile(sizes=sizes, wanted=wanted, say=say)
        return
    kinds = [only] if only else [OURS, THEIRS]
    results = []
    for run in range(1 if quick else runs):
        for kind in kinds if run % 2 == 0 else reversed(kinds):
            before = machine.describe()
            say.print(f"run {run + 1}, {kind} (load average before: {before['load_before']})")
            result = run_target(kind, brokers=brokers, sizes=sizes, wanted=wanted, say=say)
            result = {
                "run": run + 1,
                "brokers": brokers,
                **result,
                "machine": before,
            }
            results.append(result)
            if not quick:
                keep_result("versus_kafka", result)
    say.print(table(results, brokers))


if __name__ == "__main__":
    main()
