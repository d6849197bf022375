"""Malformed batches, each named after its fault.

`record_answers.py` has sent them to Apache Kafka 3.9.2 and recorded the answers.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from odradek.record.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    OVERHEAD_BYTES,
    sign,
)
from odradek.record.compression import Codec, compress
from odradek.record.records import Record, assemble, build_batch, read_header

NOW_MS = 1_700_000_000_000
BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 27, 35
PRODUCER_ID_AT, EPOCH_AT, SEQUENCE_AT, COUNT_AT = 43, 51, 53, 57
INT_MAX = 2**31 - 1
GARBAGE = bytes(range(200, 248))


class Case(NamedTuple):
    """A batch, the configuration of its topic, and the version of Produce."""

    name: str
    batch: bytes
    config: str = ""
    api_version: int = 9


def varint(value: int) -> bytes:
    """A zig-zag varint in as few bytes as possible."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def padded(value: int, length: int) -> bytes:
    """A zig-zag varint in more bytes than necessary."""
    raw = (value << 1) ^ (value >> 63)
    return bytes([raw >> 7 * i & 0x7F | 0x80 for i in range(length - 1)]) + bytes(
        [raw >> 7 * (length - 1) & 0x7F]
    )


def field(data: bytes | None) -> bytes:
    """A key or value with its length."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    index: int = 0,
    *,
    attributes: int = 0,
    timestamp: bytes = b"\0",
    offset: bytes | None = None,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: bytes = b"\0",
    more: bytes = b"",
    length: bytes | None = None,
) -> bytes:
    """One record; each part is given as bytes, so that each can be malformed."""
    body = (
        bytes([attributes])
        + timestamp
        + (varint(index) if offset is None else offset)
        + (field(b"k%d" % index) if key is None else key)
        + (field(b"value") if value is None else value)
        + headers
        + more
    )
    return (varint(len(body)) if length is None else length) + body


def around(body: bytes, count: int, codec: Codec = Codec.NONE, *, raw: bool = False) -> bytes:
    """A batch with these records; `raw`: the bytes in place of compressed records."""
    header = read_header(build_batch([Record(b"k", b"v", NOW_MS)] * count))
    header = header._replace(attributes=codec)
    return bytes(assemble(header, body if raw else compress(codec, body)))


def changed(batch: bytes, *fields: tuple[int, str, int], signed: bool = True) -> bytes:
    """Changes header fields, each given as position, format, value."""
    out = bytearray(batch)
    for position, kind, value in fields:
        struct.pack_into(">" + kind, out, position, value)
    if signed:
        sign(out)
    return bytes(out)


GOOD_BODY = record(0) + record(1) + record(2)
GOOD = around(GOOD_BODY, 3)


def cases() -> list[Case]:
    """All malformed batches; their names are unique."""
    return [*_framing(), *_headers(), *_producers(), *_records(), *_codecs(), *_rules()]


def _framing() -> Iterator[Case]:
    yield Case("good", GOOD)
    yield Case("empty", b"")
    yield Case("eleven bytes", GOOD[:11])
    yield Case("sixty bytes", GOOD[:60])
    yield Case("last byte missing", GOOD[:-1])
    yield Case("trailing bytes", GOOD + b"\1\2\3")
    yield Case("trailing torn batch", GOOD + GOOD[:40])
    yield Case("two batches", GOOD + GOOD)
    yield Case("crc", changed(GOOD, (17, "I", 1), signed=False))
    for value in (-1, 13, 14, 48, len(GOOD) - 13, len(GOOD) - 11, INT_MAX):
        yield Case(f"length {value}", changed(GOOD, (8, "i", value), signed=False))
    for magic in (-1, 0, 1, 3):
        yield Case(f"magic {magic}", changed(GOOD, (16, "b", magic), signed=False))
    for offset in (-1, 1, 2**63 - 1):
        yield Case(f"base offset {offset}", changed(GOOD, (0, "q", offset), signed=False))
    yield Case("leader epoch", changed(GOOD, (12, "i", 77), signed=False))


def _headers() -> Iterator[Case]:
    def with_count(count: int, delta: int) -> bytes:
        return changed(GOOD, (COUNT_AT, "i", count), (LAST_OFFSET_DELTA_AT, "i", delta))

    yield Case("count 2^31-1 and its delta", with_count(INT_MAX, INT_MAX - 1))
    yield Case("count above, and its delta", with_count(4, 3))
    yield Case("count below, and its delta", with_count(2, 1))
    yield Case("count 0 and its delta", with_count(0, -1))
    yield Case("count 0", with_count(0, 2))
    yield Case("count -1", with_count(-1, 2))
    yield Case("count above", with_count(4, 2))
    yield Case("delta above", with_count(3, 3))
    yield Case("delta below", with_count(3, 1))
    yield Case("delta -1", with_count(3, -1))
    yield Case("delta 2^31-1", with_count(3, INT_MAX))
    yield Case("no records, count 1", around(b"", 1))
    for bits, name in (
        (0x05, "codec 5"),
        (0x06, "codec 6"),
        (0x07, "codec 7"),
        (0x08, "append time bit"),
        (0x20, "control bit"),
        (0x40, "delete horizon bit"),
        (0x80, "attribute bit 7"),
        (0x4000, "attribute bit 14"),
        (0x01, "gzip bit over plain records"),
    ):
        yield Case(name, changed(GOOD, (ATTRIBUTES_AT, "h", bits)))
    yield Case("max timestamp above", changed(GOOD, (MAX_TIMESTAMP_AT, "q", NOW_MS + 999)))
    yield Case("max timestamp -1", changed(GOOD, (MAX_TIMESTAMP_AT, "q", -1)))
    yield Case("max timestamp -2", changed(GOOD, (MAX_TIMESTAMP_AT, "q", -2)))
    yield Case("base timestamp -2", changed(GOOD, (BASE_TIMESTAMP_AT, "q", -2)))
    yield Case("base timestamp least", changed(GOOD, (BASE_TIMESTAMP_AT, "q", -(2**63))))


def _producers() -> Iterator[Case]:
    def producer(producer_id: int, epoch: int, sequence: int, bits: int = 0) -> bytes:
        return changed(
            GOOD,
            (PRODUCER_ID_AT, "q", producer_id),
            (EPOCH_AT, "h", epoch),
            (SEQUENCE_AT, "i", sequence),
            (ATTRIBUTES_AT, "h", bits),
        )

    yield Case("producer id without sequence", producer(51, 0, -1))
    yield Case("producer id with sequence -5", producer(52, 0, -5))
    yield Case("producer id without epoch", producer(53, -1, 0))
    yield Case("producer id with epoch -2", producer(54, -2, 0))
    yield Case("producer id -2", producer(-2, 0, 0))
    yield Case("sequence without producer id", producer(-1, -1, 7))
    yield Case("epoch without producer id", producer(-1, 3, -1))
    yield Case("transactional without producer id", producer(-1, -1, -1, 0x10))
    yield Case("control bit with producer id", producer(55, 0, 0, 0x20))
    yield Case("control bit in a transaction", producer(56, 0, -1, 0x30))
    yield Case("idempotent", producer(57, 0, 0))


def _damaged_records() -> Iterator[tuple[str, bytes, int]]:  # noqa: PLR0915 - a table
    long6 = b"\x80\x80\x80\x80\x80\0"
    long11 = b"\x80" * 10 + b"\0"
    first, last = record(0), record(1)
    yield "record length -1", record(length=varint(-1)), 1
    yield "record length 0", record(length=varint(0)), 1
    yield "record length 0, no record", b"\0", 1
    yield "record length one more", record(length=varint(len(first))), 1
    yield "record length one less", record(length=varint(len(first) - 2)), 1
    yield "record length one more, another follows", record(length=varint(len(first))) + last, 2
    yield "record length 2^31-1", record(length=varint(INT_MAX)), 1
    yield "record length -2^31", record(length=varint(-(2**31))), 1
    yield "record length in 2 bytes", record(length=padded(len(first) - 1, 2)), 1
    yield "record length in 5 bytes", record(length=padded(len(first) - 1, 5)), 1
    yield "record length in 6 bytes", record(length=long6), 1
    yield "record length of 33 bits", record(length=b"\x80\x80\x80\x80\x10"), 1
    yield "record length torn", b"\x80", 1
    yield "record of three bytes", varint(3) + b"\0\0\0", 1
    yield "record attributes", record(attributes=0x7F), 1
    yield "timestamp delta in 10 bytes", record(timestamp=padded(5, 10)), 1
    yield "timestamp delta in 11 bytes", record(timestamp=long11), 1
    yield "timestamp delta greatest", record(timestamp=varint(2**63 - 1)), 1
    yield "timestamp delta least", record(timestamp=varint(-(2**63))), 1
    yield "timestamp -2", record(timestamp=varint(-NOW_MS - 2)), 1
    yield "offset delta 1 of the first", record(offset=varint(1)), 1
    yield "offset delta -1", record(offset=varint(-1)), 1
    yield "offset delta repeated", first + record(1, offset=varint(0)), 2
    yield "offset delta with a gap", first + record(1, offset=varint(2)), 2
    yield "offset delta 2^31-1", first + record(1, offset=varint(INT_MAX)), 2
    yield "offset delta in 6 bytes", record(offset=long6), 1
    yield "offset delta in 5 bytes", record(offset=padded(0, 5)), 1
    yield "key length -2", record(key=varint(-2)), 1
    yield "key length beyond the record", record(key=varint(60) + b"k"), 1
    yield "key length beyond the record, another follows", record(key=varint(15) + b"k") + last, 2
    yield "key length 2^31-1", record(key=varint(INT_MAX)), 1
    yield "key length -2^31", record(key=varint(-(2**31))), 1
    yield "key length in 6 bytes", record(key=long6), 1
    yield "value length -2", record(value=varint(-2)), 1
    yield "value length beyond the record", record(value=varint(60) + b"v"), 1
    yield "value length 2^31-1", record(value=varint(INT_MAX)), 1
    yield "value length one less", record(value=varint(4) + b"value"), 1
    yield "header count -1", record(headers=varint(-1)), 1
    yield "header count 1, no header", record(headers=varint(1)), 1
    yield "header count 2^31-1", record(headers=varint(INT_MAX)), 1
    yield "header count in 6 bytes", record(headers=long6), 1
    yield "header key null", record(headers=varint(1) + varint(-1) + field(b"v")), 1
    yield "header key length 2^31-1", record(headers=varint(1) + varint(INT_MAX)), 1
    yield "header key not UTF-8", record(headers=varint(1) + field(b"\xff\xfe") + field(b"v")), 1
    yield "header value null", record(headers=varint(1) + field(b"h") + field(None)), 1
    yield "header value length -2", record(headers=varint(1) + field(b"h") + varint(-2)), 1
    yield "header value length 2^31-1", record(headers=varint(1) + field(b"h") + varint(INT_MAX)), 1
    yield "bytes after the headers", record(more=b"\0\0"), 1
    yield "bytes after the last record", first + b"\0\0\0", 1
    yield "a record after the last", first + last, 1
    yield "a record too few", first, 2
    yield "the last record torn", first + last[:-2], 2


def _records() -> Iterator[Case]:
    for name, body, count in _damaged_records():
        yield Case(name, around(body, count))
    for codec in (Codec.GZIP, Codec.LZ4):
        for name, body, count in _damaged_records():
            yield Case(f"{codec.name.lower()}: {name}", around(body, count, codec))


def _codecs() -> Iterator[Case]:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        name = codec.name.lower()
        body = compress(codec, GOOD_BODY)
        nothing = compress(codec, b"")
        spoilt = bytearray(body)
        spoilt[len(body) // 2] ^= 0x55
        for what, data in (
            ("good", body),
            ("garbage", GARBAGE),
            ("garbage behind the first bytes", body[:10] + GARBAGE),
            ("garbage after the data", body + GARBAGE),
            ("one byte after the data", body + b"\0"),
            ("half of the data", body[: len(body) // 2]),
            ("the last byte missing", body[:-1]),
            ("no data", b""),
            ("nothing compressed", nothing),
            ("the data twice", body + body),
            ("nothing after the data", body + nothing),
            ("a byte flipped", bytes(spoilt)),
        ):
            yield Case(f"{name}: {what}", around(data, 3, codec, raw=True))
        two = record(0), record(1) + record(2)
        yield Case(
            f"{name}: in two streams",
            around(b"".join(compress(codec, part) for part in two), 3, codec, raw=True),
        )
        yield Case(f"{name}: count 2^31-1 and its delta", _huge(around(GOOD_BODY, 3, codec)))
    yield Case("zstd in Produce v6", around(GOOD_BODY, 3, Codec.ZSTD), api_version=6)
    wrong = bytearray(zlib.compress(GOOD_BODY, wbits=31))
    wrong[-8] ^= 1
    yield Case("gzip: checksum", around(bytes(wrong), 3, Codec.GZIP, raw=True))


def _huge(batch: bytes) -> bytes:
    return changed(batch, (COUNT_AT, "i", INT_MAX), (LAST_OFFSET_DELTA_AT, "i", INT_MAX - 1))


def _rules() -> Iterator[Case]:
    keyless = record(0) + record(1, key=field(None)) + record(2, key=field(None))
    late = record(0) + record(1, timestamp=varint(-(11 * 10**11)))
    compacted, limited = "cleanup.policy=compact", "message.timestamp.before.max.ms=1000000000000"
    for codec in (Codec.NONE, Codec.GZIP):
        name = codec.name.lower()
        yield Case(f"{name}: keyless in a compacted topic", around(keyless, 3, codec), compacted)
        yield Case(f"{name}: before the limit", around(late, 2, codec), limited)
        yield Case(
            f"{name}: a record too few, append time",
            around(record(0), 2, codec),
            "message.timestamp.type=LogAppendTime",
        )
        yield Case(
            f"{name}: a record too few, forced codec",
            around(record(0), 2, codec),
            "compression.type=lz4",
        )
    for config in (compacted, limited):
        yield Case(f"count 2^31-1, {config}", _huge(GOOD), config)


assert HEADER_BYTES == OVERHEAD_BYTES + 49
