"""Produce (0): record batches into partitions.

For produce requests and responses the functions at the end of this file replace the generic
codec: no object for each partition, records never copied. They handle the common case and leave
every other (tags, nulls, record errors, malformed bytes) to the generic codec, so that limits and
errors are written once.

Versions:
    v0    message sets, of formats v0 and v1
    v1    throttle time in the response
    v2    log append time in the response
    v3    transactional id; batches of format 2 only
    v5    the response contains the log start offset
    v8    the response may contain errors of single records (KIP-467)
    v9    flexible
    v10   an error may name the current leader (KIP-951)
    v12   transactions of version 2: partitions are added implicitly (KIP-890)
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import (
    DATA_ELEMENTS_MAX,
    decoder,
    encoder,
    sliced_decoder,
    sliced_encoder,
)
from odradek.wire.header import encode_request_header, encode_response_header
from odradek.wire.primitives import DECODING_ERRORS, encode_unsigned_varint, unsigned_varint
from odradek.wire.schema import (
    Buffer,
    Message,
    array,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
)


class PartitionProduceData(Message):
    index: int = int32()
    records: Buffer | None = record_data(nullable="0+")


class TopicProduceData(Message):
    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=0, versions="0-12", flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()  # 0: no response; 1: the leader has appended; -1: all of the ISR has
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Message):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="0-12", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


# -------------------------------------------------------------------- the fast path

FIRST_FLEXIBLE: Final = 9
_TRANSACTIONAL_FROM: Final = 3
# With more topics, or partitions in all, the generic codec takes over, which checks the budget
# of elements.
_COUNT_MAX: Final = 1000
_ONE_BYTE_MAX: Final = 127
_MALFORMED: Final = (*DECODING_ERRORS, MalformedRequestError)
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs

Topics: TypeAlias = list[tuple[str, list[tuple[int, Buffer | None]]]]


class Produce(NamedTuple):
    """A produce request: for each topic its name, and its partitions with their records."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    topics: Topics


def decode_produce(view: memoryview, position: int, version: int) -> Produce:
    """Read the body of a produce request.

    Raises:
        MalformedRequestError: see `odradek.wire.codec`.
    """
    return decode_usual(view, position, version) or decode_unusual(view, position, version)


