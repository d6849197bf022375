"""A controller's term as text that can be kept, read and played once more.

The first line names the controller epoch and options, each further line an event, step or outcome
with its effects. All that a controller does follows from these: a controller made by `Term.begin`
to which they are handed once more returns the same effects, and comes to the same state.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.controller.controller import Controller
from odradek.controller.effects import Effect
from odradek.controller.events import Event
from odradek.model.plain import from_plain, to_plain


@dataclass(frozen=True, slots=True)
class Term:
    """With what a controller was made."""

    controller_epoch: int
    deletion_enabled: bool = True

    def begin(self) -> Controller:
        """A controller as it was when the recording began."""
        return Controller(
            controller_epoch=self.controller_epoch, deletion_enabled=self.deletion_enabled
        )


@dataclass(frozen=True, slots=True)
class Handled:
    """What was handed to `Controller.handle`, and what it returned."""

    event: Event
    effects: tuple[Effect, ...]


def to_line(entry: Term | Handled) -> str:
    """One line of a recording, without its end."""
    return json.dumps(to_plain(entry))


def read(lines: Iterable[str]) -> tuple[Term, Iterator[Handled]]:
    """The entries of a recording.

    Raises:
        NotPlainError: a line is not one that `to_line` made.
    """
    entries = (json.loads(line) for line in lines)
    term: Term = from_plain(Term, next(entries))
    return term, (from_plain(Handled, entry) for entry in entries)
