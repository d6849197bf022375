"""The open pages: renders each again when its facts change, and wakes its viewers."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from odradek.web.facts.poller import FactKey, Facts, Poller
from odradek.web.live.channel import PageChannel
from odradek.web.rendering import event

VIEWERS_MAX: Final = 64
HEARTBEAT_S: Final = 15.0

Render = Callable[[Facts], str]


class TooManyViewersError(Exception):
    """The limit of open streams is reached."""


class _Open:
    """A channel, its viewers and how it is rendered."""

    def __init__(self, render: Render) -> None:
        self.channel = PageChannel(secrets.token_hex(4))
        self.render = render
        self.viewers = 0
        self.changed = asyncio.Event()
        self.watching = ExitStack()

    def update(self, facts: Facts) -> None:
        if self.channel.render(self.render(facts)):
            self.changed.set()


class Hub:
    """The channels of all open pages by their URLs."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._open: dict[str, _Open] = {}
        self._viewers = 0
        self._is_closed = False

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self._is_closed = True
        for opened in self._open.values():
            opened.changed.set()

    async def events(
        self,
        url: str,
        keys: tuple[FactKey, ...],
        render: Render,
        last_id: str,
        is_valid: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[bytes]:
        """The stream of one viewer: a snapshot or what it missed, then each change.

        It ends when `is_valid` does not hold any more.

        Raises:
            TooManyViewersError: as many streams are open as are allowed.
        """
        async with self._viewer(url, keys, render) as opened:
            seen = last_id
            while not self._is_closed and is_valid():
                opened.changed.clear()
                found = opened.channel.since(seen)
                if found is not None:
                    seen = opened.channel.id
                    yield event(found[0], seen, found[1])
                    continue  # it may have changed while this was sent
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await opened.changed.wait()
                except TimeoutError:
                    yield b": nothing has changed\n\n"

    @asynccontextmanager
    async def _viewer(
        self, url: str, keys: tuple[FactKey, ...], render: Render
    ) -> AsyncIterator[_Open]:
        if self._viewers >= VIEWERS_MAX:
            raise TooManyViewersError
        self._viewers += 1
        opened = self._open.setdefault(url, _Open(render))
        opened.viewers += 1
        try:
            if opened.viewers == 1:
                opened.watching.enter_context(self._poller.watch(keys, opened.update))
            if not opened.channel.number:
                opened.update(await self._poller.collect(keys))
            yield opened
        finally:
            self._viewers -= 1
            opened.viewers -= 1
            if not opened.viewers:
                del self._open[url]
                opened.watching.close()
