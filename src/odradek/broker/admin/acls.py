"""Describing, creating and deleting ACLs.

They are stored in Kafka's znodes (`odradek.coord.layout_security`), where Kafka's brokers and ours
read them: ours by `odradek.broker.admin.acl_changes`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.cluster.store_update import children, update
from odradek.coord.layout_security import (
    ACL_CHANGE_PREFIX,
    acl_change_parent,
    acl_path,
    acl_type_path,
    decode_acls,
    encode_acl_change,
    encode_acls,
)
from odradek.coord.store import Create, Store
from odradek.model.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.delete_acls import DeleteAclsFilter
from odradek.wire.messages.describe_acls import DescribeAclsRequest

ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"

# PatternType and AclPermissionType, as encoded in requests.
PATTERN_ANY: Final = 1
PATTERN_MATCH: Final = 2
PATTERN_LITERAL: Final = 3
PATTERN_PREFIXED: Final = 4
PERMISSION_ANY: Final = 1
PERMISSION_DENY: Final = 2
PERMISSION_ALLOW: Final = 3

KINDS: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)


_EntriesChange = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


class AclFilter(NamedTuple):
    """Which ACLs match, in the codes of requests; None and ANY match all."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Refuse unknown codes.

        Raises:
            ApiError: INVALID_REQUEST.
        """
        sound = (
            self.resource_type in (*KINDS, ResourceType.ANY)
            and PATTERN_ANY <= self.pattern_type <= PATTERN_PREFIXED
            and AclOperation.ANY <= self.operation <= max(AclOperation)
            and PERMISSION_ANY <= self.permission <= PERMISSION_ALLOW
        )
        if not sound:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Filter contains UNKNOWN elements: {self}")

    def matches(self, binding: Binding) -> bool:
        """Whether an ACL matches."""
        return self._matches_pattern(binding.pattern) and self._matches_entry(binding.entry)

    def _matches_pattern(self, pattern: ResourcePattern) -> bool:
        pattern_type = PATTERN_PREFIXED if pattern.prefixed else PATTERN_LITERAL
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PATTERN_ANY, PATTERN_MATCH, pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PATTERN_MATCH:
            return self.name == pattern.name
        if pattern.prefixed:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def _matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (PERMISSION_ANY, permission_of(entry))
        )


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter of a request, with codes that are not checked yet."""
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def permission_of(entry: AclEntry) -> int:
    """The permission type as encoded in requests."""
    return PERMISSION_ALLOW if entry.allowed else PERMISSION_DENY


def check_new(binding: Binding) -> None:
    """Refuse an ACL on a resource that cannot exist.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    pattern = binding.pattern
    if pattern.resource_type == ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        )
    if not pattern.name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if "/" in pattern.name:
        # Names are used in paths as they are: this one would be the node of another resource.
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Resource name {pattern.name!r}: must have no slash"
        )


class AclAdmin:
    """The ACLs in the store.

    `is_configured`: whether an authorizer is configured. `changed` applies changed ACLs on this
    broker before the request is answered.
    """

    def __init__(
        self,
        store: Store,
        *,
        is_configured: bool,
        changed: Callable[[ResourcePattern], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._is_configured = is_configured
        self._changed = changed

    def check_configured(self, message: str) -> None:
        """Refuse requests about ACLs if no authorizer is configured.

        Raises:
            ApiError: SECURITY_DISABLED.
        """
        if not self._is_configured:
            raise ApiError(ErrorCode.SECURITY_DISABLED, message)

    async def describe(self, wanted: AclFilter) -> list[Binding]:
        """The ACLs that match a filter, sorted.

        Raises:
            StoreError: the store failed.
        """
        any_kind = wanted.resource_type == ResourceType.ANY
        kinds = KINDS if any_kind else [kind for kind in KINDS if kind == wanted.resource_type]
        return [
            binding
            for pattern, data in (await stored_acls(self._store, kinds)).items()
            for binding in _bindings(pattern, decode_acls(acl_path(pattern), data))
            if wanted.matches(binding)
        ]

    async def create(self, bindings: Sequence[Binding]) -> None:
        """Store ACLs; those that exist already stay.

        Raises:
            ApiError, StoreError: the store failed; ACLs on other patterns may be stored.
        """
        for pattern, entries in _by_pattern(bindings).items():
            await self._change(pattern, entries.union)

    async def delete(self, bindings: Sequence[Binding]) -> None:
        """Delete ACLs.

        Raises:
            ApiError, StoreError: the store failed; ACLs on other patterns may be deleted.
        """
        for pattern, entries in _by_pattern(bindings).items():
            await self._change(pattern, partial(_without, entries))

    async def _change(self, pattern: ResourcePattern, change: _EntriesChange) -> None:
        path = acl_path(pattern)

        def changed(data: bytes | None) -> bytes | None:
            present = decode_acls(path, data)
            entries = change(present)
            if entries == present:
                return data
            return encode_acls(entries) if entries else None

        notice = Create(
            f"{acl_change_parent(pattern)}/{ACL_CHANGE_PREFIX}",
            encode_acl_change(pattern),
            sequential=True,
        )
        await update(self._store, path, changed, notice)
        if self._changed is not None:
            await self._changed(pattern)


async def stored_acls(
    store: Store, resource_types: Iterable[ResourceType] = KINDS
) -> dict[ResourcePattern, bytes | None]:
    """The patterns of these resource types with the data of their nodes.

    Raises:
        StoreError: the store failed.
    """
    patterns = []
    for kind in resource_types:
        for prefixed in (False, True):
            names = await children(store, acl_type_path(kind, prefixed=prefixed))
            patterns += [ResourcePattern(kind, name, prefixed) for name in names]
    nodes = await store.get_many([acl_path(pattern) for pattern in patterns])
    return {
        pattern: node[0] for pattern, node in zip(patterns, nodes, strict=True) if node is not None
    }


def _bindings(pattern: ResourcePattern, entries: Iterable[AclEntry]) -> list[Binding]:
    return [Binding(pattern, entry) for entry in sorted(entries)]


def _without(removed: frozenset[AclEntry], present: frozenset[AclEntry]) -> frozenset[AclEntry]:
    return present - removed


def _by_pattern(bindings: Iterable[Binding]) -> dict[ResourcePattern, frozenset[AclEntry]]:
    patterns: dict[ResourcePattern, set[AclEntry]] = {}
    for binding in bindings:
        patterns.setdefault(binding.pattern, set()).add(binding.entry)
    return {pattern: frozenset(entries) for pattern, entries in patterns.items()}
