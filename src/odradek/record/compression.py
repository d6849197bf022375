"""gzip, snappy, lz4 and zstd as Kafka's clients use them, with a limit on the output.

A codec applies to all records of a batch together, not to its header. The formats:

    gzip     RFC 1952; several members may follow each other
    snappy   blocks in the framing of snappy-java (Java, sarama, kafkajs: a 16-byte header,
             then blocks, each after its length), or one raw block without framing
             (librdkafka). Both are read; the framing is written
    lz4      the frame format, with the header checksum that its specification requires
    zstd     frames, rarely with their content size

The input comes from a client, so no length in it is trusted: each function makes at most
`bytes_max` bytes, and allocates as output appears or after the claimed size was found to be
possible. Every library used here releases the GIL while it works.

Why several libraries: zlib is part of Python and limits its output; `lz4` decodes a small frame
in 0.3 us where cramjam takes 4, and encodes in 0.4 against 37; `zstandard` has levels below zero
and reports a truncated frame; only cramjam has raw snappy (0.2 us).
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import Bytes

# For the records of one batch. Producers limit a batch by its size before compression, or by its
# expected size after it; the former are far below, the latter reach it at a ratio of 64.
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024

_PIECE_BYTES: Final = 256 * 1024
# A stream or a snappy block counts as at least this many bytes: a million empty ones take time.
_STREAM_BYTES_MIN: Final = 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
# The best ratio of the format: a copy of 64 bytes is written in 3.
_SNAPPY_RATIO_MAX: Final = 22

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
# These few bytes can become 2 MiB: a block of 128 KiB is written in 4 bytes.
_ZSTD_STEP_BYTES: Final = 64
_ZSTD_LIKELY_RATIO: Final = 16
# Contexts not in use: one for each thread at most; making one takes 20 to 50 us.
_idle_zstd: Final[list[zstandard.ZstdDecompressor]] = []
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW: Final = 31  # 15 for the largest window, 16 for gzip's header and trailer

# The best ratio of the format: each byte of a length stands for 255.
_LZ4_RATIO_MAX: Final = 255
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_FLAGS_AT: Final = 4
_LZ4_CONTENT_SIZE_AT: Final = 6
# Kafka's default level means "as fast as possible", which is 0 in the library.
LZ4_LEVEL_DEFAULT: Final = 9


class Codec(IntEnum):
    """Compression codecs, by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def target_codec(compression_type: str) -> Codec | None:
    """The codec required by a topic's `compression.type`; None keeps the producer's."""
    match compression_type:
        case "producer":
            return None
        case "uncompressed":
            return Codec.NONE
        case _:
            return Codec[compression_type.upper()]


class Levels(NamedTuple):
    """Compression levels: `compression.gzip.level` and so on, with Kafka's defaults."""

    gzip: int = -1
    lz4: int = LZ4_LEVEL_DEFAULT
    zstd: int = 3


DEFAULT_LEVELS: Final = Levels()


class DecompressionError(ApiError):
    """The compressed records are corrupt, or decompress to too many bytes.

    INVALID_RECORD and not CORRUPT_MESSAGE: the checksum is right, so the producer wrote these
    bytes, and a retry would send the same ones.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class DecompressedTooLargeError(DecompressionError):
    """The decompressed records are larger than `bytes_max`."""


def compress(codec: Codec, data: Bytes, levels: Levels = DEFAULT_LEVELS) -> bytes:
    """Compress all records of a batch."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, level=levels.gzip, wbits=_GZIP_WINDOW)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            level = 0 if levels.lz4 == LZ4_LEVEL_DEFAULT else levels.lz4
            compressed: bytes = lz4.frame.compress(
                data, compression_level=level, store_size=False, block_linked=False
            )
            return compressed
        case Codec.ZSTD:
            # Not a shared one: a compressor must not be used by two threads.
            return zstandard.ZstdCompressor(level=levels.zstd).compress(data)


