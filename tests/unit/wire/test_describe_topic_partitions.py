"""DescribeTopicPartitions: the only message with a nullable struct that is not a tagged field."""

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionResponse,
    TopicRequest,
    TopicResponse,
)

NO_CURSOR = bytes.fromhex("02 02 74 00 000007d0 ff 00")
CURSOR = bytes.fromhex("02 02 74 00 000007d0 01 02 74 00000005 00 00")


@pytest.mark.parametrize(
    ("cursor", "data"),
    [(None, NO_CURSOR), (Cursor(topic_name="t", partition_index=5), CURSOR)],
)
def test_a_cursor_may_be_null(cursor, data):
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)

    assert encoder(DescribeTopicPartitionsRequest, 0)(request) == data
    assert decoder(DescribeTopicPartitionsRequest, 0)(memoryview(data), 0) == (request, len(data))


def test_truncated_bytes_are_refused():
    for end in range(len(CURSOR)):
        with pytest.raises(MalformedRequestError):
            decoder(DescribeTopicPartitionsRequest, 0)(memoryview(CURSOR[:end]), 0)


def test_a_response_contains_the_eligible_leader_replicas():
    partition = PartitionResponse(
        partition_index=1, leader_id=2, replica_nodes=[1, 2], isr_nodes=[2],
        eligible_leader_replicas=[1], last_known_elr=None,
    )  # fmt: skip
    response = DescribeTopicPartitionsResponse(
        topics=[TopicResponse(name="t", topic_id=bytes(16), partitions=[partition])],
        next_cursor=Cursor(topic_name="t", partition_index=2),
    )
    data = encoder(DescribeTopicPartitionsResponse, 0)(response)

    assert decoder(DescribeTopicPartitionsResponse, 0)(memoryview(data), 0) == (response, len(data))


def test_its_headers_are_flexible():
    assert encode_request_header(75, 0, 7, None) == bytes.fromhex("004b 0000 00000007 ffff 00")
    assert decode_response_header(memoryview(bytes.fromhex("00000007 00")), 0, 75, 0) == (7, 5)
