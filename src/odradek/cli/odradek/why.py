"""`odradek why topic T | broker N | group G | client C | transaction ID | denied`: what to do.

The controller reports the current state, and every broker the decisions it made while it was the
controller, so the history is complete after a change of the controller. Decisions from before a
broker's last start, or of a broker that does not run, are read from its log if that is on this
machine.
"""

import json
import pathlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import click

from odradek.cli.connect import properties_of, with_own_cluster
from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.cli.odradek.where import client_properties
from odradek.cli.suggesting import SuggestingGroup
from odradek.client.admin.groups import TransactionDescription, describe_transaction
from odradek.client.admin.security import ANY, Acl, describe_acls
from odradek.client.admin.topics import BROKER, describe_configs, list_topics
from odradek.client.cluster import Cluster
from odradek.explain.client import explain_client, explain_errors
from odradek.explain.collected import picture_of
from odradek.explain.group import explain_group
from odradek.explain.replicas import explain_replicas
from odradek.explain.reports import Asked, Query, ask_cluster, ask_directory
from odradek.explain.sentences import Picture, explain_broker, explain_topic
from odradek.explain.spread import explain_spread
from odradek.explain.transaction import explain_transaction
from odradek.local.client_files import admin_file
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourcePattern, ResourceType
from odradek.model.errors import ApiError, OdradekError
from odradek.model.sentence import Sentence, sentence
from odradek.net.clock import real_wall_ms
from odradek.plan.commands import Caller
from odradek.plan.denied import (
    OPERATIONS,
    DeniedRequest,
    bindings_of,
    explain_denied,
    hidden_in,
    settings_of,
)
from odradek.security.acls import AclSettings

Explain = Callable[[Asked], list[Sentence]]


@click.group(cls=SuggestingGroup)
def why() -> None:
    """Explain a topic, broker, group, client, transaction or denied request: what to do."""


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

    def sentences(asked: Asked) -> list[Sentence]:
        explained = explain_topic(picture_of(asked, real_wall_ms()), name, partition)
        if partition is None:
            return [*explained, *explain_spread(asked.by_broker("replicas"), asked.caller)]
        return [*explain_replicas(asked.by_broker("replicas"), partition), *explained]

    return _answer(wanted, sentences, **where)


@why.command
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@_options
def broker(broker_id: int, **where: Any) -> int:
    """Explain what broker ID leads, and what is wrong with it."""
    query = {"broker": str(broker_id)}
    wanted = {"journal": query, "controller": query, "broker": {}}
    return _answer(
        wanted, lambda asked: explain_broker(picture_of(asked, real_wall_ms()), broker_id), **where
    )


@why.command
@click.argument("name")
@_options
def group(name: str, **where: Any) -> int:
    """Explain the state of group NAME: members, generation, strategy, rebalances, idle members.

    The errors that its clients got are named, too.
    """
    wanted = {"groups": {"group": name}, "broker": {}}

    def sentences(asked: Asked) -> list[Sentence]:
        now_ms = real_wall_ms()
        errors = explain_errors(asked, lambda e: e.group == name, now_ms)
        return [*explain_group(asked, name, now_ms), *errors]

    return _answer(wanted, sentences, **where)


@why.command
@click.argument("client_id", metavar="CLIENT_ID")
@_options
def client(client_id: str, **where: Any) -> int:
    """Explain what the client with this client.id was refused, got errors for, and lacks.

    A permission that it lacks is named with the command that grants it.
    """
    topics: list[str] = []

    async def learn(cluster: Cluster) -> None:
        topics.extend(await list_topics(cluster))

    return _answer(
        {"broker": {}},
        lambda asked: explain_client(asked, client_id, real_wall_ms(), topics),
        learn=learn,
        **where,
    )


@why.command
@click.argument("transactional_id", metavar="TRANSACTIONAL_ID")
@_options
def transaction(transactional_id: str, **where: Any) -> int:
    """Explain the transaction of TRANSACTIONAL_ID, and which producers got errors with it."""
    found: list[TransactionDescription | str] = []

    async def learn(cluster: Cluster) -> None:
        try:
            found.append(await describe_transaction(cluster, transactional_id))
        except (OdradekError, ConnectionError) as error:
            found.append(str(error))

    def sentences(asked: Asked) -> list[Sentence]:
        state = found[0] if found else "no broker answers"
        return explain_transaction(asked, transactional_id, state, real_wall_ms())

    return _answer({"broker": {}}, sentences, learn=learn, **where)


