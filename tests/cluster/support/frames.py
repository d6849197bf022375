"""Malformed and unusual frames, an endless sequence that is the same for the same seed.

The kinds of frames:

    random     noise, with a true length before it or none
    valid      any request in any version, generated from the declarations of `wire/messages`
    damaged    such a request with flipped bits, truncated, or with wrong lengths and counts
    records    Produce with wrong batches: checksum, count, deltas, magic, codec, records
    bombs      Produce with a kilobyte that decompresses to a gigabyte
    tags       thousands of tagged fields, in headers and bodies
    lengths    frames that are shorter, longer or larger than their length field
    sessions   Fetch that continues sessions that may exist

Half of them are sent in pieces or left half sent (`Frame.pieces`, `Frame.hang_up`).

Valid requests that would make the run slow or useless are not sent: topics of thousands of
partitions, broker-wide options, deletion of other topics. `is_harmful` recognises them, however
they were generated.
"""

import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import cramjam
import lz4.frame
import zstandard

from odradek.model.errors import MalformedRequestError
from odradek.record.batch import HEADER, HEADER_BYTES, sign
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import APIS, Api, ApiKey
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_request_header, encode_request_header
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.primitives import encode_unsigned_varint
from odradek.wire.schema import Field, Message, MessageType

# The topics named in frames, with options for which the broker checks every record.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "small": {"segment.bytes": "16384", "segment.index.bytes": "256", "retention.bytes": "65536"},
    "compact": {"cleanup.policy": "compact"},
    "both": {"cleanup.policy": "compact,delete", "compression.type": "zstd"},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "none": {"compression.type": "uncompressed"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "timely": {"message.timestamp.before.max.ms": "60000"},
    "tiny": {"max.message.bytes": "100"},
}
PARTITIONS = 3
PARTITIONS_MAX = 20  # of a topic that a frame may ask for, if the broker would make so many
NAMES = (*TOPICS, "absent", "", ".", "..", "x" * 249, "x" * 250, "sp ace", "nul\0", "\u00fc", "a/b",
         "../../etc", "__consumer_offsets", "__transaction_state")  # fmt: skip
_CONFIGS = ("retention.ms", "segment.bytes", "cleanup.policy", "compression.type", "nonsense", "",
            "min.insync.replicas", "max.message.bytes", "flush.messages")  # fmt: skip
_CONFIG_VALUES = ("", "-1", "0", "1", "1000", "9223372036854775807", "compact", "delete", "zstd",
                  "true", "nonsense", "1e9", "\0")  # fmt: skip
