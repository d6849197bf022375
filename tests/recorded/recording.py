"""One recorded call of Kafka 3.9.2's tools, and how two outputs are compared.

Times, ports, ids, directories and sizes differ from run to run, and so do the brokers that a walk
from a random start chooses: they are replaced. Java's stack traces and help texts are left out.
"""

import pathlib
import re
import shlex
from typing import NamedTuple

CALLS = pathlib.Path(__file__).parent / "calls"
_HELP = "[the tool's help follows here: ours prints its own]"


class Recording(NamedTuple):
    """A command line with the files it was given, and what came of it."""

    name: str
    tool: str  # as `odradek.cli.tool` calls it
    arguments: list[str]
    files: dict[str, str]
    stdin: str
    code: str
    out: str
    err: str


def read(name: str) -> Recording:
    """The recording of this name."""
    sections: dict[str, list[str]] = {}
    section = "command"
    for line in (CALLS / f"{name}.txt").read_text().splitlines():
        marker = re.fullmatch(r"\[(stdout|stderr|stdin|exit (\w+)|file ([^\]]+))\]", line)
        if marker is None:
            sections.setdefault(section, []).append(line)
            continue
        section = marker[1]
        sections[section] = []
    command, *arguments = shlex.split(sections["command"][0].removeprefix("$ "))
    tool = command.removesuffix(".sh").removeprefix("kafka-")
    (code,) = [s.removeprefix("exit ") for s in sections if s.startswith("exit ")]
    files = {s.removeprefix("file "): "\n".join(t) for s, t in sections.items() if "file " in s}

    def text(section: str) -> str:
        lines = sections.get(section, [])
        return "".join(f"{line}\n" for line in lines)

    return Recording(
        name, tool, arguments, files, text("stdin"), code, text("stdout"), text("stderr")
    )


# Java's exceptions: lines of a stack trace, and the name where a message follows.
_TRACE = re.compile(
    r"\s*(Caused by:|Suppressed:|at |\.\.\. \d+ more)"
    r"|(java|org|joptsimple|kafka|scala|com)\.[\w.$]*(Exception|Error)(:|$)"
)
_REPLACED = [
    (r"^\[\d{4}-\d\d-\d\d [^\]]*\] ", "[TIME] "),
    (r" \((org\.apache\.kafka|kafka)\.[\w.$]+\)$", ""),
    (r"TopicId: \S+", "TopicId: ID"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"HOST:PORT  \(\d+\)", "HOST:PORT  (N)"),
    (r'"size":\d+', '"size":N'),
    (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
    # Which brokers, the walk's random start says; how many, the test.
    (r"Leader: \d+", "Leader: N"),
    (r"(Replicas|Isr): ([\d,]+)", lambda found: f"{found[1]}: " + re.sub(r"\d+", "N", found[2])),
    (r"\(id: \d+ ", "(id: N "),
    (r"console-consumer-[0-9a-f-]{36}", "MEMBER"),
]


def normal(text: str, *, without: str | None = None) -> list[str]:
    """Lines without what differs from run to run, nor (by a pattern) what is left out."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and lines[-1] == "Proposed partition reassignment configuration":
            # It begins at a random broker.
            line = re.sub(r'"replicas":\[[\d,]+\]', "REPLICAS", line)  # noqa: PLW2901
        if line.startswith((_HELP, "Option  ", "usage:")):
            break
        if _TRACE.match(line) or (without and re.search(without, line)):
            continue
        for pattern, replacement in _REPLACED:
            line = re.sub(pattern, replacement, line)  # noqa: PLW2901 - one after the other
        lines.append(line.rstrip())
    while lines and not lines[-1]:
        lines.pop()
    return lines
