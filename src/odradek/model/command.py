"""Commands that a user is shown, as data: words, which are made into shell text here only.

    text = str(command("odradek", "why", "group", name))

Names of groups, clients and directories are chosen by others and may contain whatever a shell
treats specially. A command therefore never is text before it is shown.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.model.printable import printable

# What stands for itself in $'...', also where a shell expands `!`.
_SIMPLE: Final = re.compile(r"[ \"-&(-\[\]-~]")
_IMPOSSIBLE: Final = "# no shell can pass a zero byte on: "


@dataclass(frozen=True, slots=True)
class Command:
    """The words of a command; it may read a line from its standard input."""

    words: tuple[str, ...]
    input_line: str | None = None

    def __str__(self) -> str:
        """The command for a POSIX shell, on one line of printable characters.

        A word with control characters is written as $'...', which bash, zsh, ksh and busybox have.
        A command with a zero byte in a word becomes a comment: a shell would cut the word there,
        and the command would be about something else.
        """
        given = (*self.words, self.input_line or "")
        if any("\0" in word for word in given):
            return _IMPOSSIBLE + " ".join(shlex.quote(printable(word)) for word in given if word)
        text = " ".join(map(_quoted, self.words))
        if self.input_line is None:
            return text
        return f"{_printing(self.input_line)} | {text}"


def command(*words: str) -> Command:
    """The command of these words."""
    return Command(words)


def flag(name: str, value: object) -> tuple[str, ...]:
    """An option and its value as words, also if the value looks like an option itself."""
    text = str(value)
    return (f"{name}={text}",) if text.startswith("-") else (name, text)


def about(name: str, options: Iterable[str] = ()) -> tuple[str, ...]:
    """A positional argument and options as words, also if the argument looks like an option."""
    return (*options, "--", name) if name.startswith("-") else (name, *options)


def _printing(line: str) -> str:
    """The command that prints a line; its escapes are those of printf, which every shell has."""
    if line.isprintable():
        return f"printf '%s\\n' {shlex.quote(line)}"
    form = _octal(line).replace("%", "%%")
    if form.startswith("-"):
        form = f"\\055{form[1:]}"  # a shell's printf would take the format for an option
    return f"printf '{form}\\n'"


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + _octal(word) + "'"


def _octal(word: str) -> str:
    """Octal escapes have three digits, so that no following digit is taken for a part of one."""
    data = word.encode("utf-8", "surrogateescape" if _is_escaped(word) else "surrogatepass")
    return "".join(map(_byte, data))


def _is_escaped(word: str) -> bool:
    """Whether each surrogate stands for a byte of a path that is not UTF-8."""
    return all(0xDC80 <= ord(each) <= 0xDCFF for each in word if 0xD800 <= ord(each) <= 0xDFFF)


def _byte(value: int) -> str:
    character = chr(value)
    return character if _SIMPLE.fullmatch(character) else f"\\{value:03o}"
