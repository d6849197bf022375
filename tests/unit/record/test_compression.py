"""Codecs: the formats of all clients, and the limit on the output."""

import contextlib
import gzip
import tracemalloc
import zlib
from functools import partial

import cramjam
import lz4.frame
import pytest
import zstandard

from odradek.record.compression import (
    Codec,
    DecompressionError,
    Levels,
    compress,
    decompress,
    target_codec,
)

REAL = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"%d bottles of beer; " % i for i in range(20_000))


@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["nothing", "a byte", "many blocks"])
@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_data_is_decompressed(codec, data):
    for view in (data, bytearray(data), memoryview(data)):
        assert decompress(codec, compress(codec, view)) == data


@pytest.mark.parametrize(
    ("codec", "fast", "small"),
    [
        (Codec.GZIP, Levels(gzip=1), Levels(gzip=9)),
        (Codec.LZ4, Levels(), Levels(lz4=5)),
        (Codec.ZSTD, Levels(zstd=-5), Levels(zstd=9)),
    ],
)
def test_levels_trade_time_for_size(codec, fast, small):
    assert len(compress(codec, TEXT, small)) < len(compress(codec, TEXT, fast))


XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


def xerial_blocks(*parts):
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
    return b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


@pytest.mark.parametrize(
    ("codec", "written"),
    [
        pytest.param(Codec.GZIP, gzip.compress(TEXT), id="gzip"),
        pytest.param(
            Codec.GZIP, gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), id="gzip members"
        ),
        pytest.param(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), id="raw snappy"),
        pytest.param(
            Codec.SNAPPY, XERIAL + xerial_blocks(TEXT[:1000], b"", TEXT[1000:]), id="xerial blocks"
        ),
        pytest.param(
            Codec.SNAPPY,
            XERIAL + xerial_blocks(TEXT[:9]) + XERIAL + xerial_blocks(TEXT[9:]),
            id="xerial streams",
        ),
        pytest.param(Codec.LZ4, lz4.frame.compress(TEXT, store_size=True), id="lz4 with size"),
        pytest.param(
            Codec.LZ4,
            lz4.frame.compress(TEXT, block_linked=True, content_checksum=True),
            id="lz4 linked",
        ),
        pytest.param(Codec.ZSTD, zstandard.ZstdCompressor().compress(TEXT), id="zstd with size"),
        pytest.param(
            Codec.ZSTD,
            zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT),
            id="zstd without size",
        ),
    ],
)
def test_the_formats_of_all_clients_are_decompressed(codec, written):
    assert decompress(codec, written) == TEXT


@pytest.mark.parametrize("codec", REAL)
def test_data_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not(codec):
    compressed = compress(codec, TEXT)

    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionError):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", REAL)
def test_a_truncated_stream_is_refused_at_any_length(codec):
    compressed = compress(codec, TEXT[:300])
    for length in range(len(compressed)):
        try:
            read = decompress(codec, compressed[:length])
        except DecompressionError:
            continue
        # Frames without an end mark may end after a block: the record count shows it.
        assert codec in (Codec.GZIP, Codec.SNAPPY)
        assert read == b""


@pytest.mark.parametrize("codec", REAL)
def test_a_flipped_byte_never_raises_anything_else(codec):
    compressed = compress(codec, TEXT[:300])
    for position in range(len(compressed)):
        damaged = bytearray(compressed)
        damaged[position] ^= 0x55
        with contextlib.suppress(DecompressionError):
            assert len(decompress(codec, damaged, 10_000)) <= 10_000


def test_an_unknown_codec_is_refused():
    with pytest.raises(DecompressionError, match="codec 5"):
        decompress(5, b"x")


def test_the_codec_of_compression_type():
    assert target_codec("producer") is None
    assert target_codec("uncompressed") is Codec.NONE
    assert target_codec("lz4") is Codec.LZ4


# --------------------------------------------------------------------------------- bombs

GIB = 1 << 30


def gzip_bomb(member_bytes):
    member = zlib.compress(bytes(member_bytes), level=9, wbits=31)
    return member * (GIB // member_bytes)  # 1 MiB that decompresses to 1 GiB


def zstd_bomb():
    # A frame of blocks that repeat one byte 128 Ki times: 32 KiB that decompress to 1 GiB.
    block = ((128 * 1024 << 3) | 1 << 1).to_bytes(3, "little") + b"x"
    last = ((1 << 3) | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd" + b"\x00\x58" + block * (GIB // (128 * 1024)) + last


def zstd_claim():
    return zstandard.ZstdCompressor().compress(bytes(32 << 20))


def lz4_bomb(*, with_size):
    frame = lz4.frame.compress(
        bytes(4 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=with_size
    )
    head, end = frame[: 15 if with_size else 7], frame[-4:]
    if with_size:  # the size is part of what the header's checksum covers
        return frame
    return head + frame[len(head) : -4] * 256 + end


def snappy_claim():
    return b"\x80\x80\x80\x80\x04" + b"\xfe\x01\x00" * 300  # the first number claims 1 GiB


def xerial_bomb():
    return XERIAL + xerial_blocks(bytes(32 * 1024)) * 32_768


@pytest.mark.parametrize(
    ("codec", "made"),
    [
        pytest.param(Codec.GZIP, partial(gzip_bomb, 4 << 20), id="gzip"),
        pytest.param(Codec.GZIP, partial(gzip_bomb, 1 << 20), id="gzip in small members"),
        pytest.param(Codec.ZSTD, zstd_bomb, id="zstd"),
        pytest.param(Codec.ZSTD, zstd_claim, id="zstd with a claimed size"),
        pytest.param(Codec.LZ4, partial(lz4_bomb, with_size=False), id="lz4"),
        pytest.param(Codec.LZ4, partial(lz4_bomb, with_size=True), id="lz4 with a claimed size"),
        pytest.param(Codec.SNAPPY, snappy_claim, id="snappy with a claimed size"),
        pytest.param(Codec.SNAPPY, xerial_bomb, id="snappy in blocks"),
    ],
)
def test_a_decompression_bomb_is_refused_without_using_its_memory(codec, made):
    bomb = made()
    limit = 2 << 20
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError):
            decompress(codec, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The libraries keep the rest of the input, and extend their output by copying.
    assert peak < 3 * (limit + len(bomb))


def test_an_impossible_snappy_size_is_refused_below_the_limit():
    with pytest.raises(DecompressionError, match="cannot decompress to"):
        decompress(Codec.SNAPPY, snappy_claim(), 2 * GIB)


@pytest.mark.parametrize("claimed", [1 << 62, 1 << 36, 1 << 20])
def test_an_impossible_lz4_size_is_refused(claimed):
    compressor = lz4.frame.LZ4FrameCompressor()
    frame = compressor.begin(source_size=claimed) + compressor.compress(b"x" * 100)

    with pytest.raises(DecompressionError, match="more than"):
        decompress(Codec.LZ4, frame, 1 << 63)
