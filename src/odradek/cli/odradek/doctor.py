"""`odradek doctor`: what is wrong with a cluster, since when, why, and what to do.

It examines any Kafka cluster by Kafka's protocol. Brokers of Odradek report more: over HTTP and in
their logs on this machine (`--dir`), or by DescribeState requests (`--bootstrap-server`).
"""

import json
import pathlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import click

from odradek.cli.connect import UnansweredError, properties_of, with_own_cluster
from odradek.cli.odradek.asked import Asked, Query, ask_cluster, ask_directory
from odradek.cli.odradek.local import unless_server_dir_option
from odradek.client.admin.state import describe_state
from odradek.client.cluster import Cluster
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError
from odradek.plan.cluster import ClusterPicture
from odradek.plan.collect import Reported, certificates_of, facts_of
from odradek.plan.commands import Caller
from odradek.plan.doctor import diagnose
from odradek.plan.facts import DISK_PERCENT, PATIENCE_MS, ClusterFacts, Finding, Severity

_WANTED: Final[Mapping[str, Query]] = {"broker": {}, "journal": {}, "groups": {}, "controller": {}}


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
    asked = ask_directory(path, _WANTED) if servers is None else None
    if asked is not None:
        command_config = command_config or asked.caller.config or None
        servers = ",".join(_bound(asked).values()) or asked.caller.bootstrap
        asked.caller = replace(asked.caller, bootstrap=servers)
        if not asked.reports:
            return _show(_without_cluster(asked), as_json=as_json)
    assert servers is not None

    async def work(cluster: Cluster) -> int:
        if asked is not None:
            found, answers_at = asked, _bound(asked)
        else:
            caller = Caller(bootstrap=servers, config=command_config or "")
            found = await ask_cluster(cluster, caller, _WANTED)
            answers_at = await _seed(cluster, found)
        facts = await facts_of(cluster, _reported(found, answers_at, limits))
        facts = replace(facts, certificates=await certificates_of(cluster))
        return _show(facts, as_json=as_json)

    try:
        return with_own_cluster(servers, properties_of(command_config), work)
    except UnansweredError:
        if asked is None:
            raise
        return _show(_without_cluster(asked), as_json=as_json)


def _bound(asked: Asked) -> dict[int, str]:
    """The addresses on which the brokers of this machine listen, from their own reports."""
    return {
        id_: report["bound"][0].partition("://")[2].replace("0.0.0.0:", "127.0.0.1:")
        for id_, report in asked.by_broker("broker").items()
        if report["bound"]
    }


async def _seed(cluster: Cluster, asked: Asked) -> dict[int, str]:
    """The broker behind the bootstrap address, if it can be identified, with that address.

    Its report is added to `asked`: at the address that it advertises it may not answer.
    """
    connection = await cluster.any_broker()
    try:
        report = await describe_state(connection, "broker")
    except (ApiError, ConnectionError):
        return {}
    if report is not None:
        asked.reports.setdefault(report["broker_id"], {}).setdefault("broker", report)
        return {report["broker_id"]: connection.name}
    nodes = await cluster.nodes()
    return dict.fromkeys(nodes, connection.name) if len(nodes) == 1 else {}


def _reported(asked: Asked, answers_at: Mapping[int, str], limits: Mapping[str, Any]) -> Reported:
    groups = [g for report in asked.by_broker("groups").values() for g in report["groups"]]
    return Reported(
        caller=asked.caller,
        reports=asked.by_broker("broker"),
        coordinated=groups,
        journal=asked.journal,
        answers_at=answers_at,
        **limits,
    )


def _without_cluster(asked: Asked) -> ClusterFacts:
    """The facts that are known if no broker answers: states of processes, and logs."""
    unreachable = {
        id_: "no broker answers"
        for id_, state in asked.caller.local.items()
        if id_ not in asked.caller.ends
    }
    return ClusterFacts(
        picture=ClusterPicture({}, {}),
        caller=asked.caller,
        unreachable=unreachable,
        journal=asked.journal,
        wall_ms=WallMs(max((e["at_ms"] for e in asked.journal), default=0)),
    )


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
