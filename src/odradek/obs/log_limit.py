"""A log that ten thousand equal events do not fill.

Of lines with one text (what is put into it aside) so many are written in an interval; how many
were left out is one line of its own at its end. So a peer that sends nonsense all day, or a broker
that takes over 50,000 partitions, leaves what else the log has to say readable.
"""

import logging
import re
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 100
INTERVAL_MS: Final = 10_000
_KEYS_MAX: Final = 1_000
_VALUES: Final = re.compile(r"\d+")
_TEXT_CHARS: Final = 40


class LogLimit(logging.Filter):
    """A handler's filter. `flush` now and then writes what was left out."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        lines_max: int = LINES_MAX,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._lines_max = lines_max
        self._interval_ms = interval_ms
        self._began_ms = now_ms()
        self._counts: dict[tuple[str, str], list[int]] = {}  # lines, and the level

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written."""
        key = (record.name, _kind(record))
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _KEYS_MAX:
                return True
            count = self._counts[key] = [0, record.levelno]
        count[0] += 1
        return count[0] <= self._lines_max

    def flush(self, *, ends: bool = False) -> None:
        """If the interval is over (or everything is): say what was left out, and begin anew."""
        now_ms = self._now_ms()
        if not ends and now_ms - self._began_ms < self._interval_ms:
            return
        counts, self._counts = self._counts, {}
        seconds = (now_ms - self._began_ms) / 1000
        self._began_ms = now_ms
        for (name, text), (lines, level) in counts.items():
            if lines > self._lines_max:
                logging.getLogger(name).log(
                    level,
                    "%d more lines like this one in %.0f s were left out: %s",
                    lines - self._lines_max,
                    seconds,
                    text,
                )


def _kind(record: logging.LogRecord) -> str:
    """What equal events have in common: the text before values are put into it."""
    text = str(record.msg)
    if "%" in text and text != "%s":
        return text
    return _VALUES.sub("N", record.getMessage())[:_TEXT_CHARS]
