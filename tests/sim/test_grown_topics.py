"""Partitions are added to the internal topics in the store: no offset or epoch is lost."""

import asyncio

import pytest
from tests.sim.support.producer import GROUPS, Producer
from tests.sim.support.stage import play, until
from tests.sim.test_rolling_restarts import restart_all

from odradek.broker.coordinators import coordinator_counts
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.coord import layout
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.model.partition import Assignment
from odradek.sim.clients.client import TROUBLE
from odradek.sim.scenes.replicas import TOPIC
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NAMES = [f"name-{number}" for number in range(12)]
BEFORE, AFTER = 5, 8
PROPERTIES = {
    "offsets.topic.num.partitions": str(BEFORE),
    "transaction.state.log.num.partitions": str(BEFORE),
}


async def of_group(client, group, ask):
    """Repeat a request to a group's coordinator until the response has no error."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + 60
    while True:
        assert loop.time() < deadline_s, "no answer without an error"
        try:
            cluster = await client.cluster()
            answer, error = await ask(await cluster.coordinator(GROUPS, group))
        except TROUBLE:
            await client.begin_anew()
            continue
        if not error:
            return answer
        cluster.drop_coordinator(GROUPS, group)
        await client.pause()


async def commit(client, group, offset):
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name=TOPIC.topic, partitions=[partition])

    async def ask(coordinator):
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        answer = await coordinator.request(request, OffsetCommitResponse, version_max=9)
        return answer, answer.topics[0].partitions[0].error_code

    await of_group(client, group, ask)


async def committed(client, group):
    topic = OffsetFetchRequestTopics(name=TOPIC.topic, partition_indexes=[0])

    async def ask(coordinator):
        group_asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
        answer = await coordinator.request(
            OffsetFetchRequest(groups=[group_asked]), OffsetFetchResponse, version_max=8
        )
        return answer.groups[0], answer.groups[0].error_code

    return (await of_group(client, group, ask)).topics[0].partitions[0].committed_offset


async def grow(broker, topic):
    """Add partitions in the topic's znode, as a controller of Apache Kafka does."""
    path = layout.topic_path(topic)
    data, stat = await broker.store.get(path)
    node = layout.decode_topic(topic, data)
    more = {index: Assignment(replicas=(broker.id,)) for index in range(BEFORE, AFTER)}
    grown = layout.TopicNode(topic_id=node.topic_id, assignments={**node.assignments, **more})
    await broker.store.set_data(path, layout.encode_topic(grown), stat.version)


def all_show(cluster, topic):
    shown = [broker.broker.metadata.topic(topic) for broker in cluster.brokers]
    return all(each is not None and len(each.partitions) == AFTER for each in shown)


async def all_are_kept(client, ids):
    assert [await committed(client, name) for name in NAMES] == list(range(len(NAMES)))
    for name in NAMES:
        producer = Producer(client, name)
        await producer.init()
        assert (producer.id, producer.epoch) == (ids[name][0], ids[name][1] + 1), name
        ids[name] = producer.id, producer.epoch


def grown(*, restarts):
    async def story(cluster, client):
        ids = {}
        for number, name in enumerate(NAMES):
            await commit(client, name, number)
            producer = Producer(client, name)
            await producer.init()
            ids[name] = producer.id, producer.epoch
        for topic in (GROUP_TOPIC, TRANSACTION_TOPIC):
            await grow(cluster.brokers[0], topic)
            await until(lambda topic=topic: all_show(cluster, topic))
        await all_are_kept(client, ids)
        for _ in range(restarts):
            await restart_all(cluster)
            await all_are_kept(client, ids)

    async def run(cluster, client):
        await client.run(story(cluster, client))

    play(1, run, properties=PROPERTIES)


def test_committed_offsets_and_producer_epochs_are_kept_also_after_rolling_restarts():
    grown(restarts=2)


def test_hashing_over_the_present_number_of_partitions_loses_them(monkeypatch):
    def present(self, topic):
        shown = self.cache.topic(topic)
        return 0 if shown is None else len(shown.partitions)

    monkeypatch.setattr(CoordinatorCounts, "of", present)
    with pytest.raises(AssertionError, match="-1"):
        grown(restarts=0)


def test_counting_partitions_at_each_start_loses_them_after_a_restart(monkeypatch):
    """Apache Kafka counts them at each start."""
    monkeypatch.setattr(
        coordinator_counts,
        "count_to_use",
        lambda stored, noted, *, all_are_ours: len(stored.assignments),
    )
    grown(restarts=0)
    with pytest.raises(AssertionError, match="-1"):
        grown(restarts=1)
