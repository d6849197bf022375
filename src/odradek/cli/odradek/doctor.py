"""`odradek doctor`: what is wrong with a cluster, since when, why, and what to do.

It examines any Kafka cluster by Kafka's protocol. Brokers of Odradek report more: over HTTP and in
their logs on this machine (`--dir`), or by DescribeState requests (`--bootstrap-server`).
"""

import json
import pathlib
from dataclasses import replace

import click

from odradek.cli.connect import UnansweredError, properties_of, with_own_cluster
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
from odradek.plan.commands import Caller
from odradek.plan.doctor import diagnose
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    patience: float,
    disk_percent: float,
    *,
    as_json: bool,
) -> int:
    """Report what is wrong with a cluster, since when, why, and what to do.

    The exit code is 1 if something does not work.
    """
    limits = {"patience_ms": int(1000 * patience), "disk_percent": disk_percent}
    asked = ask_directory(path, EXAMINED, say=say) if servers is None else None
    if asked is not None:
        command_config = command_config or asked.caller.config or None
        servers = ",".join(bound_addresses(asked).values()) or asked.caller.bootstrap
        asked.caller = replace(asked.caller, bootstrap=servers)
        if not asked.reports:
            return _show(without_cluster(asked), as_json=as_json)
    assert servers is not None

    async def work(cluster: Cluster) -> int:
        if asked is not None:
            found, answers_at = asked, bound_addresses(asked)
        else:
            caller = Caller(bootstrap=servers, config=command_config or "")
            found = await ask_cluster(cluster, caller, EXAMINED)
            answers_at = await seed_address(cluster, found)
        return _show(await examined(cluster, found, answers_at, limits), as_json=as_json)

    try:
        return with_own_cluster(servers, properties_of(command_config), work)
    except UnansweredError:
        if asked is None:
            raise
        return _show(without_cluster(asked), as_json=as_json)


def _show(facts: ClusterFacts, *, as_json: bool) -> int:
    findings = diagnose(facts)
    if as_json:
        named = [{**f._asdict(), "severity": f.severity.name.lower()} for f in findings]
        print(json.dumps({"findings": named, "unknown": dict(facts.unknown)}, indent=2))
    else:
        _print(facts, findings)
    return int(any(finding.severity is Severity.CRITICAL for finding in findings))


def _print(facts: ClusterFacts, findings: list[Finding]) -> None:
    for finding in findings:
        print(f"{finding.severity.name.lower()}: {finding.kind}: {finding.subject}")
        print(f"    why: {finding.why}")
        print(f"    fix: {finding.fix}")
    partitions = facts.picture.partitions
    topics = {partition.topic for partition in partitions}
    count = len(findings)
    what = "Nothing is wrong" if not count else f"{count} finding{'s' * (count > 1)}"
    counted = ", ".join(
        f"{n} {name}{'' if n == 1 else 's'}"
        for n, name in (
            (len(facts.picture.racks), "broker"),
            (len(topics), "topic"),
            (len(partitions), "partition"),
        )
    )
    print(f"{what}: {counted}.")
    for kind, why in sorted(facts.unknown.items()):
        click.echo(f"not examined: {kind}: {why}", err=True)
