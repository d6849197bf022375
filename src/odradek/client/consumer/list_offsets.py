"""ListOffsets: offsets by timestamp, or the earliest and latest offset, from the leaders."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.errors import ClientTimeoutError
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.net.retry import Retries
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
_CONSUMER: Final = -1


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a timestamp. -1: there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    reads_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offsets for timestamps (or LATEST, EARLIEST), retried until the time-out.

    Raises:
        ClientTimeoutError: offsets are missing after the time-out.
        ApiError: a partition is refused permanently.
    """
    timeout_ms = cluster.settings.api_timeout_ms if timeout_ms is None else timeout_ms
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    retries = Retries(cluster.retry_pause_s)
    while len(found) < len(wanted):
        left = {p: t for p, t in wanted.items() if p not in found}
        try:
            async with asyncio.timeout_at(deadline_s):
                results = await _ask_all(cluster, left, reads_committed=reads_committed)
                if results:
                    found.update(results)
                if len(results) < len(left):
                    await retries.pause()
        except TimeoutError:
            missing = ", ".join(map(str, sorted(left)[:5]))
            raise ClientTimeoutError(
                f"Failed to get offsets by times in {timeout_ms}ms: {missing}"
            ) from None
    return found


async def _ask_all(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, reads_committed: bool
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offsets that one request to each leader returned."""
    if cluster.metadata.without_leader(wanted):
        try:
            await cluster.refresh(sorted({partition.topic for partition in wanted}))
        except ConnectionError:
            return {}
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, timestamp in wanted.items():
        leader = cluster.metadata.leader(partition)
        if leader != NO_LEADER:
            by_leader.setdefault(leader, {})[partition] = timestamp
    rounds = await asyncio.gather(
        *(
            _ask_one(cluster, leader, asked, reads_committed=reads_committed)
            for leader, asked in by_leader.items()
        )
    )
    return {partition: results for answered in rounds for partition, results in answered.items()}


async def _ask_one(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int], *, reads_committed: bool
) -> dict[TopicPartition, OffsetAndTimestamp]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in sorted(wanted.items()):
        state = cluster.metadata.state(partition)
        topics.setdefault(
            partition.topic, ListOffsetsTopic(name=partition.topic)
        ).partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=-1 if state is None else state.leader_epoch,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=int(reads_committed), topics=list(topics.values())
    )
    stale = list(topics)
    results = {}
    try:
        connection = await cluster.broker(leader)
        answer = await connection.request(request, ListOffsetsResponse)
    except ConnectionError:
        answer = ListOffsetsResponse()
    else:
        stale = []
    for each in answer.topics:
        for part in each.partitions:
            partition = TopicPartition(each.name, part.partition_index)
            if not part.error_code:
                results[partition] = OffsetAndTimestamp(
                    part.offset, part.timestamp, part.leader_epoch
                )
            elif ErrorCode(part.error_code) in RETRIABLE:
                stale.append(each.name)
            else:
                raise ApiError(ErrorCode(part.error_code), str(partition))
    if stale:
        with contextlib.suppress(ConnectionError):  # the next round refreshes again
            await cluster.refresh(sorted(set(stale)))
    return results
