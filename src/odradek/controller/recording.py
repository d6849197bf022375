"""A controller's term as lines of JSON that can be kept, read and replayed.

    Term       the first line: what the controller was made with; its state is empty
    Handled    an event, step or outcome that was handed to `Controller.handle`, with both clocks
    Ended      the last line, if the recording did not end with the process

All that a controller does follows from these: it reads its cluster by events, too. So `TermReplay`
gives the state after each event, and the effects, which are not in the lines: only the names of
their classes are, to detect that another version of Odradek decides otherwise.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from odradek.controller.controller import Controller
from odradek.controller.effects import Effect
from odradek.controller.events import Event
from odradek.model.clock import Now
from odradek.model.plain import NotPlainError, from_plain, to_plain

_END: Final = "\n"


@dataclass(frozen=True, slots=True)
class Term:
    """What a controller was made with, where, and by which version of Odradek."""

    controller_epoch: int
    deletion_enabled: bool = True
    broker: int = -1
    version: str = ""

    def begin(self) -> Controller:
        """A controller as it was when the recording began."""
        return Controller(
            controller_epoch=self.controller_epoch, deletion_enabled=self.deletion_enabled
        )


@dataclass(frozen=True, slots=True)
class Handled:
    """What was handed to `Controller.handle` and when, and the kinds of effects it returned."""

    event: Event
    effects: tuple[str, ...] | None  # None: it raised an error
    now: Now


@dataclass(frozen=True, slots=True)
class Ended:
    """Why nothing more is recorded, and since when."""

    reason: str
    now: Now


Entry = Term | Handled | Ended


class ReplayError(ValueError):
    """A replay does what the recorded controller did not do."""


def kinds(effects: Iterable[Effect]) -> tuple[str, ...]:
    """The names of the classes of effects."""
    return tuple(type(effect).__name__ for effect in effects)


def to_line(entry: Entry) -> str:
    """One line of a recording."""
    return json.dumps(to_plain(entry), separators=(",", ":")) + _END


def read(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of a recording, without a last line that was cut off when the process ended.

    Raises:
        NotPlainError: a line is not one that `to_line` made.
    """
    for line in lines:
        if not line.endswith(_END):
            return
        yield from_plain(Entry, json.loads(line))


class TermReplay:
    """Hands the events of a recording to a new controller; iterating gives the effects."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read the first line.

        Raises:
            NotPlainError: it does not begin a term.
        """
        self._entries = read(lines)
        first = next(self._entries, None)
        if not isinstance(first, Term):
            raise NotPlainError(f"{first!r} does not begin a recording")
        self.term = first
        self.controller = first.begin()
        self.ended: Ended | None = None  # when all has been replayed: the last line, if written

    def __iter__(self) -> Iterator[tuple[Handled, list[Effect]]]:
        """Each entry with its effects; `controller` then has the state after it.

        Raises:
            ReplayError: the effects are of other kinds than those recorded.
            NotPlainError: a line cannot be read.
        """
        for number, entry in enumerate(self._entries, 2):
            if isinstance(entry, Ended):
                self.ended = entry
            elif isinstance(entry, Handled):
                effects = self.controller.handle(entry.event)
                if kinds(effects) != entry.effects:
                    raise ReplayError(
                        f"line {number}: {type(entry.event).__name__} has the effects "
                        f"{kinds(effects)}, recorded are {entry.effects} (version "
                        f"{self.term.version} of Odradek)"
                    )
                yield entry, effects
            else:
                raise NotPlainError(f"line {number} begins another term")
