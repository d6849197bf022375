"""The fast codecs of produce against the generic codec."""

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_request_header, decode_response_header
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    Produce,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    decode_produce,
    encode_produce_request,
    encode_produce_response,
)

ONE = Produce(-1, 30_000, None, [("orders", [(3, b"records" * 30)])])
MANY = Produce(
    1,
    500,
    "payments-1",
    [
        ("orders", [(0, b""), (1, b"x"), (2, b"y" * 127), (3, b"z" * 20_000)]),
        ("n" * 200, [(7, b"abc")]),
        ("ключ", []),
    ],
)
WIDE = Produce(0, 1, None, [("t" * 10, [(partition, b"r") for partition in range(200)])])


def generic(produce: Produce) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=produce.transactional_id,
        acks=produce.acks,
        timeout_ms=produce.timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=i, records=r) for i, r in partitions],
            )
            for name, partitions in produce.topics
        ],
    )


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("produce", [ONE, MANY, WIDE], ids=["one", "many", "wide"])
def test_a_request_is_written_and_read(produce, version):
    pieces = encode_produce_request(version, 7, "client", produce)
    frame = b"".join(pieces)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(memoryview(frame), 4)
    assert header == (0, version, 7, "client")
    assert frame[position:] == encoder(ProduceRequest, version)(generic(produce))
    assert decode_produce(memoryview(frame), position, version) == produce


def test_records_are_never_copied():
    records = bytearray(b"records" * 1000)
    pieces = encode_produce_request(9, 1, None, Produce(1, 1, None, [("t", [(0, records)])]))
    assert any(piece is records for piece in pieces)

    frame = bytearray(b"".join(pieces))
    _, position = decode_request_header(memoryview(frame), 4)
    _, [(_, taken)] = decode_produce(memoryview(frame), position, 9).topics[0]
    assert isinstance(taken, memoryview)
    assert taken.obj is frame


@pytest.mark.parametrize("version", range(12))
def test_null_records_are_none(version):
    request = generic(Produce(1, 2, None, [("t", [(0, None)])]))
    data = encoder(ProduceRequest, version)(request)

    assert decode_produce(memoryview(data), 0, version).topics == [("t", [(0, None)])]


@pytest.mark.parametrize("version", [0, 8, 9, 11])
def test_malformed_bytes_raise_the_error_of_the_generic_codec(version):
    data = encoder(ProduceRequest, version)(generic(ONE))
    for length in range(len(data)):
        with pytest.raises(MalformedRequestError) as by_heart:
            decode_produce(memoryview(data)[:length], 0, version)
        with pytest.raises(MalformedRequestError) as by_the_book:
            decoder(ProduceRequest, version)(memoryview(data)[:length], 0)
        assert str(by_heart.value) == str(by_the_book.value)


PLAIN = ProducePartitionResult(3, 0, 77, -1, 5)
REFUSED = ProducePartitionResult(
    4,
    6,
    error_message="not here",
    record_errors=(BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="bad"),),
    current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
)
ANSWERS = {
    "one": [("orders", [PLAIN])],
    "many": [("orders", [PLAIN, PLAIN]), ("ключ", [PLAIN]), ("none", [])],
    "long name": [("n" * 200, [PLAIN])],
    "wide": [("orders", [PLAIN] * 200)],
    "refused": [("orders", [REFUSED])],
    "one refused": [("orders", [PLAIN, REFUSED])],
    "empty": [],
    "many topics": [(f"t{number}", [PLAIN]) for number in range(130)],
}


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("topics", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_response_has_the_fields_of_its_version(topics, version):
    frame = memoryview(encode_produce_response(7, version, topics, 250))

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = decode_response_header(frame, 4, 0, version)
    response, end = decoder(ProduceResponse, version)(frame, position)
    assert (correlation_id, end) == (7, len(frame))
    assert response.throttle_time_ms == (250 if version >= 1 else 0)
    assert [topic.name for topic in response.responses] == [name for name, _ in topics]
    for topic, (_, results) in zip(response.responses, topics, strict=True):
        for reported, result in zip(topic.partition_responses, results, strict=True):
            assert reported.index == result.partition
            assert reported.error_code == result.error_code
            assert reported.base_offset == result.base_offset
            assert reported.log_start_offset == (result.log_start_offset if version >= 5 else -1)
            assert reported.error_message == (result.error_message if version >= 8 else None)
            assert len(reported.record_errors) == (len(result.record_errors) if version >= 8 else 0)
            assert reported.current_leader == (result.current_leader if version >= 10 else None)


@pytest.mark.parametrize("version", range(12))
def test_a_response_may_contain_the_current_leader(version):
    end_points = [NodeEndpoint(node_id=2, host="b", port=9092)]
    frame = memoryview(encode_produce_response(7, version, [("t", [PLAIN])], 0, end_points))
    _, position = decode_response_header(frame, 4, 0, version)
    response, _ = decoder(ProduceResponse, version)(frame, position)

    assert response.node_endpoints == (end_points if version >= 10 else [])
