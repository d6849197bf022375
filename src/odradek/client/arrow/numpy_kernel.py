"""The kernel without compiled code of its own, with numpy and pyarrow alone.

The only loop over records finds where each one begins, because its length is in front of it. If
there are enough batches, the loop advances one record in each batch at a step; else it walks one
batch after the other. Then each varint field is decoded for all records at once, and Arrow copies
keys and values out: interleaved starts and ends are the offsets of an array over the fetched bytes,
and every second element of it is a key or value.

Arguments and results: see `odradek.client.arrow.kernel`. Compiled: fast/odradek_fast.c.
"""

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.kernel import (
    HEADERS,
    KEY,
    NO_APPEND_TIME,
    OFFSET,
    TIMESTAMP,
    VALUE,
    BinaryInput,
    Buffer,
    HeadersInput,
)

_RECORD_BYTES_MIN: Final = 7
_BODY_BYTES_MAX: Final = (1 << 31) - 1
_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
# With at least this many batches, walking them in parallel is faster.
_LANES_MIN: Final = 48
# How many records of each batch are tested for equal size.
_RUN: Final = 32
_AHEAD: Final = np.arange(_RUN)[:, None]
# Not in the table: a varint of three or more bytes, or a negative length.
_ASK: Final = 0
# Both bytes of a pair have the continuation bit.
_LONGER: Final = 0x8080
# Below this average number of headers at a pass, walking them one by one is faster.
_HEADERS_A_PASS: Final = 20

Ints = Any  # numpy.ndarray of int64


# --------------------------------------------------------------------------------- decoding


def decode(body: Buffer, batches: Buffer, wanted: int) -> tuple[Any, ...]:
    """The columns of decompressed records: see `odradek.client.arrow.kernel`.

    Raises:
        ValueError: a batch is not exactly its count of well-formed records.
    """
    data = np.frombuffer(body, np.uint8)
    rows = np.frombuffer(batches, np.int64).reshape(-1, 6)
    _check(data, rows)
    try:
        with np.errstate(over="ignore"):
            return _decode(body, data, rows, wanted)
    except IndexError:
        raise ValueError("a record ends early") from None


