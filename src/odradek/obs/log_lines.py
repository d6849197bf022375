"""The lines of a broker's log: one for each record, of printable characters.

Clients choose names that are logged before they have logged in. A name cannot begin a line, act on
a terminal or show another text than it is; a traceback, of which the last line may have such a
name, is indented, so that only a record begins a line with its time.
"""

import logging
from typing import Final

from odradek.model.printable import printable, printable_lines

FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_INDENT: Final = "    "


class LineFormatter(logging.Formatter):
    """`[time] LEVEL message (logger)`, and indented lines of a traceback."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(_INDENT + line for line in printable_lines(text).split("\n"))
