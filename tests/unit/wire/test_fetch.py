"""The fetch response in pieces, against the generic codec."""

import pytest

from odradek.wire.codec import decoder, encoder
from odradek.wire.header import encode_response_header
from odradek.wire.messages.fetch import (
    JOINED_BYTES,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
    SnapshotId,
    encode_fetch_response,
    follower,
)

TOPIC_ID = bytes(range(16))
VERSIONS = range(4, 18)


def partitions(version: int) -> list[PartitionData]:
    found = [
        PartitionData(
            partition_index=index,
            high_watermark=100 + index,
            last_stable_offset=99,
            log_start_offset=3 if version >= 5 else -1,
            records=records,
        )
        for index, records in enumerate([b"", b"r" * 126, b"r" * 127, b"r" * 40_000, b""])
    ]
    found[0].aborted_transactions = None
    found[1].aborted_transactions = [
        AbortedTransaction(producer_id=5, first_offset=6),
        AbortedTransaction(producer_id=7, first_offset=8),
    ]
    found[4].error_code = 6
    if version >= 11:
        found[2].preferred_read_replica = 2
    if version >= 12:
        found[0].diverging_epoch = EpochEndOffset(epoch=4, end_offset=50)
        found[1].current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        found[4].current_leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=6)
        found[4].snapshot_id = SnapshotId(end_offset=9, epoch=1)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic_count", [0, 1, 130])
def test_the_pieces_are_what_the_generic_codec_writes(version, topic_count):
    by_id = version >= 13
    end_points = [NodeEndpoint(node_id=2, host="b", port=9092, rack="r")] if version >= 16 else []
    session = {"error_code": 2, "session_id": 77} if version >= 7 else {}
    response = FetchResponse(throttle_time_ms=11, node_endpoints=end_points, **session)
    topics = []
    for number in range(topic_count):
        name = "" if by_id else f"topic-{number}-ключ"
        topics.append((TOPIC_ID if by_id else name, partitions(version)))
        response.responses.append(
            FetchableTopicResponse(
                topic=name,
                topic_id=TOPIC_ID if by_id else bytes(16),
                partitions=partitions(version),
            )
        )

    pieces = encode_fetch_response(
        7, version, topics, throttle_time_ms=11, node_endpoints=end_points, **session
    )

    body = encode_response_header(1, version, 7) + encoder(FetchResponse, version)(response)
    assert b"".join(pieces) == len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("version", VERSIONS)
def test_large_records_are_not_copied(version):
    records = memoryview(bytearray(b"r" * JOINED_BYTES))
    key = TOPIC_ID if version >= 13 else "orders"
    pieces = encode_fetch_response(
        7, version, [(key, [PartitionData(records=records), PartitionData(records=records)])]
    )

    assert sum(piece is records for piece in pieces) == 2
    assert all(len(piece) for piece in pieces)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_small_response_is_one_piece(version):
    key = TOPIC_ID if version >= 13 else "orders"
    partitions = [PartitionData(records=memoryview(b"r" * 100)) for _ in range(3)]
    [piece] = encode_fetch_response(7, version, [(key, partitions)])

    assert type(piece) is bytes  # a connection sends it without more steps


@pytest.mark.parametrize("version", VERSIONS)
def test_no_records_are_empty_bytes_rather_than_null(version):
    key = TOPIC_ID if version >= 13 else "orders"
    frame = b"".join(encode_fetch_response(7, version, [(key, [PartitionData()])]))
    header = len(encode_response_header(1, version, 7))
    response, end = decoder(FetchResponse, version)(memoryview(frame), 4 + header)

    assert response.responses[0].partitions[0].records == b""
    assert end == len(frame)


@pytest.mark.parametrize(
    ("version", "topic"),
    [pytest.param(12, TOPIC_ID, id="id too early"), pytest.param(13, "orders", id="name too late")],
)
def test_a_version_refuses_the_topic_identifier_it_lacks(version, topic):
    with pytest.raises(AssertionError):
        encode_fetch_response(7, version, [(topic, [])])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(FetchRequest(replica_id=3), ReplicaState(replica_id=3), id="until v14"),
        pytest.param(
            FetchRequest(replica_state=ReplicaState(replica_id=3, replica_epoch=8)),
            ReplicaState(replica_id=3, replica_epoch=8),
            id="from v15",
        ),
        pytest.param(FetchRequest(), ReplicaState(replica_id=-1), id="consumer"),
    ],
)
def test_a_follower_identifies_itself(request_, expected):
    assert follower(request_) == expected