def _check(data: Any, rows: Any) -> None:
    start, end, count = rows[:, 0], rows[:, 1], rows[:, 2]
    if data.size > _BODY_BYTES_MAX:
        raise ValueError(f"a body of {data.size} bytes")
    if rows.size and (
        start.min() < 0
        or (end < start).any()
        or end.max() > data.size
        or count.min() < 0
        or (count > (end - start) // _RECORD_BYTES_MIN).any()
    ):
        raise ValueError("a batch has more records than bytes for them")


def _decode(body: Buffer, data: Any, rows: Any, wanted: int) -> tuple[Any, ...]:
    starts, ends = _record_bounds(data, rows)
    counts = rows[:, 2]
    # Skip the length, which the walk has read, and the unused attributes.
    position = starts + _varint_sizes(data, starts) + 1
    timestamp_delta, position = _varints(data, position, _LONG_BYTES_MAX)
    offset_delta, position = _varints(data, position, _INT_BYTES_MAX)
    offsets = timestamps = None
    if wanted & OFFSET:
        offsets = np.repeat(rows[:, 3], counts) + offset_delta
    if wanted & TIMESTAMP:
        timestamps = np.repeat(rows[:, 4], counts) + timestamp_delta
        stamped = rows[:, 5] != NO_APPEND_TIME
        if stamped.any():
            timestamps = np.where(
                np.repeat(stamped, counts), np.repeat(rows[:, 5], counts), timestamps
            )
    key_length, key = _lengths(data, position)
    value_length, value = _lengths(data, key + np.maximum(key_length, 0))
    header_count, position = _varints(data, value + np.maximum(value_length, 0), _INT_BYTES_MAX)
    headers = _headers(body, data, header_count, position, ends, wanted=bool(wanted & HEADERS))
    return (
        starts.size,
        offsets,
        timestamps,
        _gather(body, key, key_length) if wanted & KEY else None,
        _gather(body, value, value_length) if wanted & VALUE else None,
        headers,
    )


def _record_bounds(data: Any, rows: Any) -> tuple[Ints, Ints]:
    """Where each record begins and ends.

    Raises:
        ValueError: the last record of a batch does not end where the batch does.
    """
    walk = _walk_side_by_side if len(rows) >= _LANES_MIN else _walk_in_turn
    starts = walk(data, rows)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    last = np.cumsum(rows[:, 2])
    filled = rows[:, 2] > 0
    ends[last[filled] - 1] = rows[filled, 1]
    if (rows[~filled, 0] != rows[~filled, 1]).any():
        raise ValueError("bytes in a batch without records")
    # The last record's own length must lead to the end of its batch.
    if starts.size:
        length, after = _varints(data, starts[last[filled] - 1], _INT_BYTES_MAX)
        if (after + length != rows[filled, 1]).any():
            raise ValueError("bytes after the last record")
    return starts, ends


def _walk_in_turn(data: Any, rows: Any) -> Ints:
    pieces = [
        _walk(data[start:end].tobytes(), count) + start for start, end, count, *_ in rows.tolist()
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _walk(body: bytes, count: int) -> Ints:
    """Where each of `count` records begins; about 60 ns a record."""
    steps = _steps_by_bytes()
    starts: list[int] = []
    append = starts.append
    position = 0
    while len(starts) < count:
        for _ in range(count - len(starts)):
            append(position)
            step = steps[body[position]][body[position + 1]]
            position += step
            if not step:
                break
        else:
            break
        position = _long_step(body, position)
    return np.array(starts, np.int64)


def _long_step(body: bytes, position: int) -> int:
    raw = shift = 0
    for index in range(_INT_BYTES_MAX):
        byte = body[position + index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw & 1:
                break
            return position + index + 1 + (raw >> 1)
        shift += 7
    raise ValueError("a record with a negative length, or one that does not end")


def _walk_side_by_side(data: Any, rows: Any) -> Ints:
    """As `_walk_in_turn`, for many batches: the n-th record of all batches in one step.

    Records of equal size are common. So sometimes the next `_RUN` records of each batch are tested
    for the size of the first one, and then advanced over in one step.
    """
    order = np.argsort(-rows[:, 2], kind="stable")
    counts = rows[order, 2]
    position = rows[order, 0].copy()
    starts = np.empty((int(counts[0]), len(rows)), np.int64)
    steps = _steps_by_pair()
    pairs = _pairs(data)
    # How many batches have at least n records.
    lanes = np.searchsorted(-counts, -np.arange(1, int(counts[0]) + 1), side="right").tolist()
    index, try_at, pause = 0, 0, _RUN
    while index < len(lanes):
        walking = lanes[index]
        at = position[:walking]
        step = steps[pairs[at]]
        if index >= try_at and lanes[min(index + _RUN, len(lanes)) - 1] == walking:
            run = min(_RUN, len(lanes) - index)
            ahead = at + step * _AHEAD[:run]
            if step.all() and ahead[-1].max() < pairs.size and (steps[pairs[ahead]] == step).all():
                starts[index : index + run, :walking] = ahead
                at += step * run
                index, pause = index + run, _RUN
                continue
            try_at, pause = index + pause, pause * 2
        starts[index, :walking] = at
        if not step.all():
            for lane in np.flatnonzero(step == _ASK).tolist():
                start = int(at[lane])
                piece = data[start : start + _INT_BYTES_MAX].tobytes()
                step[lane] = _long_step(piece, 0)
        at += step
        index += 1
    back = np.argsort(order, kind="stable")
    if lanes and lanes[-1] == len(rows):
        whole: Ints = starts.T[back].ravel()
        return whole
    present = np.arange(starts.shape[0])[None, :] < rows[:, 2][:, None]
    found: Ints = starts.T[back][present]
    return found


def _pairs(data: Any) -> Any:
    """Each pair of neighbouring bytes as one number."""
    return np.ndarray((max(data.size - 1, 0),), np.dtype("<u2"), data, strides=(1,))


@cache
def _steps_by_pair() -> Any:
    """The distance to the next record by a record's first two bytes; `_ASK`: not in the table."""
    pair = np.arange(1 << 16)
    low, high = pair & 0xFF, pair >> 8
    raw = np.where(low < 0x80, low, (low & 0x7F) | high << 7)
    step = np.where(low < 0x80, 1, 2) + (raw >> 1)
    step[(raw & 1 == 1) | ((low >= 0x80) & (high >= 0x80))] = _ASK
    return step


@cache
def _steps_by_bytes() -> list[list[int]]:
    steps: list[list[int]] = _steps_by_pair().reshape(256, 256).T.tolist()
    return steps


def _varint_sizes(data: Any, at: Ints) -> Ints:
    byte = data[at]
    size = np.ones(at.size, np.int64)
    if not at.size or byte.max() < 0x80:
        return size
    size += byte >> 7
    more = np.flatnonzero(data[at + size - 1] & byte & 0x80)
    while more.size:
        size[more] += 1
        more = more[data[at[more] + size[more] - 1] & 0x80 != 0]
    return size


def _varints(data: Any, at: Ints, bytes_max: int) -> tuple[Ints, Ints]:
    """The numbers at these positions, zig-zag decoded, and the positions after them.

    Nearly all have one or two bytes. Those are computed in 8 or 16 bits: a quarter of the memory,
    and four times as many at a step.

    Raises:
        ValueError: one is longer than `bytes_max`.
        IndexError: one is beyond the data.
    """
    byte = data[at]
    if not at.size or byte.max() < 0x80:
        return _unzigzag(byte), at + 1
    if at.max() + 1 >= data.size:
        return _long_varints(data, at, bytes_max)
    pair = _pairs(data)[at]
    more = byte >> 7
    if (pair & _LONGER == _LONGER).any():
        return _long_varints(data, at, bytes_max)
    raw = (pair & 0x7F) | ((pair >> 1) & (more.astype(np.uint16) * 0x3F80))
    return _unzigzag(raw), at + 1 + more


def _unzigzag(raw: Any) -> Ints:
    signed = raw.dtype.str.replace("u", "i")
    value: Ints = ((raw >> 1) ^ -(raw & 1)).view(signed).astype(np.int64)
    return value


def _long_varints(data: Any, at: Ints, bytes_max: int) -> tuple[Ints, Ints]:
    raw = data[at].astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(raw & 0x80)
    if more.size:
        raw[more] &= 0x7F
    shift = 7
    while more.size:
        if shift >= 7 * bytes_max:
            raise ValueError(f"a varint of more than {bytes_max} bytes")
        byte = data[after[more]].astype(np.uint64)
        raw[more] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        after[more] += 1
        more = more[byte & np.uint64(0x80) != 0]
        shift += 7
    value = (raw >> np.uint64(1)).view(np.int64)
    odd = (raw & np.uint64(1)).view(np.int64)
    return value ^ -odd, after


def _lengths(data: Any, at: Ints) -> tuple[Ints, Ints]:
    length, after = _varints(data, at, _INT_BYTES_MAX)
    if length.size and (length.min() < -1 or length.max() > data.size):
        raise ValueError("a length below -1, or beyond the end")
    return length, after


def _gather(body: Buffer, start: Ints, length: Ints) -> tuple[Any, ...]:
    """Copy the values out: Arrow's offsets, data and validity bitmap, and the number of nulls."""
    count = start.size
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0 : 2 * count : 2] = start
    present = length >= 0
    nulls = count - int(np.count_nonzero(present))
    np.add(start, length if not nulls else np.maximum(length, 0), out=bounds[1 : 2 * count : 2],
           casting="unsafe")  # fmt: skip
    bounds[-1] = bounds[-2] if count else 0
    interleaved = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(body)]
    )
    taken = interleaved.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    _, offsets, data = taken.buffers()
    validity = np.packbits(present, bitorder="little") if nulls else None
    return offsets, data if data is not None else b"", validity, nulls


