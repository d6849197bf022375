"""A simulated administrator: creates, extends, changes and deletes topics.

If a response is lost, it is not known whether the request took effect. Therefore each request is
sent until its response is definite, such as "the topic exists"; only then the history records it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from odradek.model.errors import RETRIABLE, ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.sim.checks.history import Topic
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.world.cluster import LOG_DIRS
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

TIMEOUT_MS: Final = 2_000
TOPIC_RESOURCE: Final = 2
SET: Final = 0
PARTITIONS_MAX: Final = 5
TOO_FEW_BROKERS: Final = (ErrorCode.INVALID_REPLICATION_FACTOR,)  # registered at the moment
# Topic options that do not change what readers may expect.
HARMLESS: Final = {
    "segment.bytes": ("2500", "6000", "30000"),
    "index.interval.bytes": ("0", "100", "4096"),
    "flush.messages": ("1", "7", "9223372036854775807"),
    "flush.ms": ("500", "9223372036854775807"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "lz4", "uncompressed"),
}


class Administrator:
    """An administrator: no other client deletes the topics that it creates."""

    def __init__(self, workload: "Workload", client: Client) -> None:
        self._workload = workload
        self._client = client
        self._random = client.random
        self._made = 0
        self._factor = workload.replication_factor  # of the topics that it makes
        self._changes = dict(HARMLESS)
        if workload.replication_factor > 1:  # batches are larger then
            self._changes["segment.bytes"] = ("20000", "60000", "1000000")

    async def run(self, steady: int) -> None:
        """Create the topics that stay, then send random requests until the workload ends."""
        for number in range(steady):
            await self._create(f"steady-{number}", retention=number == 1)
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(1 / 2))
            topics = self._workload.topics
            fleeting = [topic for topic in topics if topic.name.startswith("fleeting")]
            match self._random.randrange(8):
                case 0 | 1 if len(fleeting) < 3:
                    drawn = f"fleeting-{self._random.randrange(4)}"
                    name = self._workload.cluster.missed_topic or drawn
                    await self._create(name, retention=False)
                case 2 if fleeting:
                    await self._delete(self._random.choice(fleeting))
                case 3:
                    await self._grow(self._random.choice(topics))
                case 4:
                    await self._move(self._random.choice(topics))
                case 5:
                    await self._delete_records(self._random.choice(topics))
                case _:
                    await self._alter(self._random.choice(topics))

    async def _insist(
        self,
        what: str,
        attempt: Callable[[], Awaitable[tuple[int, str | None]]],
        definite: tuple[ErrorCode, ...] = (),
        again: tuple[ErrorCode, ...] = (),
    ) -> ErrorCode | None:
        """Send a request until the response is definite. None: the workload ended before."""
        while not self._workload.is_over:
            try:
                code, message = await attempt()
            except TROUBLE:
                await self._client.begin_anew()
                continue
            error = ErrorCode(code)
            if (error not in RETRIABLE and error not in again) or error in definite:
                if error is ErrorCode.UNKNOWN_SERVER_ERROR:
                    self._workload.unexpected(f"{what}: {error.name}: {message}")
                self._workload.cluster.promised()
                return error
            await self._client.pause()
        return None

    # -------------------------------------------------------------------------- topics

    async def _create(self, name: str, *, retention: bool) -> None:
        if name in self._workload.history.topics:
            return
        self._workload.history.being_made.add(name)
        partitions = self._random.randint(1, 3)
        configs = {
            "segment.bytes": self._random.choice(self._changes["segment.bytes"]),
            "file.delete.delay.ms": "1000",
        }
        if self._workload.replication_factor > 1:
            configs["min.insync.replicas"] = "2"
        if retention:
            configs |= {"retention.ms": "600000", "retention.bytes": "30000"}
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=self._factor,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )

        async def attempt() -> tuple[int, str | None]:
            controller = await self._client.controller()
            answer = await controller.request(
                CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CreateTopicsResponse
            )
            made = answer.topics[0]
            if "marked for deletion" in (
                made.error_message or ""
            ):  # the earlier topic of that name
                raise ApiError(ErrorCode(made.error_code), made.error_message)
            return made.error_code, made.error_message

        error = await self._insist(f"CreateTopics {name}", attempt, again=TOO_FEW_BROKERS)
        if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            await self._look_up(name, partitions, retention=retention)
        elif error is not None:
            self._workload.unexpected(f"CreateTopics {name}: {error.name}")

    async def _look_up(self, name: str, partitions: int, *, retention: bool) -> None:
        while not self._workload.is_over:
            try:
                answer = await self._client.refresh([name])
            except TROUBLE:
                await self._client.begin_anew()
                continue
            topic = answer.topics[0]
            # A broker that was offline may still answer with the deleted topic of that name.
            is_former = topic.topic_id in self._workload.history.by_id
            if not topic.error_code and not is_former and len(topic.partitions) == partitions:
                self._workload.history.topic_seen(topic.topic_id, "metadata")
                self._workload.history.topic_made(
                    name,
                    topic.topic_id,
                    partitions,
                    retention=retention,
                    replicas=self._factor,
                )
                return
            await self._client.pause()

    async def _delete(self, topic: Topic) -> None:
        topic.is_doomed = True

        async def attempt() -> tuple[int, str | None]:
            controller = await self._client.controller()
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(topic_id=topic.id)], timeout_ms=TIMEOUT_MS
            )
            answer = await controller.request(request, DeleteTopicsResponse)
            return answer.responses[0].error_code, answer.responses[0].error_message

        deleted = ErrorCode.UNKNOWN_TOPIC_ID
        error = await self._insist(f"DeleteTopics {topic.name}", attempt, (deleted,))
        if error in (ErrorCode.NONE, deleted):
            self._workload.history.topic_deleted(topic)
        elif error is not None:
            self._workload.unexpected(f"DeleteTopics {topic.name}: {error.name}")

    async def _grow(self, topic: Topic) -> None:
        count = topic.partitions + 1
        if count > PARTITIONS_MAX:
            return

        async def attempt() -> tuple[int, str | None]:
            controller = await self._client.controller()
            extended = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
            answer = await controller.request(
                CreatePartitionsRequest(topics=[extended], timeout_ms=TIMEOUT_MS),
                CreatePartitionsResponse,
            )
            return answer.results[0].error_code, answer.results[0].error_message

        what = f"CreatePartitions {topic.name}"
        again = (*TOO_FEW_BROKERS, ErrorCode.REASSIGNMENT_IN_PROGRESS)
        error = await self._insist(what, attempt, again=again)
        # INVALID_PARTITIONS: it has that many already, from an attempt whose answer was lost.
        if error in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            topic.partitions = count
        elif error is not None:
            self._workload.unexpected(f"CreatePartitions {topic.name}: {error.name}")

    # ------------------------------------------------------------------------- records

    async def _delete_records(self, topic: Topic) -> None:
        index = self._random.randrange(topic.partitions)
        facts = self._workload.history.of(topic, index)
        if not facts.at:
            return
        offset = self._random.randint(0, facts.high_watermark)
        facts.delete_asked = max(facts.delete_asked, offset)

        async def attempt() -> tuple[int, str | None]:
            leader = await self._client.leader(TopicPartition(topic.name, index))
            asked = DeleteRecordsPartition(partition_index=index, offset=offset)
            served_by, cuts = self._workload.process_and_epoch_of(leader, facts), facts.cuts
            answer = await leader.request(
                DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=topic.name, partitions=[asked])],
                    timeout_ms=TIMEOUT_MS,
                ),
                DeleteRecordsResponse,
            )
            result = answer.topics[0].partitions[0]
            if not result.error_code and facts.cuts == cuts:
                if result.low_watermark < offset:
                    self._workload.violated(
                        f"{facts}: DeleteRecords to {offset} answers {result.low_watermark}"
                    )
                same = facts.served_by == served_by
                facts.log_start = max(facts.log_start, offset) if same else offset
                facts.served_by = served_by
            if result.error_code:
                await self._client.refresh([topic.name])
            return result.error_code, None

        error = await self._insist(f"DeleteRecords {facts}", attempt)
        allowed = (ErrorCode.NONE, None)
        # A power loss may have truncated the records; a new leader's HW may still be below them.
        maybe = facts.cuts or facts.topic.replicas > 1
        if error not in allowed and not (error is ErrorCode.OFFSET_OUT_OF_RANGE and maybe):
            self._workload.unexpected(f"DeleteRecords {facts} to {offset}: {error}")

    async def _move(self, topic: Topic) -> None:
        """Move a replica to a log directory, at times the one in which it already is."""
        index = self._random.randrange(topic.partitions)
        path = self._random.choice(LOG_DIRS)
        moved = AlterReplicaLogDirTopic(name=topic.name, partitions=[index])

        async def attempt() -> tuple[int, str | None]:
            leader = await self._client.leader(TopicPartition(topic.name, index))
            answer = await leader.request(
                AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])]),
                AlterReplicaLogDirsResponse,
            )
            error = answer.results[0].partitions[0].error_code
            if error:
                await self._client.refresh([topic.name])
            return error, None

        error = await self._insist(f"AlterReplicaLogDirs {topic.name}-{index}", attempt)
        if error not in (ErrorCode.NONE, None):
            self._workload.unexpected(f"AlterReplicaLogDirs {topic.name}-{index}: {error.name}")

    # ------------------------------------------------------------------------- configs

    async def _alter(self, topic: Topic) -> None:
        name = self._random.choice(sorted(self._changes))
        value = self._random.choice(self._changes[name])

        async def attempt() -> tuple[int, str | None]:
            controller = await self._client.controller()
            config = AlterableConfig(name=name, config_operation=SET, value=value)
            resource = AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[config]
            )
            answer = await controller.request(
                IncrementalAlterConfigsRequest(resources=[resource]),
                IncrementalAlterConfigsResponse,
            )
            return answer.responses[0].error_code, answer.responses[0].error_message

        error = await self._insist(f"IncrementalAlterConfigs {topic.name}", attempt)
        if error is ErrorCode.NONE:
            await self._must_show(topic, name, value)
        elif error is not None:
            self._workload.unexpected(f"IncrementalAlterConfigs {topic.name}: {error.name}")

    async def _must_show(self, topic: Topic, name: str, value: str) -> None:
        """Check that DescribeConfigs returns a change that was acknowledged."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=[name]
        )
        try:
            controller = await self._client.controller()
            answer = await controller.request(
                DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
            )
        except TROUBLE:
            await self._client.begin_anew()
            return
        result = answer.results[0]
        if result.error_code:
            self._workload.expect_retriable("DescribeConfigs", result.error_code)
        elif result.configs[0].value != value:
            self._workload.violated(
                f"{topic.name}: {name}={value} was acknowledged; "
                f"DescribeConfigs answers {result.configs[0].value}"
            )
