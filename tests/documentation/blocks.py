"""The code blocks of a Markdown page, with what the page says about how they are tested: pure.

    ```console      commands after `$ `, each followed by what it prints
    ```sh           a script whose output is not shown
    ```python       a program

A line `...` stands for any lines of output, and a line `^C` for Ctrl-C. A command continues on the
next line after a backslash, or if that line begins with `> `. An HTML comment before a block, which
readers do not see, is a directive:

    <!-- not run: REASON -->     the block cannot be executed by the tests
    <!-- exit: CODE -->          the exit code of its last command, if it is not 0
    <!-- until -->               each command is repeated until it prints what the page shows
    <!-- stays -->               its last command runs on, until the end of the page
    <!-- fresh -->               it begins in another directory; what ran before is ended
    <!-- file: NAME -->          the text of the block is written to that file
    <!-- prints -->              the text is what the Python block before it prints
    <!-- continues -->           the Python block goes on where the one before it ended

A comment that begins with `run` and a line break has commands that are executed and not shown. A
comment `<!-- heavy: REASON -->` anywhere on a page makes it one of `./run clients`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

EXECUTED = frozenset({"console", "sh", "python"})
# Data, output and other languages: not executed.
SHOWN = frozenset(
    {"dockerfile", "go", "ini", "java", "javascript", "json", "markdown", "properties", "text",
     "toml", "typescript", "xml", "yaml"}
)  # fmt: skip
DIRECTIVES = frozenset(
    {"not run", "exit", "until", "stays", "fresh", "file", "prints", "continues"}
)
HIDDEN = "hidden"
INTERRUPT = "^C"
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)[^`]*$")
_COMMENT = re.compile(r"^ *<!--(?P<text>.*)-->\s*$")
_HEAVY = re.compile(r"^<!-- heavy: .* -->$", re.MULTILINE)
_NOT_FENCED = re.compile(r"^ {4,}(?:\$ |odradek |kafka-[a-z-]+ |pip |\./run |curl )")


class PageError(Exception):
    """A page cannot be read: the message has its line."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, or the hidden commands of a comment."""

    language: str
    first: int  # the number of the line of its text that is the first, from 1
    lines: tuple[str, ...]  # without the indent
    indent: str = ""
    directives: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def is_executed(self) -> bool:
        return self.language in EXECUTED | {HIDDEN} and "not run" not in self.directives


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, and the lines that it prints according to the page."""

    line: int
    text: str
    prints: tuple[str, ...]
    prints_from: int  # the number of the first line of output, from 1


def is_heavy(page: str) -> bool:
    return _HEAVY.search(page) is not None


def not_fenced(page: str) -> list[int]:
    """The numbers of the lines that are a command in an indented block, which no test executes."""
    inside = {
        number
        for block in blocks(page)
        for number in range(block.first, block.first + len(block.lines))
    }
    return [
        number
        for number, line in enumerate(page.splitlines(), 1)
        if number not in inside and _NOT_FENCED.match(line)
    ]


def blocks(page: str) -> list[Block]:
    """The blocks of a page in their order.

    Raises:
        PageError: a block does not end, or has a language or a directive that is not known.
    """
    return list(_blocks(page.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    at = 0
    directives: dict[str, str] = {}
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end = _end_of_fence(lines, at, fence["ticks"])
            yield _fenced(lines[at + 1 : end], at + 2, fence, directives)
            directives, at = {}, end
        elif line.strip() == "<!-- run":
            end = _index(lines, at, "-->")
            yield Block(HIDDEN, at + 2, tuple(each.strip() for each in lines[at + 1 : end]))
            at = end
        elif comment := _COMMENT.match(line):
            name, _, value = comment["text"].strip().partition(": ")
            directives[name] = value
        elif line.strip():
            directives = {}
        at += 1


def _fenced(
    lines: list[str], first: int, fence: re.Match[str], directives: dict[str, str]
) -> Block:
    language, indent = fence["language"], fence["indent"]
    if language not in EXECUTED | SHOWN:
        raise PageError(f"line {first - 1}: a block of language {language!r}")
    if unknown := directives.keys() - DIRECTIVES:
        raise PageError(f"line {first - 1}: a comment before a block is a directive: {unknown}")
    if directives.get("not run", "-") == "":
        raise PageError(f"line {first - 1}: why is the block not run?")
    text = tuple(line.removeprefix(indent) for line in lines)
    return Block(language, first, text, indent, directives)


def _end_of_fence(lines: list[str], begin: int, ticks: str) -> int:
    return _index(lines, begin, ticks)


def _index(lines: list[str], begin: int, text: str) -> int:
    for at in range(begin + 1, len(lines)):
        if lines[at].strip() == text:
            return at
    raise PageError(f"line {begin + 1}: this does not end")


def commands(block: Block) -> list[Command]:
    """The commands of a console block.

    Raises:
        PageError: it does not begin with a command.
    """
    found: list[Command] = []
    at = 0
    while at < len(block.lines):
        if not block.lines[at].startswith("$ "):
            raise PageError(f"line {block.first + at}: a console block begins with `$ `")
        begin = at
        text = [block.lines[at].removeprefix("$ ")]
        at += 1
        while at < len(block.lines) and _goes_on(text[-1], block.lines[at]):
            text.append(block.lines[at].removeprefix("> "))
            at += 1
        prints_from = at
        while at < len(block.lines) and not block.lines[at].startswith("$ "):
            at += 1
        found.append(
            Command(
                line=block.first + begin,
                text="\n".join(text),
                prints=block.lines[prints_from:at],
                prints_from=block.first + prints_from,
            )
        )
    return found


def _goes_on(line: str, following: str) -> bool:
    return line.endswith("\\") or following.startswith("> ")