def _headers(
    body: Buffer, data: Any, counts: Ints, position: Ints, ends: Ints, *, wanted: bool
) -> tuple[Any, ...] | None:
    """Decode the headers of all records; checks that each record ends where its length says."""
    most = int(counts.max()) if counts.size else 0
    if counts.size and (counts.min() < 0 or most > data.size):
        raise ValueError("a count of headers below 0, or beyond the end")
    lists = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=lists[1:])
    total = int(lists[-1])
    if total > data.size:
        raise ValueError("more headers than bytes")
    parts = np.empty((4, total), np.int64)  # key start and length, value start and length
    if total > most * _HEADERS_A_PASS:
        position = _walk_headers_together(data, counts, position, lists, parts)
    else:
        position = _walk_headers_in_turn(data, counts, position, parts)
    if (position != ends).any():
        raise ValueError("a record that does not end where its length says")
    if not wanted:
        return None
    empty = counts == 0
    nulls = int(np.count_nonzero(empty))
    validity = np.packbits(~empty, bitorder="little") if nulls else None
    keys = _gather(body, parts[0], parts[1])
    return lists, validity, nulls, keys, _gather(body, parts[2], parts[3])


def _walk_headers_together(data: Any, counts: Ints, at: Ints, lists: Any, parts: Any) -> Ints:
    at = at.copy()
    index = 0
    left = np.flatnonzero(counts)
    while left.size:
        where = lists[left] + index
        key_length, key = _lengths(data, at[left])
        if key_length.min() < 0:
            raise ValueError("a header without a key")
        value_length, value = _lengths(data, key + key_length)
        parts[:, where] = key, key_length, value, value_length
        at[left] = value + np.maximum(value_length, 0)
        index += 1
        left = left[counts[left] > index]
    return at


