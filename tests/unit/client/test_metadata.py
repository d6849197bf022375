"""A client's metadata, from brokers whose own metadata may be out of date."""

from odradek.client.metadata import ClusterMetadata
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)


def response(leader, epoch, topic_id=b"1" * 16, brokers=(1, 2), error=0):
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


def test_an_older_leader_epoch_is_ignored():
    metadata = ClusterMetadata()
    metadata.update(response(2, 5))
    metadata.update(response(1, 4))

    assert metadata.leader(T0) == 2


def test_an_older_leader_epoch_of_a_recreated_topic_is_used():
    metadata = ClusterMetadata()
    metadata.update(response(2, 5))
    metadata.update(response(1, 0, topic_id=b"2" * 16))

    assert metadata.leader(T0) == 1
    assert metadata.topic_id("t") == b"2" * 16


def test_a_leader_that_is_not_registered_is_no_leader():
    metadata = ClusterMetadata()
    metadata.update(response(2, 5, brokers=(1,)))

    assert metadata.leader(T0) == NO_LEADER
    assert metadata.without_leader([T0]) == [T0]


def test_a_deleted_topic_is_removed_with_its_error():
    metadata = ClusterMetadata()
    metadata.update(response(2, 5))
    metadata.update(response(0, 0, error=3))

    assert metadata.partitions("t") == []
    assert metadata.errors == {"t": 3}
    metadata.update(response(2, 6))
    assert metadata.errors == {}
    metadata.update(MetadataResponse(), all_topics=True)
    assert metadata.topics == {}
