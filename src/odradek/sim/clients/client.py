"""A client process on a host of its own, with connections to the cluster.

The connection code is the shipped one (`odradek.client`). `Client` adds what an application does:
after an error it closes all connections, waits, and connects again.
"""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.sim.world.cluster import SimulatedCluster
from odradek.sim.world.process import MortalLoop
from odradek.wire.messages.metadata import MetadataResponse

# The errors of crashed brokers and failed networks. Any other exception is a fault of ours.
TROUBLE: Final = (OdradekError, ConnectionError)
_PAUSE_MS_MAX: Final = 400


class Client:
    """A client process with a host, a random generator and connections of its own."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, *, timeout_ms: int | None = None
    ) -> None:
        """`timeout_ms` of connections and requests; None: a drawn one."""
        self.random: random.Random = cluster.randomness(name)
        self.process = MortalLoop(cluster.loop, name)
        cluster.processes.append(self.process)
        cluster.network.join(self.process)
        self.servers = cluster.bootstrap
        self._report = cluster.witness.violated
        self._timeout_ms = timeout_ms or self.random.choice((1_500, 3_000, 6_000))
        self._finding = asyncio.Lock()
        self._cluster: Cluster | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a task in this process; an exception of it is a violation."""
        task = self.process.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._report(f"{self.process.name} failed: {task.exception()!r}")

    async def pause(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self.random.uniform(10, _PAUSE_MS_MAX) / 1000)

    async def cluster(self) -> Cluster:
        """The connected cluster, after bootstrapping again if `begin_anew` has closed it.

        Raises:
            OdradekError, ConnectionError: no bootstrap server can be reached.
        """
        async with self._finding:
            if self._cluster is None:
                self._cluster = await Cluster.bootstrap(
                    self.servers,
                    client_id=self.process.name,
                    timeout_ms=self._timeout_ms,
                    draw=lambda: 0.5,  # `pause` draws the pauses
                )
            return self._cluster

    async def leader(self, partition: TopicPartition) -> Connection:
        """The connection to a partition's leader; if there is none, the metadata is fetched again.

        Raises:
            OdradekError, ConnectionError: there is no leader in time, or it cannot be reached.
        """
        cluster = await self.cluster()
        deadline_s = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        while cluster.metadata.leader(partition) == NO_LEADER:
            await cluster.refresh([partition.topic])
            if cluster.metadata.leader(partition) != NO_LEADER:
                break
            if asyncio.get_running_loop().time() > deadline_s:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
            await self.pause()
        return await cluster.leader(partition)

    async def controller(self) -> Connection:
        """The connection to the controller."""
        return await (await self.cluster()).controller()

    async def refresh(self, topics: Sequence[str] | None) -> MetadataResponse:
        return await (await self.cluster()).refresh(topics)

    async def begin_anew(self) -> None:
        """After an error: close all connections, and wait until the next attempt."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()
        await self.pause()
