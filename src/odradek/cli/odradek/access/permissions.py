"""`odradek allow`, `deny`, `revoke`, `permissions`: ACLs in words, with the equal `kafka-acls`."""

from collections.abc import Callable, Sequence
from typing import Any

import click

import odradek.client.admin.security as rights
from odradek.cli.odradek.access.reached import ReachedCluster, reach, reaching_options
from odradek.cli.odradek.local import say
from odradek.client.admin.security import Acl
from odradek.model.acl import WILDCARD, AclEntry, AclOperation, Binding, ResourceType
from odradek.model.command import Command, command, flag
from odradek.model.errors import ErrorCode
from odradek.model.printable import printable
from odradek.plan.denied import bindings_of
from odradek.plan.permissions import (
    KINDS,
    PermissionTextError,
    by_principal,
    commands,
    operations_of,
    pattern_of,
    principal_of,
    sentences,
    unrestricted,
)

_ALL = Acl(ResourceType.ANY, None, rights.ANY, None, None, AclOperation.ANY, rights.ANY)


def _permission(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.argument("name", required=False),
        click.argument("kind", type=click.Choice(list(KINDS))),
        click.argument("operations"),
        click.argument("principal"),
        click.option("--group", metavar="NAME", help="Read on this group, too, for consumers."),
        click.option(
            "--transactional-id", metavar="ID", help="Write on this id, too, for transactions."
        ),
        click.option("--host", default=WILDCARD, metavar="ADDRESS", help="Only from this address."),
        reaching_options,
    ):
        command = option(command)
    return command


@click.command
@_permission
def allow(**given: Any) -> int:
    r"""Allow PRINCIPAL the OPERATIONS on a resource: KIND and NAME.

    \b
        odradek allow app read topic orders --group 'readers*'
        odradek allow app write,create topic 'orders-*'
        odradek allow ops describe cluster

    OPERATIONS are Kafka's, separated by commas; a star at the end of a name is for all that begin
    so.
    """
    return _add(given, allowed=True)


@click.command
@_permission
def deny(**given: Any) -> int:
    """Deny PRINCIPAL the OPERATIONS on a resource, whatever else is allowed."""
    return _add(given, allowed=False)


@click.command
@_permission
def revoke(**given: Any) -> int:
    """Remove what `allow` or `deny` has added."""
    both = [_bindings(given, allowed=allowed) for allowed in (True, False)]

    async def work(cluster: ReachedCluster) -> int:
        found = bindings_of(await cluster.rights.describe(_ALL))
        held = [binding for bindings in both for binding in bindings if binding in found]
        if not held:
            say(f"there is no such permission: {_see(both[0][0].entry.principal)}")
            return 1
        await cluster.rights.delete([_acl(binding) for binding in held])
        _print("no longer:", held, cluster, "remove")
        return 0

    return reach(work, **_where(given))


@click.command
@click.option("--principal", metavar="NAME", help="Only those of this principal.")
@reaching_options
def permissions(principal: str | None, **where: Any) -> int:
    """List who may do what, in words."""

    async def work(cluster: ReachedCluster) -> int:
        asked = None if principal is None else principal_of(principal)
        settings = await cluster.settings()
        for line in unrestricted(settings, asked):
            print(line)
        if not any(settings.values()):
            return 0
        acls = await cluster.rights.describe(_ALL._replace(principal=asked))
        for whose, bindings in by_principal(bindings_of(acls)).items():
            print(printable(whose))
            for line in sentences(bindings):
                print(f"    {printable(line)}")
        if not acls:
            print("there are no ACLs" if asked is None else f"no ACL names {asked}")
        which = () if asked is None else flag("--principal", asked)
        print(f"as ACLs: {cluster.caller.kafka('kafka-acls', '--list', *which)}")
        return 0

    return reach(work, **where)


def _add(given: dict[str, Any], *, allowed: bool) -> int:
    bindings = _bindings(given, allowed=allowed)

    async def work(cluster: ReachedCluster) -> int:
        for error in await cluster.rights.create([_acl(binding) for binding in bindings]):
            if error is not None and error.code == ErrorCode.SECURITY_DISABLED:
                raise PermissionTextError(
                    "every client may do everything, because authorizer.class.name is not set: "
                    "odradek up --secure sets it, or see docs/security.md"
                )
            if error is not None:
                raise error
        _print(f"{bindings[0].entry.principal} from now on:", bindings, cluster, "add")
        reads = any(b.entry.operation is AclOperation.READ for b in bindings)
        if allowed and reads and given["kind"] == "topic" and given["group"] is None:
            say("a consumer in a group needs Read on its group, too: --group NAME")
        return 0

    return reach(work, **_where(given))


def _bindings(given: dict[str, Any], *, allowed: bool) -> list[Binding]:
    principal, host = principal_of(given["principal"]), given["host"]
    pairs = [
        (pattern_of(given["kind"], given["name"]), operation)
        for operation in operations_of(given["operations"], given["kind"])
    ]
    if given["group"] is not None:
        pairs.append((pattern_of("group", given["group"]), AclOperation.READ))
    if given["transactional_id"] is not None:
        pattern = pattern_of("transactional-id", given["transactional_id"])
        pairs.append((pattern, AclOperation.WRITE))
    return [
        Binding(pattern, AclEntry(principal, host, operation, allowed=allowed))
        for pattern, operation in pairs
    ]


def _print(heading: str, bindings: Sequence[Binding], cluster: ReachedCluster, action: str) -> None:
    print(printable(heading))
    for line in sentences(bindings):
        print(f"    {printable(line)}")
    print("the same with Kafka's tool:")
    for each in commands(bindings, cluster.caller, action):
        print(f"    {each}")


def _acl(binding: Binding) -> Acl:
    pattern, entry = binding
    return Acl(
        pattern.resource_type,
        pattern.name,
        rights.PREFIXED if pattern.prefixed else rights.LITERAL,
        entry.principal,
        entry.host,
        entry.operation,
        rights.ALLOW if entry.allowed else rights.DENY,
    )


def _see(principal: str) -> Command:
    return command("odradek", "permissions", *flag("--principal", principal))


def _where(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("servers", "command_config", "path")}
