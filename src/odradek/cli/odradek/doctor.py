"""`odradek doctor`: what is wrong with a cluster, since when, why, and what to do.

It examines any Kafka cluster by Kafka's protocol. Brokers of Odradek report more: over HTTP and in
their logs on this machine (`--dir`), or by DescribeState requests (`--bootstrap-server`).
"""

import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import click

from odradek.cli.connect import UnansweredError, properties_of, with_own_cluster
from odradek.cli.failures import ToolError
from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.client.cluster import Cluster
from odradek.explain.collected import (
    EXAMINED,
    bound_addresses,
    examined,
    seed_address,
    without_cluster,
)
from odradek.explain.reports import ask_cluster, ask_directory
from odradek.model.printable import printable
from odradek.model.sentence import sentence
from odradek.plan.commands import Caller
from odradek.plan.doctor import examine
from odradek.plan.examination import Examination, failed, summary
from odradek.plan.facts import DISK_PERCENT, PATIENCE_MS, ClusterFacts, Finding, Severity


@click.command
@click.option(
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT,...",
    help="Brokers to connect to, on any hosts.",
)
@click.option("--command-config", metavar="FILE", help="A file of client properties.")
@unless_server_dir_option
@click.option(
    "--patience",
    default=PATIENCE_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Report rebalances, open transactions and groups without commits after this time.",
)
@click.option(
    "--disk-percent",
    default=DISK_PERCENT,
    show_default=True,
    type=click.FloatRange(0, 100),
    help="Report disks from this percentage on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch, a line a change.")
@click.option("--watch", "is_watching", is_flag=True, help="Go on, and report what changes.")
@click.option(
    "--every",
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    help="With --watch: the pause between two examinations.",
)
@click.option(
    "--webhook", metavar="URL", help="With --watch: send each change to this URL (JSON by POST)."
)
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    help="With --watch: serve the findings as metrics; on 127.0.0.1 unless a host is named.",
)
def doctor(  # noqa: PLR0913 - one for each flag
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    patience: float,
    disk_percent: float,
    *,
    as_json: bool,
    is_watching: bool,
    **watched: Any,
) -> int:
    """Report what is wrong with a cluster, since when, why, and what to do.

    The exit code is 1 if something does not work, or could not be examined; with --watch, at the
    end.
    """
    limits = {"patience_ms": int(1000 * patience), "disk_percent": disk_percent}
    run = partial(_examine, servers, command_config, path, limits)
    if not is_watching:
        if watched["webhook"] or watched["listen"]:
            raise ToolError("--webhook and --listen need --watch")
        return run(partial(_show, as_json=as_json))
    # Imported here: an examination without --watch needs none of it.
    from odradek.cli.odradek.doctor_watch import watch  # noqa: PLC0415

    once = partial(_examination, run, servers or str(path))
    return watch(once, as_json=as_json, **watched)


def _examination(run: Callable[[Callable[[ClusterFacts], int]], int], where: str) -> Examination:
    """One examination. That no broker answers is a finding, too.

    Raises:
        OdradekError, OSError: any other failure.
    """
    found: list[Examination] = []

    def seen(facts: ClusterFacts) -> int:
        found.append(examine(facts))
        return 0

    try:
        run(seen)
    except UnansweredError as error:
        fix = sentence("Start its brokers, or correct the address.")
        unreachable = Finding(Severity.CRITICAL, "unreachable", where, str(error), fix)
        return failed("no broker answers", [unreachable])
    return found[0]


def _examine(
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    limits: Mapping[str, float],
    seen: Callable[[ClusterFacts], int],
) -> int:
    """Examine once. Returns what `seen` makes of it.

    Raises:
        UnansweredError: no broker answers, and there is no directory that says what should run.
    """
    asked = ask_directory(path, EXAMINED, say=say) if servers is None else None
    if asked is not None:
        command_config = command_config or asked.caller.config or None
        servers = ",".join(bound_addresses(asked).values()) or asked.caller.bootstrap
        asked.caller = replace(asked.caller, bootstrap=servers)
        if not asked.reports:
            return seen(without_cluster(asked))
    assert servers is not None

    async def work(cluster: Cluster) -> int:
        if asked is not None:
            found, answers_at = asked, bound_addresses(asked)
        else:
            caller = Caller(bootstrap=servers, config=command_config or "")
            found = await ask_cluster(cluster, caller, EXAMINED)
            answers_at = await seed_address(cluster, found)
        return seen(await examined(cluster, found, answers_at, limits))

    try:
        return with_own_cluster(servers, properties_of(command_config), work)
    except UnansweredError:
        if asked is None:
            raise
        return seen(without_cluster(asked))


def _show(facts: ClusterFacts, *, as_json: bool) -> int:
    seen = examine(facts)
    if as_json:
        body = {
            "findings": [finding.as_plain() for finding in seen.findings],
            "not_examined": dict(seen.not_examined),
            "unavailable": dict(seen.unavailable),
            "denied": {area: denied.as_plain() for area, denied in seen.denied.items()},
        }
        print(json.dumps(body, indent=2))
    else:
        _print(facts, seen)
    return int(not seen.is_sound)


def print_findings(findings: Iterable[Finding]) -> None:
    """Three lines for each, whatever the names in it contain."""
    for finding in findings:
        subject, why = printable(finding.subject), printable(finding.why)
        print(f"{finding.severity.name.lower()}: {finding.kind}: {subject}")
        print(f"    why: {why}")
        print(f"    fix: {finding.fix}")


def _print(facts: ClusterFacts, seen: Examination) -> None:
    print_findings(seen.findings)
    partitions = facts.picture.partitions
    topics = {partition.topic for partition in partitions}
    counted = ", ".join(
        f"{n} {name}{'' if n == 1 else 's'}"
        for n, name in (
            (len(facts.picture.racks), "broker"),
            (len(topics), "topic"),
            (len(partitions), "partition"),
        )
    )
    print(f"{summary(len(seen.findings), {**seen.not_examined, **seen.denied})}: {counted}.")
    for area, why in sorted(seen.not_examined.items()):
        click.echo(f"not examined: {area}: {printable(why)}", err=True)
    for area, why in sorted(seen.unavailable.items()):
        click.echo(f"cannot be examined: {area}: {printable(why)}", err=True)
    for area, denied in sorted(seen.denied.items()):
        click.echo(f"may not be examined: {area}: {printable(denied.why)}", err=True)
        click.echo(f"    fix: {denied.fix}", err=True)
