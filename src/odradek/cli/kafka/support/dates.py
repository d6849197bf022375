"""Formats times as Java's `SimpleDateFormat` does."""

import re
import time
from typing import Final

from odradek.cli.failures import IllegalArgumentError

_WIDTHS: Final = {"y": "tm_year", "M": "tm_mon", "d": "tm_mday", "H": "tm_hour",
                  "m": "tm_min", "s": "tm_sec"}  # fmt: skip
_LETTERS: Final = "GyYMLwWDdFEuaHkKhmsSzZX"
_PIECE: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*")


def check_pattern(pattern: str) -> None:
    """Refuse what `SimpleDateFormat` refuses.

    Raises:
        IllegalArgumentError: a letter without a meaning.
    """
    for match in _PIECE.finditer(pattern):
        if match[1] is None and match[2] not in _LETTERS:
            raise IllegalArgumentError(f"Illegal pattern character '{match[2]}'")


def java_date(moment_ms: int, pattern: str) -> str:
    """A time in the local zone, by the letters for year, month, day, hour, minute, second and ms.

    Other letters are printed unchanged: they do not occur in output for programs.
    """
    local = time.localtime(moment_ms / 1000)

    def shown(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1].replace("''", "'") or "'"
        letter, width = match[2], len(match[0])
        if letter == "S":
            return f"{moment_ms % 1000:0{width}d}"
        field = _WIDTHS.get(letter)
        if field is None:
            return match[0]
        value: int = getattr(local, field)
        if letter == "y" and width == 2:
            value %= 100
        return f"{value:0{width}d}"

    return _PIECE.sub(shown, pattern)
