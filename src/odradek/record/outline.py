"""The outline of a batch's records: position, key, and whether there is a value.

For the cleaner, which decides by keys and copies the remaining records unchanged. One pass over
the records, about half a microsecond for each; headers and values are skipped, so corrupt ones
are found only where a record does not end where its length says. `odradek.record.records` decodes
everything.
"""

from odradek.record.records import VARLONG_SHIFT_MAX, InvalidRecordError, raw_varint

# Start and end of the record, its timestamp minus the base timestamp, its offset minus the
# base offset, its key, whether it has a value.
Outline = tuple[int, int, int, int, bytes | None, bool]


def outline(body: bytes, count: int) -> list[Outline]:  # noqa: C901, PLR0912, PLR0915
    """The outline of decompressed records, in their order.

    Varints of one or two bytes, the usual case, are decoded inline and not by a call each.

    Raises:
        InvalidRecordError: they are not exactly `count` records of the lengths they have.
    """
    found: list[Outline] = []
    append = found.append
    position = 0
    size = len(body)
    try:
        for _ in range(count):
            start = position
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, start, VARLONG_SHIFT_MAX)
            end = position + (raw >> 1)
            position += 1  # the attributes
            at = position
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, at, VARLONG_SHIFT_MAX)
            timestamp_delta = (raw >> 1) ^ -(raw & 1)
            at = position
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, at, VARLONG_SHIFT_MAX)
            offset_delta = (raw >> 1) ^ -(raw & 1)
            at = position
            raw = body[position]
            position += 1
            if raw > 0x7F:
                raw, position = raw_varint(body, at, VARLONG_SHIFT_MAX)
            key = None
            if raw & 1:  # negative: null
                if raw != 1:
                    raise InvalidRecordError(f"record {len(found)} of {count}: negative key length")
            else:
                at = position
                position += raw >> 1
                key = body[at:position]
            # Of the value's length only the sign is needed: negative is null.
            has_value = not body[position] & 1
            if position >= end or end > size:
                raise InvalidRecordError(
                    f"record {len(found)} of {count} has its end at {end} of {size} bytes"
                )
            append((start, end, timestamp_delta, offset_delta, key, has_value))
            position = end
    except IndexError:
        raise InvalidRecordError(f"record {len(found)} of {count} is truncated") from None
    if position != size:
        raise InvalidRecordError(f"{size - position} bytes after the last of {count} records")
    return found
