"""A simulated administrator that reassigns replicas, by request and by znode.

Partitions get more or fewer replicas, other brokers or another order of the same ones; at times a
running reassignment is cancelled, and preferred leaders are elected. The administrator does not
wait for a reassignment to end: the next one may replace it. In the end every partition is assigned
as many replicas as its topic was created with (`odradek.sim.run.settling`), and has to get them.

A request is sent once, whether a response comes or not: the checks of replicas hold either way.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.coord import layout
from odradek.coord.memory import MemoryStore
from odradek.coord.store import NodeExistsError, NoNodeError
from odradek.model.errors import RETRIABLE, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.sim.checks.history import Topic
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.world.cluster import SESSION_TIMEOUT_MS
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

Target = Sequence[int] | None  # None: cancel the reassignment that is under way

TIMEOUT_MS: Final = 2_000
REPLICAS_MIN: Final = 2  # as many as have to be in sync
MEAN_PAUSE_S: Final = 3.0
# The error codes that a valid request may get.
EXPECTED: Final = RETRIABLE | {
    ErrorCode.NONE,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # a broker in it is not registered at the moment
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # it is being deleted
}


class Reassigner:
    """Sends random reassignments and elections."""

    def __init__(self, workload: "Workload", client: Client) -> None:
        cluster = workload.cluster
        self._workload = workload
        self._client = client
        self._random = client.random
        self._brokers = [broker.id for broker in cluster.brokers]
        self._store = MemoryStore(
            cluster.tree, session_timeout_ms=SESSION_TIMEOUT_MS, fate=cluster.fate
        )

    async def run(self) -> None:
        """Send requests until the workload ends."""
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(1 / MEAN_PAUSE_S))
            topics = self._workload.topics
            if not topics or self._workload.is_over:
                continue
            try:
                await self._send_one(self._random.choice(topics))
            except TROUBLE:
                await self._client.begin_anew()

    async def _send_one(self, topic: Topic) -> None:
        match self._random.randrange(10):
            case 0 | 1:
                await self.move(dict.fromkeys(self._some_of(topic)))
            case 2:
                await self.elect()
            case 3:
                await self.elect_by_znode(self._some_of(topic))
            case 4 | 5:
                await self._move_by_znode({name: self._draw() for name in self._some_of(topic)})
            case _:
                await self.move({name: self._draw() for name in self._some_of(topic)})

    def _some_of(self, topic: Topic) -> list[TopicPartition]:
        count = self._random.randint(1, topic.partitions)
        return [
            TopicPartition(topic.name, index)
            for index in sorted(self._random.sample(range(topic.partitions), count))
        ]

    def _draw(self) -> list[int]:
        factor = self._workload.replication_factor
        count = self._random.choice((min(REPLICAS_MIN, factor), factor))
        return self._random.sample(self._brokers, count)

    # ---------------------------------------------------------------------- the requests

    async def move(self, targets: Mapping[TopicPartition, Target]) -> bool:
        """Send AlterPartitionReassignments. Returns whether all of it was accepted.

        Raises:
            OdradekError, ConnectionError: no response came.
        """
        topics: dict[str, ReassignableTopic] = {}
        for name, target in targets.items():
            topic = topics.setdefault(name.topic, ReassignableTopic(name=name.topic))
            replicas = None if target is None else list(target)
            topic.partitions.append(
                ReassignablePartition(partition_index=name.partition, replicas=replicas)
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=list(topics.values())
        )
        controller = await self._client.controller()
        answer = await controller.request(request, AlterPartitionReassignmentsResponse)
        codes = [part.error_code for topic in answer.responses for part in topic.partitions]
        return await self._check_codes("AlterPartitionReassignments", [answer.error_code, *codes])

    async def elect(self) -> bool:
        """Request a preferred leader for every partition. Returns whether all were elected.

        Raises:
            OdradekError, ConnectionError: no response came.
        """
        controller = await self._client.controller()
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS)
        answer = await controller.request(request, ElectLeadersResponse)
        codes = [
            part.error_code
            for topic in answer.replica_election_results
            for part in topic.partition_result
        ]
        return await self._check_codes("ElectLeaders", [answer.error_code, *codes])

    async def _check_codes(self, what: str, codes: Sequence[int]) -> bool:
        for code in codes:
            if code not in EXPECTED:
                self._workload.unexpected(f"{what}: {ErrorCode(code).name}")
        if ErrorCode.NOT_CONTROLLER in codes:
            await self._client.begin_anew()
        return not any(codes)

    async def _move_by_znode(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        data = layout.encode_reassign_partitions(targets)
        await self._write(layout.REASSIGN_PARTITIONS, data)

    async def elect_by_znode(self, partitions: Sequence[TopicPartition]) -> bool:
        """Write the znode of tools before KIP-183. Returns whether it was written.

        Raises:
            StoreError: the store may or may not have written it.
        """
        data = layout.encode_partitions(partitions)
        return await self._write(layout.PREFERRED_REPLICA_ELECTION, data)

    async def _write(self, path: str, data: bytes) -> bool:
        try:
            if not self._store.session_id:
                await self._store.open()
            await self._store.create(path, data)
        except (NodeExistsError, NoNodeError):
            return False  # an earlier request is not done yet; or no broker has run before
        return True
