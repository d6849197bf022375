"""What the kit asks a cluster as a client: coroutines, each with connections of its own."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.broker.faults.failing import KIT_CLIENT_ID
from odradek.client.admin.groups import (
    ask_coordinator,
    committed_offsets,
    describe_group,
    list_groups,
)
from odradek.client.admin.topics import (
    NewTopic,
    create_topics,
    describe_cluster,
    describe_topics,
)
from odradek.client.cluster import (
    GROUP,
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Cluster,
)
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.group.protocol import MemberSubscription, encode_subscription
from odradek.client.kafka_errors import check
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.testkit.errors import KitError
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.wire.messages.metadata import MetadataResponsePartition

_PAUSE_S: Final = 0.01
_TIMEOUT_S: Final = 30.0
_UNKNOWN_S: Final = 2.0
_NO_TOPICS: Final = encode_subscription(MemberSubscription(topics=()))
READ_COMMITTED: Final = "read_committed"

KeyAndValue = tuple[bytes | None, bytes | None]


class Committed(NamedTuple):
    """Of one partition: the committed offset of a group, -1 if there is none, and the end."""

    offset: int
    end: int


class Clients:
    """Requests to the brokers of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        """`bootstrap` has brokers that answer."""
        self._bootstrap = bootstrap

    async def _cluster(self) -> Cluster:
        return await Cluster.bootstrap(self._bootstrap, client_id=KIT_CLIENT_ID)

    def _properties(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"bootstrap.servers": self._bootstrap, "client.id": KIT_CLIENT_ID, **more}

    # ------------------------------------------------------------------------------- topics

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic; return when all running brokers have its leaders in their metadata.

        Raises:
            KitError: it cannot be created.
        """
        wanted = NewTopic(name, partitions, replicas, configs=configs)
        async with await self._cluster() as cluster:
            refused = (await create_topics(cluster, [wanted]))[name]
            if refused is not None:
                raise KitError(f"topic {name}: {refused}")
        async with asyncio.timeout(_TIMEOUT_S):
            for address in self._bootstrap.split(","):
                await self._led(address, name, partitions)

    async def _led(self, address: str, name: str, partitions: int) -> None:
        async with await Cluster.bootstrap(address, client_id=KIT_CLIENT_ID) as cluster:
            while True:
                found = await self._partitions(cluster, name)
                if len(found) == partitions and all(p.leader_id >= 0 for p in found):
                    return
                await asyncio.sleep(_PAUSE_S)

    async def partitions(self, topic: str) -> list[MetadataResponsePartition]:
        """The partitions of a topic as a broker has them in its metadata, by index.

        Raises:
            KitError: there is no such topic, and none appears within two seconds: a broker that
                has just started serves before it has received the cluster's metadata.
        """
        deadline_s = time.monotonic() + _UNKNOWN_S
        async with await self._cluster() as cluster:
            while not (found := await self._partitions(cluster, topic)):
                if time.monotonic() >= deadline_s:
                    raise KitError(f"there is no topic {topic}")
                await asyncio.sleep(_PAUSE_S)
        return found

    @staticmethod
    async def _partitions(cluster: Cluster, topic: str) -> list[MetadataResponsePartition]:
        try:
            (found,) = await describe_topics(cluster, [topic])
        except ApiError as error:
            if error.code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.LEADER_NOT_AVAILABLE,
            ):
                return []
            raise
        return sorted(found.partitions, key=lambda each: each.partition_index)

    async def controller(self) -> int:
        """The id of the active controller; -1 if no broker is."""
        async with await self._cluster() as cluster:
            return (await describe_cluster(cluster)).controller

    # ------------------------------------------------------------------------------ records

    async def produce(
        self, topic: str, records: Sequence[KeyAndValue], partition: int | None
    ) -> list[int]:
        """Write records with acks=all; their offsets."""
        settings = ProducerSettings.from_properties(self._properties({}))
        async with await Producer.open(settings) as producer:
            deliveries = [
                await producer.send(topic, value, key=key, partition=partition)
                for key, value in records
            ]
            return [(await delivery).offset for delivery in deliveries]

    async def records(self, topic: str, isolation: str) -> list[ConsumerRecord]:
        """All records of a topic, by partition and offset."""
        settings = ConsumerSettings.from_properties(
            self._properties(
                {
                    "enable.auto.commit": "false",
                    "auto.offset.reset": "earliest",
                    "isolation.level": isolation,
                    "fetch.max.wait.ms": "20",
                }
            )
        )
        count = len(await self.partitions(topic))
        partitions = [TopicPartition(topic, index) for index in range(count)]
        found: list[ConsumerRecord] = []
        async with await Consumer.open(settings) as consumer:
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            ends = await consumer.end_offsets(partitions)
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    found += await consumer.poll(50)
        return sorted(found, key=lambda each: (each.partition, each.offset))

    async def end_offsets(self, topic: str, isolation: str) -> dict[int, int]:
        """The end offsets of a topic's partitions; read_committed: the last stable offsets."""
        count = len(await self.partitions(topic))
        partitions = [TopicPartition(topic, index) for index in range(count)]
        settings = ConsumerSettings.from_properties(
            self._properties({"isolation.level": isolation, "enable.auto.commit": "false"})
        )
        async with await Consumer.open(settings) as consumer:
            ends = await consumer.end_offsets(partitions)
        return {each.partition: end for each, end in ends.items()}

    # ------------------------------------------------------------------------------- groups

    async def committed(self, group: str, topic: str) -> dict[int, Committed]:
        """The committed offset and the end of each partition of a topic."""
        ends = await self.end_offsets(topic, READ_COMMITTED)
        async with await self._cluster() as cluster:
            found = await committed_offsets(cluster, group)
        offsets = {index: found.get(TopicPartition(topic, index)) for index in ends}
        return {
            index: Committed(-1 if known is None else known.offset, ends[index])
            for index, known in offsets.items()
        }

    async def groups_with(self, topic: str) -> list[str]:
        """The groups that have committed offsets in a topic."""
        async with await self._cluster() as cluster:
            groups = [each.group_id for each in await list_groups(cluster)]
            return [
                group
                for group in groups
                if any(p.topic == topic for p in await committed_offsets(cluster, group))
            ]

    async def force_rebalance(self, group: str) -> None:
        """Let a member join, and leave before the others have: they all join again, once.

        Raises:
            KitError: the group has no members.
        """
        async with await self._cluster() as cluster:
            described = await describe_group(cluster, group)
            if not described.members:
                raise KitError(
                    f"group {group} has no members ({described.state}): nothing to rebalance"
                )
            wanted = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type=described.protocol_type,
                # Without topics: if the others join before it leaves, their leader reads this.
                protocols=[JoinGroupRequestProtocol(name=described.assignor, metadata=_NO_TOPICS)],
                reason="the test forces a rebalance",
            )
            # First only an id is given out (KIP-394).
            named = await ask_coordinator(
                cluster,
                GROUP_COORDINATOR,
                group,
                wanted,
                JoinGroupResponse,
                lambda r: [r.error_code],
            )
            if named.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                check(named.error_code)
            wanted.member_id = named.member_id
            joining = await cluster.coordinator(GROUP_COORDINATOR, group, GROUP)
            joined = asyncio.create_task(joining.request(wanted, JoinGroupResponse))
            try:
                await self._until_rebalances(cluster, group, joined)
                leaving = LeaveGroupRequest(
                    group_id=group, members=[MemberIdentity(member_id=named.member_id)]
                )
                await ask_coordinator(
                    cluster,
                    GROUP_COORDINATOR,
                    group,
                    leaving,
                    LeaveGroupResponse,
                    lambda r: [r.error_code],
                )
            finally:
                joined.cancel()
                await asyncio.gather(joined, return_exceptions=True)

    @staticmethod
    async def _until_rebalances(
        cluster: Cluster, group: str, joined: "asyncio.Task[JoinGroupResponse]"
    ) -> None:
        while not joined.done():
            if (await describe_group(cluster, group)).state != "Stable":
                return
            await asyncio.sleep(_PAUSE_S)

    async def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as Admin.fenceProducers does."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        async with asyncio.timeout(_TIMEOUT_S), await self._cluster() as cluster:
            while True:
                answer = await ask_coordinator(
                    cluster,
                    TRANSACTION_COORDINATOR,
                    transactional_id,
                    request,
                    InitProducerIdResponse,
                    lambda r: [r.error_code],
                )
                # While an open transaction is being aborted it is answered so.
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    check(answer.error_code)
                    return
                await asyncio.sleep(_PAUSE_S)
