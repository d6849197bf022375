"""A blocking client: requests over a plain socket, one after the other.

Nothing is retried and nothing hidden: tests see the broker's response, or that it closed the
connection (`HungUpError`).
"""

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from odradek.model.errors import ErrorCode
from odradek.record.batch import iter_batches
from odradek.wire.api_keys import APIS
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.schema import Message

FETCH_BY_NAME = 12
LATEST, EARLIEST = -1, -2
M = TypeVar("M", bound=Message)


class HungUpError(ConnectionError):
    """The broker closed the connection."""


def framed(message: Message, version: int, *, client_id: str = "test") -> bytes:
    """A request as it goes over the wire, its length before it."""
    api_key = message.SCHEMA.api_key
    assert api_key is not None
    body = encoder(type(message), version)(message)
    request = encode_request_header(api_key, version, 1, client_id) + body
    return struct.pack(">i", len(request)) + request


class Peer:
    def __init__(self, port: int, *, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> memoryview:
        """The next response, without its length.

        Raises:
            HungUpError: there is none.
        """
        (length,) = struct.unpack(">i", self._exactly(4))
        return memoryview(self._exactly(length))

    def is_hung_up(self) -> bool:
        """Wait until the broker closes the connection. False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def request(self, message: Message, answer: type[M], version: int | None = None) -> M:
        """Send a request and read its response."""
        api_key = message.SCHEMA.api_key
        assert api_key is not None
        version = APIS[api_key].last if version is None else version
        try:
            self.send(framed(message, version))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise HungUpError(str(error)) from None
        return self.answer(answer, version)

    def answer(self, answer: type[M], version: int) -> M:
        api_key = answer.SCHEMA.api_key
        assert api_key is not None
        frame = self.frame()
        _, position = decode_response_header(frame, 0, api_key, version)
        decoded, end = decoder(answer, version)(frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes after the {answer.__name__}"
        return decoded

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise HungUpError(f"after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    # ----------------------------------------------------------------------- what tests ask for

    def create_topic(
        self, name: str, partitions: int = 1, *, exists_ok: bool = False, **configs: object
    ) -> None:
        """Create a topic. Options are Kafka's names with `_` for `.`."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        deadline_s = time.monotonic() + 30
        while True:
            (made,) = self.request(request, CreateTopicsResponse).topics
            # A broker that has just started serves before it is elected controller.
            if made.error_code != ErrorCode.NOT_CONTROLLER or time.monotonic() > deadline_s:
                break
        allowed = {ErrorCode.NONE} | ({ErrorCode.TOPIC_ALREADY_EXISTS} if exists_ok else set())
        assert made.error_code in allowed, (name, made.error_code, made.error_message)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        (removed,) = self.request(request, DeleteTopicsResponse).responses
        assert removed.error_code == 0, (name, removed.error_code, removed.error_message)

    def produce(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        answer = self.request(producing(topic, partition, batch, acks=acks), ProduceResponse,
                              version)  # fmt: skip
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 0) -> Any:
        """Fetch from one partition; the partition's answer."""
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=8 << 20,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=4 << 20
                        )
                    ],
                )
            ],
        )
        answer = self.request(request, FetchResponse, FETCH_BY_NAME)
        return answer.responses[0].partitions[0]

    def read(self, topic: str, partition: int, offset: int, end: int) -> list[tuple[int, bytes]]:
        """Every batch between two offsets: its base offset, and all of it."""
        batches = []
        while offset < end:
            # With a wait time, because data that is not in the page cache is not returned at once.
            part = self.fetch(topic, partition, offset, max_wait_ms=10_000)
            assert part.error_code == 0, (topic, partition, offset, part.error_code)
            data = bytes(part.records or b"")
            got = len(batches)
            # The last batch may be truncated by the size limit of the response.
            for position, header in iter_batches(data):
                batches.append((header.base_offset, data[position : position + header.size_bytes]))
                offset = header.next_offset
            assert len(batches) > got, f"nothing at {offset} of {topic}-{partition}: {part}"
        return batches

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Delete the records before an offset, if not deleted already. Returns the new start."""
        asked = DeleteRecordsPartition(partition_index=partition, offset=max(0, offset))
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=10_000
        )
        (answer,) = self.request(request, DeleteRecordsResponse).topics[0].partitions
        assert answer.error_code == ErrorCode.NONE, (topic, partition, offset, answer)
        return answer.low_watermark

    def wait_until_led(self, topic: str, partitions: int = 1) -> None:
        """Wait for the leaders: a broker that has just started serves before it leads."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        deadline_s = time.monotonic() + 30
        while True:
            (found,) = self.request(request, MetadataResponse).topics
            led = [p for p in found.partitions if p.error_code == ErrorCode.NONE]
            if len(led) == partitions:
                return
            assert time.monotonic() < deadline_s, found
            time.sleep(0.002)

    def offset(self, topic: str, partition: int, timestamp: int = LATEST) -> int:
        """An offset by a special timestamp."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        found = self.request(request, ListOffsetsResponse).topics[0].partitions[0]
        assert found.error_code == ErrorCode.NONE, (topic, partition, found.error_code)
        return found.offset


def producing(topic: str, partition: int, batch: bytes, *, acks: int = -1) -> ProduceRequest:
    """A request to produce one batch."""
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def as_stored(batch: bytes) -> bytes:
    """The part of a batch that the broker must not change: all but base offset and leader epoch."""
    return batch[8:12] + batch[16:]


def all_stored(batches: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """The same for what was read."""
    return [as_stored(batch) for _, batch in batches]