def decompress(codec: int, data: Bytes, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress all records of a batch.

    Raises:
        DecompressionError: corrupt, larger than `bytes_max`, or an unknown codec.
    """
    if not codec:
        return bytes(data)
    return b"".join(_pieces(codec, data, bytes_max))


def decompress_gently(
    codec: int, data: Bytes, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | bytearray:
    """Decompress in a thread: large output is not copied in one piece while the GIL is held.

    Raises:
        DecompressionError: as `decompress`.
    """
    pieces = _pieces(codec, data, bytes_max)
    first = next(pieces, b"")
    second = next(pieces, None)
    if second is None:
        return first
    out = bytearray(first)
    out += second
    for piece in pieces:
        out += piece
    return out


def _pieces(codec: int, data: Bytes, bytes_max: int) -> Iterator[bytes]:
    if codec == Codec.NONE:
        return iter((bytes(data),))
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise DecompressionError(f"codec {codec} is not one of 0-4")
    return decompressor(data, bytes_max)


# The best ratio of each format. zstd: a block of 128 KiB that repeats one byte is written in 4.
_RATIO_MAX: Final = {
    Codec.GZIP: 1032,
    Codec.SNAPPY: _SNAPPY_RATIO_MAX,
    Codec.LZ4: _LZ4_RATIO_MAX,
    Codec.ZSTD: 1 << 15,
}


def decompressed_bytes_at_most(codec: int, size_bytes: int) -> int:
    """How many bytes `size_bytes` compressed bytes can decompress to, at most."""
    return size_bytes * _RATIO_MAX[Codec(codec)]


def begins_like(codec: int, data: memoryview) -> bool:
    """Whether the first bytes are those of the codec's format."""
    head = bytes(data[: len(_XERIAL_MAGIC)])
    match codec:
        case Codec.GZIP:
            return head.startswith(_GZIP_MAGIC)
        case Codec.SNAPPY:
            return head == _XERIAL_MAGIC or _is_snappy_block(data)
        case Codec.LZ4:
            return head.startswith(_LZ4_MAGIC)
        case _:
            return head.startswith(_ZSTD_MAGIC)


def _is_snappy_block(data: memoryview) -> bool:
    try:
        return 0 < cramjam.snappy.decompress_raw_len(data) <= len(data) * _SNAPPY_RATIO_MAX
    except cramjam.DecompressionError:
        return False


def _too_much(codec: Codec, bytes_max: int) -> DecompressionError:
    return DecompressedTooLargeError(
        f"{codec.name.lower()}: the records are more than {bytes_max} bytes when decompressed"
    )


# ------------------------------------------------------------------------------------ gzip


def _decompress_gzip(data: Bytes, bytes_max: int) -> Iterator[bytes]:
    room = bytes_max
    rest: Bytes = data
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW)
        made = 0
        while not member.eof:
            try:
                piece = member.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from None
            made += len(piece)
            if made > room:
                raise _too_much(Codec.GZIP, bytes_max)
            rest = member.unconsumed_tail
            if not piece and not rest and not member.eof:
                raise DecompressionError("gzip: the stream is truncated")
            yield piece
        room -= max(made, _STREAM_BYTES_MIN)
        rest = member.unused_data


# ---------------------------------------------------------------------------------- snappy


