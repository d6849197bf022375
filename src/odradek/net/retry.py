"""Repeats an operation that failed: `retry` for one call, `Retries` for a loop that does more.

    await retry(partial(store.create, path), _PAUSE_S, on=ConnectionLostError)

Pauses and deadlines are those of the running event loop, so the simulator controls them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.model.backoff import Pauses

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class Retries:
    """Counts the failures in a row of one operation, and pauses after each."""

    def __init__(self, pause_s: float | Pauses, *, deadline_s: float | None = None) -> None:
        """Without a deadline (a time of the event loop) the number of attempts has no limit."""
        self.failures = 0
        self._pause_s = pause_s
        self._deadline_s = deadline_s

    async def pause(self) -> bool:
        """Pause before the next attempt. False, at once: it would not begin before the deadline."""
        self.failures += 1
        pause_s = self._pause_s(self.failures) if callable(self._pause_s) else self._pause_s
        if self._deadline_s is not None:
            now_s = asyncio.get_running_loop().time()
            if now_s + pause_s >= self._deadline_s:
                return False
        await asyncio.sleep(pause_s)
        return True


async def retry(
    attempt: Callable[[], Awaitable[T]],
    pause_s: float | Pauses,
    *,
    on: type[E] | tuple[type[E], ...],
    failed: Callable[[E], object] | None = None,
    deadline_s: float | None = None,
) -> T:
    """Return what the first successful attempt returns.

    `failed` is called after each failure. It may log the error, or raise it, which ends the
    attempts.

    Raises:
        E: the last error, if the next attempt would not begin before the deadline.
    """
    retries = Retries(pause_s, deadline_s=deadline_s)
    while True:
        try:
            return await attempt()
        except on as error:
            if failed is not None:
                failed(error)
            if not await retries.pause():
                raise


async def until(holds: Callable[[], Awaitable[bool]], pause_s: float | Pauses) -> None:
    """Repeat a check, with a pause after each that returned False."""
    retries = Retries(pause_s)
    while not await holds():
        await retries.pause()
