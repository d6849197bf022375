"""The stored ACLs, quotas and SCRAM credentials that brokers do not enforce, for `odradek up`."""

import asyncio
from collections.abc import Sequence

from odradek.client.admin.security import (
    ANY,
    Acl,
    describe_acls,
    describe_client_quotas,
    describe_scram,
)
from odradek.client.cluster import Cluster
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode, OdradekError

_TIMEOUT_MS = 5_000


def unenforced(servers: str) -> Sequence[str]:
    """A line for each kind that is set; empty if no broker answers."""
    try:
        return asyncio.run(_ask(servers))
    except (OdradekError, ConnectionError):
        return ()


async def _ask(servers: str) -> list[str]:
    found = []
    async with await Cluster.bootstrap(servers, timeout_ms=_TIMEOUT_MS) as cluster:
        quotas = await describe_client_quotas(cluster, [], strict=False)
        if quotas:
            found.append(f"quotas of {len(quotas)} users, clients or addresses")
        users = await describe_scram(cluster, [])
        if users:
            found.append(f"SCRAM credentials of {len(users)} users")
        acls = await _acls(cluster)
        if acls:
            found.append(f"{acls} ACLs")
    return found


async def _acls(cluster: Cluster) -> int:
    everything = Acl(ResourceType.ANY, None, ANY, None, None, AclOperation.ANY, ANY)
    try:
        return len(await describe_acls(cluster, everything))
    except ApiError as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        return 0
