"""What the cluster can do beyond Kafka 3.9, as long as every broker in it is ours.

    transaction.version    1, or 2: each transaction has an epoch of its own (KIP-890)

Every broker of ours leaves a mark under `/odradek/brokers` with its registration; an Apache
broker does not. While each registered broker has its mark, the controller raises the level that
is stored in `/odradek/features`; when one comes that has none, it lowers it. Nobody else goes by
the stored level before he has seen for himself that all brokers are ours: the controller may be
Apache's. Kafka's own `/feature` is left alone, for an Apache broker exits on what it does not know
there.

Clients are told in ApiVersions; `epoch` grows with each change of the level.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from odradek.coord import layout
from odradek.coord.layout import Features
from odradek.coord.store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    Store,
)
from odradek.coord.znode import CorruptNodeError

log = logging.getLogger(__name__)

LOWEST: Final = Features(epoch=0, transaction_version=1)
_PAUSE_S: Final = 0.1

Node = tuple[bytes | None, Stat] | None


class FeatureShell:
    """One broker's view of the features; and their minder, while it is the controller."""

    def __init__(
        self,
        store: Store,
        *,
        guard: Callable[[], Check | None],
        transaction_version_max: Callable[[], int],
    ) -> None:
        """`guard` is what a controller writes under, None if this broker is none."""
        self._store = store
        self._guard = guard
        self._transaction_version_max = transaction_version_max
        self._something = asyncio.Event()
        self._watch = self._something.set  # one object: a watcher that is set twice is told once
        self.present = LOWEST

    def look(self) -> None:
        """A session, a reign or a broker has come or gone."""
        self._something.set()

    async def run(self) -> None:
        """Follow what is stored and who is registered, until cancelled."""
        while True:
            self._something.clear()
            try:
                await self._review()
            except (ConnectionLostError, SessionExpiredError, BadVersionError, NodeExistsError):
                await asyncio.sleep(_PAUSE_S)
                self._something.set()
            await self._something.wait()

    # -------------------------------------------------------------------------------- inside

    async def _review(self) -> None:
        is_ours = await self._all_are_ours()
        stored, version = await self._stored()
        guard = self._guard()
        if guard is not None:
            wanted = min(2, self._transaction_version_max()) if is_ours else 1
            if stored.transaction_version != wanted:
                stored = Features(epoch=stored.epoch + 1, transaction_version=wanted)
                await self._store_features(stored, version, guard)
        present = stored if is_ours else LOWEST._replace(epoch=stored.epoch)
        if present != self.present:
            log.info("transaction.version is %d now", present.transaction_version)
            self.present = present

    async def _all_are_ours(self) -> bool:
        registered = await self._store.children(layout.BROKER_IDS, self._watch)
        await self._store.children(layout.ODRADEK_BROKERS, self._watch)
        ids = [int(name) for name in registered]
        nodes = await self._store.get_many([layout.broker_path(id_) for id_ in ids])
        marks = await self._store.get_many([layout.odradek_broker_path(id_) for id_ in ids])
        return bool(ids) and _same_owners(nodes, marks)

    async def _stored(self) -> tuple[Features, int | None]:
        """What is stored, and the version of the node; None: there is none."""
        try:
            data, stat = await self._store.get(layout.ODRADEK_FEATURES, self._watch)
        except NoNodeError:
            await self._store.exists(layout.ODRADEK_FEATURES, self._watch)
            return LOWEST, None
        try:
            return layout.decode_features(data), stat.version
        except CorruptNodeError as error:
            log.error("%s: taken for the lowest", error)  # noqa: TRY400 - told
            return LOWEST, stat.version

    async def _store_features(self, features: Features, version: int | None, guard: Check) -> None:
        data = layout.encode_features(features)
        write: Operation = (
            Create(layout.ODRADEK_FEATURES, data)
            if version is None
            else SetData(layout.ODRADEK_FEATURES, data, version)
        )
        try:
            await self._store.multi([guard, write])
        except MultiError as error:
            raise error.cause from None


def _same_owners(nodes: Sequence[Node], marks: Sequence[Node]) -> bool:
    """Whether each registration has a mark of the same session beside it."""
    return all(
        node is not None and mark is not None and node[1].ephemeral_owner == mark[1].ephemeral_owner
        for node, mark in zip(nodes, marks, strict=True)
    )
