"""ListOffsets: offsets by timestamp, or the earliest and latest offset, from the leaders."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.errors import ClientTimeoutError
from odradek.client.fetch.leaders import ask_leaders, try_leaders
from odradek.client.kafka_errors import failure
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition, by_topic
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

# What can be asked for in place of a timestamp.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_CONSUMER: Final = -1
_FROM_VERSION: Final = {  # of the request, and the name in Kafka's message
    MAX_TIMESTAMP: (7, "MAX_TIMESTAMP"),
    EARLIEST_LOCAL: (8, "EARLIEST_LOCAL_TIMESTAMP"),
    LATEST_TIERED: (9, "LATEST_TIERED_TIMESTAMP"),
}


class ListedOffset(NamedTuple):
    """The first offset at or after a timestamp. -1: there is no such record."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    reads_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """The offsets for timestamps (or LATEST, EARLIEST and so on), retried until the time-out.

    With `reads_committed`, LATEST is the last stable offset and not the high watermark.

    Raises:
        ClientTimeoutError: offsets are missing after the time-out.
        ApiError: a partition is refused permanently.
    """
    timeout_ms = cluster.settings.api_timeout_ms if timeout_ms is None else timeout_ms
    ask = partial(_ask, cluster, reads_committed)
    found: dict[TopicPartition, ListedOffset | ApiError] = {}
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await ask_leaders(cluster, wanted, ask, found, waits_for_topics=True)
    except TimeoutError:
        missing = [p for p in wanted if not isinstance(found.get(p), ListedOffset)]
        raise ClientTimeoutError(
            f"Failed to get offsets by times in {timeout_ms}ms: "
            f"{', '.join(map(str, sorted(missing)[:5]))}"
        ) from None
    listed = {}
    for partition, outcome in found.items():
        if isinstance(outcome, ApiError):
            raise ApiError(outcome.code, str(partition))
        listed[partition] = outcome
    return listed


async def try_to_list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, reads_committed: bool = False
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """As `list_offsets`, with the error of each partition in place of its offset.

    A partition that does not exist is an error at once.
    """
    return await try_leaders(cluster, wanted, partial(_ask, cluster, reads_committed))


async def _ask(
    cluster: Cluster,
    reads_committed: bool,
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """One request to one leader."""
    found: dict[TopicPartition, ListedOffset | ApiError] = {}
    for partition, timestamp in wanted.items():
        first, name = _FROM_VERSION.get(timestamp, (0, ""))
        if first and connection.version_of(ApiKey.LIST_OFFSETS) < first:
            why = f"Broker {connection.name} does not support the {name} offset spec"
            found[partition] = ApiError(ErrorCode.UNSUPPORTED_VERSION, why)
    topics = by_topic(sorted(wanted.keys() - found.keys()))
    if not topics:
        return found
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(reads_committed),
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index,
                        current_leader_epoch=cluster.metadata.leader_epoch(
                            TopicPartition(name, index)
                        ),
                        timestamp=wanted[TopicPartition(name, index)],
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )
    answer = await connection.request(request, ListOffsetsResponse)
    for topic in answer.topics:
        for part in topic.partitions:
            found[TopicPartition(topic.name, part.partition_index)] = failure(
                part.error_code
            ) or ListedOffset(part.offset, part.timestamp, part.leader_epoch)
    return found
