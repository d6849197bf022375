"""Why a broker's process ended, as far as its log shows it."""

import pathlib
import re
from collections.abc import Iterable
from typing import Final

TAIL_BYTES: Final = 65_536
# The last line of `odradek server-start` when it fails, and the first line of each start.
_GAVE_UP: Final = "odradek: "
_STARTED: Final = re.compile(r"\] INFO broker \d+ serves ")
_ERROR: Final = re.compile(r"^\[[^\]]+\] (?:ERROR|CRITICAL) (?P<what>.*?)(?: \(odradek[\w.]*\))?$")


def last_lines(log: pathlib.Path, size_bytes: int = TAIL_BYTES) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size_bytes))
            return file.read(size_bytes).decode(errors="replace").splitlines()
    except OSError:
        return []


def end_of(lines: Iterable[str]) -> str:
    """Why the process with this log ended; "" if the log does not show it.

    The reason it printed, or else the last error since its last start: an exception that ended it.
    """
    reason = ""
    for line in lines:
        error = _ERROR.match(line)
        if _STARTED.search(line):
            reason = ""
        elif line.startswith(_GAVE_UP):
            reason = line.removeprefix(_GAVE_UP)
        elif error is not None and not reason:
            reason = error["what"]
    return reason
