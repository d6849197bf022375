"""After all faults have healed, the cluster must recover, in these steps of a minute at most.

    served       all partitions have leaders in clients' metadata, all replicas are in sync,
                 coordinators answer, and some client was acknowledged something in this run
    restored     reassigned partitions get their original number of replicas
    balanced     the preferred replicas lead: automatically, or after a request
    read         all readers reach the end

No client writes from the second step on.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.model.partition import TopicPartition
from odradek.sim.checks.replication import ReplicationChecker
from odradek.sim.clients.all_clients import AllClients
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.groups import GROUP_OVER_S, GroupMember
from odradek.sim.clients.reassigners import Reassigner
from odradek.sim.clients.transactions import TRANSACTIONS_OVER_S
from odradek.sim.world.cluster import SimulatedCluster

# How long recovery may take: session time-out, start, election and clients' pauses.
RECOVER_S: Final = 60.0
_LAST_WORDS_S: Final = 5.0  # for requests in flight
_LOOK_S: Final = 0.2
PROBES: Final = tuple(f"probe-{number}" for number in range(4))  # names of groups


class Settling:
    """The steps from the last fault to the final checks."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        workload: AllClients,
        replication: ReplicationChecker,
        violated: Callable[[str], None],
        *,
        leaders_return: bool,
    ) -> None:
        """`leaders_return`: automatically to the preferred replicas, without a request."""
        self._cluster = cluster
        self._workload = workload
        self._replication = replication
        self._leaders_return = leaders_return
        self._violated = violated
        self._client = Client(cluster, "judge")
        self._reassigner = Reassigner(workload, self._client)
        self._random = cluster.randomness("settling")

    async def run(self) -> None:
        """Run all steps; after a violation the next step is tried all the same."""
        workload = self._workload
        await self._client.run(self._serve_all())
        workload.is_over = True
        await asyncio.sleep(_LAST_WORDS_S)
        if workload.ledger is not None:
            await asyncio.sleep(TRANSACTIONS_OVER_S)
        if workload.book is not None:
            await asyncio.sleep(GROUP_OVER_S)
        if len(self._cluster.brokers) > 1:
            await self._client.run(self._restore())
            await self._client.run(self._balance())
        await self._read_all()

    def _now_s(self) -> float:
        return self._cluster.loop.time()

    async def _serve_all(self) -> None:
        deadline_s = self._now_s() + RECOVER_S
        while True:
            missing = [*await self._unserved(), *self._replication.unsettled()]
            if not self._workload.last_success_s:
                missing.append("nothing was acknowledged to any client")
            if not missing:
                return
            if self._now_s() > deadline_s:
                self._violated(
                    f"not served {RECOVER_S:.0f} s after everything has healed: {missing}"
                )
                return

    async def _unserved(self) -> list[str]:
        """The partitions without a leader in clients' metadata."""
        wanted = {
            TopicPartition(topic.name, index)
            for topic in self._workload.topics
            for index in range(topic.partitions)
        }
        try:
            answer = await self._client.refresh(None)
        except TROUBLE as error:
            await self._client.begin_anew()
            return [str(error)]
        led = {
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in answer.topics
            for partition in topic.partitions
            if partition.leader_id >= 0 and not partition.error_code
        }
        for topic in answer.topics:
            self._workload.history.topic_seen(topic.topic_id, "metadata")
        await self._client.pause()
        missing = sorted(map(str, wanted - led))
        return missing if self._workload.book is None else [*missing, *await self._loading()]

    async def _loading(self) -> list[str]:
        """The groups whose coordinator does not answer, one a partition of `__consumer_offsets`."""
        missing = []
        for group in PROBES:
            try:
                connection = await GroupMember.coordinator(self._client, group)
                offsets = await GroupMember.committed_offsets(connection, [0], group)
            except TROUBLE as error:
                await self._client.begin_anew()
                return [f"{group}: {error}"]
            if offsets is None:
                missing.append(f"the coordinator of {group}")
        return missing

    async def _restore(self) -> None:
        """Request the original number of replicas, and wait until they are in sync."""
        ids = [broker.id for broker in self._cluster.brokers]
        factor = self._workload.replication_factor
        targets = {
            TopicPartition(topic.name, index): tuple(self._random.sample(ids, factor))
            for topic in self._workload.topics
            for index in range(topic.partitions)
        }
        if not targets:
            return
        deadline_s = self._now_s() + RECOVER_S
        while not await self._is_accepted(targets):
            if self._now_s() > deadline_s:
                self._violated("no controller accepts the reassignment that restores the replicas")
                return
            await self._client.pause()
        await self._until(
            lambda: [*self._replication.misplaced(targets), *self._replication.unsettled()],
            "the replicas are not restored",
        )

    async def _is_accepted(self, targets: dict[TopicPartition, tuple[int, ...]]) -> bool:
        try:
            return await self._reassigner.move(targets)
        except TROUBLE:
            await self._client.begin_anew()
            return False

    async def _balance(self) -> None:
        """Wait for preferred leaders: automatically if the interval is short, or by request."""
        if not self._leaders_return:
            deadline_s = self._now_s() + RECOVER_S
            by_znode = self._random.random() < 0.3
            while not await self._is_asked(by_znode=by_znode) and self._now_s() < deadline_s:
                await self._client.pause()
        await self._until(self._replication.badly_led, "preferred leaders do not lead")

    async def _is_asked(self, *, by_znode: bool) -> bool:
        try:
            if by_znode:
                return await self._reassigner.elect_by_znode(self._replication.partitions)
            return await self._reassigner.elect()
        except TROUBLE:
            await self._client.begin_anew()
            return False

    async def _until(self, missing: Callable[[], list[str]], what: str) -> None:
        deadline_s = self._now_s() + RECOVER_S
        while missing():
            if self._now_s() > deadline_s:
                self._violated(f"{what} after {RECOVER_S:.0f} s: {missing()}")
                return
            await asyncio.sleep(_LOOK_S)

    async def _read_all(self) -> None:
        deadline_s = self._now_s() + RECOVER_S
        for reader in self._workload.readers:
            while not reader.has_read_all and self._now_s() < deadline_s:
                await self._client.run(reader.read_some())
            if not reader.has_read_all:
                self._violated("a reader does not reach the end")
        if self._workload.ledger is not None:
            self._workload.ledger.check()
