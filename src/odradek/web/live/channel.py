"""One page that is open somewhere: its parts as last rendered, and its numbered changes. Pure.

All viewers of a URL share a channel. A viewer gets a snapshot first and then changes; one that was
disconnected names the last number it has, and gets the changes since, if they are still kept. One
that has all but the last change gets the words of a part that changed, others get whole parts.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from odradek.web.live.edits import Edit, edits
from odradek.web.rendering import live_parts, still_part

CHANGES_KEPT: Final = 64
EDIT_BYTES: Final = 12  # of an edit beside its text, about


@dataclass(slots=True)
class PageChannel:
    """The rendered content of a page; `name` distinguishes it from one of an earlier process."""

    name: str
    number: int = 0
    content: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    _still: str | None = None
    _last: dict[str, str | list[Edit]] = field(default_factory=dict)  # the last change, in words
    _changes: deque[Mapping[str, str] | None] = field(
        default_factory=lambda: deque(maxlen=CHANGES_KEPT)
    )

    def render(self, content: str) -> bool:
        """Take the content as it is now. Returns whether it differs."""
        if content == self.content:
            return False
        parts, still = live_parts(content), still_part(content)
        if still == self._still:
            changed = {name: part for name, part in parts.items() if self.parts[name] != part}
            self._changes.append(changed)
            self._last = {name: shortest(self.parts[name], part) for name, part in changed.items()}
        else:
            self._changes.append(None)  # the whole content
        self.number += 1
        self.content, self.parts, self._still = content, parts, still
        return True

    @property
    def id(self) -> str:
        """The id of the last change, for `Last-Event-ID`."""
        return f"{self.name}-{self.number}"

    def since(self, last_id: str) -> tuple[str, Any] | None:
        """What a viewer that has `last_id` lacks: the event's kind and data; None if nothing."""
        name, _, number = last_id.rpartition("-")
        if name == self.name and number.isdecimal():
            behind = self.number - int(number)
            if behind == 0:
                return None
            if behind == 1 and self._changes[-1] is not None:
                return "change", self._last
            if 0 < behind <= len(self._changes):
                merged: dict[str, str] = {}
                for change in islice(self._changes, len(self._changes) - behind, None):
                    if change is None:
                        break
                    merged |= change
                else:
                    return "change", merged
        return "snapshot", self.content


def shortest(before: str, after: str) -> str | list[Edit]:
    """A changed part as its edits, or as it is if that is shorter."""
    found = edits(before, after)
    return found if sum(len(edit.text) + EDIT_BYTES for edit in found) < len(after) else after