_BROKER_CONFIGS = ("log.cleaner.threads", "background.threads", "nonsense", "broker.id")
_TOPIC, _BROKER, _LOGGER = 2, 4, 8  # resource types
_ADMIN = frozenset({
    ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
})  # fmt: skip
_EVIL_32 = (-1, 0, 1, -2, 0x7FFFFFFF, -0x80000000, 0x00FFFFFF, 100_000_000, 65_536)
_EVIL_16 = (-1, 0, 1, -2, 0x7FFF, -0x8000, 255)
_NUMBERS: dict[str, Sequence[float]] = {
    "bool": (False, True),
    "int8": (-1, 0, 1, 2, 3, 4, 8, 127, -128),
    "int16": _EVIL_16,
    "int32": (0, 0, 1, 2, *_EVIL_32),
    "int64": (-1, -2, -3, 0, 0, 1, 10, 1 << 40, (1 << 63) - 1, -1 << 63),
    "float64": (0.0, -1.0, float("nan"), float("inf"), 1e308),
}
_EVIL_VARINTS = (b"\x00", b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80\x00",
                 b"\xff" * 10, b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x01")  # fmt: skip
_GIB = 1 << 30


class Frame(NamedTuple):
    """The bytes to send, in how many pieces, and whether the sender then closes."""

    kind: str
    pieces: Sequence[bytes]
    hang_up: bool = False


class Frames:
    """An endless sequence of frames."""

    def __init__(
        self,
        seed: str,
        *,
        topic_ids: Sequence[bytes] = (),
        log_dirs: Sequence[str] = (),
        apis: Sequence[int] = tuple(APIS),
    ) -> None:
        """`topic_ids` and `log_dirs` are those of the broker; `apis` those that it serves."""
        self._random = random.Random(seed)
        self._topic_ids = (*topic_ids, bytes(16), b"\xff" * 16)
        self._strings = (*NAMES, *log_dirs)
        self._apis = [APIS[key] for key in apis]
        self._kinds: dict[str, tuple[int, Callable[[], bytes]]] = {
            "random": (60, self._noise),
            "valid": (220, self._valid),
            "damaged": (400, self._damaged),
            "records": (200, self._records),
            "bombs": (1, self._bomb),
            "tags": (30, self._tags),
            "lengths": (40, self._length),
            "sessions": (49, self._session),
        }
        self._names = list(self._kinds)
        self._weights = [weight for weight, _ in self._kinds.values()]

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        while True:
            (kind,) = self._random.choices(self._names, self._weights)
            data = self._kinds[kind][1]()
            if not is_harmful(data):
                return self._sent(kind, data)

    def _sent(self, kind: str, data: bytes) -> Frame:
        rng = self._random
        match rng.randrange(24):
            case 0:
                return Frame(kind, (data[: rng.randrange(len(data) + 1)],), hang_up=True)
            case 1:
                return Frame(kind, (data,), hang_up=True)
            case 2:
                cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 8)))
                ends = [*cuts, len(data)]
                starts = [0, *cuts]
                return Frame(kind, [data[a:b] for a, b in zip(starts, ends, strict=True)])
            case _:
                return Frame(kind, (data,))

    # ------------------------------------------------------------------------------- the kinds

    def _noise(self) -> bytes:
        rng = self._random
        noise = rng.randbytes(rng.choice((0, 1, 3, 8, 20, 100, 1000)))
        match rng.randrange(4):
            case 0:
                return noise
            case 1:
                return _framed(noise)
            case _:  # behind a header that is one
                api = self._api()
                version = rng.randint(api.first, api.last)
                return _framed(encode_request_header(api.key, version, 1, "noise") + noise)

    def _valid(self) -> bytes:
        return _framed(self._request())

    def _api(self) -> Api:
        """One that is served; now and then another."""
        rng = self._random
        return rng.choice(self._apis) if rng.randrange(20) else APIS[rng.choice(tuple(APIS))]

    def _request(self) -> bytes:
        rng = self._random
        api = self._api()
        version = rng.randint(api.first, api.last)
        message = self._message(api.request_class, version)
        client_id = rng.choice((None, "", "fuzz", "x" * 300, "line\nbreak", "\x1b[31m"))
        header = encode_request_header(api.key, version, rng.getrandbits(31), client_id)
        return header + encoder(api.request_class, version)(message)

    def _damaged(self) -> bytes:
        rng = self._random
        data = bytearray(self._request())
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            self._damage(data)
        if not rng.randrange(3):  # a header that asks for something else
            struct.pack_into(">h", data, 0, rng.choice((*APIS, -1, 99, 0x7FFF)))
        elif not rng.randrange(6) and len(data) > 4:
            struct.pack_into(">h", data, 2, rng.choice((-1, 0, 5, 12, 13, 17, 99, 0x7FFF)))
        return _framed(bytes(data))

    def _damage(self, data: bytearray) -> None:
        rng = self._random
        at = rng.randrange(max(len(data), 1))
        match rng.randrange(9):
            case 0 | 1:
                if data:
                    data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at:]
            case 3:
                data[at : at + 4] = struct.pack(">i", rng.choice(_EVIL_32))
            case 4:
                data[at : at + 2] = struct.pack(">h", rng.choice(_EVIL_16))
            case 5:
                data[at : at + 1] = rng.choice(_EVIL_VARINTS)
            case 6:  # once more: duplicated topics, partitions, tags
                end = at + rng.randrange(1, 60)
                data[at:at] = data[at:end] * rng.choice((1, 1, 2, 50))
            case 7:
                data[at : at + rng.randrange(1, 9)] = b""
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if len(data) < 4:
            data += bytes(4)

    def _records(self) -> bytes:
        rng = self._random
        return self._produce(
            [
                (self._topic(), [(self._partition(), self._batch()) for _ in range(_few(rng))])
                for _ in range(_few(rng))
            ]
        )

    def _bomb(self) -> bytes:
        bombs = _bombs()
        return self._produce([(self._topic(), [(0, self._random.choice(bombs))])])

    def _tags(self) -> bytes:
        rng = self._random
        count = rng.choice((10, 63, 64, 65, 1000, 30_000))
        flood = encode_unsigned_varint(count) + b"".join(
            encode_unsigned_varint(tag) + b"\0" for tag in range(count)
        )
        if rng.randrange(2):
            flood = rng.choice(_EVIL_VARINTS) + flood[2:]
        api = rng.choice([api for api in self._apis if api.flexible_from is not None])
        version = rng.randint(max(api.first, api.flexible_from or 0), api.last)
        header = encode_request_header(api.key, version, 7, "tags")
        body = encoder(api.request_class, version)(self._message(api.request_class, version))
        match rng.randrange(3):
            case 0:
                return _framed(header[:-1] + flood + body)
            case 1:
                return _framed(header + body[:-1] + flood)
            case _:
                return _framed(header + flood)

    def _length(self) -> bytes:
        rng = self._random
        data = self._request()
        text = rng.choice((*_EVIL_32, len(data) - 1, len(data) + 1, len(data) + 1000, 105_000_000))
        return struct.pack(">i", text) + data

    def _session(self) -> bytes:
        rng = self._random
        fetch = APIS[ApiKey.FETCH]
        version = rng.randint(7, fetch.last)
        message: Any = self._message(fetch.request_class, version)
        message.max_wait_ms = rng.choice((0, 1, 5, 100, 0x7FFFFFFF))
        message.min_bytes = rng.choice((0, 1, 1000, 0x7FFFFFFF))
        message.session_id = rng.choice((0, 0, 1, rng.getrandbits(31)))
        message.session_epoch = rng.choice((-1, 0, 0, 1, 2))
        header = encode_request_header(ApiKey.FETCH, version, 1, "sessions")
        return _framed(header + encoder(fetch.request_class, version)(message))

    # ---------------------------------------------------------------- messages by declaration

    def _message(self, message: MessageType, version: int, depth: int = 0) -> Message:
        fields = message.SCHEMA.fields
        made: Message = message(
            **{
                field.name: self._value(message, field, version, depth)
                for field in fields
                if version in field.versions
            }
        )
        return made

    def _value(self, message: MessageType, field: Field, version: int, depth: int) -> Any:
        rng = self._random
        if version in field.nullable and not rng.randrange(8):
            return None
        special = _SPECIAL.get(field.name)
        if special is not None and field.kind not in ("array", "struct"):
            return special(self)
        if field.kind == "struct":
            return self._message(field.part, version, depth + 1) if rng.randrange(2) else None
        if field.kind != "array":
            return self._primitive(field.kind)
        part = field.part
        if isinstance(part, MessageType):
            return [self._message(part, version, depth + 1) for _ in range(_few(rng))]
        count = rng.choice((0, 1, 1, 2, 3, 20))
        return [self._primitive(str(part)) for _ in range(count)]

    def _primitive(self, kind: str) -> Any:
        rng = self._random
        if kind == "string":
            return rng.choice(self._strings)
        if kind == "uuid":
            return rng.choice(self._topic_ids)
        if kind == "bytes":
            return self._batch() if rng.randrange(3) else rng.randbytes(rng.randrange(70))
        return rng.choice(_NUMBERS[kind])

    def _topic(self) -> str:
        return self._random.choice(tuple(TOPICS))

    def _partition(self) -> int:
        return self._random.choice((0, 0, 1, 2, PARTITIONS, -1, 0x7FFFFFFF))

    # ------------------------------------------------------------------------------- record data

    def _produce(self, topics: Sequence[tuple[str, Sequence[tuple[int, bytes]]]]) -> bytes:
        rng = self._random
        version = rng.randint(3, APIS[ApiKey.PRODUCE].last)
        request = ProduceRequest(
            transactional_id=rng.choice((None, None, None, "txn")),
            acks=rng.choice((-1, 1, 1, 1, 0, 2)),
            timeout_ms=rng.choice((0, 100, 0x7FFFFFFF, -1)),
            topic_data=[
                TopicProduceData(
                    name=name,
                    partition_data=[
                        PartitionProduceData(index=index, records=batch)
                        for index, batch in partitions
                    ],
                )
                for name, partitions in topics
            ],
        )
        header = encode_request_header(ApiKey.PRODUCE, version, 1, "records")
        return _framed(header + encoder(ProduceRequest, version)(request))

    def _batch(self) -> bytes:
        """A batch, in half of the cases a wrong one."""
        rng = self._random
        records = [
            Record(
                rng.choice((None, b"", b"k", rng.randbytes(5))),
                rng.choice((None, b"", b"v", rng.randbytes(50), b"v" * 500)),
                timestamp=rng.choice((-1, 0, 1_800_000_000_000, (1 << 63) - 1)),
                headers=rng.choice(((), (("h", None),), (("", b""), ("\udcff", b"x")))),
            )
            for _ in range(rng.choice((1, 1, 1, 2, 5, 30)))
        ]
        with_id = not rng.randrange(4)
        batch = bytearray(
            build_batch(
                records,
                codec=rng.choice(tuple(Codec)),
                producer_id=rng.choice((0, 1, 1000, 1 << 62)) if with_id else -1,
                producer_epoch=rng.choice((0, 0, 1, 0x7FFF, -1)) if with_id else -1,
                base_sequence=rng.choice((0, 1, 2, 0x7FFFFFFF, -1)) if with_id else -1,
                transactional=not rng.randrange(20),
                control=not rng.randrange(20),
            )
        )
        match rng.randrange(8):
            case 0 | 1 | 2:
                pass
            case 3:
                self._damage(batch)
            case 4:  # damage that is signed for: records, header fields
                self._damage(batch)
                if len(batch) >= HEADER_BYTES:
                    sign(batch)
            case 5 | 6:
                self._lie(batch)
            case _:
                batch += batch[: rng.randrange(1, len(batch) + 1)]
        return bytes(batch)

    def _lie(self, batch: bytearray) -> None:
        rng = self._random
        fields = list(HEADER.unpack_from(batch))
        sizes = (64, 32, 32, 8, 32, 16, 32, 64, 64, 64, 16, 32, 32)
        for _ in range(rng.choice((1, 1, 2))):
            number = rng.randrange(len(fields))
            bits = sizes[number]
            value = rng.choice(
                (0, 1, 2, -1, fields[number] + 1, (1 << bits - 1) - 1, -1 << bits - 1)
            )
            value = max(-1 << bits - 1, min(value, (1 << bits - 1) - 1))
            fields[number] = value & 0xFFFFFFFF if number == 4 else value
        HEADER.pack_into(batch, 0, *fields)
        if rng.randrange(4):
            sign(batch)