def decode_usual(view: memoryview, position: int, version: int) -> Produce | None:
    """Read the common case. None: many partitions, tags, nulls, or malformed bytes."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(view, position)
        return _decode_plain(view, position, version)
    except _MALFORMED:
        return None


def decode_unusual(view: memoryview, position: int, version: int) -> Produce:
    """Read the body of any request.

    Raises:
        MalformedRequestError: see `odradek.wire.codec`.
    """
    request, _ = decoder(ProduceRequest, version)(view, position, DATA_ELEMENTS_MAX)
    return _usual(request)


def decode_in_slices(
    view: memoryview, position: int, version: int
) -> Generator[None, None, Produce]:
    """Read the same, with yields in between (see `odradek.wire.codec.SlicedDecoder`)."""
    decode = sliced_decoder(ProduceRequest, version)
    request, _ = yield from decode(view, position, DATA_ELEMENTS_MAX)
    yield
    return _usual(request)


def _usual(request: ProduceRequest) -> Produce:
    topics: Topics = [
        (topic.name, [(partition.index, partition.records) for partition in topic.partition_data])
        for topic in request.topic_data
    ]
    return Produce(request.acks, request.timeout_ms, request.transactional_id, topics)


_ACKS_TIMEOUT_COUNT: Final = Struct(">hii").unpack_from
_INDEX_SIZE: Final = Struct(">ii").unpack_from
_LENGTH: Final = Struct(">h").unpack_from
_COUNT: Final = Struct(">i").unpack_from


def _decode_plain(view: memoryview, p: int, version: int) -> Produce | None:
    """v0-8; None if there is anything unusual."""
    end = len(view)
    transactional_id = None
    if version >= _TRANSACTIONAL_FROM:
        (length,) = _LENGTH(view, p)
        p += 2
        if length >= 0:
            transactional_id = view[p : p + length].tobytes().decode()
            p += length
        elif length != -1:
            return None
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT(view, p)
    p += 10
    if not 0 <= topic_count <= _COUNT_MAX:
        return None
    topics: Topics = []
    room = _COUNT_MAX
    for _ in range(topic_count):
        (length,) = _LENGTH(view, p)
        p += 2
        name = view[p : p + length].tobytes().decode()
        p += length
        (partition_count,) = _COUNT(view, p)
        p += 4
        if length < 0 or not 0 <= partition_count <= room:
            return None
        room -= partition_count
        partitions: list[tuple[int, Buffer | None]] = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE(view, p)
            p += 8
            if not 0 <= size <= end - p:
                return None
            partitions.append((index, view[p : p + size]))
            p += size
        topics.append((name, partitions))
    return _new(Produce, (acks, timeout_ms, transactional_id, topics))


_ACKS_TIMEOUT_BYTE: Final = Struct(">hiB").unpack_from
_INDEX_BYTE: Final = Struct(">iB").unpack_from


def _decode_flexible(view: memoryview, p: int) -> Produce | None:
    """v9-12; None if there is anything unusual. Lengths and counts are encoded plus one."""
    transactional_id = None
    length = view[p]
    if length:
        transactional_id = view[p + 1 : p + length].tobytes().decode()
        p += length - 1
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_BYTE(view, p + 1)
    if length > _ONE_BYTE_MAX or not 0 < topic_count <= _ONE_BYTE_MAX:
        return None
    p += 8
    topics: Topics = []
    room = _COUNT_MAX
    for _ in range(topic_count - 1):
        length = view[p]
        name = view[p + 1 : p + length].tobytes().decode()
        p += length
        partition_count = view[p]
        if not (0 < length <= _ONE_BYTE_MAX and 0 < partition_count <= _ONE_BYTE_MAX):
            return None
        room -= partition_count
        p += 1
        partitions: list[tuple[int, Buffer | None]] = []
        for _ in range(partition_count - 1):
            index, size = _INDEX_BYTE(view, p)
            p += 5
            if size > _ONE_BYTE_MAX:
                size, p = unsigned_varint(view, p - 1, "records")
            stop = p + size - 1
            if not size or view[stop]:  # null records, or tagged fields after them
                return None
            partitions.append((index, view[p:stop]))
            p = stop + 1
        if view[p]:
            return None
        p += 1
        topics.append((name, partitions))
    if room < 0 or view[p]:
        return None
    return _new(Produce, (acks, timeout_ms, transactional_id, topics))


def encode_produce_request(
    version: int, correlation_id: int, client_id: str | None, produce: Produce
) -> list[Buffer]:
    """The frame of a produce request in pieces, with the records uncopied."""
    assert version >= _TRANSACTIONAL_FROM, version
    flexible = version >= FIRST_FLEXIBLE
    count = _compact_count if flexible else _plain_count
    tags = b"\0" if flexible else b""
    piece = bytearray(4)  # the length of the frame, written at the end
    piece += encode_request_header(0, version, correlation_id, client_id)
    piece += _string(produce.transactional_id, flexible=flexible)
    piece += _ACKS_TIMEOUT.pack(produce.acks, produce.timeout_ms) + count(len(produce.topics))
    pieces: list[Buffer] = [piece]
    for name, partitions in produce.topics:
        piece += _string(name, flexible=flexible) + count(len(partitions))
        for index, records in partitions:
            assert records is not None, (name, index)
            piece += _INT32.pack(index) + count(len(records))
            piece = bytearray(tags)
            pieces += (records, piece)
        piece += tags
    piece += tags
    if not piece:
        pieces.pop()
    _INT32.pack_into(pieces[0], 0, sum(map(len, pieces)) - 4)
    return pieces


_ACKS_TIMEOUT: Final = Struct(">hi")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


def _compact_count(count: int) -> bytes:
    return encode_unsigned_varint(count + 1)


def _plain_count(count: int) -> bytes:
    return _INT32.pack(count)


def _string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    data = text.encode()
    return (_compact_count(len(data)) if flexible else _INT16.pack(len(data))) + data


class ProducePartitionResult(NamedTuple):
    """The result of one partition. `base_offset` is -1 where there was an error."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1  # -1: the topic's timestamp type is CreateTime
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()
    current_leader: LeaderIdAndEpoch | None = None


_NO_ERROR_DETAILS: Final = (None, (), None)

ProduceResults: TypeAlias = Sequence[tuple[str, Sequence[ProducePartitionResult]]]


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: ProduceResults,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Write a produce response as a frame."""
    if version >= FIRST_FLEXIBLE and not node_endpoints:
        if len(topics) == 1 and len(topics[0][1]) == 1:
            response = _encode_one(correlation_id, topics, throttle_time_ms)
        else:
            response = _encode_many(correlation_id, topics, throttle_time_ms)
        if response is not None:
            return response
    elif _LOG_START_FROM <= version < FIRST_FLEXIBLE:
        response = _encode_plain(correlation_id, version, topics, throttle_time_ms)
        if response is not None:
            return response
    return _encode_unusual(correlation_id, version, topics, throttle_time_ms, node_endpoints)


# The first five of a result; no record errors, no error message, no tags.
_RESULT: Final = Struct(">ihqqqBBx").pack
# Frame length, correlation id, header's tags, count of topics.
_HEAD: Final = Struct(">iixB").pack
# Throttle time, tags.
_TAIL: Final = Struct(">ix").pack
# The same for one topic with one partition: head and the length of the name; count of
# partitions, result, the topic's tags and tail.
_ONE_HEAD: Final = Struct(">iixBB").pack
_ONE_TAIL: Final = Struct(">BihqqqBBxxix").pack
_ONE_BYTES: Final = Struct(">ixBB").size + Struct(">BihqqqBBxxix").size


def encode_appended(
    correlation_id: int,
    version: int,
    topic: str,
    result: tuple[int, int, int, int, int],
    throttle_time_ms: int,
) -> bytes:
    """As `encode_produce_response` for one partition; `result` has a result's first five fields."""
    if version >= FIRST_FLEXIBLE:
        data = topic.encode()
        if len(data) < _ONE_BYTE_MAX:
            head = _ONE_HEAD(_ONE_BYTES + len(data), correlation_id, 2, len(data) + 1)
            return head + data + _ONE_TAIL(2, *result, 1, 0, throttle_time_ms)
    topics = [(topic, [ProducePartitionResult(*result)])]
    return encode_produce_response(correlation_id, version, topics, throttle_time_ms)


