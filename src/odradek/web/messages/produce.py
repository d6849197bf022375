"""Produces one message, or a stored one again. The page calls this for a user who may write.

    topic, partition     "" lets the key choose the partition
    key, value           with `key_is` and `value_is`: text, hex, null
    headers              one a line: name: value; a name alone has a null value
    codec                none, gzip, snappy, lz4, zstd

The producer is idempotent, with acks=all. A topic is never created by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.producer.batches import RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.record.compression import Codec
from odradek.web.messages.query import AtOffset, Query, QueryError
from odradek.web.messages.ranges import partitions_of, ranges_of
from odradek.web.messages.search import SliceBounds, SliceReader

_BYTES_MAX: Final = 1 << 20  # of a key or a value
_HEADERS_MAX: Final = 100
_FORMS: Final = ("text", "hex", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to produce; without a partition its key chooses one."""

    topic: str
    partition: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    codec: Codec = Codec.NONE


def read_message(fields: Mapping[str, str]) -> NewMessage:
    """The message of a form.

    Raises:
        QueryError: a field is invalid.
    """
    topic = fields.get("topic", "").strip()
    if not topic:
        raise QueryError("topic: choose a topic")
    return NewMessage(
        topic=topic,
        partition=_partition(fields.get("partition", "")),
        key=_data(fields, "key", absent=None),
        value=_data(fields, "value", absent=b""),
        headers=_headers(fields.get("headers", "")),
        codec=_codec(fields.get("codec", "")),
    )


def _partition(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise QueryError(f"partition: {text!r} is not a number")
    return int(text)


def _codec(text: str) -> Codec:
    names = {each.name.lower(): each for each in Codec}
    name = text.strip() or "none"
    if name not in names:
        raise QueryError(f"codec: {name!r} is not one of {', '.join(names)}")
    return names[name]


def _data(fields: Mapping[str, str], name: str, *, absent: bytes | None) -> bytes | None:
    """Bytes of a field; an empty text field is `absent`."""
    form = fields.get(f"{name}_is", "").strip() or "text"
    if form not in _FORMS:
        raise QueryError(f"{name}_is: {form!r} is not one of {', '.join(_FORMS)}")
    text = fields.get(name, "")
    if form == "null":
        return None
    if form == "text":
        data = text.encode("utf-8", "surrogateescape")
        return _bounded(name, data) if data else absent
    try:
        return _bounded(name, bytes.fromhex(text))
    except ValueError:
        raise QueryError(f"{name}: it is not hexadecimal") from None


def _bounded(name: str, data: bytes) -> bytes:
    if len(data) > _BYTES_MAX:
        raise QueryError(f"{name}: {len(data)} bytes; at most {_BYTES_MAX} are allowed here")
    return data


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        found.append((name.strip(), value.strip().encode() if colon else None))
    if len(found) > _HEADERS_MAX:
        raise QueryError(f"headers: {len(found)}; at most {_HEADERS_MAX} are allowed here")
    return tuple(found)


async def produce(cluster: Cluster, message: NewMessage) -> RecordMetadata:
    """Produce one message and wait for all in-sync replicas; its partition, offset and timestamp.

    Raises:
        QueryError: there is no such topic or partition.
        ApiError, RecordTooLargeError, ClientTimeoutError: the cluster refuses it.
        ConnectionError: no broker answers.
    """
    chosen = None if message.partition is None else (message.partition,)
    await partitions_of(cluster, Query(topic=message.topic, partitions=chosen))
    settings = ProducerSettings(client=cluster.settings, codec=message.codec)
    async with await Producer.open(settings) as producer:
        delivery = await producer.send(
            message.topic,
            message.value,
            key=message.key,
            headers=message.headers,
            partition=message.partition,
        )
        return await delivery


async def stored_message(
    cluster: Cluster, partition: TopicPartition, offset: int, *, topic: str = ""
) -> NewMessage:
    """The record at an offset, to be produced again: to its partition, or to another `topic`.

    Raises:
        QueryError: there is no record at this offset, or it is too large to be sent from here.
        ApiError, ConnectionError: the cluster does not answer.
    """
    query = Query(
        topic=partition.topic,
        partitions=(partition.partition,),
        start=AtOffset(offset),
        end=AtOffset(offset + 1),
    )
    ranges = await ranges_of(cluster, query, wall_ms=real_wall_ms(), with_sizes=False)
    bounds = SliceBounds(found=1, held_bytes=_BYTES_MAX)
    read = await SliceReader(cluster, query, ranges.progress(query), bounds, lane="again").run()
    if not read.found:
        raise QueryError(f"offset: {partition} has no record at offset {offset}")
    (record,) = read.found
    if record.is_cut:
        raise QueryError(f"offset: the record has more than {_BYTES_MAX} bytes")
    same = topic in ("", partition.topic)
    return NewMessage(
        topic=partition.topic if same else topic,
        partition=partition.partition if same else None,
        key=record.key,
        value=record.value,
        headers=record.headers,
        codec=record.codec,
    )
