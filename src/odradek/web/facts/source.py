"""The cluster that the page shows: how it is reached, and the processes of a local one."""

import asyncio
import pathlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.explain.reports import Asked, Query, ask_cluster
from odradek.local.client_files import SaslUser, admin_file, jaas
from odradek.local.directory import ClusterDirectory, unless_default
from odradek.local.supervisor import Supervisor
from odradek.model.errors import OdradekError
from odradek.plan.commands import Caller
from odradek.wire.messages.metadata import MetadataResponse

CONNECT_WAIT_MS: Final = 2_000
USER_CONFIG: Final = "client.properties"  # in commands: the file of the user who reads them
ANSWER_S: Final = 2.0  # a broker that takes longer is left out for this time


class Source:
    """A cluster by its properties, or by its directory on this machine, or both."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        directory: pathlib.Path | None = None,
        config: str | None = None,
        has_processes: bool = True,
    ) -> None:
        self.directory = directory
        self.properties = dict(properties)
        self._has_processes = has_processes and directory is not None
        self.named = Caller(
            bootstrap=properties.get("bootstrap.servers", ""),
            config=config or (admin_file(directory) if directory else None) or "",
            options=unless_default(directory) if directory and self._has_processes else (),
        )
        self._cluster: Cluster | None = None
        self._answered: int | None = None  # the broker that answered last
        self._connecting = asyncio.Lock()

    def as_user(self, login: SaslUser) -> "Source":
        """The same cluster with the rights of a user, and without the processes of this machine."""
        return Source(
            {**self.properties, "sasl.jaas.config": jaas(login)},
            directory=self.directory,
            config=USER_CONFIG,
            has_processes=False,
        )

    @property
    def bootstrap(self) -> str:
        return self.named.bootstrap

    @property
    def server(self) -> tuple[str, ...]:
        """The words that name the cluster in a command."""
        return self.named.server

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
        if self.directory is None or not self._has_processes:
            return self.named
        report = Supervisor(ClusterDirectory(self.directory), say=lambda _text: None).status()
        return replace(
            self.named,
            local={broker["id"]: broker["state"] for broker in report["brokers"]},
            ends={b["id"]: b["reason"] for b in report["brokers"] if b.get("reason")},
        )

    async def metadata(self, topics: Collection[str] | None) -> MetadataResponse:
        """Metadata of the first broker that answers soon: another one may be paused.

        Raises:
            OdradekError, ConnectionError: no broker answers.
        """
        cluster = await self.cluster()
        failure: Exception | None = None
        for broker in self._in_order(cluster):
            try:
                async with asyncio.timeout(ANSWER_S):
                    found = await cluster.refresh(topics, broker=broker)
            except (OdradekError, ConnectionError) as error:
                failure = error
            except TimeoutError:
                failure = ConnectionError(f"no broker answers within {ANSWER_S:.0f} s")
            else:
                self._answered = broker
                return found
        raise failure or ConnectionError("there is no broker")

    def _in_order(self, cluster: Cluster) -> list[int | None]:
        """The brokers to ask: the one that answered last, the others, and the bootstrap servers."""
        known = [each for each in cluster.metadata.nodes if each != self._answered]
        return [*([self._answered] if self._answered is not None else []), *known, None]

    async def ask(self, wanted: Mapping[str, Query]) -> Asked:
        """These reports of all brokers that answer.

        Raises:
            BootstrapError: no broker answers.
        """
        cluster = await self.cluster()
        caller = await asyncio.to_thread(self.caller)
        await self.metadata(())
        return await ask_cluster(cluster, caller, wanted, timeout_s=ANSWER_S)

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
