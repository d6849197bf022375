"""Limits repeated log lines.

At most `lines_max` lines with the same text (before values are formatted into it) are written in
an interval; at its end one line reports how many were left out. So a client that keeps sending
invalid requests, or a broker that becomes leader of 50,000 partitions, does not hide other lines.
"""

import logging
import re
from collections.abc import Callable
from typing import Final

from odradek.model.clock import MonotonicMs

LINES_MAX: Final = 100
INTERVAL_MS: Final = 10_000
_KEYS_MAX: Final = 1_000
_VALUES: Final = re.compile(r"\d+")
_TEXT_CHARS: Final = 40


class LogLimit(logging.Filter):
    """A handler's filter. `flush` has to be called regularly to report the lines left out."""

    def __init__(
        self,
        monotonic_ms: Callable[[], MonotonicMs],
        *,
        lines_max: int = LINES_MAX,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        super().__init__()
        self._monotonic_ms = monotonic_ms
        self._lines_max = lines_max
        self._interval_ms = interval_ms
        self._began_ms = monotonic_ms()
        self._counts: dict[tuple[str, str], list[int]] = {}  # number of lines, and their level

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, _kind(record))
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _KEYS_MAX:
                return True
            count = self._counts[key] = [0, record.levelno]
        count[0] += 1
        return count[0] <= self._lines_max

    def flush(self, *, ends: bool = False) -> None:
        """Report what was left out and begin a new interval, if this one is over or `ends`."""
        monotonic_ms = self._monotonic_ms()
        if not ends and monotonic_ms - self._began_ms < self._interval_ms:
            return
        counts, self._counts = self._counts, {}
        seconds = (monotonic_ms - self._began_ms) / 1000
        self._began_ms = monotonic_ms
        for (name, text), (lines, level) in counts.items():
            if lines > self._lines_max:
                logging.getLogger(name).log(
                    level,
                    "%d more lines like this in %.0f s were left out: %s",
                    lines - self._lines_max,
                    seconds,
                    text,
                )


def _kind(record: logging.LogRecord) -> str:
    """What repeated lines have in common: the text before values are formatted into it."""
    text = str(record.msg)
    if "%" in text and text != "%s":
        return text
    return _VALUES.sub("N", record.getMessage())[:_TEXT_CHARS]
