"""Permissions in words: what `odradek allow`, `deny`, `revoke` and `permissions` mean and print.

    odradek allow app read,write topic orders     Read and Write on Topic orders
    odradek allow app read topic 'orders-*'       on each topic whose name begins with orders-
    odradek allow app all topic '*'               on every topic

Operations and resources are Kafka's; a permission is one or more of Kafka's ACLs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.model.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
    words,
)
from odradek.model.command import Command
from odradek.model.errors import OdradekError
from odradek.plan.commands import Caller
from odradek.plan.denied import acls_command, described
from odradek.security.acls import AclSettings

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TXN = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_OP: Final = AclOperation
KINDS: Final = {"topic": _TOPIC, "group": _GROUP, "cluster": _CLUSTER, "transactional-id": _TXN}
_SUPPORTED: Final = {**OPERATIONS, _TXN: (_OP.WRITE, _OP.DESCRIBE)}
# What an operation lets a client do, where its name alone does not say it.
_MEANINGS: Final = {
    (_TOPIC, _OP.READ): "read",
    (_TOPIC, _OP.WRITE): "write to",
    (_TOPIC, _OP.ALTER): "add partitions to",
    (_GROUP, _OP.READ): "join, and commit offsets of,",
    (_CLUSTER, _OP.CREATE): "create topics in",
    (_CLUSTER, _OP.ALTER): "change ACLs, users and assignments of",
    (_CLUSTER, _OP.CLUSTER_ACTION): "act as a broker of",
    (_CLUSTER, _OP.IDEMPOTENT_WRITE): "use an idempotent producer in",
    (_TXN, _OP.WRITE): "use transactions of",
    (None, _OP.CREATE): "create",
    (None, _OP.DELETE): "delete",
    (None, _OP.DESCRIBE): "see",
    (None, _OP.DESCRIBE_CONFIGS): "see the options of",
    (None, _OP.ALTER_CONFIGS): "change the options of",
    (None, _OP.ALL): "do everything with",
}
_INCLUDES_DESCRIBE: Final = (_OP.READ, _OP.WRITE, _OP.DELETE, _OP.ALTER)


class PermissionTextError(OdradekError):
    """The words of a permission cannot be understood; the text has the rule."""


def principal_of(text: str) -> str:
    """`app` is `User:app`, `*` is everybody; a text with a colon is a principal already."""
    return text if ":" in text else f"User:{text}"


def pattern_of(kind: str, name: str | None) -> ResourcePattern:
    """The resource, or all whose names have a prefix.

    Raises:
        PermissionTextError: the name is missing, superfluous, or has a star in it.
    """
    resource_type = KINDS[kind]
    if resource_type is _CLUSTER:
        if name is not None:
            raise PermissionTextError(f"cluster {name}: the cluster has no name here")
        return ResourcePattern(_CLUSTER, CLUSTER_NAME)
    if not name:
        raise PermissionTextError(f"{kind}: its name is missing; '*' is every {kind}")
    if name == WILDCARD or WILDCARD not in name:
        return ResourcePattern(resource_type, name)
    if WILDCARD in name[:-1]:
        raise PermissionTextError(
            f"{kind} {name}: a star may only be the last character, as in 'orders-*'"
        )
    return ResourcePattern(resource_type, name[:-1], prefixed=True)


def operations_of(text: str, kind: str) -> list[AclOperation]:
    """The operations in a list such as `read,describe-configs`.

    Raises:
        PermissionTextError: there is no such operation on this kind of resource.
    """
    possible = {
        operation.name.lower().replace("_", "-"): operation
        for operation in (*_SUPPORTED[KINDS[kind]], _OP.ALL)
    }
    found = []
    for word in text.split(","):
        operation = possible.get(word.strip().lower().replace("_", "-"))
        if operation is None:
            raise PermissionTextError(
                f"{word.strip() or text!r}: the operations on a {kind} are {', '.join(possible)}"
            )
        found.append(operation)
    return list(dict.fromkeys(found))


def sentences(bindings: Iterable[Binding]) -> list[str]:
    """A line for each ACL, without its principal."""
    return [_sentence(binding) for binding in bindings]


def by_principal(bindings: Iterable[Binding]) -> dict[str, list[Binding]]:
    """ACLs by principal; of each principal those that deny last, as exceptions are read."""
    found: dict[str, list[Binding]] = {}
    for binding in sorted(bindings, key=lambda b: (b.entry.principal, not b.entry.allowed, b)):
        found.setdefault(binding.entry.principal, []).append(binding)
    return found


def commands(bindings: Sequence[Binding], caller: Caller, action: str) -> list[Command]:
    """The calls of `kafka-acls` that add or remove these ACLs, one for each resource."""
    grouped: dict[tuple[ResourcePattern, str, str, bool], list[AclEntry]] = {}
    for pattern, entry in bindings:
        key = (pattern, entry.principal, entry.host, entry.allowed)
        grouped.setdefault(key, []).append(entry)
    return [acls_command(key[0], entries, caller, action) for key, entries in grouped.items()]


def unrestricted(
    settings: Mapping[int, AclSettings | None], principal: str | None = None
) -> list[str]:
    """What no ACL restricts: super users (only `principal`, or all), brokers without authorizer."""
    lines = []
    for own in dict.fromkeys(settings.values()):
        ids = ", ".join(str(id_) for id_, each in settings.items() if each == own)
        where = f" (broker {ids})" if len(set(settings.values())) > 1 else ""
        if own is None:
            lines.append(
                "every client may do everything, because authorizer.class.name is not set" + where
            )
            continue
        lines += [
            f"{each} may do everything (super.users){where}"
            for each in sorted(own.super_users)
            if principal in (None, each)
        ]
        if own.allow_if_no_acl:
            lines.append(
                "every client may use what no ACL is on (allow.everyone.if.no.acl.found)" + where
            )
    return lines


def _sentence(binding: Binding) -> str:
    pattern, entry = binding
    kind = pattern.resource_type
    meaning = _MEANINGS.get((kind, entry.operation)) or _MEANINGS.get((None, entry.operation))
    includes = ""
    if entry.allowed and entry.operation in _INCLUDES_DESCRIBE:
        includes = ", which includes Describe"
    elif entry.allowed and entry.operation is _OP.ALTER_CONFIGS:
        includes = ", which includes DescribeConfigs"
    return (
        f"may {'' if entry.allowed else 'not '}{meaning or words(entry.operation)} "
        f"{described(pattern)} ({words(entry.operation)}{includes})"
        + (f", from host {entry.host} only" if entry.host != WILDCARD else "")
    )
