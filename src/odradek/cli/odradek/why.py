"""`odradek why topic T | broker N | group G`: its state, since when, why, and what to do.

The controller reports the current state, and every broker the decisions it made while it was the
controller, so the history is complete after a change of the controller. Decisions from before a
broker's last start, or of a broker that does not run, are read from its log if that is on this
machine.
"""

import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from odradek.cli.connect import properties_of, with_own_cluster
from odradek.cli.odradek.asked import NOT_OURS, Asked, Query, ask_cluster, ask_directory
from odradek.cli.odradek.local import unless_server_dir_option
from odradek.cli.odradek.why_group import explain_group
from odradek.cli.odradek.why_replicas import explain_replicas
from odradek.cli.odradek.why_sentences import Picture, explain_broker, explain_topic
from odradek.client.cluster import Cluster
from odradek.net.clock import real_wall_ms

Explain = Callable[[Asked], list[str]]


@click.group
def why() -> None:
    """Explain the state of a topic, a broker or a group, and what to do."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON object."),
        unless_server_dir_option,
        click.option("--command-config", metavar="FILE", help="A file of client properties."),
        click.option(
            "--bootstrap-server",
            "servers",
            metavar="HOST:PORT,...",
            help="Brokers to connect to, on any hosts.",
        ),
    ):
        command = option(command)
    return command


@why.command
@click.argument("name")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@_options
def topic(name: str, partition: int | None, **where: Any) -> int:
    """Explain the leaders, replicas, moves and deletion of topic NAME.

    With --partition the high watermark and each replica's log end offset, too.
    """
    query = {"topic": name} | ({} if partition is None else {"partition": str(partition)})
    wanted = {"journal": query, "controller": query, "broker": {}, "replicas": query}

    def sentences(asked: Asked) -> list[str]:
        explained = explain_topic(_picture(asked), name, partition)
        if partition is None:
            return explained
        return [*explain_replicas(asked.by_broker("replicas"), partition), *explained]

    return _answer(wanted, sentences, **where)


@why.command
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@_options
def broker(broker_id: int, **where: Any) -> int:
    """Explain what broker ID leads, and what is wrong with it."""
    query = {"broker": str(broker_id)}
    wanted = {"journal": query, "controller": query, "broker": {}}
    return _answer(wanted, lambda asked: explain_broker(_picture(asked), broker_id), **where)


@why.command
@click.argument("name")
@_options
def group(name: str, **where: Any) -> int:
    """Explain the state of group NAME: members, generation, strategy, rebalances, idle members."""
    wanted = {"groups": {"group": name}}
    return _answer(
        wanted,
        lambda asked: explain_group(asked, name, real_wall_ms()),
        **where,
    )


def look(path: pathlib.Path, query: Query) -> Picture:
    """The reports of the brokers of a local cluster on a topic or a broker."""
    return _picture(ask_directory(path, {"journal": query, "controller": query, "broker": {}}))


def _picture(asked: Asked) -> Picture:
    # Only a broker that holds a partition of the topic has read its options.
    isr_min = [
        replica["isr_min"]
        for report in asked.by_broker("replicas").values()
        for replica in report["replicas"]
        if replica["role"] == "leader"
    ]
    return Picture(
        asked.state,
        asked.journal,
        real_wall_ms(),
        asked.caller,
        {id_: report["log_dirs"] for id_, report in asked.by_broker("broker").items()},
        isr_min[0] if isr_min else 1,
        sorted(id_ for id_, why in asked.silent.items() if why == NOT_OURS),
    )


def _answer(
    wanted: Mapping[str, Query],
    explain: Explain,
    *,
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    as_json: bool,
) -> int:
    def show(asked: Asked) -> int:
        if as_json:
            reports = {str(id_): found for id_, found in sorted(asked.reports.items())}
            print(json.dumps({"state": asked.state, "journal": asked.journal, "reports": reports}))
            return 0
        for sentence in explain(asked):
            print(sentence)
        for id_, reason in sorted(asked.silent.items()):
            if asked.caller.local.get(id_, "running") == "running":
                print(f"broker {id_} was not asked: {reason}", file=sys.stderr)
        return 0

    if servers is None:
        return show(ask_directory(path, wanted))

    async def work(cluster: Cluster) -> int:
        return show(await ask_cluster(cluster, servers, wanted))

    return with_own_cluster(servers, properties_of(command_config), work)
