"""Users, permissions in words, and quotas. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import odradek.client.admin.security as rights
from odradek.client.admin.security import Acl
from odradek.model.acl import WILDCARD, AclEntry, Binding
from odradek.model.command import Command
from odradek.plan.commands import Caller
from odradek.plan.denied import acl_command, bindings_of
from odradek.plan.permissions import (
    KINDS,
    PermissionTextError,
    by_principal,
    operations_of,
    pattern_of,
    principal_of,
    sentences,
)
from odradek.web.facts.access import AccessFacts
from odradek.web.facts.poller import FactKey, Facts

ACCESS: Final = FactKey("access")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """A user with a password: how it logs in."""

    name: str
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionsView:
    """What a principal may do, or is denied, in words and as the commands that remove it."""

    principal: str
    sentences: tuple[str, ...]
    removals: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    """The quotas of an entity."""

    entity: str
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessView:
    """Who may do what."""

    at_ms: int | None
    problem: str | None
    users: tuple[UserView, ...]
    permissions: tuple[PermissionsView, ...]
    quotas: tuple[QuotaView, ...]
    problems: Mapping[str, str]


def access_view(facts: Facts, caller: Caller) -> AccessView:
    """The view; `caller` is how commands name the cluster."""
    seen = facts.get(ACCESS)
    found: AccessFacts = seen.value if seen and seen.value else AccessFacts()
    permissions = by_principal(bindings_of(found.acls))
    return AccessView(
        at_ms=seen.at_ms if seen else None,
        problem=seen.problem if seen else None,
        users=tuple(
            UserView(name=name, mechanisms=tuple(mechanism for mechanism, _ in mechanisms))
            for name, mechanisms in sorted(found.users.items())
        ),
        permissions=tuple(
            PermissionsView(
                principal=principal,
                sentences=tuple(sentences(bindings)),
                removals=tuple(acl_command(each, caller, "remove") for each in bindings),
            )
            for principal, bindings in sorted(permissions.items())
        ),
        quotas=tuple(
            QuotaView(
                entity=", ".join(
                    f"{kind} {name if name is not None else '(default)'}" for kind, name in entity
                ),
                limits=tuple(f"{name} {value:g}" for name, value in values),
            )
            for entity, values in found.quotas
        ),
        problems=found.problems,
    )


def permission(fields: Mapping[str, str]) -> list[Binding]:
    """The ACLs that a form describes: principal, operations, kind and name, `allow` or `deny`.

    Raises:
        PermissionTextError: the words cannot be understood; the text has the rule.
    """
    kind = fields.get("kind", "")
    if kind not in KINDS:
        raise PermissionTextError(f"{kind!r}: the kinds are {', '.join(KINDS)}")
    if not fields.get("principal"):
        raise PermissionTextError("the user is missing")
    pattern = pattern_of(kind, fields.get("name") or None)
    principal = principal_of(fields.get("principal", ""))
    allowed = fields.get("action") != "deny"
    return [
        Binding(pattern, AclEntry(principal, fields.get("host") or WILDCARD, operation, allowed))
        for operation in operations_of(fields.get("operations", ""), kind)
    ]


def acls_of(bindings: Sequence[Binding]) -> list[Acl]:
    """The ACLs as requests have them."""
    return [
        Acl(
            binding.pattern.resource_type,
            binding.pattern.name,
            rights.PREFIXED if binding.pattern.prefixed else rights.LITERAL,
            binding.entry.principal,
            binding.entry.host,
            binding.entry.operation,
            rights.ALLOW if binding.entry.allowed else rights.DENY,
        )
        for binding in bindings
    ]
