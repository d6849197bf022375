"""A refused Produce or Fetch names the leader that the client should turn to (KIP-951)."""

import pytest
from tests.unit.broker.live import fetch, play, produce

from odradek.model.errors import ErrorCode
from odradek.wire.messages.fetch import FetchPartition

T0 = ("t", 0)


def parts(response):
    return [
        part
        for topic in response.responses
        for part in getattr(topic, "partition_responses", None) or topic.partitions
    ]


def named(response):
    """For each partition the error, the leader and its epoch; and the addresses of leaders."""
    leaders = [(part.error_code, part.current_leader) for part in parts(response)]
    return (
        [(error, leader and (leader.leader_id, leader.leader_epoch)) for error, leader in leaders],
        [(node.node_id, node.host, node.port) for node in response.node_endpoints],
    )


def moved(leader_epoch):
    return [(ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, leader_epoch))], [(2, "b2", 9092)]


NO_LEADER_NAMED = ([(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)], [])


def reading(**partition):
    return fetch({T0: FetchPartition(partition_max_bytes=1000, **partition)}, max_wait_ms=500)


def test_a_produce_request_that_waits_when_the_leader_moves_is_sent_to_the_new_leader():
    async def story(live):
        await live.order()
        peer = live.peer()
        waiting = peer.send(produce(live.batch(b"a"), acks=-1))
        await live.order(leader=2, leader_epoch=1)

        assert named(await waiting) == moved(1)
        assert named(await peer.ask(produce(live.batch(b"b"), acks=1))) == moved(1)

    play(story)


def test_a_fetch_that_waits_when_the_leader_moves_is_sent_to_the_new_leader():
    async def story(live):
        await live.order()
        peer = live.peer()
        waiting = peer.send(reading(), 12)
        await live.order(leader=2, leader_epoch=1)

        answer = await waiting
        assert named(answer) == (moved(1)[0], []), "addresses are in v16 and newer"

    play(story)


def test_a_fetch_by_topic_id_has_the_address_of_the_new_leader():
    async def story(live):
        await live.order(leader=2, leader_epoch=1)
        topic_id = live.broker.metadata.topic("t").topic_id
        asked = reading()
        asked.topics[0].topic_id = topic_id

        assert named(await live.peer().ask(asked, 17)) == moved(1)

    play(story)


@pytest.mark.parametrize("version", [3, 8, 9])
def test_older_produce_responses_have_no_leader(version):
    async def story(live):
        await live.order(leader=2, leader_epoch=1)

        assert named(await live.peer().ask(produce(live.batch(b"a"), acks=1), version)) == (
            NO_LEADER_NAMED
        )

    play(story)


def test_no_leader_is_named_that_is_not_registered():
    async def story(live):
        await live.order(leader=7, leader_epoch=1, replicas=(0, 7))

        assert named(await live.peer().ask(produce(live.batch(b"a"), acks=1))) == NO_LEADER_NAMED

    play(story)


def test_a_broker_that_stops_serving_does_not_name_itself():
    async def story(live):
        await live.order()
        live.partition().stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        assert named(await live.peer().ask(produce(live.batch(b"a"), acks=1))) == NO_LEADER_NAMED

    play(story)


def test_a_consumer_with_an_old_leader_epoch_gets_the_newer_one():
    async def story(live):
        await live.order(leader_epoch=4)
        asked = reading(current_leader_epoch=3)
        asked.topics[0].topic_id = live.broker.metadata.topic("t").topic_id

        assert named(await live.peer().ask(asked, 16)) == (
            [(ErrorCode.FENCED_LEADER_EPOCH, (0, 4))],
            [(0, "b0", 9092)],
        )

    play(story)


def test_the_metadata_is_used_where_it_is_newer_than_the_replica():
    async def story(live):
        await live.order(leader=2, leader_epoch=1)
        cache = live.broker.metadata
        known = cache.topic("t")
        known.partitions[0] = known.partitions[0]._replace(leader=3, leader_epoch=2)

        response = await live.peer().ask(produce(live.batch(b"a"), acks=1))
        assert named(response) == (
            [(ErrorCode.NOT_LEADER_OR_FOLLOWER, (3, 2))],
            [(3, "b3", 9092)],
        )

    play(story)


def test_a_large_request_names_each_leader_once():
    async def story(live):
        await live.order(leader=2, leader_epoch=1, partitions=150)
        request = produce({("t", index): live.batch(b"x" * 200) for index in range(150)}, acks=1)
        leaders, nodes = named(await live.peer().ask(request))

        assert leaders == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 1))] * 150
        assert nodes == [(2, "b2", 9092)]

    play(story)