# Values for fields with these names, for which random values would test nothing.
_SPECIAL: dict[str, Callable[[Frames], Any]] = {
    "max_wait_ms": lambda f: f._random.choice((0, 0, 0, 1, 20, -1, 0x7FFFFFFF)),
    "timeout_ms": lambda f: f._random.choice((0, 1, 100, -1, 0x7FFFFFFF)),
    "num_partitions": lambda f: f._random.choice((-1, 0, 1, 2, 3, 100_000, 0x7FFFFFFF, -5)),
    "count": lambda f: f._random.choice((-1, 0, 1, 3, 4, 100_000, 0x7FFFFFFF)),
    "replication_factor": lambda f: f._random.choice((-1, 0, 1, 1, 1, 2, 0x7FFF)),
    "broker_ids": lambda f: f._random.choice(((0,), (0, 0), (1,), ())),
    "partition_index": Frames._partition,
    "partition": Frames._partition,
    "replica_id": lambda f: f._random.choice((-1, -1, -1, 0, 1, -2, -3)),
    "resource_type": lambda f: f._random.choice((_TOPIC, _TOPIC, _TOPIC, _BROKER, 0, 1, 16, 127)),
    "resource_name": lambda f: f._random.choice((*NAMES, "0", "1")),
    "config_name": lambda f: f._random.choice(_CONFIGS),
    "acks": lambda f: f._random.choice((-1, 1, 0, 2)),
}


