"""The rules of Kafka's `kafka.security.authorizer.AclAuthorizer`.

In this order:

    1. A super user may do everything.
    2. If no ACL of any principal is on the resource, `allow.everyone.if.no.acl.found` decides.
    3. A matching Deny denies.
    4. A matching Allow allows. Allow of Read, Write, Delete or Alter implies Describe, and Allow of
       AlterConfigs implies DescribeConfigs; Deny implies nothing.
    5. Everything else is denied.

An ACL is on a resource if its pattern has the name of the resource, is `*`, or is a prefix of the
name. It matches if its principal is that of the client or `User:*`, its host that of the client or
`*`, and its operation the one requested or All.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from odradek.model.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)

_DESCRIBE: Final = frozenset(
    {
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    }
)
_DESCRIBE_CONFIGS: Final = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})

_Entries = tuple[AclEntry, ...]


class AclRule(Enum):
    """What decided; the numbers are those of the module's list."""

    SUPER_USER = 1
    NO_ACL = 2
    DENY = 3
    ALLOW = 4
    NO_ALLOW = 5


class AclDecision(NamedTuple):
    """Whether an operation is allowed, the rule that decided, and the ACL if an ACL decided."""

    allowed: bool
    rule: AclRule
    binding: Binding | None = None


class Requester(NamedTuple):
    """The principal (`User:name`) and the IP address of a client."""

    principal: str
    host: str


class AclSettings(NamedTuple):
    """The options `super.users` and `allow.everyone.if.no.acl.found`, parsed."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`, which are separated by semicolons.

    Raises:
        ValueError: one of them has not the form `Type:name`.
    """
    if not text.strip():
        return frozenset()
    principals = [part.strip() for part in text.split(";")]
    while principals and not principals[-1]:
        principals.pop()  # as Java's `split`
    for principal in principals:
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ValueError(f"{principal!r}: must have the form Type:name, for example User:alice")
    return frozenset(principals)


class _Patterns:
    """The ACLs of one resource type, by name. A lookup by prefix tries each length in use once."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self.lengths: tuple[int, ...] = ()

    def index(self) -> None:
        """Take over the lengths of the prefixes, after `prefixed` has changed."""
        self.lengths = tuple(sorted({len(prefix) for prefix in self.prefixed}))


class Acls:
    """All ACLs, for decisions; the caller counts versions."""

    def __init__(
        self, patterns: Mapping[ResourcePattern, Iterable[AclEntry]] | None = None
    ) -> None:
        self._types: dict[ResourceType, _Patterns] = {kind: _Patterns() for kind in ResourceType}
        for pattern, entries in (patterns or {}).items():
            self._put(pattern, entries)
        for kind in self._types.values():
            kind.index()

    def put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Replace the ACLs on one pattern."""
        self._put(pattern, entries)
        self._types[pattern.resource_type].index()

    def _put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        kind = self._types[pattern.resource_type]
        names = kind.prefixed if pattern.prefixed else kind.literal
        kept = tuple(sorted(entries))
        if kept:
            names[pattern.name] = kept
        else:
            names.pop(pattern.name, None)

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """The ACLs on exactly this pattern."""
        kind = self._types[pattern.resource_type]
        names = kind.prefixed if pattern.prefixed else kind.literal
        return frozenset(names.get(pattern.name, ()))

    def _on(self, resource_type: ResourceType, name: str) -> list[tuple[ResourcePattern, _Entries]]:
        """The ACLs on a resource, by pattern: the wildcard, the name, then prefixes."""
        kind = self._types[resource_type]
        found = []
        for literal in dict.fromkeys((WILDCARD, name)):
            entries = kind.literal.get(literal)
            if entries is not None:
                found.append((ResourcePattern(resource_type, literal), entries))
        for length in kind.lengths:
            if length > len(name):
                break
            prefix = name[:length]
            entries = kind.prefixed.get(prefix)
            if entries is not None:
                found.append((ResourcePattern(resource_type, prefix, prefixed=True), entries))
        return found

    def decide(
        self,
        settings: AclSettings,
        client: Requester,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        """Whether a client may do an operation on a resource, and why."""
        if client.principal in settings.super_users:
            return AclDecision(True, AclRule.SUPER_USER)
        found = self._on(resource_type, name)
        if not found:
            return AclDecision(settings.allow_if_no_acl, AclRule.NO_ACL)
        allowing = None
        allowing_operations = _implied_by(operation)
        for pattern, entries in found:
            for entry in entries:
                if not _is_about(entry, client):
                    continue
                if not entry.allowed:
                    if entry.operation in (operation, AclOperation.ALL):
                        return AclDecision(False, AclRule.DENY, Binding(pattern, entry))
                elif allowing is None and entry.operation in allowing_operations:
                    allowing = Binding(pattern, entry)
        if allowing is not None:
            return AclDecision(True, AclRule.ALLOW, allowing)
        return AclDecision(False, AclRule.NO_ALLOW)

    def allows_any(
        self,
        settings: AclSettings,
        client: Requester,
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> bool:
        """Whether a client may do an operation on some resource of a type, existing or not.

        Kafka: `authorizeByResourceType`. A Deny on `*` denies, even with
        `allow.everyone.if.no.acl.found`, which otherwise allows. An Allow on `*` then allows; an
        Allow on a name or prefix does unless a Deny is on the same name, or on a prefix of it.
        """
        if client.principal in settings.super_users:
            return True
        kind = self._types[resource_type]
        denied = _named(kind.literal, client, operation, allowed=False)
        if WILDCARD in denied:
            return False
        if settings.allow_if_no_acl:
            return True
        denied_prefixes = _named(kind.prefixed, client, operation, allowed=False)
        if any(
            not _dominated(prefix, denied_prefixes)
            for prefix in _named(kind.prefixed, client, operation, allowed=True)
        ):
            return True
        return any(
            name == WILDCARD or not (name in denied or _dominated(name, denied_prefixes))
            for name in _named(kind.literal, client, operation, allowed=True)
        )


def _implied_by(operation: AclOperation) -> frozenset[AclOperation]:
    """The operations of which an Allow allows this one."""
    if operation is AclOperation.DESCRIBE:
        return _DESCRIBE | {AclOperation.ALL}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        return _DESCRIBE_CONFIGS | {AclOperation.ALL}
    return frozenset({operation, AclOperation.ALL})


def _is_about(entry: AclEntry, client: Requester) -> bool:
    return entry.principal in (client.principal, WILDCARD_PRINCIPAL) and (
        entry.host in (WILDCARD, client.host)
        or (":" in entry.host + client.host and _address(entry.host) == _address(client.host))
    )


def _address(host: str) -> str:
    """One form of an IP address: `::1` and Java's `0:0:0:0:0:0:0:1` are the same host."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _named(
    names: Mapping[str, _Entries], client: Requester, operation: AclOperation, *, allowed: bool
) -> frozenset[str]:
    """The names or prefixes with an Allow, or a Deny, of exactly this operation or All."""
    return frozenset(
        name
        for name, entries in names.items()
        if any(
            entry.allowed is allowed
            and entry.operation in (operation, AclOperation.ALL)
            and _is_about(entry, client)
            for entry in entries
        )
    )


def _dominated(name: str, denied_prefixes: frozenset[str]) -> bool:
    return any(name.startswith(prefix) for prefix in denied_prefixes)
