"""How fast connections may be made: to the broker, to a listener, and from an address (KIP-612).

Connections to a broker or a listener above its rate are served later, one after the other. From an
address above its rate they are refused: others must not wait for them.
"""

from collections.abc import Mapping
from typing import Final

from odradek.model.clock import MonotonicMs
from odradek.quota.precedence import Entity, Part
from odradek.quota.rate import Rate
from odradek.quota.usage import RateCount, Usage

UNLIMITED: Final = 2**31 - 1


class Pace:
    """When connections that are made one after the other may be served."""

    __slots__ = ("_free_ms", "_rate", "window_ms")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self.window_ms = window_ms
        self._rate = Rate(windows=windows, window_ms=window_ms)
        self._free_ms = MonotonicMs(0)

    def next_ms(self, limit: float, monotonic_ms: MonotonicMs) -> MonotonicMs:
        """When a connection made now may be served: at most one window after the one before it."""
        begins_ms = MonotonicMs(max(monotonic_ms, self._free_ms))
        self._rate.record(1, begins_ms)
        waits_ms = min(self._rate.throttle_ms(limit, begins_ms), self.window_ms)
        self._free_ms = MonotonicMs(begins_ms + waits_ms)
        return self._free_ms


class ConnectionRates:
    """The rates at which connections are made to one broker."""

    def __init__(self, *, windows: int = 11, window_ms: int = 1_000) -> None:
        self.windows, self.window_ms = windows, window_ms
        self._paces: dict[str | None, Pace] = {}
        self._limits: dict[Entity, float] = {}
        # An address takes the place of a client id: each has its own limit or the default one.
        self._addresses = Usage(lambda: RateCount(windows=windows, window_ms=window_ms))

    def set_address_limits(
        self, changed: Mapping[str | None, float | None], *, whole: bool
    ) -> None:
        """Use other limits from now on, by address (None: of every other address).

        `whole`: no other addresses have limits. A limit of None is removed.
        """
        if whole:
            self._limits.clear()
        for address, limit in changed.items():
            entity = Entity(Part.ABSENT, Part.DEFAULT if address is None else address)
            if limit is None:
                self._limits.pop(entity, None)
            else:
                self._limits[entity] = limit
        self._addresses.set_limits(self._limits)

    def refused_ms(self, address: str, monotonic_ms: MonotonicMs) -> int:
        """How long an address makes no connection; 0: this one is counted and may be served."""
        if not self._addresses:
            return 0
        limit = self._addresses.find("", address)
        if limit is None:
            return 0
        count = self._addresses.count(limit)
        throttle_ms = count.record(1, limit.rate, monotonic_ms)
        if throttle_ms:
            count.rate.record(-1, monotonic_ms)
        return min(throttle_ms, self.window_ms)

    def delay_ms(self, listener: str | None, limit: float, monotonic_ms: MonotonicMs) -> int:
        """How long a connection of a listener (None: of the broker) waits until it is served."""
        if limit >= UNLIMITED:
            self._paces.pop(listener, None)
            return 0
        pace = self._paces.get(listener)
        if pace is None:
            pace = self._paces[listener] = Pace(windows=self.windows, window_ms=self.window_ms)
        return pace.next_ms(limit, monotonic_ms) - monotonic_ms
