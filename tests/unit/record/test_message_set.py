"""OldMessage sets (formats v0 and v1), with bytes of old clients and of Apache Kafka 3.9."""

import random
import struct
from zlib import crc32

import pytest

from odradek.model.errors import ErrorCode
from odradek.record.batch import LOG_APPEND_TIME_BIT, CorruptBatchError
from odradek.record.compression import Codec, compress
from odradek.record.conversion import convert_down
from odradek.record.message_set import (
    OldMessage,
    append_message,
    iter_messages,
    iter_records,
    messages_of,
    with_lz4_checksum,
    write_messages,
)
from odradek.record.records import InvalidRecordError, Record, build_batch

TIME = 1_500_000_000_000
# Two messages: value-0 without key, then value-1 with the key k1.
PLAIN = (
    (
        "000000000000000000000015efda94380000ffffffff0000000776616c75652d300000000000000001000000172"
        "4cebb5f0000000000026b310000000776616c75652d31"
    ),
    (
        "00000000000000000000001dfa9f4b2a01000000015d3ef79800ffffffff0000000776616c75652d3000000000000"
        "000010000001fa504a76d01000000015d3ef79801000000026b310000000776616c75652d31"
    ),
)
# What kafka-python 1.4.7 produces, by magic and codec. Its wrappers have the offset 0.
FROM_KAFKA_PYTHON = {
    (0, Codec.GZIP): (
        "00000000000000000000004acfeceafd0001ffffffff0000003c1f8b0800cf43046b02ff63608003d1f7b7a65830"
        "30fc0702208fbd2c31a73455d7002ac908c4e22ae776c783794cd9860825860074dd3e9544000000"
    ),
    (0, Codec.SNAPPY): (
        "00000000000000000000005be878e7ca0002ffffffff0000004d82534e4150505900000000010000000100000039"
        "44000019015415efda94380000ffffffff0000000776616c75652d300d2020010000001724cebb5f051034026b31"
        "0000000776616c75652d31"
    ),
    (0, Codec.LZ4): (
        "00000000000000000000005603f185e30003ffffffff0000004804224d1860401a3900000016000100f30715efda"
        "94380000ffffffff0000000776616c75652d30200091010000001724cebb5f1000e0026b310000000776616c7565"
        "2d3100000000"
    ),
    (1, Codec.GZIP): (
        "00000000000000000000005be529ce8f01010000000000000000ffffffff000000451f8b0800cf43046b02ff6360"
        "8003d95ff3bdb518810cc658bbef3318fe030190c35e9698539aaa6b00550492975fcab23c17ae10c460ca364428"
        "350400582f833a54000000"
    ),
    (1, Codec.SNAPPY): (
        "00000000000000000000006d5596bf3801020000000000000000ffffffff0000005782534e415050590000000001"
        "00000001000000435400001901741dfa9f4b2a01000000015d3ef79800ffffffff0000000776616c75652d300d28"
        "0120101fa504a76d01090529010934026b310000000776616c75652d31"
    ),
    (1, Codec.LZ4): (
        "000000000000000000000073397fd48d01030000000000000000ffffffff0000005d04224d186840540000000000"
        "0000a64600000016000100f30f1dfa9f4b2a01000000015d3ef79800ffffffff0000000776616c75652d30280000"
        "2000501fa504a76d0900012900000900e0026b310000000776616c75652d3100000000"
    ),
}
# The same records in a v2 batch, as Apache Kafka 3.9 answers them to Fetch v1 and v2.
FROM_KAFKA = {
    (0, Codec.GZIP): (
        "00000000000000010000004a40fa44200001ffffffff0000003c1f8b08000000000000ff63608003d1f7b7a65830"
        "30fc0702208fbd2c31a73455d7002ac908c4e22ae776c783794cd9860825860074dd3e9544000000"
    ),
    (0, Codec.SNAPPY): (
        "00000000000000010000005c110b46c20002ffffffff0000004e82534e415050590000000001000000010000003a"
        "44000019015815efda94380000ffffffff0000000776616c75652d3000090120010000001724cebb5f050f34026b"
        "310000000776616c75652d31"
    ),
    (0, Codec.LZ4): (
        "00000000000000010000005603f185e30003ffffffff0000004804224d1860401a3900000016000100f30715efda"
        "94380000ffffffff0000000776616c75652d30200091010000001724cebb5f1000e0026b310000000776616c7565"
        "2d3100000000"
    ),
    (1, Codec.GZIP): (
        "00000000000000010000005b6ed6eca101010000015d3ef79801ffffffff000000451f8b08000000000000ff6360"
        "8003d95ff3bdb518810cc658bbef3318fe030190c35e9698539aaa6b00550492975fcab23c17ae10c460ca364428"
        "350400582f833a54000000"
    ),
    (1, Codec.SNAPPY): (
        "00000000000000010000006df349135b01020000015d3ef79801ffffffff0000005782534e415050590000000001"
        "00000001000000435400001901741dfa9f4b2a01000000015d3ef79800ffffffff0000000776616c75652d300d28"
        "0120101fa504a76d01090529010934026b310000000776616c75652d31"
    ),
    (1, Codec.LZ4): (
        "00000000000000010000006b2eaae23b01030000015d3ef79801ffffffff0000005504224d186040824600000016"
        "000100f30f1dfa9f4b2a01000000015d3ef79800ffffffff0000000776616c75652d302800002000501fa504a76d"
        "0900012900000900e0026b310000000776616c75652d3100000000"
    ),
}
COMPRESSED = [*FROM_KAFKA_PYTHON]