def _encode_one(correlation_id: int, topics: ProduceResults, throttle_time_ms: int) -> bytes | None:
    """v9-12, one partition without error details; else None."""
    name, (result,) = topics[0]
    if len(name.encode()) >= _ONE_BYTE_MAX or result[5:] != _NO_ERROR_DETAILS:
        return None
    return encode_appended(correlation_id, FIRST_FLEXIBLE, name, result[:5], throttle_time_ms)


def _encode_many(
    correlation_id: int, topics: ProduceResults, throttle_time_ms: int
) -> bytes | None:
    """v9-12, any partitions without error details; else None."""
    if len(topics) >= _ONE_BYTE_MAX:
        return None
    frame = bytearray(_HEAD(0, correlation_id, len(topics) + 1))
    for name, results in topics:
        frame += _string(name, flexible=True) + _compact_count(len(results))
        for result in results:
            if result[5:] != _NO_ERROR_DETAILS:
                return None
            frame += _RESULT(*result[:5], 1, 0)
        frame += b"\0"
    frame += _TAIL(throttle_time_ms)
    _INT32.pack_into(frame, 0, len(frame) - 4)
    return bytes(frame)


_LOG_START_FROM: Final = 5
_PLAIN_HEAD: Final = Struct(">iii").pack
# v8 adds: no record errors, no error message.
_PLAIN_RESULT: Final = {v: Struct(">ihqqq" + "ih" * (v == 8)).pack for v in (5, 6, 7, 8)}
_PLAIN_NO_DETAILS: Final = {5: (), 6: (), 7: (), 8: (0, -1)}


def _encode_plain(
    correlation_id: int, version: int, topics: ProduceResults, throttle_time_ms: int
) -> bytes | None:
    """v5-8, any partitions without error details; else None."""
    pack, no_details = _PLAIN_RESULT[version], _PLAIN_NO_DETAILS[version]
    frame = bytearray(_PLAIN_HEAD(0, correlation_id, len(topics)))
    for name, results in topics:
        frame += _string(name, flexible=False) + _INT32.pack(len(results))
        for result in results:
            if result[5:] != _NO_ERROR_DETAILS:
                return None
            frame += pack(*result[:5], *no_details)
    frame += _INT32.pack(throttle_time_ms)
    _INT32.pack_into(frame, 0, len(frame) - 4)
    return bytes(frame)


def _encode_unusual(
    correlation_id: int,
    version: int,
    topics: ProduceResults,
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    response = ProduceResponse(throttle_time_ms=throttle_time_ms)
    if version >= _NEW_LEADER_FROM:
        response.node_endpoints = list(node_endpoints)
    for name, results in topics:
        partition_responses = [_partition_response(result, version) for result in results]
        response.responses.append(
            TopicProduceResponse(name=name, partition_responses=partition_responses)
        )
    return _framed(correlation_id, version, encoder(ProduceResponse, version)(response))


def encode_produce_response_in_slices(
    correlation_id: int,
    version: int,
    topics: ProduceResults,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Generator[None, None, bytes]:
    """Write a response of many partitions as a frame, with yields in between."""
    response = ProduceResponse(throttle_time_ms=throttle_time_ms)
    if version >= _NEW_LEADER_FROM:
        response.node_endpoints = list(node_endpoints)
    for name, results in topics:
        topic = TopicProduceResponse(name=name)
        response.responses.append(topic)
        for number, result in enumerate(results):
            if number % _SLICE == 0:
                yield
            topic.partition_responses.append(_partition_response(result, version))
    body = yield from sliced_encoder(ProduceResponse, version)(response)
    return _framed(correlation_id, version, body)


def _partition_response(result: ProducePartitionResult, version: int) -> PartitionProduceResponse:
    partition = PartitionProduceResponse(
        index=result.partition,
        error_code=result.error_code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        error_message=result.error_message,
        record_errors=list(result.record_errors),
    )
    if version >= _NEW_LEADER_FROM:
        partition.current_leader = result.current_leader
    return partition


def _framed(correlation_id: int, version: int, body: bytes) -> bytes:
    header = encode_response_header(0, version, correlation_id)
    return _INT32.pack(len(header) + len(body)) + header + body


_SLICE: Final = 250  # partitions between two yields
_NEW_LEADER_FROM: Final = 10
