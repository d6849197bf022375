"""What the command line prints: nothing that others have chosen acts on the terminal.

    with printable_output():
        print(...)

Names and messages of clients, groups, hosts and brokers may contain control characters. All text
for stdout and stderr passes here, where they are written as escapes (`odradek.model.printable`);
line ends and tabs stay, because a tool prints them: a name in a line of its own, or in a cell of a
table, is made one line by the tool. Bytes written to `sys.stdout.buffer` stay as they are: what a
console consumer prints is the record, as with Kafka's.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from odradek.model.printable import printable_lines

if TYPE_CHECKING:
    from typing import Self


class PrintableStream:
    """A text stream that gets printable text only; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Returns the number of characters of the text, as it was given."""
        self.stream.write(printable_lines(text))
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
def printable_output() -> Iterator[None]:
    """Print to stdout and stderr through `PrintableStream`, until the end of the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _printable(sys.stdout), _printable(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def bare(stream: TextIO) -> TextIO:
    """The stream itself, for colours and movements of the cursor that a program makes itself."""
    return stream.stream if isinstance(stream, PrintableStream) else stream


def _printable(stream: TextIO) -> TextIO:
    if isinstance(stream, PrintableStream):
        return cast("TextIO", stream)
    return cast("TextIO", PrintableStream(stream))
