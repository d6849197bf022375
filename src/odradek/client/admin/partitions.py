"""Admin requests about partitions.

Reassignments, elections, log directories, deletion of records. General functions are in
`odradek.client.admin.topics`, offsets by time in `odradek.client.fetch.offsets`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.topics import REQUEST_MS, Outcome, ask_controller
from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.fetch.leaders import try_leaders
from odradek.client.kafka_errors import check, failure
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition, by_topic

# -------------------------------------------------------------------------- reassign and elect


class PartitionReassignment(NamedTuple):
    """A reassignment in progress: all replicas, adding replicas, removing replicas."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """The reassignments in progress, of some partitions or (None) all.

    Raises:
        ApiError: the controller refuses.
    """
    from odradek.wire.messages import list_partition_reassignments as wire  # noqa: PLC0415

    topics = None
    if partitions is not None:
        topics = [
            wire.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    response = await ask_controller(
        cluster,
        wire.ListPartitionReassignmentsRequest(timeout_ms=REQUEST_MS, topics=topics),
        wire.ListPartitionReassignmentsResponse,
        lambda r: (r.error_code,),
    )
    check(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, p.partition_index): PartitionReassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Outcome]:
    """Begin reassignments to these replicas, or (None) cancel those in progress.

    Raises:
        ApiError: the controller refuses the whole request.
    """
    from odradek.wire.messages import alter_partition_reassignments as wire  # noqa: PLC0415

    request = wire.AlterPartitionReassignmentsRequest(timeout_ms=REQUEST_MS)
    for name, indexes in by_topic(targets).items():
        topic = wire.ReassignableTopic(name=name)
        for index in indexes:
            replicas = targets[TopicPartition(name, index)]
            topic.partitions.append(
                wire.ReassignablePartition(
                    partition_index=index, replicas=None if replicas is None else list(replicas)
                )
            )
        request.topics.append(topic)

    def codes(response: wire.AlterPartitionReassignmentsResponse) -> Iterable[int]:
        yield response.error_code
        for topic in response.responses:
            yield from (p.error_code for p in topic.partitions)

    response = await ask_controller(
        cluster, request, wire.AlterPartitionReassignmentsResponse, codes
    )
    check(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, p.partition_index): failure(p.error_code, p.error_message)
        for topic in response.responses
        for p in topic.partitions
    }


PREFERRED: Final = 0
UNCLEAN: Final = 1


async def elect_leaders(
    cluster: Cluster, election_type: int, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Outcome]:
    """Elect the leaders of some partitions or (None) of all; the outcome by partition.

    For all partitions, only those are returned where an election took place or failed.

    Raises:
        ApiError: the controller refuses the whole request.
    """
    from odradek.wire.messages import elect_leaders as wire  # noqa: PLC0415

    topics = None
    if partitions is not None:
        topics = [
            wire.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    request = wire.ElectLeadersRequest(
        election_type=election_type, topic_partitions=topics, timeout_ms=REQUEST_MS
    )

    def codes(response: wire.ElectLeadersResponse) -> Iterable[int]:
        yield response.error_code
        for topic in response.replica_election_results:
            yield from (p.error_code for p in topic.partition_result)

    response = await ask_controller(cluster, request, wire.ElectLeadersResponse, codes)
    check(response.error_code)
    return {
        TopicPartition(topic.topic, p.partition_id): failure(p.error_code, p.error_message)
        for topic in response.replica_election_results
        for p in topic.partition_result
    }


# ------------------------------------------------------------------------------ log directories


class ReplicaInfo(NamedTuple):
    """A replica in a log directory. `is_future`: the copy of a move between log directories."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker with its replicas."""

    path: str
    error: Outcome
    replicas: dict[TopicPartition, ReplicaInfo]


async def describe_log_dirs(
    cluster: Cluster, broker: int, partitions: Iterable[TopicPartition] | None = None
) -> list[LogDir]:
    """The log directories of a broker, with all replicas or only some.

    Raises:
        ApiError: there is no such broker, or it refuses.
    """
    from odradek.wire.messages import describe_log_dirs as wire  # noqa: PLC0415

    topics = None
    if partitions is not None:
        topics = [
            wire.DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    connection = await cluster.broker(broker)
    response = await connection.request(
        wire.DescribeLogDirsRequest(topics=topics), wire.DescribeLogDirsResponse
    )
    check(response.error_code)
    return [
        LogDir(
            path=result.log_dir,
            error=failure(result.error_code),
            replicas={
                TopicPartition(topic.name, p.partition_index): ReplicaInfo(
                    p.partition_size, p.offset_lag, p.is_future_key
                )
                for topic in result.topics
                for p in topic.partitions
            },
        )
        for result in response.results
    ]


async def alter_replica_log_dirs(
    cluster: Cluster, broker: int, moves: Mapping[TopicPartition, str]
) -> dict[TopicPartition, Outcome]:
    """Move replicas of one broker to other log directories of the broker."""
    from odradek.wire.messages import alter_replica_log_dirs as wire  # noqa: PLC0415

    paths: dict[str, list[TopicPartition]] = {}
    for partition, path in moves.items():
        paths.setdefault(path, []).append(partition)
    request = wire.AlterReplicaLogDirsRequest(
        dirs=[
            wire.AlterReplicaLogDir(
                path=path,
                topics=[
                    wire.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in by_topic(partitions).items()
                ],
            )
            for path, partitions in paths.items()
        ]
    )
    connection = await cluster.broker(broker)
    response = await connection.request(request, wire.AlterReplicaLogDirsResponse)
    return {
        TopicPartition(topic.topic_name, p.partition_index): failure(p.error_code)
        for topic in response.results
        for p in topic.partitions
    }


# -------------------------------------------------------------------------------------- records


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | ApiError]:
    """Delete records below offsets (-1: the high watermark); the low watermarks by partition."""
    from odradek.wire.messages import delete_records as wire  # noqa: PLC0415

    async def ask(
        connection: Connection, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | ApiError]:
        request = wire.DeleteRecordsRequest(
            topics=[
                wire.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        wire.DeleteRecordsPartition(
                            partition_index=index, offset=wanted[TopicPartition(name, index)]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(wanted).items()
            ],
            timeout_ms=REQUEST_MS,
        )
        response = await connection.request(request, wire.DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, p.partition_index): failure(p.error_code) or p.low_watermark
            for topic in response.topics
            for p in topic.partitions
        }

    return await try_leaders(cluster, offsets, ask)