def _few(rng: random.Random) -> int:
    return rng.choice((0, 1, 1, 1, 2, 3))


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


# ---------------------------------------------------------------------------------------- bombs


@cache
def _bombs() -> list[bytes]:
    """Batches of some kilobytes whose records are, or claim to be, up to a gigabyte."""
    zeros = bytes(1 << 20)
    large = [
        (Codec.GZIP, _gzip_of_zeros(900)),
        (Codec.GZIP, zlib.compress(zeros, 9, wbits=31) * 300),  # many members
        (Codec.GZIP, b"\x1f\x8b" + bytes(50)),
        (Codec.ZSTD, _zstd_of_zeros(8192)),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=True).compress(zeros)[:20]),
        (Codec.LZ4, lz4.frame.compress(bytes(_GIB // 16), store_size=False)),
        (Codec.LZ4, lz4.frame.compress(zeros, store_size=False)[:-8]),
        (Codec.LZ4, _LZ4_THAT_LIES),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(_GIB // 64)))),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(1000)),  # 4 GiB by the block's header
        (Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x7f\xff\xff\xff" + bytes(100)),
    ]
    bombs = [_claiming(codec, body, count) for codec, body in large for count in (1, 0x7FFFFFFF)]
    # One record that fills it; and as many valid records as fit.
    one = b"\xff\xff\xff\xff\x07" + zeros
    bombs.append(_claiming(Codec.GZIP, zlib.compress(one, wbits=31), 1))
    bombs += [_many_records(1 << 16), _many_records(1 << 20), _many_records(6 << 20)]
    return bombs


def _many_records(count: int) -> bytes:
    """The smallest record there is with a key, again and again: offsets are the only lie."""
    return _claiming(Codec.ZSTD, zstandard.compress(b"\x0e\0\0\0\x02k\x01\0" * count), count)


def _gzip_of_zeros(mebibytes: int) -> bytes:
    # What follows a full flush needs nothing before it: so a megabyte is compressed only once.
    member = zlib.compressobj(9, wbits=31)
    begin = member.compress(b"") + member.flush(zlib.Z_FULL_FLUSH)
    mebibyte = member.compress(bytes(1 << 20)) + member.flush(zlib.Z_FULL_FLUSH)
    return begin + mebibyte * mebibytes


def _zstd_of_zeros(blocks: int) -> bytes:
    """128 KiB for every 4 bytes: blocks of one byte, repeated."""
    size = 128 << 10
    inner = (1 << 1 | size << 3).to_bytes(3, "little") + b"\0"
    last = (1 | 1 << 1 | size << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + inner * (blocks - 1) + last


# A content size of 1 GiB, of which nothing is there.
_LZ4_THAT_LIES = b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", _GIB) + bytes(5)


def _claiming(codec: Codec, body: bytes, count: int) -> bytes:
    """A signed batch that claims to have so many records."""
    batch = bytearray(build_batch([Record(None, b"")]))[:HEADER_BYTES]
    fields = list(HEADER.unpack_from(batch))
    fields[1], fields[5] = HEADER_BYTES - 12 + len(body), int(codec)
    fields[6], fields[12] = count - 1, count
    HEADER.pack_into(batch, 0, *fields)
    batch += body
    sign(batch)
    return bytes(batch)


# ------------------------------------------------------------- valid requests not to be sent


def is_harmful(frame: bytes) -> bool:
    """Whether a broker would carry out the request, and the run would be useless afterwards."""
    if len(frame) < 12 or int.from_bytes(frame[4:6], "big") not in _ADMIN:
        return False
    view = memoryview(frame)[4:]
    try:
        header, position = decode_request_header(view)
        api = APIS[header.api_key]
        if header.api_version not in api.served:
            return False
        request: Any = decoder(api.request_class, header.api_version)(view, position)[0]
    except MalformedRequestError:
        return False
    if header.api_key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        return any(
            resource.resource_type in (_BROKER, _LOGGER)
            and any(config.name not in _BROKER_CONFIGS for config in resource.configs)
            for resource in request.resources
        )
    return any(
        getattr(topic, "name", None) not in _KNOWN
        or PARTITIONS_MAX < getattr(topic, "num_partitions", 0) <= _PARTITIONS_LIMIT
        or PARTITIONS_MAX < getattr(topic, "count", 0) <= _PARTITIONS_LIMIT
        for topic in request.topics or ()
    )


_KNOWN = frozenset({*NAMES, None})
_PARTITIONS_LIMIT = 50_000  # the broker's own: more are refused, and may be asked for
