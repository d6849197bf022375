"""Varints, tagged sections, UUIDs, and the errors for bytes and values that are refused.

The generated code of `odradek.wire.codec` does the common case inline (a length below 128
is one byte) and calls here for the rest. Every function takes a view and a position and
returns what it read and the position after it.

Limits, all checked before memory is spent:

    * a varint has at most 5 bytes and fits in 32 bits;
    * a length or count never exceeds what is left of the frame;
    * unknown tagged fields are skipped, not stored; tags must ascend.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from odradek.model.errors import MalformedRequestError, OdradekError

# What generated decoders catch, and `refused_bytes` turns into a MalformedRequestError.
DECODING_ERRORS: Final = (IndexError, struct.error, UnicodeDecodeError)
# What generated encoders catch, and `refused_value` turns into an UnencodableError.
ENCODING_ERRORS: Final = (
    AttributeError, IndexError, TypeError, UnicodeEncodeError, ValueError, struct.error,
)  # fmt: skip
# Lists of these are decoded and encoded by one call of `struct`.
LIST_CODES: Final[dict[Any, str]] = {"int8": "b", "int32": "i", "int64": "q"}
# Kafka's messages have up to three. Without a limit, two bytes of a frame would cost one iteration.
TAGS_MAX: Final = 64
SHORT_LIST: Final = 16  # lists below this length have a Struct of their own
ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))


class UnsupportedFieldError(OdradekError):
    """A field that the encoded version lacks differs from its default (and is not ignorable)."""


class UnencodableError(OdradekError):
    """A field holds a value that it cannot encode: an error of the calling code, not of a peer."""


def unsigned_varint(view: memoryview, position: int, field: str) -> tuple[int, int]:
    """Read an unsigned varint of up to 32 bits."""
    try:
        # The lengths of record batches have two or three bytes: these are read without a loop.
        value = view[position]
        if value < 0x80:
            return value, position + 1
        byte = view[position + 1]
        if byte < 0x80:
            return value & 0x7F | byte << 7, position + 2
        value = value & 0x7F | (byte & 0x7F) << 7
        for shift in (14, 21, 28):
            byte = view[position + shift // 7]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise MalformedRequestError(f"{field}: varint of more than 5 bytes")
    except IndexError:
        raise MalformedRequestError(f"{field}: the bytes end within a varint") from None
    if value > 0xFFFFFFFF:
        raise MalformedRequestError(f"{field}: varint {value}; must fit in 32 bits")
    return value, position + shift // 7 + 1


def encode_unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_count(count: int) -> bytes:
    """The count of a compact array, string or bytes: encoded plus one, because 0 is null."""
    return ONE_BYTE[count + 1] if count < 0x7F else encode_unsigned_varint(count + 1)


def skip_tags(view: memoryview, position: int, count: int, field: str) -> int:
    """Skip a tagged section without any known tag. Returns its end."""
    if count > TAGS_MAX:
        raise refused_tags(field)
    previous = -1
    for _ in range(count):
        previous, size, position = tag_header(view, position, previous, field)
        position += size
    return position


def tag_header(view: memoryview, position: int, previous: int, field: str) -> tuple[int, int, int]:
    """Read the tag and the size of one tagged field. Returns both, and where it begins."""
    if len(view) - position > 1 and view[position] < 0x80 and view[position + 1] < 0x80:
        tag, size = view[position], view[position + 1]
        position += 2
    else:
        tag, position = unsigned_varint(view, position, field)
        size, position = unsigned_varint(view, position, field)
    if tag <= previous:
        raise MalformedRequestError(f"{field}: tag {tag} after tag {previous}; tags must ascend")
    if size > len(view) - position:
        raise MalformedRequestError(
            f"{field}: tag {tag} of {size} bytes; {len(view) - position} are left"
        )
    return tag, size, position


# --------------------------------------------------------------------- refusing to decode


def refused_tags(field: str) -> MalformedRequestError:
    """A section with more than `TAGS_MAX` tagged fields."""
    return MalformedRequestError(f"{field}: more than {TAGS_MAX} tagged fields")


def refused_length(field: str, length: int, left: int) -> MalformedRequestError:
    """A length that is negative or exceeds what is left of the frame."""
    if length == -1:
        return MalformedRequestError(f"{field}: null; this version does not allow it")
    if length < 0:
        return MalformedRequestError(f"{field}: length {length}; must not be negative")
    return MalformedRequestError(f"{field}: length {length}; {left} bytes are left")


def refused_count(field: str, count: int, limits: tuple[int, int, int]) -> MalformedRequestError:
    """An array that does not fit. `limits`: bytes left, least bytes of one element, budget."""
    left, item_bytes, budget = limits
    if count == -1:
        return MalformedRequestError(f"{field}: null; this version does not allow it")
    if count < 0:
        return MalformedRequestError(f"{field}: {count} elements; must not be negative")
    if count * item_bytes > left:
        return MalformedRequestError(
            f"{field}: {count} elements of at least {item_bytes} bytes; {left} bytes are left"
        )
    return MalformedRequestError(
        f"{field}: {count} elements; the request has {budget} left of its element budget"
    )


def refused_tag_size(field: str, declared: int, used: int) -> MalformedRequestError:
    """A known tagged field whose size differs from what its value takes."""
    return MalformedRequestError(f"{field}: tagged field of {declared} bytes that fills {used}")


def refused_bytes(field: str, error: Exception, position: int, view: memoryview) -> Exception:
    """The exception of a decoder as a MalformedRequestError that names the field."""
    if isinstance(error, UnicodeDecodeError):
        return MalformedRequestError(f"{field}: {bytes(error.object)[:40]!r}; must be UTF-8")
    assert isinstance(error, IndexError | struct.error), error
    return MalformedRequestError(
        f"{field}: the bytes end here: {max(0, len(view) - position)} left at {position}"
    )


# --------------------------------------------------------------------- refusing to encode


def unsupported(field: str, value: object, versions: str) -> UnsupportedFieldError:
    """A field that differs from its default in a version without it."""
    return UnsupportedFieldError(f"{field}: {value!r}; only versions {versions} have this field")


def refused_value(field: str, error: Exception) -> UnencodableError:
    """A value of another type, out of range, or None where null is not allowed."""
    return UnencodableError(f"{field}: {error}")


# ---------------------------------------------------------------------------- number lists


def list_unpackers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """`unpack_from` for lists of fewer than SHORT_LIST numbers."""
    return tuple(struct.Struct(f">{n}{code}").unpack_from for n in range(SHORT_LIST))


def list_packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """`pack` for lists of fewer than SHORT_LIST numbers."""
    return tuple(struct.Struct(f">{n}{code}").pack for n in range(SHORT_LIST))


# ----------------------------------------------------------------------------------- UUIDs
