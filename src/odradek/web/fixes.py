"""What to do about a finding, as steps: so that a command is copied without the words about it."""

import re
from typing import Final, NamedTuple

# `odradek start 1`, or after a few words and a colon: `or, if it stays away: odradek plan ...`.
_COMMAND: Final = re.compile(r"((?:or )?(?:[^:]*: )?)((?:odradek|kafka-[a-z-]+) \S.*)")


class FixStep(NamedTuple):
    """Words, a command, or both."""

    words: str
    command: str


def fix_steps(fix: str) -> tuple[FixStep, ...]:
    """The steps of `Finding.fix`, which are separated by semicolons."""
    found = []
    for part in filter(None, fix.split("; ")):
        matched = _COMMAND.fullmatch(part)
        found.append(FixStep(*matched.groups()) if matched else FixStep(part, ""))
    return tuple(found)
