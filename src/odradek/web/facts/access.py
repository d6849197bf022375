"""Who may do what: users with passwords, ACLs and quotas."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client.admin.security import (
    ANY,
    DEFAULT,
    SPECIFIED,
    Acl,
    QuotaEntity,
    QuotaFilter,
    describe_acls,
    describe_client_quotas,
    describe_scram,
)
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError
from odradek.web.facts.attempt import attempt
from odradek.web.facts.source import Source

_ALL: Final = Acl(ResourceType.ANY, None, ANY, None, None, AclOperation.ANY, ANY)
_KINDS: Final = ("user", "client-id", "ip")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFacts:
    """What the cluster has; `problems` has what it did not answer, by kind."""

    users: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    acls: tuple[Acl, ...] = ()
    quotas: tuple[tuple[QuotaEntity, tuple[tuple[str, float], ...]], ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)


async def collect_access(source: Source, _argument: str, _before: object) -> AccessFacts:
    """Users, ACLs and quotas.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    cluster = await source.cluster()
    problems: dict[str, str] = {}
    users = await attempt(problems, "users", describe_scram(cluster, []), {})
    acls = await attempt(problems, "ACLs", describe_acls(cluster, _ALL), [])
    quotas: dict[QuotaEntity, list[tuple[str, float]]] = {}
    for kind in _KINDS:
        for match in (SPECIFIED, DEFAULT):
            asked = describe_client_quotas(cluster, [QuotaFilter(kind, match)], strict=False)
            quotas.update(await attempt(problems, "quotas", asked, []))
    return AccessFacts(
        users={
            user: tuple(found) for user, found in users.items() if not isinstance(found, ApiError)
        },
        acls=tuple(sorted(acls)),
        quotas=tuple((entity, tuple(values)) for entity, values in quotas.items()),
        problems=problems,
    )
