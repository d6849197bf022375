"""A partition is deleted according to store and controller, not because the cache lacks it."""

import asyncio
from uuid import UUID

import pytest

from odradek.broker.cluster.deleted_partitions import LOOK_AGAIN_MS, DeletedPartitions, is_deleted
from odradek.broker.cluster.metadata_cache import DELETED_IDS_MAX, MetadataCache
from odradek.coord import layout
from odradek.coord.layout import TopicNode
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.partition import LEADER_DURING_DELETE, Assignment, TopicPartition
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.loop import run
from odradek.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.schema import ZERO_UUID

A, B = UUID(int=1), UUID(int=2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def node(topic_id=A, partitions=1):
    return TopicNode(
        topic_id=topic_id,
        assignments={index: Assignment(replicas=(0,)) for index in range(partitions)},
    )


@pytest.mark.parametrize(
    ("partition", "stored", "announced", "deleted"),
    [
        (T0, None, None, True),
        (T0, None, B, True),
        (T0, node(A), None, False),
        (T0, node(A), A, True),
        (T0, node(B), A, False),
        (T1, node(A, partitions=1), None, True),
        (T1, node(A, partitions=2), None, False),
        (T0, node(None), None, False),
        (T0, node(None), A, False),
    ],
)
def test_what_the_store_lacks_or_the_controller_deletes_is_deleted(
    partition, stored, announced, deleted
):
    assert is_deleted(partition, stored, announced and announced.bytes) is deleted


class Stage:
    def __init__(self):
        loop = asyncio.get_running_loop()
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.other = MemoryStore(self.tree)
        self.cache = MetadataCache(loop, lambda: 0)
        clock = SimulatedClock(loop.time)
        self.deleted = DeletedPartitions(self.store, self.cache, clock)

    async def make(self, name="t", data=None):
        await self.other.create(
            layout.topic_path(name), data or layout.encode_topic(node()), make_parents=True
        )

    def announce_deletion(self, topic_id, name="t"):
        self.cache.update(
            UpdateMetadataRequest(
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name=name,
                        topic_id=topic_id,
                        partition_states=[
                            UpdateMetadataPartitionState(
                                partition_index=0, leader=LEADER_DURING_DELETE
                            )
                        ],
                    )
                ]
            )
        )


def play(story):
    async def main():
        stage = Stage()
        await stage.store.open()
        await stage.other.open()
        await stage.store.create(layout.TOPICS, make_parents=True)
        await story(stage)

    run(main())


def test_the_store_is_asked_about_a_topic_again_after_a_while():
    async def story(stage):
        await stage.make()
        assert await stage.deleted.among({T0, T1}) == {T1}
        await stage.other.delete(layout.topic_path("t"))
        assert await stage.deleted.among({T0}) == frozenset()
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)
        assert await stage.deleted.among({T0}) == {T0}
        assert await stage.deleted.among({T0}) == {T0}

    play(story)


def test_an_announced_deletion_counts_while_the_node_is_still_there():
    async def story(stage):
        await stage.make()
        stage.announce_deletion(B.bytes)
        assert await stage.deleted.among({T0}) == frozenset()
        stage.announce_deletion(A.bytes)
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)
        assert await stage.deleted.among({T0}) == {T0}

    play(story)


def test_without_an_answer_of_the_store_nothing_counts_as_deleted():
    async def story(stage):
        stage.store.cut()
        assert await stage.deleted.among({T0}) == frozenset()

    play(story)


def test_damage_in_the_store_is_no_deletion():
    async def story(stage):
        await stage.make(data=b"?")
        assert await stage.deleted.among({T0}) == frozenset()

    play(story)


def test_the_ids_of_deleted_topics_have_a_limit():
    async def story(stage):
        stage.announce_deletion(ZERO_UUID, "old")
        assert stage.cache.deleted_id("old") is None
        for number in range(DELETED_IDS_MAX + 1):
            stage.announce_deletion(A.bytes, f"t{number}")
        assert stage.cache.deleted_id("t0") is None
        assert stage.cache.deleted_id("t1") == A.bytes

    play(story)
