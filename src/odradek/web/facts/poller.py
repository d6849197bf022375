"""Collects facts while somebody looks: one task for each key, shared by all viewers.

A key is a kind of fact and its argument, such as ("topic", "orders"). While a page that shows it is
open, it is collected each second, or less often if collecting takes long: during at most a given
share of the time, so that a large cluster is not loaded by its own page. When nobody looks,
nothing is collected. The values of some kinds are kept for a while: their views show the past.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.net.clock import real_wall_ms
from odradek.web.facts.past import Past
from odradek.web.facts.source import Source

log = logging.getLogger(__name__)
PERIOD_S: Final = 1.0
SHARE_MAX: Final = 0.01  # of the time, in which facts are being collected
PERIOD_MAX_S: Final = 30.0
ATTEMPT_S: Final = 20.0
FRESH_MS: Final = 900  # a value this young is not collected again for another page

T = TypeVar("T")


class FactKey(NamedTuple):
    """What is collected: a kind, and which of it."""

    kind: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Collected(Generic[T]):
    """A value and when it was collected; or why it could not be, with the last one there is."""

    at_ms: WallMs
    value: T | None
    problem: str | None = None


class FactKind(NamedTuple):
    """How a kind is collected, in every how many periods, and at most in which share of the time.

    `collect` receives the cluster, the argument of the key, and its last value. `kept` values of
    a key are kept for views of the past.
    """

    collect: Callable[[Source, str, Any], Awaitable[Any]]
    share_max: float = SHARE_MAX
    periods: int = 1
    kept: int = 1


Facts = Mapping[FactKey, Collected[Any]]
Update = Callable[[Facts], None]


class Poller:
    """The tasks that collect the keys on a screen, and the last values of all keys."""

    def __init__(
        self,
        source: Source,
        kinds: Mapping[str, FactKind],
        *,
        wall_ms: Callable[[], WallMs] = real_wall_ms,
        period_s: float = PERIOD_S,
    ) -> None:
        self.facts: dict[FactKey, Collected[Any]] = {}
        self._source = source
        self._kinds = kinds
        self._wall_ms = wall_ms
        self._period_s = period_s
        self._past: Past[FactKey, Collected[Any]] = Past()
        self._watches: dict[FactKey, list[Update]] = {}
        self._tasks: dict[FactKey, asyncio.Task[None]] = {}
        self._collecting: dict[FactKey, asyncio.Lock] = {}

    @contextmanager
    def watch(self, keys: Iterable[FactKey], update: Update) -> Iterator[None]:
        """Collect these keys again and again, and call `update` whenever one was collected."""
        watched = tuple(keys)
        for key in watched:
            self._watches.setdefault(key, []).append(update)
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._repeat(key))
        try:
            yield
        finally:
            for key in watched:
                self._watches[key].remove(update)
                if not self._watches[key]:
                    del self._watches[key]
                    self._tasks.pop(key).cancel()

    async def collect(self, keys: Iterable[FactKey]) -> Facts:
        """The facts, with these keys as they are now: collected anew unless they are fresh."""
        await asyncio.gather(*(self._collect(key, fresh_ms=FRESH_MS) for key in keys))
        return self.facts

    def at(self, keys: Iterable[FactKey], at_ms: int) -> Facts:
        """These keys as they were at a time, as far as they were collected then."""
        found = {key: self._past.at(key, at_ms) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def begins_ms(self, keys: Iterable[FactKey]) -> int | None:
        """Since when the past of these keys is kept."""
        times = [self._past.begins_ms(key) for key in keys]
        return max((time for time in times if time is not None), default=None)

    async def close(self) -> None:
        """Cancel the tasks that collect, and wait until they have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _repeat(self, key: FactKey) -> None:
        loop, kind = asyncio.get_running_loop(), self._kinds[key.kind]
        before_s = 0.0  # the first one opens the connections, too
        while True:
            began_s = loop.time()
            await self._collect(key, fresh_ms=0)
            took_s = loop.time() - began_s
            for update in tuple(self._watches.get(key, ())):
                update(self.facts)
            # One that has only waited for a broker which does not answer is no load.
            busy_s = min(took_s, before_s)
            before_s = took_s
            pause_s = max(self._period_s * kind.periods, busy_s / kind.share_max)
            await asyncio.sleep(min(PERIOD_MAX_S, pause_s))

    async def _collect(self, key: FactKey, *, fresh_ms: int) -> None:
        async with self._collecting.setdefault(key, asyncio.Lock()):
            known = self.facts.get(key)
            if known is not None and self._wall_ms() - known.at_ms < fresh_ms:
                return
            before = known.value if known else None
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    value = await self._kinds[key.kind].collect(self._source, key.argument, before)
            except TimeoutError:
                self._enter(key, before, f"no answer within {ATTEMPT_S:.0f} s")
            except (OdradekError, ConnectionError) as error:
                self._enter(key, before, str(error))
            except Exception as error:
                # A fault of this process must not stop the page from showing everything else.
                log.exception("%s was not collected", key)
                self._enter(key, before, f"{type(error).__name__}: {error}")
            else:
                self._enter(key, value, None)

    def _enter(self, key: FactKey, value: object, problem: str | None) -> None:
        collected = Collected(self._wall_ms(), value, problem)
        self.facts[key] = collected
        for dropped in self._past.add(key, collected, self._kinds[key.kind].kept):
            if dropped not in self._watches:
                self.facts.pop(dropped, None)
                self._collecting.pop(dropped, None)