@why.command
@click.option("--principal", required=True, metavar="User:NAME", help="Whose request is denied.")
@click.option(
    "--operation",
    required=True,
    metavar="OPERATION",
    help="Read, Write, Create, Describe, Delete, Alter, DescribeConfigs, AlterConfigs ...",
)
@click.option("--host", metavar="ADDRESS", help="The client's IP address; else no ACL's host.")
@click.option("--topic", metavar="NAME", help="The topic that is accessed.")
@click.option("--group", metavar="NAME", help="Likewise the group.")
@click.option("--transactional-id", metavar="ID", help="Likewise the transactional id.")
@click.option("--cluster", "on_cluster", is_flag=True, help="The cluster itself is accessed.")
@click.option("--delegation-token", metavar="ID", help="The token that is accessed.")
@click.option("--user-principal", metavar="User:NAME", help="The user that is accessed.")
@click.option("--command-config", metavar="FILE", help="A file of client properties.")
@click.option(
    "--bootstrap-server", "servers", metavar="HOST:PORT,...", help="Brokers to connect to."
)
@unless_server_dir_option
def denied(
    principal: str,
    operation: str,
    host: str | None,
    servers: str | None,
    path: pathlib.Path,
    command_config: str | None,
    **resource: Any,
) -> int:
    """Explain whether a request is denied: the rule that decides, and what would allow it.

    The resource is one of --topic, --group, --transactional-id, --cluster, --delegation-token and
    --user-principal. Needs Describe and DescribeConfigs on the cluster.
    """
    known = OPERATIONS.get(operation.replace("_", "").lower())
    if known is None or known in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise click.UsageError(f"--operation {operation}: there is no such operation")
    asked = DeniedRequest(principal, host, known, _resource(**resource))
    properties = client_properties(servers, path, command_config, ())

    async def work(cluster: Cluster) -> int:
        config = command_config or (admin_file(path) if servers is None else None)
        caller = Caller(bootstrap=properties["bootstrap.servers"], config=config or "")
        for line in await _denied(cluster, asked, caller):
            print(line)
        return 0

    return with_own_cluster(properties["bootstrap.servers"], properties, work)


def _resource(*, on_cluster: bool, **names: str | None) -> ResourcePattern:
    named = [
        ResourcePattern(kind, name)
        for kind, name in (
            (ResourceType.TOPIC, names["topic"]),
            (ResourceType.GROUP, names["group"]),
            (ResourceType.TRANSACTIONAL_ID, names["transactional_id"]),
            (ResourceType.DELEGATION_TOKEN, names["delegation_token"]),
            (ResourceType.USER, names["user_principal"]),
            (ResourceType.CLUSTER, CLUSTER_NAME if on_cluster else None),
        )
        if name is not None
    ]
    if len(named) != 1:
        raise click.UsageError(
            "give one of --topic, --group, --transactional-id, --cluster, --delegation-token and "
            "--user-principal"
        )
    return named[0]


async def _denied(cluster: Cluster, asked: DeniedRequest, caller: Caller) -> list[Sentence]:
    await cluster.refresh()
    ids = sorted(await cluster.nodes())
    configs = await describe_configs(cluster, [(BROKER, str(id_)) for id_ in ids])
    settings: dict[int, AclSettings | None] = {}
    notes: list[Sentence] = []
    for (_, id_), found in configs.items():
        if isinstance(found, ApiError):
            raise found
        settings[int(id_)] = settings_of(found)
        notes += [sentence(f"broker {id_} {note}") for note in hidden_in(found)]
    everything = Acl(ResourceType.ANY, None, ANY, None, None, AclOperation.ANY, ANY)
    has_acls = any(own is not None for own in settings.values())
    acls = await describe_acls(cluster, everything) if has_acls else []
    return [*explain_denied(asked, settings, bindings_of(acls), caller), *notes]


def look(path: pathlib.Path, query: Query) -> Picture:
    """The reports of the brokers of a local cluster on a topic or a broker."""
    return picture_of(
        ask_directory(path, {"journal": query, "controller": query, "broker": {}}, say=say),
        real_wall_ms(),
    )


def _answer(  # noqa: PLR0913 - one for each flag
    wanted: Mapping[str, Query],
    explain: Explain,
    *,
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    as_json: bool,
    learn: Callable[[Cluster], Awaitable[None]] | None = None,
) -> int:
    """Ask for reports and print. `learn` is called before, for what Kafka's protocol answers."""

    def show(asked: Asked) -> int:
        if as_json:
            reports = {str(id_): found for id_, found in sorted(asked.reports.items())}
            print(json.dumps({"state": asked.state, "journal": asked.journal, "reports": reports}))
            return 0
        for line in explain(asked):
            print(line)
        for id_, reason in sorted(asked.silent.items()):
            if asked.caller.local.get(id_, "running") == "running":
                print(f"broker {id_} was not asked: {reason}", file=sys.stderr)
        return 0

    if servers is None:
        asked = ask_directory(path, wanted, say=say)
        if learn is not None and asked.reports:
            _learned(asked.caller, learn)
        return show(asked)

    async def work(cluster: Cluster) -> int:
        if learn is not None:
            await learn(cluster)
        caller = Caller(bootstrap=servers, config=command_config or "")
        return show(await ask_cluster(cluster, caller, wanted))

    return with_own_cluster(servers, properties_of(command_config), work)


def _learned(caller: Caller, learn: Callable[[Cluster], Awaitable[None]]) -> None:
    """Ask a cluster of this machine. Without an answer the reports alone are explained."""

    async def work(cluster: Cluster) -> int:
        await learn(cluster)
        return 0

    with suppress(OdradekError, ConnectionError):
        with_own_cluster(caller.bootstrap, properties_of(caller.config or None), work)
