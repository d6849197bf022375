"""Numbers of bytes as people write and read them. Pure."""

import re
from typing import Final

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?(?:/s)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
                 "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}  # fmt: skip


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
