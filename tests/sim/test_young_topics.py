"""A transaction in a partition that is not in the metadata cache of its coordinator yet.

UpdateMetadata reaches each broker on its own. A coordinator that gets it late must wait with the
marker; only a deleted partition needs none.
"""

import asyncio

import pytest
from tests.sim.support.producer import GROUPS, Producer
from tests.sim.support.stage import NO_OTHERS, play, until

from odradek.broker.cluster import deleted_partitions
from odradek.coord import layout
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.model.partition import TopicPartition
from odradek.sim.scenes.replicas import TOPIC
from odradek.sim.scenes.scene import make
from odradek.sim.world.cluster import ProcessState
from odradek.txn.transaction import State as TransactionState
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

YOUNG = TopicPartition("young", 0)
OFFSETS = TopicPartition(GROUP_TOPIC, 0)
LATE_S = 3.0
BY_NAME = 5  # the last version of DeleteTopics that names topics by name alone
PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Stage:
    """Three brokers: controller, transaction coordinator, and leader of the new partition."""

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client
        self.controller = next(b for b in cluster.brokers if b.broker.controller.term is not None)
        self.coordinator, self.holder = (b for b in cluster.brokers if b is not self.controller)
        self.producer = Producer(client)

    async def set(self):
        await self.topic(TRANSACTION_TOPIC, self.coordinator)
        await self.producer.init()

    async def topic(self, name, *holders, partitions=1, configs=NO_OTHERS):
        await make(
            self.client,
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(
                        partition_index=index, broker_ids=[broker.id for broker in holders]
                    )
                    for index in range(partitions)
                ],
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
            ),
            timeout_ms=3_000,
        )
        await until(lambda: all(self.log(b, TopicPartition(name, 0)) for b in holders))

    def controller_is_late(self, by_s=LATE_S):
        self.cluster.network.slow_down(self.controller.name, self.coordinator.name, by_s)

    def log(self, broker, partition):
        held = broker.broker.replicas.get(*partition)
        return None if held is None else held.log

    def coordinator_has(self, partition):
        return self.coordinator.broker.metadata.partition(*partition) is not None

    def state(self):
        found = self.coordinator.broker.transactions.describe(self.producer.name)
        return getattr(found, "state", found)

    async def at_rest(self, state=TransactionState.COMPLETE_COMMIT):
        await until(lambda: self.state() is state, what=f"not {state}")

    async def ask_controller(self, request, response, **fields):
        controller = await self.client.controller()
        return await controller.request(request, response, **fields)

    async def write(self, partition, value):
        await self.producer.write(partition, value, leader=self.holder.id)

    def has_no_open_transaction(self, partition):
        log = self.log(self.holder, partition)
        return log.last_stable_offset == log.high_watermark == log.leo

    async def is_committed(self, partition, offset=0):
        """Whether the record belongs to a committed transaction, also after the next one aborts."""
        await until(lambda: self.has_no_open_transaction(partition), what="it stays open")
        log = self.log(self.holder, partition)
        await self.write(partition, b"next")
        await self.producer.end(commit=False)
        await self.at_rest(TransactionState.COMPLETE_ABORT)
        await until(lambda: self.has_no_open_transaction(partition))
        return all(
            aborted.first_offset > offset for aborted in log.aborted_transactions(0, log.leo)
        )


def staged(story, seed=1, properties=PROPERTIES):
    async def run(cluster, client):
        async def whole():
            stage = Stage(cluster, client)
            await stage.set()
            await story(stage)

        await client.run(whole())

    play(seed, run, properties=properties)


async def a_new_topic(stage):
    stage.controller_is_late()
    await stage.topic(YOUNG.topic, stage.holder)
    await stage.write(YOUNG, b"committed")
    assert not stage.coordinator_has(YOUNG)
    await stage.producer.end(commit=True)
    await stage.at_rest()
    assert await stage.is_committed(YOUNG)


def test_a_commit_in_a_topic_that_the_coordinator_does_not_have_in_its_metadata_is_kept():
    staged(a_new_topic)


def test_taking_a_partition_outside_the_cache_for_deleted_loses_the_commit(monkeypatch):
    """Apache Kafka 3.9 takes it for deleted."""
    monkeypatch.setattr(deleted_partitions, "is_deleted", lambda *_: True)
    with pytest.raises(AssertionError, match="it stays open"):
        staged(a_new_topic)


def test_a_commit_in_a_partition_that_was_just_added_is_kept():
    added = TopicPartition("young", 1)

    async def story(stage):
        await stage.topic("young", stage.holder)
        await until(lambda: stage.coordinator_has(YOUNG))
        stage.controller_is_late()
        grown = CreatePartitionsTopic(
            name="young",
            count=2,
            assignments=[CreatePartitionsAssignment(broker_ids=[stage.holder.id])],
        )
        await stage.ask_controller(
            CreatePartitionsRequest(topics=[grown], timeout_ms=3_000), CreatePartitionsResponse
        )
        await stage.write(added, b"committed")
        assert not stage.coordinator_has(added)
        await stage.producer.end(commit=True)
        await stage.at_rest()
        assert await stage.is_committed(added)

    staged(story)


