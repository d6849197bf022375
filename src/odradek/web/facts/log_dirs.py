"""The replicas in the log directories of brokers, some of which may not answer."""

import asyncio
from collections.abc import Mapping, Sequence

from odradek.client.admin.partitions import ReplicaInfo, describe_log_dirs
from odradek.client.cluster import Cluster
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.web.facts.source import ANSWER_S


async def replicas_in_log_dirs(
    cluster: Cluster, held: Mapping[int, Sequence[TopicPartition]], problems: dict[str, str]
) -> dict[tuple[TopicPartition, int], ReplicaInfo]:
    """The replicas of these partitions by partition and broker; `held` is by broker.

    A broker that does not answer soon is entered into `problems` with the reason. The copy of a
    move between two log directories of a broker is left out.
    """
    found: dict[tuple[TopicPartition, int], ReplicaInfo] = {}

    async def one(broker: int, partitions: Sequence[TopicPartition]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                directories = await describe_log_dirs(cluster, broker, partitions)
        except (OdradekError, ConnectionError, TimeoutError) as error:
            problems[f"log directories of broker {broker}"] = str(error) or "no answer"
            return
        for directory in directories:
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    found[partition, broker] = replica

    await asyncio.gather(*(one(broker, each) for broker, each in sorted(held.items())))
    return found
