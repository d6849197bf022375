"""ListOffsets for a page: what answers soon, and an error for each partition that does not.

A client waits for a leader for a minute. A page shows the other partitions meanwhile, so each
leader has two seconds, and does not delay those of the others.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import ListedOffset, try_to_list_offsets
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import NO_LEADER, TopicPartition

WITHIN_S: Final = 2.0

Offsets = Mapping[TopicPartition, ListedOffset | ApiError]


async def list_offsets_now(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, reads_committed: bool = False
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """The offsets for timestamps, LATEST or EARLIEST; an error where the leader does not answer.

    Raises:
        ConnectionError: no broker answers.
    """
    without = cluster.metadata.without_leader(wanted)
    if without:
        await cluster.refresh(sorted({partition.topic for partition in without}))
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, spec in wanted.items():
        by_leader.setdefault(cluster.metadata.leader(partition), {})[partition] = spec

    async def ask(
        leader: int, asked: dict[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListedOffset | ApiError]:
        if leader == NO_LEADER:
            why = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader")
            return dict.fromkeys(asked, why)
        try:
            async with asyncio.timeout(WITHIN_S):
                return await try_to_list_offsets(cluster, asked, reads_committed=reads_committed)
        except TimeoutError:
            text = f"its leader, broker {leader}, does not answer within {WITHIN_S:.0f} s"
            return dict.fromkeys(asked, ApiError(ErrorCode.REQUEST_TIMED_OUT, text))

    found: dict[TopicPartition, ListedOffset | ApiError] = {}
    for each in await asyncio.gather(*(ask(*item) for item in by_leader.items())):
        found.update(each)
    return {partition: found[partition] for partition in wanted}
