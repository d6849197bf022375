"""Produce requests that are usual or nearly so (`odradek.record.one_batch`), from a seed."""

import random
import struct
from collections.abc import Callable

from odradek.record.batch import HEADER_BYTES, sign
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import ApiKey
from odradek.wire.codec import encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

# Where the fields of a batch's header are, and how many bytes they have.
_FIELDS = (
    (0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2),
    (53, 4), (57, 4),
)  # fmt: skip
_NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 127, 128, 1000, 1001, 2**31 - 1)
_BYTES = (b"", b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\x80\x80\x80\x80\x10", b"\xff" * 9)


def _data(rng: random.Random) -> bytes | None:
    sizes = (0, 1, 63, 64, 100, 200)
    return None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes))


def batch(rng: random.Random) -> bytearray:
    """A batch, most of them usual."""
    now = rng.choice((1_700_000_000_000, 0, -1, 2**62))
    count = rng.choice((1, 1, 1, 2, 3, 40, 1000, 1001) if rng.random() < 0.05 else (1, 1, 2, 3))
    headers = (("h", _data(rng)),) if rng.random() < 0.2 else ()
    records = [
        Record(offset=n, timestamp=now + n, key=_data(rng), value=_data(rng), headers=headers)
        for n in range(count)
    ]
    options = {}
    if rng.random() < 0.3:
        options = {
            "producer_id": rng.choice((0, 7)),
            "producer_epoch": rng.choice((0, 3)),
            "base_sequence": rng.choice((0, 9)),
        }
    if rng.random() < 0.05:
        options["codec"] = Codec.GZIP
    return bytearray(build_batch(records, **options))


def _field(rng: random.Random, made: bytearray) -> None:
    """Change a field of the header; the checksum is right again in half of the cases."""
    at, size = rng.choice(_FIELDS)
    bits = 8 * size
    value = rng.choice(_NUMBERS) if rng.random() < 0.7 else rng.getrandbits(bits)
    made[at : at + size] = (value % (1 << bits)).to_bytes(size, "big")
    if rng.random() < 0.5 and at != 17:
        sign(made)


def _records(rng: random.Random, made: bytearray) -> None:
    """Change, remove or insert bytes of the records; the checksum is right again."""
    at = rng.randrange(HEADER_BYTES, len(made) + 1)
    splinter = rng.choice(_BYTES)
    made[at : at + rng.randrange(3)] = splinter
    if rng.random() < 0.7:
        struct.pack_into(">i", made, 8, len(made) - 12)
    sign(made)


def _nothing(rng: random.Random, made: bytearray) -> None:
    """Leave it as it is."""


_CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _nothing, _nothing, _field, _field, _records,
)  # fmt: skip


def frame(rng: random.Random) -> bytes:
    """One request, without its length."""
    made = batch(rng)
    rng.choice(_CHANGES)(rng, made)
    version = rng.choice((3, 5, 7, 8, 9, 9, 10, 11, 12, 12, 2))
    names = ("t", "", "\u00fc", "x" * 126, "x" * 127, "x" * 249)
    partitions = [PartitionProduceData(index=rng.choice((0, 1, 7)), records=bytes(made))]
    if rng.random() < 0.03:
        partitions *= rng.choice((0, 2))
    if rng.random() < 0.02:
        partitions = [PartitionProduceData(index=0, records=None)]
    name = "t" if rng.random() < 0.7 else rng.choice(names)
    topics = [TopicProduceData(name=name, partition_data=partitions)]
    if rng.random() < 0.03:
        topics *= rng.choice((0, 2))
    request = ProduceRequest(
        acks=rng.choice((-1, 0, 1, 2)), timeout_ms=rng.choice((0, 30_000, -1)), topic_data=topics
    )
    if rng.random() < 0.03 and version > 2:
        request.transactional_id = rng.choice(("", "x", "x" * 200))
    client = rng.choice(("rdkafka", "", "\u00fc", None)) if rng.random() < 0.1 else "rdkafka"
    data = bytearray(
        encode_request_header(int(ApiKey.PRODUCE), version, rng.getrandbits(31), client)
        + encoder(ProduceRequest, version)(request)
    )
    if rng.random() < 0.25:  # outside the batch, most often
        _damage(rng, data)
    return bytes(data)


def _damage(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(min(len(data), 60)) if rng.random() < 0.8 else rng.randrange(len(data))
    how = rng.randrange(4)
    if how == 0:
        data[at] = rng.choice((0, 1, 2, 127, 128, 255))
    elif how == 1:
        del data[at:]
    elif how == 2:
        data[at:at] = rng.choice(_BYTES)
    else:
        data += rng.choice(_BYTES)
