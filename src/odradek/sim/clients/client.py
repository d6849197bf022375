"""A client process: a host of its own, and a way to the cluster that it finds again and again.

The connection code is the shipped one (`odradek.client`). `Client` adds what an application
would: it begins anew when everything is lost, and tries again after a while.
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

# What goes wrong when brokers die and networks fail. Everything else is ours to explain.
TROUBLE: Final = (OdradekError, ConnectionError)
_PAUSE_MS_MAX: Final = 400


class Client:
    """One client process."""

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self.random: random.Random = cluster.randomness(name)
        self.process = MortalLoop(cluster.loop, name)
        cluster.processes.append(self.process)
        cluster.network.join(self.process)
        self.servers = cluster.bootstrap
        self._report = cluster.witness.violated
        self._timeout_ms = self.random.choice((1_500, 3_000, 6_000))
        self._finding = asyncio.Lock()
        self._cluster: Cluster | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Let this process do something."""
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
        """The cluster, found anew if it was lost.

        Raises:
            OdradekError, ConnectionError: it cannot be found.
        """
        async with self._finding:
            if self._cluster is None:
                self._cluster = await Cluster.bootstrap(
                    self.servers,
                    client_id=self.process.name,
                    timeout_ms=self._timeout_ms,
                    draw=lambda: 0.5,  # its pauses are drawn above
                )
            return self._cluster

    async def leader(self, partition: TopicPartition) -> Connection:
        """The connection to a partition's leader; who finds none looks again now and then.

        Raises:
            OdradekError, ConnectionError: there is none, or it cannot be reached.
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
        """Something went wrong: forget all connections, and wait a little."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()
        await self.pause()
