"""The cache shows what the controller announced, and waiting requests continue then."""

import asyncio

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.sim.world.loop import run
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID_A, ID_B = bytes(15) + b"a", bytes(15) + b"b"


def update_metadata(*topics, brokers=(1,)):
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=index, leader=leader, replicas=[1, 2], isr=[1]
                    )
                    for index, leader in leaders.items()
                ],
            )
            for name, topic_id, leaders in topics
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=id_,
                endpoints=[
                    UpdateMetadataEndpoint(
                        host="h", port=9000 + id_, listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
            for id_ in brokers
        ],
    )


def cache():
    loop = asyncio.get_running_loop()
    return MetadataCache(loop, lambda: round(loop.time() * 1000))


def test_later_words_add_to_earlier_ones():
    async def scenario():
        shown = cache()
        shown.update(update_metadata(("t", ID_A, {0: 1})))
        shown.update(update_metadata(("t", ID_A, {1: 2}), brokers=(1, 2)))
        topic = shown.topic("t")
        assert topic is not None
        assert {index: known.leader for index, known in topic.partitions.items()} == {0: 1, 1: 2}
        assert [broker.id for broker, _ in shown.live_end_points("PLAINTEXT")] == [1, 2]
        assert list(shown.live_end_points("OTHER")) == []

    run(scenario())


def test_a_leader_that_is_not_registered_is_shown_as_no_leader():
    async def scenario():
        shown = cache()
        shown.update(update_metadata(("t", ID_A, {0: 2})))
        partition = shown.partition("t", 0)
        assert partition is not None
        assert shown.leader_of(partition) == -1

    run(scenario())


def test_a_deleted_topic_goes_with_its_last_partition():
    async def scenario():
        shown = cache()
        shown.update(update_metadata(("t", ID_A, {0: 1, 1: 1})))
        assert shown.update(update_metadata(("t", ID_A, {0: -2}))) == []
        assert shown.update(update_metadata(("t", ID_A, {1: -2}))) == ["t"]
        assert shown.topic("t") is None
        assert shown.topic_by_id(ID_A) is None

    run(scenario())


def test_a_topic_made_again_has_nothing_of_the_old_one():
    async def scenario():
        shown = cache()
        shown.update(update_metadata(("t", ID_A, {0: 1, 1: 1})))
        shown.update(update_metadata(("t", ID_B, {0: 1})))
        assert list(shown.topics["t"].partitions) == [0]
        assert shown.topic_by_id(ID_A) is None
        assert shown.topic_by_id(ID_B) is shown.topic("t")

    run(scenario())


def test_a_waiting_request_continues_when_the_metadata_has_it_or_the_time_is_up():
    async def scenario():
        loop = asyncio.get_running_loop()
        shown = cache()
        loop.call_later(1, lambda: shown.update(update_metadata(("t", ID_A, {0: 1}))))
        assert await shown.wait_until(lambda: shown.topic("t") is not None, 5000)
        assert loop.time() == 1
        assert not await shown.wait_until(lambda: shown.topic("x") is not None, 3000)
        assert loop.time() == 3
        assert not await shown.wait_until(lambda: False, 2000), "the time was up before"
        assert shown._waiting == []

    run(scenario())
