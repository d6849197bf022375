"""A cluster: found through any of its brokers, with a connection to each that is needed.

    async with await Cluster.bootstrap("a:9092,b:9092") as cluster:
        connection = await cluster.leader(TopicPartition("orders", 0))

Metadata is asked for when something is not known, and again when the caller says that it is out
of date (`refresh`): a client learns that its picture is old from the errors it gets.
"""

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Final, Self

from odradek.client.connection import SOFTWARE_NAME, Connection
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.wire.schema import ZERO_UUID

_RETRY_MS: Final = 20


class BootstrapError(OdradekError):
    """No broker of the list answered; the message has each with its reason."""


class Cluster:
    """The brokers, and which of them leads what, as far as it was asked."""

    def __init__(self, seed: Connection, *, client_id: str, timeout_ms: int) -> None:
        self._connections = {-1: seed}  # by broker id; the seed's is not known
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._controller = -1
        self._dialling = asyncio.Lock()

    @classmethod
    async def bootstrap(
        cls, servers: str, *, client_id: str = SOFTWARE_NAME, timeout_ms: int = 30_000
    ) -> Self:
        """Connect to the first broker of `host:port,...` that answers.

        Raises:
            BootstrapError: none does.
        """
        reasons = []
        for server in servers.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not port.isdecimal():
                raise BootstrapError(f"{server.strip()!r}: must be host:port")
            try:
                seed = await Connection.open(
                    host.strip("[]"), int(port), client_id=client_id, timeout_ms=timeout_ms
                )
            except ConnectionError as error:
                reasons.append(str(error))
            else:
                return cls(seed, client_id=client_id, timeout_ms=timeout_ms)
        raise BootstrapError("no broker can be reached: " + "; ".join(reasons))

    async def refresh(self, topics: Collection[str] | None = ()) -> MetadataResponse:
        """Ask any broker how things stand: with some topics, all of them (None) or none."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        answer = await (await self._any()).request(request, MetadataResponse)
        self._controller = answer.controller_id
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:
                continue
            self._topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                self._leaders[name] = partition.leader_id
        return answer

    async def leader(self, partition: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition; waits while there is none.

        Raises:
            ApiError: there was none within the time-out.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_ms / 1000
        while self._leaders.get(partition, NO_LEADER) not in self._addresses:
            if loop.time() >= deadline_s:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {partition}")
            await self.refresh([partition.topic])
            if self._leaders.get(partition, NO_LEADER) not in self._addresses:
                await asyncio.sleep(_RETRY_MS / 1000)
        return await self.broker(self._leaders[partition])

    async def controller(self) -> Connection:
        """A connection to the controller."""
        if self._controller not in self._addresses:
            await self.refresh()
        return await self.broker(self._controller)

    async def broker(self, broker_id: int) -> Connection:
        """A connection to one broker, kept for the next one who needs it.

        Raises:
            ApiError: no live broker has this id.
            ConnectionError: it cannot be reached.
        """
        async with self._dialling:
            connection = self._connections.get(broker_id)
            if connection is not None and connection.is_open:
                return connection
            if broker_id not in self._addresses:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
            host, port = self._addresses[broker_id]
            connection = await Connection.open(
                host, port, client_id=self._client_id, timeout_ms=self._timeout_ms
            )
            self._connections[broker_id] = connection
            return connection

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic that metadata was asked for."""
        return self._topic_ids.get(topic, ZERO_UUID)

    async def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _any(self) -> Connection:
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        reasons = []
        for broker_id in self._addresses:
            try:
                return await self.broker(broker_id)
            except ConnectionError as error:
                reasons.append(str(error))
        raise BootstrapError("no broker can be reached any longer: " + "; ".join(reasons))
