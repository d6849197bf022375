"""Java's order of hash maps, and its formats of numbers and lists.

Kafka's tools print many lists in the order of a `HashMap`, which depends only on the keys. These
tools print the same order, so that outputs can be compared line by line.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

K = TypeVar("K")

_MASK: Final = 0xFFFFFFFF
_LOAD: Final = 0.75


def string_hash(text: str) -> int:
    """`String.hashCode`, as 32 bits without a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & _MASK
    return value


def partition_hash(partition: tuple[str, int]) -> int:
    """Java's `TopicPartition.hashCode`, as 32 bits without a sign."""
    topic, index = partition
    return ((31 + index) * 31 + string_hash(topic)) & _MASK


def hash_order(
    keys: Iterable[K], hash_of: Callable[[K], int], *, expected: int | None = None
) -> list[K]:
    """Keys in the iteration order of a `HashMap` into which they were put in this order.

    `expected` is the initial capacity of the map, or None.
    """
    ordered = list(dict.fromkeys(keys))
    capacity = 16 if expected is None else 1 << max(0, expected - 1).bit_length()
    while len(ordered) > capacity * _LOAD:
        capacity *= 2

    def bucket(key: K) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & (capacity - 1)

    return sorted(ordered, key=bucket)  # a stable sort keeps the order within a bucket


def split(text: str, separator: str) -> list[str]:
    """`String.split`: without empty strings at the end; one empty string is one part."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [] if parts == [""] and text else parts


def double(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")  # noqa: PLR0124
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    digits, _, exponent = f"{value:e}".partition("e")
    shortest = repr(value)
    mantissa = shortest.partition("e")[0].replace(".", "").lstrip("-0").rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}E{int(exponent)}" if digits else shortest


def int_list(values: Iterable[object]) -> str:
    """A list in the format of Java's `List.toString`: [1, 2]."""
    return f"[{', '.join(map(str, values))}]"
