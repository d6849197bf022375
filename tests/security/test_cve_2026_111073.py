"""CVE-2026-111073: what a client had compressed was decompressed without a limit.

The same for CVE-2023-34455, CVE-2023-43642 and CVE-2026-108106 (snappy-java), CVE-2025-12183 and
CVE-2025-66566 (lz4-java): claimed lengths, and input that ends early.
"""

import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from odradek.record.compression import Codec, DecompressionError, compress, decompress

LIMIT = 1 << 20
MIB = 1 << 20
BOMBS = {
    Codec.GZIP: lambda: zlib.compress(bytes(256 * MIB), level=9, wbits=31),
    Codec.LZ4: lambda: lz4.frame.compress(bytes(64 * MIB), store_size=False),
    Codec.ZSTD: lambda: zstandard.ZstdCompressor().compress(bytes(256 * MIB)),
    Codec.SNAPPY: lambda: b"\x80\x80\x80\x80\x04" + b"\xfe\x01\x00" * 300,  # claims 1 GiB
}


@pytest.mark.parametrize("codec", BOMBS)
def test_what_decompresses_to_more_than_the_limit_is_refused(codec):
    bomb = BOMBS[codec]()
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError):
            decompress(codec, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 * (LIMIT + len(bomb))


@pytest.mark.parametrize("codec", BOMBS)
def test_input_that_ends_early_is_an_error(codec):
    whole = bytes(compress(codec, b"records of a batch " * 1000))
    for size in {1, 5, len(whole) // 2, len(whole) - 1}:
        with pytest.raises(DecompressionError):
            decompress(codec, whole[:size], LIMIT)
