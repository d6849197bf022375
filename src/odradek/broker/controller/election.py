"""The election of the controller: the first broker to create `/controller` is it for its session.

It is elected in one transaction: the ephemeral node is created and `/controller_epoch` raised by
one, if no other broker raised it in between. The version of `/controller_epoch` after that is the
term's token: every later write of the controller checks it, so that a controller that was replaced
without having read it can write nothing any more.

The other brokers watch the node; when it is removed, all try again. If the answer to the
transaction is lost, the owner of the node shows whether it was stored.
"""

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
from odradek.net.retry import retry

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
        self.on_change: Callable[[], None] = _ignore
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self.controller_id = NO_CONTROLLER  # as last read

    async def race(self) -> ControllerTerm | None:
        """Become controller, or read which broker is and watch it. Call it again when that changes.

        A term that this session already holds is returned again.
        """
        # Another broker was faster, or the outcome is not known: read again.
        again_on = ConnectionLostError, MultiError, NoNodeError
        return await retry(self._try, _PAUSE_SECONDS, on=again_on)

    async def abdicate(self, term: ControllerTerm) -> None:
        """End a term by removing `/controller`, unless another controller was elected."""
        with suppress(MultiError):  # refused: another controller was elected
            await self._store.multi([term.token, Delete(layout.CONTROLLER)])
        self.controller_id = NO_CONTROLLER

    async def _try(self) -> ControllerTerm | None:
        # The controller epoch is read before the controller node: in the other order, another
        # controller might be elected between the two reads, and the epoch would be its epoch.
        epoch = await self._epoch()
        stat = await self._store.exists(layout.CONTROLLER, self.on_change)
        if stat is None:
            return await self._claim(epoch)
        if stat.ephemeral_owner == self._store.session_id:
            self.controller_id = self._broker_id
            return ControllerTerm(*epoch)
        self.controller_id = await self._incumbent()
        if self.controller_id == self._broker_id:
            # Of an earlier session of this broker, which is over: it could register again.
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
            return NO_CONTROLLER  # there is a controller, but its node cannot be decoded

    async def _epoch(self) -> _Epoch:
        try:
            data, stat = await self._store.get(layout.CONTROLLER_EPOCH)
        except NoNodeError:
            with suppress(NodeExistsError):  # another broker starts at the same moment
                await self._store.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(0))
            data, stat = await self._store.get(layout.CONTROLLER_EPOCH)
        return _Epoch(layout.decode_controller_epoch(data), stat.version)


def _ignore() -> None:
    """Until the shell sets its own callback."""
