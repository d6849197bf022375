"""What an operator reads: text, and in it commands as data.

    sentence("to see its lag: ", command("kafka-consumer-groups", "--describe", "--group", name))

A terminal shows the text of all parts; a page gives each command a button that copies exactly it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.model.command import Command
from odradek.model.printable import printable


@dataclass(frozen=True, slots=True)
class Sentence:
    """What is read: text, and commands in it. `sentence` and `joined` make one."""

    parts: tuple[str | Command, ...] = ()

    def __str__(self) -> str:
        """One line of printable characters."""
        return "".join(printable(p) if isinstance(p, str) else str(p) for p in self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(part for part in self.parts if isinstance(part, Command))


Words = str | Command | Sentence


def sentence(*words: Words) -> Sentence:
    """The sentence of these parts; text without characters is left out."""
    return Sentence(tuple(part for each in words for part in _parts(each)))


def joined(words: Iterable[Words], between: str = "; ") -> Sentence:
    """The parts that are not empty, with `between` between them."""
    found: list[Words] = []
    for each in words:
        if each == "" or (isinstance(each, Sentence) and not each):
            continue
        found += [between, each] if found else [each]
    return sentence(*found)


def _parts(words: Words) -> tuple[str | Command, ...]:
    if isinstance(words, Sentence):
        return words.parts
    return (words,) if words else ()
