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
    """A command line with its files, its exit code and its output."""

    name: str
    tool: str  # as `odradek.cli.kafka.tool` calls it
    arguments: list[str]
    files: dict[str, str]
    stdin: str
    code: str
    out: str
    err: str


def read(name: str) -> Recording:
    """Read the recording of this name."""
    return parse(name, (CALLS / f"{name}.txt").read_text())


def parse(name: str, text: str) -> Recording:
    """Parse the text of a recording."""
    sections: dict[str, list[str]] = {}
    section = "command"
    for line in text.split("\n"):
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

    def lines_of(section: str) -> str:
        return "".join(f"{line}\n" for line in sections.get(section, []))

    streams = (lines_of(section) for section in ("stdin", "stdout", "stderr"))
    stdin, out, err = streams
    return Recording(name, tool, arguments, files, stdin, code, out, err)


class Difference(NamedTuple):
    """What is not compared: parts (`out`, `err`, `code`) or lines that match a pattern."""

    why: str
    parts: tuple[str, ...] = ()
    without: str | None = None


SAME = Difference("")
# These tools print measurements.
_MEASURES = ("producer-perf-test", "consumer-perf-test", "e2e-latency")


def differences(
    recorded: Recording, code: int | str, out: str, err: str, allowed: Difference = SAME
) -> list[str]:
    """The differences between a recorded call and its present result."""
    found = []
    if str(code) != recorded.code and "code" not in allowed.parts:
        found.append(f"exit code {code}, recorded {recorded.code}")
    for part, ours, theirs in (("out", out, recorded.out), ("err", err, recorded.err)):
        mine, expected = (normal(text, without=allowed.without) for text in (ours, theirs))
        if recorded.tool in _MEASURES:
            mine, expected = (
                [_NUMBER.sub("N", line) for line in lines] for lines in (mine, expected)
            )
        if recorded.tool == "acls" or any("MEMBER" in line for line in expected):
            # Java prints sets of enumerations in any order, and the assignment to members depends
            # on their random ids.
            mine, expected = (
                sorted(_in_order(line.strip()) for line in lines) for lines in (mine, expected)
            )
        if expected and expected[-1].startswith("... ["):  # the recording was cut there
            mine, expected = mine[: len(expected) - 2], expected[:-2]
        if mine != expected and part not in allowed.parts:
            found.append(f"{part}:\n  ours     {mine}\n  recorded {expected}")
    return found


def _in_order(line: str) -> str:
    head, operations, names = line.partition("only supports operations ")
    return head + operations + ", ".join(sorted(names.split(", ")))


_NUMBER = re.compile(r"\d+(\.\d+)?(E-?\d+)?|\bNaN\b")


# Java's exceptions: lines of a stack trace, and the name where a message follows.
_TRACE = re.compile(
    r"\s*(Caused by:|Suppressed:|at |\.\.\. \d+ more)"
    r"|(java|org|joptsimple|kafka|scala|com)\.[\w.$]*(Exception|Error)(:|$)"
)
# Kafka 3.9 prints these tables in one line; ours prints rows.
_TABLES = (
    (
        re.compile(r"^GROUP +TOPIC +PARTITION +NEW-OFFSET +\S.*$", re.MULTILINE),
        re.compile(r".{88}"),
    ),
    (
        re.compile(r"^TOPIC +PARTITION +STATUS +\S.*$", re.MULTILINE),
        re.compile(
            r"TOPIC +PARTITION +STATUS +"
            r"|[\w-]+ +(?:\d+|Not Provided) +"
            r"(?:Successful +|Error: :.*?\.(?=[\w-]+ +(?:\d|Not )|\s*$))"
        ),
    ),
)


def _rows(text: str) -> str:
    for table, row in _TABLES:
        text = table.sub(lambda found, row=row: "\n".join(row.findall(found[0] + " " * 88)), text)
    return text


# What Java's client logs beside what its tool prints.
_LOGGED = re.compile(
    r"\[TIME\] ERROR \[AdminClient [^]]*\] (Received|ListOffsets request) "
    r"|\[TIME\] WARN \[[^]]*\] Bootstrap broker HOST:PORT "
)
_AGAIN = re.compile(r"\[TIME\] WARN |TIME: max lag is ")
_ERROR_AFTER_USAGE = re.compile(r"[\w.-]+: +error: ")
_REPLACED = [
    (r"^3\.9\.2 \((Odradek|Commit:).*\)$", "3.9.2"),
    (r"^\[\d{4}-\d\d-\d\d [^\]]*\] ", "[TIME] "),
    (r" \((org\.apache\.kafka|kafka|odradek)\.[\w.$]+\)$", ""),
    (r"TopicId: \S+", "TopicId: ID"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"\b(salt|stored_key|server_key)=[\w+/=]+", r"\1=KEY"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"CreateTime:\d+", "CreateTime:N"),
    (r"payloads from: \S*/", "payloads from: DIR/"),
    (r'"timestamp":\d+', '"timestamp":N'),
    (r" with correlation id \d+", " with correlation id N"),
    (r"adminclient-\d+", "adminclient-N"),
    (r"\b1[78]\d{11}\b", "MILLISECONDS"),
    (r"\(\w*/HOST:PORT\) (could not be established\. Node may not be available\.).*", r"\1"),
    (r"retrying \(\d+ attempts left\)", "retrying (N attempts left)"),
    (r"console-consumer-\d+\b(?!-)", "console-consumer-N"),
    (r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}:", "TIME:"),
    (r"\bu1-\d\b", "u1-N"),
    (r"HOST:PORT  \(\d+\)", "HOST:PORT  (N)"),
    (r'"size":\d+', '"size":N'),
    (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
    # The brokers depend on the random start of the assignment; their number is compared.
    (r"Leader: \d+", "Leader: N"),
    (r"(Replicas|Isr): ([\d,]+)", lambda found: f"{found[1]}: " + re.sub(r"\d+", "N", found[2])),
    (r"\(id: \d+ ", "(id: N "),
    (r"\b[\w-]+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "MEMBER"),
]


def normal(  # noqa: C901 - one branch for each kind of line
    text: str, *, without: str | None = None
) -> list[str]:
    """The lines without parts that differ from run to run, and without those of `without`."""
    lines: list[str] = []
    is_help = False
    for line in _rows(text).split("\n"):
        if lines and lines[-1] == "Proposed partition reassignment configuration":
            # The assignment starts at a random broker.
            line = re.sub(r'"replicas":\[[\d,]+\]', "REPLICAS", line)  # noqa: PLW2901
        if line.startswith((_HELP, "Option  ", "usage:")):
            is_help = True
        if is_help and not _ERROR_AFTER_USAGE.match(line):
            continue
        if _TRACE.match(line) or (without and re.search(without, line)):
            continue
        for pattern, replacement in _REPLACED:
            line = re.sub(pattern, replacement, line)  # noqa: PLW2901 - one after the other
        line = line.rstrip()  # noqa: PLW2901
        if _ERROR_AFTER_USAGE.match(line):
            line = re.sub(" +", " ", line)[:60]  # noqa: PLW2901 - Java fills lines with spaces
        if _LOGGED.match(line):
            continue
        if lines and line == lines[-1] and _AGAIN.match(line):
            continue  # how often something was tried again in the time that there was
        lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return lines
