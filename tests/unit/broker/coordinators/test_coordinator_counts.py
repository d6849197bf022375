"""Keys stay where they are when the topic of their coordinators grows."""

import asyncio
from uuid import UUID

import pytest

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts, count_to_use
from odradek.broker.serving.tasks import Tasks
from odradek.coord import layout, layout_odradek
from odradek.coord.layout import TopicNode
from odradek.coord.layout_odradek import CoordinatorCount
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.model.partition import LEADER_DURING_DELETE, Assignment
from odradek.sim.world.loop import run
from odradek.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

A, B = UUID(int=1), UUID(int=2)
NOTE = layout_odradek.coordinator_count_path(GROUP_TOPIC)


def node(partitions, topic_id=A):
    return TopicNode(
        topic_id=topic_id,
        assignments={index: Assignment(replicas=(0,)) for index in range(partitions)},
    )


@pytest.mark.parametrize(
    ("stored", "noted", "is_ours", "count"),
    [
        (node(50), None, True, 50),
        (node(50), CoordinatorCount(A, 50), True, 50),
        (node(60), CoordinatorCount(A, 50), True, 50),
        (node(60), CoordinatorCount(A, 50), False, 60),
        (node(60, B), CoordinatorCount(A, 50), True, 60),
        (node(60, None), CoordinatorCount(None, 50), True, 50),
        (node(10), CoordinatorCount(A, 50), True, 10),
    ],
)
def test_the_count_is_that_of_the_topic_when_it_was_first_seen(stored, noted, is_ours, count):
    assert count_to_use(stored, noted, all_are_ours=is_ours) == count


class Stage:
    """The store, a cache, and brokers that look at both."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.metadata_changed = lambda: None
        self.cache = MetadataCache(loop, lambda: 0, changed=self.changed)
        self.failures = []
        self.tasks = Tasks(loop, lambda name, error: self.failures.append((name, error)))
        self.all_are_ours = True

    def changed(self):
        self.metadata_changed()

    async def broker(self):
        """The counts of a broker that starts."""
        store = MemoryStore(self.tree)
        await store.open()
        counts = CoordinatorCounts(
            store, self.cache, self.tasks, all_are_ours=lambda: self.all_are_ours
        )
        self.metadata_changed = counts.metadata_changed
        await counts.load()
        return counts

    async def make(self, partitions, topic_id=A, topic=GROUP_TOPIC):
        data = layout.encode_topic(node(partitions, topic_id))
        await self.store.create(layout.topic_path(topic), data, make_parents=True)

    async def grow(self, partitions, topic_id=A):
        data = layout.encode_topic(node(partitions, topic_id))
        await self.store.set_data(layout.topic_path(GROUP_TOPIC), data)

    def announce(self, *partitions, topic_id=A, leader=0):
        self.cache.update(
            UpdateMetadataRequest(
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name=GROUP_TOPIC,
                        topic_id=topic_id.bytes,
                        partition_states=[
                            UpdateMetadataPartitionState(partition_index=index, leader=leader)
                            for index in partitions
                        ],
                    )
                ]
            )
        )

    async def note(self):
        data, _ = await self.store.get(NOTE)
        return layout_odradek.decode_coordinator_count(GROUP_TOPIC, data)


def play(story):
    async def main():
        stage = Stage()
        await stage.store.open()
        await stage.store.create(layout.TOPICS, make_parents=True)
        await story(stage)
        await stage.tasks.cancel_all()
        assert stage.failures == []

    run(main())


def test_a_topic_that_grows_keeps_its_count_also_for_brokers_that_start_later():
    async def story(stage):
        await stage.make(5)
        counts = await stage.broker()
        stage.announce(*range(5))
        assert counts.of(GROUP_TOPIC) == 5
        await stage.grow(8)
        stage.announce(5, 6, 7)
        await asyncio.sleep(10)
        assert counts.of(GROUP_TOPIC) == 5
        assert (await stage.broker()).of(GROUP_TOPIC) == 5

    play(story)


def test_beside_brokers_of_another_kind_it_is_that_at_the_start():
    async def story(stage):
        await stage.make(5)
        counts = await stage.broker()
        await stage.grow(8)
        stage.all_are_ours = False
        stage.announce(*range(8))
        await asyncio.sleep(10)
        assert counts.of(GROUP_TOPIC) == 5
        assert (await stage.broker()).of(GROUP_TOPIC) == 8
        stage.all_are_ours = True
        assert (await stage.broker()).of(GROUP_TOPIC) == 8

    play(story)


def test_a_topic_made_later_counts_what_the_store_has_however_little_was_announced():
    async def story(stage):
        counts = await stage.broker()
        assert counts.of(GROUP_TOPIC) == 0
        await stage.make(5)
        stage.announce(0, 1)
        assert counts.of(GROUP_TOPIC) == 0
        await asyncio.sleep(1)
        assert counts.of(GROUP_TOPIC) == 5
        assert counts.of(TRANSACTION_TOPIC) == 0
        assert await stage.note() == CoordinatorCount(A, 5)

    play(story)


def test_a_recreated_topic_has_its_own_count():
    async def story(stage):
        await stage.make(5)
        counts = await stage.broker()
        stage.announce(*range(5))
        await stage.store.delete(layout.topic_path(GROUP_TOPIC))
        stage.announce(*range(5), leader=LEADER_DURING_DELETE)
        await stage.make(3, B)
        stage.announce(*range(3), topic_id=B)
        assert counts.of(GROUP_TOPIC) == 0
        await asyncio.sleep(1)
        assert counts.of(GROUP_TOPIC) == 3
        assert await stage.note() == CoordinatorCount(B, 3)

    play(story)


def test_brokers_that_note_it_at_once_agree():
    async def story(stage):
        await stage.make(5)
        brokers = await asyncio.gather(*(stage.broker() for _ in range(4)))
        assert {counts.of(GROUP_TOPIC) for counts in brokers} == {5}

    play(story)


def test_while_the_store_does_not_answer_there_is_no_count():
    async def story(stage):
        store = MemoryStore(stage.tree)
        await store.open()
        counts = CoordinatorCounts(store, stage.cache, stage.tasks, all_are_ours=lambda: True)
        stage.metadata_changed = counts.metadata_changed
        await stage.make(5)
        store.cut()
        stage.announce(*range(5))
        await asyncio.sleep(1)
        assert counts.of(GROUP_TOPIC) == 0
        store.restore()
        await asyncio.sleep(2)
        assert counts.of(GROUP_TOPIC) == 5

    play(story)


@pytest.mark.parametrize("data", [None, b"?", b'{"version":1,"partitions":0}'])
def test_a_damaged_count_is_written_again(data, caplog):
    async def story(stage):
        await stage.make(5)
        await stage.store.create(NOTE, data, make_parents=True)
        assert (await stage.broker()).of(GROUP_TOPIC) == 5
        assert await stage.note() == CoordinatorCount(A, 5)
        assert "written again" in caplog.text

    play(story)