def two_records(magic):
    times = (TIME, TIME + 1) if magic else (-1, -1)
    return [Record(None, b"value-0", times[0], (), 0), Record(b"k1", b"value-1", times[1], (), 1)]


def records_of(data):
    return [record for message in iter_messages(data) for record in iter_records(message)]


def one(offset=0, magic=1, attributes=0, timestamp=TIME, key=b"k", value=b"v"):
    out = bytearray()
    append_message(out, OldMessage(offset, magic, attributes, timestamp, key, value))
    return bytes(out)


def wrapped(inner, *, magic=1, offset=0, attributes=0, timestamp=TIME):
    return one(offset, magic, attributes | Codec.GZIP, timestamp, None, compress(Codec.GZIP, inner))


def signed(data):
    """One message with the checksum of what it says."""
    message = bytearray(data)
    struct.pack_into(">I", message, 12, crc32(message[16:]))
    return bytes(message)


def replaced(data, at, layout, *values):
    message = bytearray(data)
    struct.pack_into(layout, message, at, *values)
    return bytes(message)


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_are_those_of_old_clients_and_of_kafka(magic):
    data = bytes.fromhex(PLAIN[magic])

    assert records_of(data) == two_records(magic)
    assert write_messages(two_records(magic), magic=magic) == data


@pytest.mark.parametrize(("magic", "codec"), COMPRESSED)
def test_wrappers_of_old_clients_are_read(magic, codec):
    assert records_of(bytes.fromhex(FROM_KAFKA_PYTHON[magic, codec])) == two_records(magic)


@pytest.mark.parametrize(("magic", "codec"), COMPRESSED)
def test_wrappers_are_written_as_kafka_writes_them(magic, codec):
    data = bytes.fromhex(FROM_KAFKA[magic, codec])
    written = write_messages(two_records(magic), magic=magic, codec=codec)
    ((kafkas,), (ours,)) = ([*iter_messages(each)] for each in (data, written))

    assert records_of(data) == records_of(written) == two_records(magic)
    assert ours._replace(value=None) == kafkas._replace(value=None)


def test_the_header_checksum_of_lz4_is_the_wrong_one_with_magic_0_only():
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        (wrapper,) = iter_messages(bytes.fromhex(FROM_KAFKA[magic, Codec.LZ4]))
        assert wrapper.value[4:7] == bytes((0x60, 0x40, checksum))
        assert with_lz4_checksum(wrapper.value, broken=not magic) == wrapper.value
        assert with_lz4_checksum(wrapper.value, broken=False)[6] == 0x82