def _walk_headers_in_turn(data: Any, counts: Ints, at: Ints, parts: Any) -> Ints:
    at = at.copy()
    index = 0
    for record in np.flatnonzero(counts).tolist():
        position = int(at[record])
        for _ in range(int(counts[record])):
            for part in (0, 2):
                length, position = _one_length(data, position)
                if length < (0 if part == 0 else -1):
                    raise ValueError("a header without a key")
                parts[part : part + 2, index] = position, length
                position += max(length, 0)
            index += 1
        at[record] = position
    return at


def _one_length(data: Any, position: int) -> tuple[int, int]:
    raw = shift = 0
    for _ in range(_INT_BYTES_MAX):
        byte = int(data[position])
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            length = (raw >> 1) ^ -(raw & 1)
            if length > data.size:
                raise ValueError("a length beyond the end")
            return length, position
        shift += 7
    raise ValueError(f"a varint of more than {_INT_BYTES_MAX} bytes")


# --------------------------------------------------------------------------------- encoding


def encode(
    batches: Buffer,
    timestamps: Buffer,
    key: BinaryInput | None,
    value: BinaryInput | None,
    headers: HeadersInput | None,
) -> tuple[Buffer, Buffer]:
    """The records of rows: see `odradek.client.arrow.kernel`."""
    bounds = np.frombuffer(batches, np.int64)
    count = int(bounds[-1])
    if not count:
        return b"", np.zeros(bounds.size - 1, np.int64)
    sizes = np.diff(bounds)
    first = np.repeat(bounds[:-1], sizes)
    stamps = np.frombuffer(timestamps, np.int64)[:count]
    with np.errstate(over="ignore"):
        timestamp_delta = stamps - stamps[first]
    offset_delta = np.arange(count) - first
    key_length, key_parts = _field(key, count)
    value_length, value_parts = _field(value, count)
    tail, tail_bytes = _encoded_headers(headers, count)
    numbers = [timestamp_delta, offset_delta, key_length]
    widths = [_sizes(each) for each in (*numbers, value_length)]
    length = 1 + sum(widths) + np.maximum(key_length, 0) + np.maximum(value_length, 0) + tail_bytes
    head = _join_varints([length, np.zeros(count, np.int64), *numbers])
    middle = _join_varints([value_length])
    joined = pc.binary_join_element_wise(head, key_parts, middle, value_parts, tail, b"")
    ends = np.cumsum(length + _sizes(length))
    _, _, body = joined.buffers()
    at = np.zeros(bounds.size - 1, np.int64)
    filled = bounds[1:] > 0
    at[filled] = ends[bounds[1:][filled] - 1]
    return body, at


