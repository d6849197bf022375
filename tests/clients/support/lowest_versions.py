"""Requests in the lowest versions of the APIs, and the responses to them.

The APIs of groups are in `group_talk`. Names are random and shown as `T`. `lowest_versions.txt` was
recorded from Apache Kafka 3.9.2.
"""

from typing import Any

from group_talk import Talk

from odradek.wire.messages import (
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_delegation_token,
    create_topics,
    delete_topics,
    list_offsets,
    offset_for_leader_epoch,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def topics(talk: Talk) -> None:
    made = create_topics.CreatableTopic(
        name=f"{talk.topic}2", num_partitions=1, replication_factor=1
    )
    wrong = create_topics.CreatableTopic(name="b@d", num_partitions=1, replication_factor=1)
    for version, only in ((1, True), (0, False), (0, False), (1, False)):
        request = create_topics.CreateTopicsRequest(
            topics=[made, wrong], timeout_ms=10_000, validate_only=only
        )
        await talk.say(request, version)
    for _ in range(2):
        names = [f"{talk.topic}2"]
        request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
        await talk.say(request, 0)


async def offsets(talk: Talk) -> None:
    for when in (LATEST, EARLIEST, MAX_TIMESTAMP, 0, 1 << 62):
        for count in (-1, 0, 1, 10):
            await talk.say(_offsets(talk.topic, 0, when, count), 0, note=f"{when} {count}")
    await talk.say(_offsets(talk.topic, 9, LATEST, 1), 0)
    await talk.say(_offsets("nowhere", 0, LATEST, 1), 0)
    for version in (0, 1):
        for epoch in (0, 5):
            part = offset_for_leader_epoch.OffsetForLeaderPartition(leader_epoch=epoch)
            topic = offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=talk.topic, partitions=[part]
            )
            request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
            await talk.say(request, version)


def _offsets(topic: str, index: int, when: int, count: int) -> Any:
    part = list_offsets.ListOffsetsPartition(
        partition_index=index, timestamp=when, max_num_offsets=count
    )
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=[part])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked])


async def refused(talk: Talk) -> None:
    await talk.say(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id="x"), 0)
    groups = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["x", "y"])
    await talk.say(groups, 0)
    moved = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=talk.topic, partitions=[0])
    to = alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[moved])
    await talk.say(alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[to]), 0)
    token = create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    await talk.say(token, 0)


async def everything(bootstrap: str) -> list[str]:
    """The whole recording, line by line."""
    talk = await Talk.open(bootstrap)
    await talk.prepare()
    for chapter in (topics, offsets, refused):
        talk.lines.append(f"# {chapter.__name__}")
        await chapter(talk)
    await talk.close()
    return talk.lines
