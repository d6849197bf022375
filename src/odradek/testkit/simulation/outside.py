"""What outlives a process: the databases and ledgers of a test.

Each name is a list, which is made when it is used first. What is appended is part of the story.
"""

from collections.abc import Callable
from typing import Any

_Appended = Callable[[str, str, object], None]  # who, ledger, value


class SharedList(list[Any]):
    """A list that all processes share."""


class Outside:
    """The ledgers of a run: `outside.sent`, `outside.got`, or whatever a test calls them."""

    def __init__(self, appended: _Appended) -> None:
        self.ledgers: dict[str, SharedList] = {}
        self._appended = appended

    def __getattr__(self, name: str) -> SharedList:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.ledgers.setdefault(name, SharedList())

    def of(self, who: str) -> "OutsideOfOne":
        """The same ledgers, for one process."""
        return OutsideOfOne(self, who)

    def append(self, who: str, name: str, value: object) -> None:
        """Append to a ledger on behalf of a process."""
        self.ledgers.setdefault(name, SharedList()).append(value)
        self._appended(who, name, value)


class OutsideOfOne:
    """The ledgers as one process sees them."""

    def __init__(self, outside: Outside, who: str) -> None:
        self._outside = outside
        self._who = who

    def __getattr__(self, name: str) -> "SharedListOfOne":
        if name.startswith("_"):
            raise AttributeError(name)
        return SharedListOfOne(self._outside, self._who, name)


class SharedListOfOne:
    """One ledger as one process sees it."""

    def __init__(self, outside: Outside, who: str, name: str) -> None:
        self._outside = outside
        self._who = who
        self._name = name

    def append(self, value: object) -> None:
        """Append a value: it is there whatever becomes of the process."""
        self._outside.append(self._who, self._name, value)

    def __contains__(self, value: object) -> bool:
        return value in self._ledger

    def __len__(self) -> int:
        return len(self._ledger)

    def __iter__(self) -> Any:
        return iter(list(self._ledger))

    @property
    def _ledger(self) -> SharedList:
        return self._outside.ledgers.setdefault(self._name, SharedList())
