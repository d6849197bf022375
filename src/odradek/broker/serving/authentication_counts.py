"""What happened on listeners whose clients authenticate, by the names of Kafka's metrics.

Rates and latencies are of the last minute, as by Kafka's defaults (`metrics.num.samples`,
`metrics.sample.window.ms`). A client of an SSL listener is authenticated by its TLS handshake.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs
from odradek.quota.rate import Rate

_WINDOWS: Final = 2
_WINDOW_MS: Final = 30_000
# What has a rate (Kafka: a `Meter`).
RATED: Final = (
    "successful_authentication",
    "failed_authentication",
    "successful_reauthentication",
    "failed_reauthentication",
)


def _rates() -> dict[str, Rate]:
    return {name: Rate(windows=_WINDOWS, window_ms=_WINDOW_MS) for name in RATED}


class _Window(NamedTuple):
    began_ms: int
    times: int
    sum_ms: int
    max_ms: int


class Latency:
    """How long re-authentications took, from the request that begins one to its response."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)

    def record(self, took_ms: int, monotonic_ms: MonotonicMs) -> None:
        windows = self._windows
        if windows and monotonic_ms - windows[-1].began_ms < _WINDOW_MS:
            began_ms, times, sum_ms, max_ms = windows.pop()
            windows.append(_Window(began_ms, times + 1, sum_ms + took_ms, max(max_ms, took_ms)))
        else:
            windows.append(_Window(monotonic_ms, 1, took_ms, took_ms))

    def average_ms(self, monotonic_ms: MonotonicMs) -> float | None:
        """None if there was no re-authentication."""
        windows = self._present(monotonic_ms)
        times = sum(each.times for each in windows)
        return sum(each.sum_ms for each in windows) / times if times else None

    def max_ms(self, monotonic_ms: MonotonicMs) -> float | None:
        """None if there was no re-authentication."""
        return max((each.max_ms for each in self._present(monotonic_ms)), default=None)

    def _present(self, monotonic_ms: MonotonicMs) -> list[_Window]:
        oldest_ms = monotonic_ms - _WINDOWS * _WINDOW_MS
        return [each for each in self._windows if each.began_ms > oldest_ms]


@dataclass(slots=True)
class AuthenticationCounts:
    """The numbers of one listener since the start; rates and latencies of its last minute."""

    successful_authentication_total: int = 0
    successful_authentication_no_reauth_total: int = 0  # by clients that cannot do it again
    failed_authentication_total: int = 0
    successful_reauthentication_total: int = 0
    failed_reauthentication_total: int = 0
    expired_connections_killed_count: int = 0
    rates: dict[str, Rate] = field(default_factory=_rates, compare=False)
    latency: Latency = field(default_factory=Latency, compare=False)

    def add(self, name: str, monotonic_ms: MonotonicMs) -> None:
        """Count one more of those in `RATED`."""
        total = f"{name}_total"
        setattr(self, total, getattr(self, total) + 1)
        self.rates[name].record(1, monotonic_ms)


TOTALS: Final = (
    *(f"{name}_total" for name in RATED),
    "successful_authentication_no_reauth_total",
    "expired_connections_killed_count",
)


class CountsByListener(dict[str, AuthenticationCounts]):
    """The counts of listeners by name, made when they are first used."""

    def __init__(self, monotonic_ms: Callable[[], MonotonicMs]) -> None:
        super().__init__()
        self.monotonic_ms = monotonic_ms

    def __missing__(self, listener: str) -> AuthenticationCounts:
        made = self[listener] = AuthenticationCounts()
        return made

    def add(self, listener: str, name: str) -> None:
        """Count one more of those in `RATED`."""
        self[listener].add(name, self.monotonic_ms())
