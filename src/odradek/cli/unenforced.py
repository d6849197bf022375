"""The stored quotas of addresses and SCRAM credentials that brokers do not enforce."""

import asyncio
from collections.abc import Sequence
from typing import Final

from odradek.client.admin.security import (
    QuotaFilter,
    describe_client_quotas,
    describe_scram,
)
from odradek.client.cluster import Cluster
from odradek.model.errors import OdradekError

_TIMEOUT_MS = 5_000
SPECIFIED: Final = 2  # a filter that matches all entities of a type


def unenforced(servers: str) -> Sequence[str]:
    """A line for each kind that is set; empty if no broker answers."""
    try:
        return asyncio.run(_ask(servers))
    except (OdradekError, ConnectionError):
        return ()


async def _ask(servers: str) -> list[str]:
    found = []
    async with await Cluster.bootstrap(servers, timeout_ms=_TIMEOUT_MS) as cluster:
        quotas = await describe_client_quotas(
            cluster, [QuotaFilter("ip", SPECIFIED, None)], strict=False
        )
        if quotas:
            found.append(f"quotas of {len(quotas)} addresses")
        users = await describe_scram(cluster, [])
        if users:
            found.append(f"SCRAM credentials of {len(users)} users")
    return found
