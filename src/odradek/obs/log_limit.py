"""Limits repeated log lines.

At most `lines_max` lines with the same text (before values are formatted into it) are written in
an interval; at its end one line reports how many were left out. So a client that keeps sending
invalid requests, or a broker that becomes leader of 50,000 partitions, does not hide other lines.

A line whose cause a client has chosen names it, and is counted with lines of the same cause only:

    audit.info("Principal = %s is Denied ...", principal, ..., extra=of(principal, resource))

So nobody can push a line about somebody else, or about another resource, out of the log.
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs

LINES_MAX: Final = 100
INTERVAL_MS: Final = 10_000
_KEYS_MAX: Final = 10_000
_VALUES: Final = re.compile(r"\d+")
_TEXT_CHARS: Final = 40
_SOURCE: Final = "odradek_source"  # of a record: its `LineSource`


class LineSource(NamedTuple):
    """Who has caused a line, and by what. Lines of other sources are counted on their own."""

    who: str
    what: tuple[object, ...]


def of(who: str, *what: object) -> Mapping[str, LineSource]:
    """The `extra` of a log call: `who` is named where lines are left out."""
    return {_SOURCE: LineSource(who, what)}


class _SimilarLines(NamedTuple):
    logger: str
    level: int
    text: str
    source: LineSource | None


class LogLimit(logging.Filter):
    """A handler's filter. `flush` has to be called regularly to report the lines left out.

    What is counted is bounded: when there are too many different lines, counting begins anew.
    """

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
        self._counts: dict[_SimilarLines, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = _SimilarLines(
            record.name, record.levelno, _kind(record), getattr(record, _SOURCE, None)
        )
        if key not in self._counts and len(self._counts) >= _KEYS_MAX:
            self.flush(ends=True)
        self._counts[key] = lines = self._counts.get(key, 0) + 1
        return lines <= self._lines_max

    def flush(self, *, ends: bool = False) -> None:
        """Report what was left out and begin a new interval, if this one is over or `ends`."""
        monotonic_ms = self._monotonic_ms()
        if not ends and monotonic_ms - self._began_ms < self._interval_ms:
            return
        counts, self._counts = self._counts, {}
        seconds = (monotonic_ms - self._began_ms) / 1000
        self._began_ms = monotonic_ms
        left_out: dict[tuple[str, int, str, str | None], int] = {}
        for key, lines in counts.items():
            if lines > self._lines_max:
                who = None if key.source is None else key.source.who
                kind = (key.logger, key.level, key.text, who)
                left_out[kind] = left_out.get(kind, 0) + lines - self._lines_max
        for (name, level, text, who), lines in left_out.items():
            whose = "" if who is None else f" of {who}"
            logging.getLogger(name).log(
                level,
                "%d more lines like this%s in %.0f s were left out: %s",
                lines,
                whose,
                seconds,
                text,
                extra=of(who or "", text),
            )


def _kind(record: logging.LogRecord) -> str:
    """What repeated lines have in common: the text before values are formatted into it."""
    text = str(record.msg)
    if "%" in text and text != "%s":
        return text
    return _VALUES.sub("N", record.getMessage())[:_TEXT_CHARS]
