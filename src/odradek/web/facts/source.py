"""The cluster that the page shows: how it is reached, and the processes of a local one."""

import asyncio
import pathlib
from collections.abc import Mapping
from dataclasses import replace

from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.explain.reports import Asked, Query, ask_cluster
from odradek.local.client_files import admin_file
from odradek.local.directory import DEFAULT_DIR, ClusterDirectory
from odradek.local.supervisor import Supervisor
from odradek.plan.commands import Caller

CONNECT_WAIT_MS = 2_000


class Source:
    """A cluster by its properties, or by its directory on this machine, or both."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        directory: pathlib.Path | None = None,
        config: str | None = None,
    ) -> None:
        self.directory = directory
        self.properties = dict(properties)
        self.named = Caller(
            bootstrap=properties.get("bootstrap.servers", ""),
            config=config or (admin_file(directory) if directory else None) or "",
            options=""
            if directory is None or str(directory) == DEFAULT_DIR
            else f" --dir {directory}",
        )
        self._cluster: Cluster | None = None
        self._connecting = asyncio.Lock()

    @property
    def bootstrap(self) -> str:
        return self.named.bootstrap

    @property
    def server(self) -> str:
        """The flags that name the cluster in a command, after a blank."""
        return self._caller.server

    async def cluster(self) -> Cluster:
        """The connections to the cluster, opened when they are first needed.

        Raises:
            BootstrapError: no broker answers.
        """
        async with self._connecting:
            if self._cluster is None:
                settings = ClientSettings.from_properties(self.properties)
                self._cluster = await Cluster.connect(settings, wait_ms=CONNECT_WAIT_MS)
            return self._cluster

    def caller(self) -> Caller:
        """How commands name the cluster, with the present state of its processes here."""
        if self.directory is None:
            return self.named
        report = Supervisor(ClusterDirectory(self.directory), say=lambda _text: None).status()
        return replace(
            self.named,
            local={broker["id"]: broker["state"] for broker in report["brokers"]},
            ends={b["id"]: b["reason"] for b in report["brokers"] if b.get("reason")},
        )

    async def ask(self, wanted: Mapping[str, Query]) -> Asked:
        """These reports of all brokers that answer.

        Raises:
            BootstrapError: no broker answers.
        """
        cluster = await self.cluster()
        return await ask_cluster(cluster, await asyncio.to_thread(self.caller), wanted)

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