def _compress_snappy(data: Bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            out += len(block).to_bytes(4, "big")
            out += block
    return bytes(out)


def _decompress_snappy(data: Bytes, bytes_max: int) -> Iterator[bytes]:
    with memoryview(data) as view:
        if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
            yield _decompress_snappy_block(view, bytes_max, bytes_max)
            return
        room = bytes_max
        position = len(_XERIAL_HEADER)
        while position < len(view):
            if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
                position += len(_XERIAL_HEADER)  # a second stream follows the first
                continue
            length = int.from_bytes(view[position : position + 4], "big")
            position += 4
            if length > len(view) - position:
                raise DecompressionError(
                    f"snappy: block of {length} bytes, only {max(0, len(view) - position)} left"
                )
            piece = _decompress_snappy_block(view[position : position + length], room, bytes_max)
            yield piece
            room -= max(len(piece), _STREAM_BYTES_MIN)
            position += length


def _decompress_snappy_block(block: memoryview, room: int, bytes_max: int) -> bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(block)
        if length > room:
            raise _too_much(Codec.SNAPPY, bytes_max)
        if length > len(block) * _SNAPPY_RATIO_MAX:
            raise DecompressionError(f"snappy: {len(block)} bytes cannot decompress to {length}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from None


# ------------------------------------------------------------------------------------- lz4


def _decompress_lz4(data: Bytes, bytes_max: int) -> Iterator[bytes]:
    with memoryview(data) as view:
        if bytes(view[:4]) != _LZ4_MAGIC or len(view) < _LZ4_CONTENT_SIZE_AT + 1:
            raise DecompressionError("lz4: not a frame")
        if view[_LZ4_FLAGS_AT] & _LZ4_CONTENT_SIZE_BIT:
            claimed = int.from_bytes(
                view[_LZ4_CONTENT_SIZE_AT : _LZ4_CONTENT_SIZE_AT + 8], "little"
            )
            if claimed > min(bytes_max, len(view) * _LZ4_RATIO_MAX):
                raise _too_much(Codec.LZ4, bytes_max)
        try:
            if len(view) * _LZ4_RATIO_MAX <= min(bytes_max, _PIECE_BYTES):
                yield lz4.frame.decompress(view)
            else:
                yield from _decompress_lz4_piecewise(view, bytes_max)
        except (RuntimeError, EOFError) as error:
            raise DecompressionError(f"lz4: {error}") from None


def _decompress_lz4_piecewise(view: memoryview, bytes_max: int) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    rest: Bytes = view
    room = bytes_max
    while not frame.eof:
        piece = frame.decompress(rest, max_length=_PIECE_BYTES)
        rest = b""
        if not piece and not frame.eof:
            raise DecompressionError("lz4: the frame is truncated")
        room -= len(piece)
        if room < 0:
            raise _too_much(Codec.LZ4, bytes_max)
        yield piece


# ------------------------------------------------------------------------------------ zstd


def _decompress_zstd(data: Bytes, bytes_max: int) -> Iterator[bytes]:
    try:
        if zstandard.frame_content_size(data) > bytes_max:
            raise _too_much(Codec.ZSTD, bytes_max)
        whole = _decompress_zstd_frame(data, bytes_max)
        if whole is not None:
            yield whole
        else:
            yield from _decompress_zstd_frames(data, bytes_max)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from None


def _decompress_zstd_frame(data: Bytes, bytes_max: int) -> bytes | None:
    """Decompress the only frame; None if something follows it."""
    # Otherwise the library allocates `bytes_max` at once, which is slow for megabytes.
    likely = len(data) * _ZSTD_LIKELY_RATIO + _STREAM_BYTES_MIN
    decompressor = _idle_zstd.pop() if _idle_zstd else zstandard.ZstdDecompressor()
    for room in (likely, bytes_max) if likely < bytes_max else (bytes_max,):
        try:
            # In one piece: only then does the library report a truncated frame.
            whole = decompressor.decompress(data, max_output_size=room, allow_extra_data=False)
        except zstandard.ZstdError as error:
            if "unused data" in str(error):
                return None
            if "did not decompress full frame" not in str(error):
                raise
        else:
            _idle_zstd.append(decompressor)
            return whole
    raise DecompressedTooLargeError(
        f"zstd: the frame is truncated, or has more than {bytes_max} bytes"
    )


def _decompress_zstd_frames(data: Bytes, bytes_max: int) -> Iterator[bytes]:
    room = bytes_max
    position = 0
    decompressor = zstandard.ZstdDecompressor()
    with memoryview(data) as view:
        while position < len(view):
            frame = decompressor.decompressobj()
            made = 0
            while not frame.eof:
                step = view[position : position + _ZSTD_STEP_BYTES]
                if not step:
                    raise DecompressionError("zstd: the frame is truncated")
                piece = frame.decompress(step)
                made += len(piece)
                if made > room:
                    raise _too_much(Codec.ZSTD, bytes_max)
                position += len(step)
                yield piece
            position -= len(frame.unused_data)
            room -= max(made, _STREAM_BYTES_MIN)
            if room < 0:
                raise _too_much(Codec.ZSTD, bytes_max)


_DECOMPRESSORS: Final[dict[int, Callable[[Bytes, int], Iterator[bytes]]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
