"""The values of the last quarter of an hour, within a bound of memory. Pure.

A value is weighed by its pickle, and only now and then: values of one key are of similar size. In
memory a value is some four times as large.
"""

import pickle
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from odradek.model.clock import WallMs

KEPT: Final = 900  # values of a key
BYTES_MAX: Final = 32 << 20  # of all keys together
KEYS_MAX: Final = 256
WEIGHED: Final = 32  # values of a key for each that is weighed
UNKNOWN_BYTES: Final = 1 << 16  # of a value that cannot be pickled

K = TypeVar("K", bound=Hashable)


class Timed(Protocol):
    """A value and when it was collected."""

    @property
    def at_ms(self) -> WallMs: ...


V = TypeVar("V", bound=Timed)


@dataclass(slots=True)
class _Values(Generic[V]):
    values: deque[V] = field(default_factory=deque)
    added: int = 0
    weight: int = 0  # of one value

    @property
    def bytes(self) -> int:
        return self.weight * len(self.values)


class Past(Generic[K, V]):
    """Values by key and time. The keys that were added to least recently are dropped first."""

    def __init__(self, *, bytes_max: int = BYTES_MAX, keys_max: int = KEYS_MAX) -> None:
        self._bytes_max = bytes_max
        self._keys_max = keys_max
        self._keys: OrderedDict[K, _Values[V]] = OrderedDict()

    def add(self, key: K, value: V, kept: int = KEPT) -> list[K]:
        """Keep a value, which is not older than the last of its key; returns the dropped keys."""
        of_key = self._keys.setdefault(key, _Values())
        self._keys.move_to_end(key)
        if of_key.added % WEIGHED == 0:
            of_key.weight = _weight(value)
        of_key.added += 1
        of_key.values.append(value)
        while len(of_key.values) > kept:
            of_key.values.popleft()
        return self._shrink()

    def at(self, key: K, at_ms: int) -> V | None:
        """The last value that is not later; None if there is none."""
        of_key = self._keys.get(key)
        if of_key is None:
            return None
        index = bisect_right(of_key.values, at_ms, key=lambda value: value.at_ms)
        return of_key.values[index - 1] if index else None

    def begins_ms(self, key: K) -> WallMs | None:
        of_key = self._keys.get(key)
        return of_key.values[0].at_ms if of_key else None

    @property
    def bytes(self) -> int:
        return sum(of_key.bytes for of_key in self._keys.values())

    def _shrink(self) -> list[K]:
        dropped = []
        while len(self._keys) > self._keys_max:
            dropped.append(self._keys.popitem(last=False)[0])
        excess = self.bytes - self._bytes_max
        while excess > 0:
            largest = max(self._keys.values(), key=lambda of_key: of_key.bytes)
            if len(largest.values) == 1:
                break  # what is shown now is kept, however large it is
            largest.values.popleft()
            excess -= largest.weight
        return dropped


def _weight(value: Any) -> int:
    try:
        return len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, TypeError, AttributeError):
        return UNKNOWN_BYTES