def test_offsets_committed_as_the_first_ones_of_the_cluster_are_kept():
    async def story(stage):
        stage.controller_is_late()
        await stage.topic(GROUP_TOPIC, stage.holder, configs={"cleanup.policy": "compact"})
        await stage.producer.commit_offset("g", TOPIC, 7, coordinator=stage.holder.id)
        assert not stage.coordinator_has(OFFSETS)
        await stage.producer.end(commit=True)
        await stage.at_rest()
        await until(lambda: stage.has_no_open_transaction(OFFSETS))
        assert await committed_offset(stage) == 7

    staged(story)


async def committed_offset(stage):
    cluster = await stage.client.cluster()
    coordinator = await cluster.coordinator(GROUPS, "g")
    answer = await coordinator.request(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[
                        OffsetFetchRequestTopics(
                            name=TOPIC.topic, partition_indexes=[TOPIC.partition]
                        )
                    ],
                )
            ],
            require_stable=True,
        ),
        OffsetFetchResponse,
    )
    return answer.groups[0].topics[0].partitions[0].committed_offset


async def delete(stage, topic, *, timeout_ms=3_000):
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=timeout_ms)
    await stage.ask_controller(request, DeleteTopicsResponse, version_max=BY_NAME)


def test_a_transaction_in_a_deleted_topic_ends():
    async def story(stage):
        await stage.topic(YOUNG.topic, stage.holder)
        await stage.write(YOUNG, b"deleted later")
        await delete(stage, YOUNG.topic)
        await until(lambda: not stage.coordinator_has(YOUNG))
        await stage.producer.end(commit=True)
        await stage.at_rest()

    staged(story)


def test_a_coordinator_that_never_had_a_deleted_topic_in_its_metadata_ends_the_transaction():
    async def story(stage):
        await stage.topic(YOUNG.topic, stage.holder)
        await stage.write(YOUNG, b"deleted later")
        stage.coordinator.kill()
        await delete(stage, YOUNG.topic)
        stage.coordinator.start()
        await until(lambda: stage.coordinator.state is ProcessState.RUNNING)
        assert stage.coordinator.broker.metadata.deleted_id(YOUNG.topic) is None
        await stage.producer.end(commit=True)
        await stage.at_rest()

    staged(story)


def test_a_deletion_that_waits_for_an_offline_replica_does_not_hold_a_transaction_up():
    """Neither at the coordinator that got UpdateMetadata, nor at the next one."""

    async def story(stage):
        await stage.topic(YOUNG.topic, stage.holder, stage.controller)
        await stage.write(YOUNG, b"deleted later")
        stage.holder.kill()
        await until(lambda: stage.holder.id not in stage.controller.broker.metadata.brokers)
        await delete(stage, YOUNG.topic, timeout_ms=500)
        await until(lambda: not stage.coordinator_has(YOUNG))
        stage.coordinator.kill()
        await until(lambda: stage.coordinator.id not in stage.controller.broker.metadata.brokers)
        stage.coordinator.start()
        await until(lambda: stage.coordinator.state is ProcessState.RUNNING)
        await stage.producer.end(commit=True)
        await stage.at_rest()
        assert await stage.coordinator.store.exists(layout.topic_path(YOUNG.topic)) is not None

    staged(story)


def test_a_new_topic_with_the_name_of_a_deleted_one_gets_its_marker():
    """The coordinator got UpdateMetadata for the deletion, and not for the new topic."""

    async def story(stage):
        await stage.topic(YOUNG.topic, stage.holder)
        await until(lambda: stage.coordinator_has(YOUNG))
        await delete(stage, YOUNG.topic)
        await until(lambda: not stage.coordinator_has(YOUNG))
        assert stage.coordinator.broker.metadata.deleted_id(YOUNG.topic) is not None
        stage.controller_is_late()
        await stage.topic(YOUNG.topic, stage.holder)
        await stage.write(YOUNG, b"committed")
        assert not stage.coordinator_has(YOUNG)
        await stage.producer.end(commit=True)
        await stage.at_rest()
        assert await stage.is_committed(YOUNG)

    staged(story)


def test_a_coordinator_that_cannot_ask_the_store_waits_until_it_can():
    async def story(stage):
        stage.controller_is_late()
        await stage.topic(YOUNG.topic, stage.holder)
        await stage.write(YOUNG, b"committed")
        stage.coordinator.store.cut()
        await stage.producer.end(commit=True)
        await asyncio.sleep(1)
        assert stage.state() is TransactionState.PREPARE_COMMIT
        stage.coordinator.store.restore()
        await stage.at_rest()
        assert await stage.is_committed(YOUNG)

    staged(story)
