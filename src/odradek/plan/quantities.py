"""Numbers as people write and read them: of bytes, and of things in a sentence. Pure."""

import re
from typing import Final

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?(?:/s)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
                 "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}  # fmt: skip


def counted(count: int, what: str) -> str:
    """`1 day`, `2 days`: for nouns whose plural has an s."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def times(count: int) -> str:
    """How often something happened: `once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"


def parse_bytes(text: str) -> float:
    """A number of bytes: 4096, 50MB, 1.5GiB, 100MB/s.

    Raises:
        ValueError: it is not a number of bytes, or its unit is unknown.
    """
    found = _RATE.fullmatch(text.strip())
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        raise ValueError(f"{text!r} is not a number of bytes, such as 4096, 50MB or 1.5GiB")
    return float(found[1]) * unit


def bytes_text(size: float) -> str:
    """A number of bytes with a decimal unit: `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def binary_text(size: float) -> str:
    """A number of bytes with a binary unit: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} PiB"


def span_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `5 min 10 s`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, smaller, small_unit in (
        (86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"),
    ):  # fmt: skip
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"
