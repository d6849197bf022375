"""The deprecated part of `kafka-acls`: changes ACLs in the coordination store itself.

    kafka-acls --authorizer-properties zookeeper.connect=localhost:2181 --list

For ACLs that must exist before the first broker starts: those of the brokers themselves. The store
may be the embedded one of `odradek up`, by its directory. Texts are those of Kafka 3.9's
`AclCommand`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from odradek.broker.admin.acls import (
    PATTERN_LITERAL,
    PATTERN_PREFIXED,
    PERMISSION_ALLOW,
    AclAdmin,
    AclFilter,
    check_new,
    permission_of,
)
from odradek.cli.connect import properties_of
from odradek.cli.failures import ConfigError, IllegalArgumentError
from odradek.cli.kafka.clients.client_flags import pairs
from odradek.cli.kafka.support.flags import Flags
from odradek.cli.store import opened_store
from odradek.client.admin.security import Acl
from odradek.client.admin.topics import Outcome
from odradek.model.acl import AclEntry, AclOperation, Binding, ResourcePattern, ResourceType
from odradek.model.errors import ApiError

WARNING: Final = (
    "Warning: support for ACL configuration directly through the authorizer is deprecated and will "
    "be removed in a future release. Please use --bootstrap-server instead to set ACLs through the "
    "admin client."
)
AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
_CONNECT: Final = "zookeeper.connect"
_TIMEOUT: Final = "zookeeper.connection.timeout.ms"
_PREFIX: Final = "authorizer."


class StoredRights:
    """The ACLs in a coordination store, with the interface of those of a cluster."""

    def __init__(self, admin: AclAdmin) -> None:
        self._admin = admin

    async def describe(self, wanted: Acl) -> list[Acl]:
        return [_acl(binding) for binding in await self._admin.describe(AclFilter(*wanted))]

    async def create(self, acls: Sequence[Acl]) -> list[Outcome]:
        """Store ACLs; of each, its error or None."""
        outcomes: list[Outcome] = []
        sound = []
        for acl in acls:
            binding = _binding(acl)
            try:
                check_new(binding)
            except ApiError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
                sound.append(binding)
        await self._admin.create(sound)
        return outcomes

    async def delete(self, filters: Sequence[Acl]) -> None:
        for wanted in filters:
            await self._admin.delete(await self._admin.describe(AclFilter(*wanted)))


def run(flags: Flags, work: Callable[[StoredRights], Awaitable[int]]) -> int:
    """Run `work` on the store that the properties name. Returns the exit code.

    Raises:
        IllegalArgumentError: the properties are invalid; ConfigError: they name no store.
        FileError: the file for TLS cannot be read.
        OdradekError: the store cannot be used, or any failure of the work.
    """
    authorizer = flags.text("authorizer", AUTHORIZERS[0])
    if authorizer not in AUTHORIZERS:
        raise _NoClassError(authorizer)
    given = _properties(flags)
    where = given.get(_CONNECT)
    if where is None:
        raise ConfigError(
            f"Missing required configuration `{_CONNECT}` which has no default value."
        )
    tls = properties_of(flags.value("zk-tls-config-file"))
    return asyncio.run(_session(where, given, tls, work, creates=flags.has("add")))


class _NoClassError(IllegalArgumentError):
    exception = "java.lang.ClassNotFoundException"


def _properties(flags: Flags) -> dict[str, str]:
    words = flags.values("authorizer-properties")
    for word in words:
        if "=" not in word:
            raise IllegalArgumentError(f"Missing value for key {word}}}")
    found = pairs(words)
    return {name.removeprefix(_PREFIX): value for name, value in found.items()}


async def _session(
    where: str,
    given: Mapping[str, str],
    tls: Mapping[str, str],
    work: Callable[[StoredRights], Awaitable[int]],
    *,
    creates: bool,
) -> int:
    text = given.get(_TIMEOUT, "30000")
    if not text.isdecimal():
        raise ConfigError(f"Invalid value {text} for configuration {_TIMEOUT}: Not a number")
    merged = {**given, **tls}
    async with opened_store(where, timeout_ms=int(text), tls=merged, creates=creates) as store:
        return await work(StoredRights(AclAdmin(store, is_configured=True)))


def _acl(binding: Binding) -> Acl:
    pattern, entry = binding
    return Acl(
        pattern.resource_type,
        pattern.name,
        PATTERN_PREFIXED if pattern.prefixed else PATTERN_LITERAL,
        entry.principal,
        entry.host,
        entry.operation,
        permission_of(entry),
    )


def _binding(acl: Acl) -> Binding:
    if acl.name is None or acl.principal is None or acl.host is None:
        raise ValueError(f"{acl}: an ACL to be stored has a resource, a principal and a host")
    return Binding(
        ResourcePattern(
            ResourceType(acl.resource_type), acl.name, acl.pattern_type == PATTERN_PREFIXED
        ),
        AclEntry(
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            acl.permission == PERMISSION_ALLOW,
        ),
    )


def warn() -> None:
    """Print Kafka's warning that this way is deprecated."""
    print(WARNING, file=sys.stderr)
