"""The race for `/controller`: the first broker to make the node reigns while its session lives.

Winning is one transaction: the ephemeral node is made and `/controller_epoch` raised by one, if
nobody raised it meanwhile. The version which that gives `/controller_epoch` is the term's token:
every later write of the controller is conditional on it, so that a controller which was deposed
without noticing can write nothing any more.

Who loses watches the node; when it goes, all try again. Whether a lost answer meant victory is
found out by looking who owns the node.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.coord import layout
from odradek.coord.store import (
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SetData,
    Stat,
    Store,
)
from odradek.coord.znode import CorruptNodeError
from odradek.model.clock import Clock

NO_CONTROLLER: Final = -1
_PAUSE_SECONDS: Final = 0.1


class ControllerTerm(NamedTuple):
    """One controller's time: its epoch, and the version of `/controller_epoch` as its token."""

    controller_epoch: int
    epoch_version: int

    @property
    def token(self) -> Check:
        """What makes a write fail if this term is over."""
        return Check(layout.CONTROLLER_EPOCH, self.epoch_version)


class _Epoch(NamedTuple):
    value: int
    version: int


class ControllerElection:
    """One broker in the race. `on_change` is called when `/controller` comes, goes or changes."""

    def __init__(self, store: Store, *, broker_id: int, clock: Clock) -> None:
        self.on_change: Callable[[], None] = _nobody
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self.controller_id = NO_CONTROLLER  # as last seen, whoever it is

    async def race(self) -> ControllerTerm | None:
        """Become controller, or learn who is and watch it. Call it again when that changes.

        A term that this session already holds is returned again.
        """
        while True:
            try:
                return await self._try()
            except (ConnectionLostError, MultiError, NoNodeError):
                # Somebody was faster, or we cannot know: look again.
                await asyncio.sleep(_PAUSE_SECONDS)

    async def abdicate(self, term: ControllerTerm) -> None:
        """Give a term up in favour of whoever is next, if it still is ours."""
        with suppress(MultiError):  # refused: it was not ours any more
            await self._store.multi([term.token, Delete(layout.CONTROLLER)])
        self.controller_id = NO_CONTROLLER

    async def _try(self) -> ControllerTerm | None:
        # The epoch first: read after the node, it might be that of another who came meanwhile.
        epoch = await self._epoch()
        stat = await self._store.exists(layout.CONTROLLER, self.on_change)
        if stat is None:
            return await self._claim(epoch)
        if stat.ephemeral_owner == self._store.session_id:
            self.controller_id = self._broker_id
            return ControllerTerm(*epoch)
        self.controller_id = await self._incumbent()
        if self.controller_id == self._broker_id:
            # A former life of this broker: it is over, for we could register in its place.
            await self._store.delete(layout.CONTROLLER, stat.version)
            return await self._claim(epoch)
        return None

    async def _claim(self, epoch: _Epoch) -> ControllerTerm:
        node = layout.ControllerNode(self._broker_id, self._clock.wall_ms())
        term = epoch.value + 1
        results = await self._store.multi(
            [
                Create(layout.CONTROLLER, layout.encode_controller(node), ephemeral=True),
                SetData(
                    layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(term), epoch.version
                ),
            ]
        )
        await self._store.exists(layout.CONTROLLER, self.on_change)
        self.controller_id = self._broker_id
        written = results[1]
        assert isinstance(written, Stat), results
        return ControllerTerm(term, written.version)

    async def _incumbent(self) -> int:
        data, _ = await self._store.get(layout.CONTROLLER)
        try:
            return layout.decode_controller(data).broker
        except CorruptNodeError:
            return NO_CONTROLLER  # somebody reigns whom we cannot read

    async def _epoch(self) -> _Epoch:
        try:
            data, stat = await self._store.get(layout.CONTROLLER_EPOCH)
        except NoNodeError:
            with suppress(NodeExistsError):  # another broker starts at the same moment
                await self._store.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(0))
            data, stat = await self._store.get(layout.CONTROLLER_EPOCH)
        return _Epoch(layout.decode_controller_epoch(data), stat.version)


def _nobody() -> None:
    """Hears of nothing."""