def _field(column: BinaryInput | None, count: int) -> tuple[Ints, Any]:
    """The lengths, -1 where null, and the values as an array without nulls."""
    if column is None:
        return np.full(count, -1), pa.repeat(pa.scalar(b"", pa.binary()), count)
    offsets, data, valid = column
    at = np.frombuffer(offsets, np.int32)[: count + 1]
    length = np.diff(at).astype(np.int64)
    if valid is not None:
        null = np.frombuffer(valid, np.uint8)[:count] == 0
        if (length[null] != 0).any():  # Arrow allows bytes under a null
            whole = _binary(at, data, count)
            keep = pa.array(np.where(null, None, np.arange(count)), pa.int64())
            taken = whole.take(keep).fill_null(b"")
            return np.where(null, -1, length), taken
        length = np.where(null, -1, length)
    return length, _binary(at, data, count)


def _binary(offsets: Any, data: Buffer, count: int) -> Any:
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _sizes(values: Ints) -> Ints:
    """The number of bytes of each value as a varint."""
    raw = _zigzag(values)
    size = np.ones(values.size, np.int64)
    raw = raw >> np.uint64(7)
    while raw.any():
        size += raw != 0
        raw >>= np.uint64(7)
    return size


def _zigzag(values: Ints) -> Any:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _join_varints(columns: list[Ints]) -> Any:
    """The concatenated varints of each row, as an Arrow array."""
    raws = [_zigzag(column) for column in columns]
    sizes = [_sizes(column) for column in columns]
    widths = [int(size.max()) for size in sizes]
    count = columns[0].size
    padded = np.empty((count, sum(widths)), np.uint8)
    there = np.empty((count, sum(widths)), np.bool_)
    at = 0
    for raw, size, width in zip(raws, sizes, widths, strict=True):
        for index in range(width):
            byte = (raw >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
            padded[:, at] = byte | ((size > index + 1).astype(np.uint8) << np.uint8(7))
            there[:, at] = size > index
            at += 1
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sum(sizes), out=offsets[1:])
    return _binary(offsets, padded[there], count)


def _encoded_headers(headers: HeadersInput | None, count: int) -> tuple[Any, Any]:
    """The number of headers of each row followed by the headers, and their sizes in bytes."""
    if headers is None:
        return pa.repeat(pa.scalar(b"\0", pa.binary()), count), 1
    lists = np.frombuffer(headers[0], np.int32)[: count + 1]
    total = int(lists[-1])
    key_length, keys = _field(headers[1], total)
    value_length, values = _field(headers[2], total)
    if total:
        joined = pc.binary_join_element_wise(
            _join_varints([key_length]), keys, _join_varints([value_length]), values, b""
        )
        _, offsets, data = joined.buffers()
        at = np.frombuffer(offsets, np.int32)[lists]
    else:
        at, data = np.zeros(count + 1, np.int32), b""
    counts = _join_varints([np.diff(lists).astype(np.int64)])
    tail = pc.binary_join_element_wise(counts, _binary(at, data, count), b"")
    return tail, np.diff(np.frombuffer(tail.buffers()[1], np.int32)[: count + 1]).astype(np.int64)


# ---------------------------------------------------------------------------------- hashing

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)


def murmur2(offsets: Buffer, data: Buffer) -> Any:
    """Kafka's hash of each value of a binary column (Java's `Utils.murmur2`), uint32."""
    at = np.frombuffer(offsets, np.int32)
    start = at[:-1].astype(np.int64)
    length = np.diff(at).astype(np.int64)
    source = np.frombuffer(data, np.uint8)
    with np.errstate(over="ignore"):
        hashes = _SEED ^ length.astype(np.uint32)
        words = length >> 2
        rows = np.flatnonzero(words)
        index = 0
        while rows.size:
            k = _word(source, start[rows] + 4 * index) * _M
            k = (k ^ (k >> np.uint32(24))) * _M
            hashes[rows] = (hashes[rows] * _M) ^ k
            index += 1
            rows = rows[words[rows] > index]
        tail = length & 3
        after = start + 4 * words
        for behind in (2, 1, 0):
            rows = np.flatnonzero(tail > behind)
            byte = source[after[rows] + behind].astype(np.uint32)
            hashes[rows] ^= byte << np.uint32(8 * behind)
        rows = np.flatnonzero(tail)
        hashes[rows] *= _M
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _word(source: Any, at: Ints) -> Any:
    words = np.ndarray((max(source.size - 3, 0),), np.dtype("<u4"), source, strides=(1,))
    return words[at].astype(np.uint32)