def test_the_header_checksum_covers_content_sizes():
    (wrapper,) = iter_messages(bytes.fromhex(FROM_KAFKA_PYTHON[1, Codec.LZ4]))
    broken = with_lz4_checksum(wrapper.value, broken=True)

    assert broken != wrapper.value
    assert with_lz4_checksum(broken, broken=False) == wrapper.value


def test_offsets_in_wrappers_are_absolute_with_magic_0_and_relative_with_magic_1():
    records = [Record(b"k", b"v", -1, (), offset) for offset in (70, 72, 75)]
    inner = {
        magic: [
            [each.offset for each in messages_of(wrapper)]
            for wrapper in iter_messages(write_messages(records, magic=magic, codec=Codec.GZIP))
        ]
        for magic in (0, 1)
    }

    assert inner == {0: [[70, 72, 75]], 1: [[0, 2, 5]]}
    for magic in (0, 1):
        assert records_of(write_messages(records, magic=magic, codec=Codec.GZIP)) == records


def test_the_time_of_a_wrapper_with_append_time_is_that_of_its_messages():
    inner = one(0, timestamp=1) + one(1, timestamp=2)

    append_time = wrapped(inner, attributes=LOG_APPEND_TIME_BIT, timestamp=9)
    assert [record.timestamp for record in records_of(append_time)] == [9, 9]
    assert [record.timestamp for record in records_of(wrapped(inner, timestamp=9))] == [1, 2]


def test_an_incomplete_last_message_is_left_out():
    data = one(0) + one(1)
    for end in range(len(one(0)), len(data)):
        assert [message.offset for message in iter_messages(data[:end])] == [0]
    assert [record.offset for record in records_of(wrapped(data[:-1]))] == [0]


@pytest.mark.parametrize(
    "data",
    [
        one()[:-1] + b"w",
        one(magic=1)[:16] + b"\x03" + one()[17:],
        replaced(one(), 8, ">i", 13),
        replaced(one(), 8, ">i", -1),
        signed(replaced(one(), 26, ">i", 500)),
        signed(replaced(one(), 26, ">i", -7)),
        signed(replaced(one(), 31, ">i", 2)),
        signed(replaced(one(), 31, ">i", -2)),
        signed(replaced(one(magic=0, key=None, value=None), 16, ">b", 1)),
        wrapped(one()[:-1] + b"w"),
        wrapped(replaced(one(), 8, ">i", 5)),
        one(attributes=Codec.GZIP, key=None, value=b"abc"),
        one(attributes=Codec.SNAPPY, key=None, value=b"abc"),
        one(attributes=Codec.LZ4, key=None, value=b"abc"),
        one(magic=0, attributes=Codec.LZ4, key=None, value=b"\x04\x22\x4d\x18\x60"),
    ],
)
def test_damaged_messages_are_corrupt(data):
    with pytest.raises(CorruptBatchError) as caught:
        records_of(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "data",
    [
        one(attributes=Codec.GZIP, value=None),
        wrapped(b""),
        wrapped(wrapped(one())),
        wrapped(one(magic=0)),
        wrapped(one(), magic=0),
        wrapped(one(5), offset=3),
        wrapped(build_batch([Record(b"k", b"v")])),
        one(attributes=Codec.ZSTD, value=compress(Codec.ZSTD, one())),
        build_batch([Record(b"k", b"v")]),
    ],
)
def test_messages_that_may_not_be_there_are_invalid(data):
    with pytest.raises(InvalidRecordError):
        records_of(data)


def test_what_decompresses_to_too_much_is_corrupt():
    wrapper = wrapped(one(value=bytes(100_000)))
    (message,) = iter_messages(wrapper)
    with pytest.raises(CorruptBatchError):
        list(messages_of(message, bytes_max=10_000))


def test_a_response_ends_with_the_batch_that_reaches_the_limit_of_records():
    randomness = random.Random(1)
    batches = b"".join(
        build_batch(
            [Record(None, randomness.randbytes(100), TIME) for _ in range(2_000)],
            base_offset=number * 2_000,
        )
        for number in range(5)
    )
    converted = convert_down(memoryview(batches), 1, 0)

    assert converted.records == converted.next_offset == 6_000
    assert len(records_of(converted.messages)) == 6_000
