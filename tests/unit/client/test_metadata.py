"""The picture of a cluster, told by brokers some of which are behind."""

from odradek.client.backoff import backoff_ms
from odradek.client.metadata import Picture
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)


def told(leader, epoch, topic_id=b"1" * 16, brokers=(1, 2), error=0):
    return MetadataResponse(
        controller_id=1,
        cluster_id="c",
        brokers=[MetadataResponseBroker(node_id=b, host=f"h{b}", port=9092) for b in brokers],
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=topic_id,
                error_code=error,
                partitions=[]
                if error
                else [MetadataResponsePartition(leader_id=leader, leader_epoch=epoch)],
            )
        ],
    )


def test_an_older_leader_epoch_is_passed_over():
    picture = Picture()
    picture.update(told(2, 5))
    picture.update(told(1, 4))

    assert picture.leader(T0) == 2


def test_unless_the_topic_was_made_anew():
    picture = Picture()
    picture.update(told(2, 5))
    picture.update(told(1, 0, topic_id=b"2" * 16))

    assert picture.leader(T0) == 1
    assert picture.topic_id("t") == b"2" * 16


def test_a_leader_that_is_not_alive_leads_nothing():
    picture = Picture()
    picture.update(told(2, 5, brokers=(1,)))

    assert picture.leader(T0) == NO_LEADER
    assert picture.without_leader([T0]) == [T0]


def test_a_topic_that_is_gone_is_forgotten_with_its_error():
    picture = Picture()
    picture.update(told(2, 5))
    picture.update(told(0, 0, error=3))

    assert picture.partitions("t") == []
    assert picture.errors == {"t": 3}
    picture.update(told(2, 6))
    assert picture.errors == {}
    picture.update(MetadataResponse(), all_topics=True)
    assert picture.topics == {}


def test_waits_grow_up_to_a_limit_and_differ_by_a_fifth():
    def waits(drawn):
        return [backoff_ms(n, first_ms=100, max_ms=1000, drawn=drawn) for n in range(7)]

    assert waits(0.5) == [0, 100, 200, 400, 800, 1000, 1000]
    assert waits(0.0)[1:3] == [80, 160]
    assert backoff_ms(10**9, first_ms=1, max_ms=50, drawn=0.5) == 50
