"""What the command line prints: nothing that others have chosen acts on the terminal.

    with printable_output(arguments):
        print(...)

Names and messages of clients, groups, hosts and brokers may contain control characters. All text
for stdout and stderr passes here, where they are written as escapes (`odradek.model.printable`);
line ends and tabs stay, because a tool prints them: a name in a line of its own, or in a cell of a
table, is made one line by the tool. What the command line itself contains is made one line here,
because every error may repeat it. Bytes written to `sys.stdout.buffer` stay as they are: what a
console consumer prints is the record, as with Kafka's.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from odradek.model.printable import printable, printable_lines

if TYPE_CHECKING:
    from typing import Self


class PrintableStream:
    """A text stream that gets printable text only; all else is the stream's own.

    `one_line` are texts of several lines that are written as one.
    """

    def __init__(self, stream: TextIO, one_line: Iterable[str] = ()) -> None:
        self.stream = stream
        self._one_line = tuple(one_line)

    def write(self, text: str) -> int:
        """Returns the number of characters of the text, as it was given."""
        shown = text
        for each in self._one_line:
            shown = shown.replace(each, printable(each))
        self.stream.write(printable_lines(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printable_output(arguments: Iterable[str] = ()) -> Iterator[None]:
    """Print to stdout and stderr through `PrintableStream`, until the end of the block."""
    before = sys.stdout, sys.stderr
    given = _of_several_lines(arguments)
    sys.stdout, sys.stderr = _printable(sys.stdout, given), _printable(sys.stderr, given)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def bare(stream: TextIO) -> TextIO:
    """The stream itself, for colours and movements of the cursor that a program makes itself."""
    return stream.stream if isinstance(stream, PrintableStream) else stream


def _of_several_lines(arguments: Iterable[str]) -> list[str]:
    """The arguments, their flags and values, that would begin a line; the longest first."""
    given = {
        text for each in arguments for text in (each, each.lstrip("-"), each.partition("=")[2])
    }
    # An argument of white space only is a separator, and cannot be told from the lines of a tool.
    several = (text for text in given if "\n" in text and text.strip())
    return sorted(several, key=len, reverse=True)


def _printable(stream: TextIO, one_line: Iterable[str]) -> TextIO:
    if isinstance(stream, PrintableStream):
        return cast("TextIO", stream)
    return cast("TextIO", PrintableStream(stream, one_line))
