"""The stored SCRAM credentials, which brokers do not enforce, for `odradek up`."""

import asyncio
from collections.abc import Sequence

from odradek.client.admin.security import describe_scram
from odradek.client.cluster import Cluster
from odradek.model.errors import OdradekError

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
        users = await describe_scram(cluster, [])
        if users:
            found.append(f"SCRAM credentials of {len(users)} users")
    return found
