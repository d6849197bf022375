"""What the cluster can do beyond Kafka 3.9, as long as every broker in it is ours.

    transaction.version    1, or 2: each transaction has an epoch of its own (KIP-890)

Every broker of ours leaves a mark under `/odradek/brokers` with its registration; an Apache
broker does not. While each registered broker has its mark, the controller raises the level that
is stored in `/odradek/features`; when one comes that has none, it lowers it. Nobody else goes by
the stored level before he has seen for himself that all brokers are ours: the controller may be
Apache's. Kafka's own `/feature` is left alone, for an Apache broker exits on what it does not know
there.

A broker that leaves takes its registration and its mark away in one transaction of the store, but
they are read one after the other. So marks count only if the registrations are the same before and
after they are read.

Clients read the level in ApiVersions, once for each connection; `epoch` grows with each change. A
broker that starts knows the level before it listens, and in a cluster without a stored level its
answers wait until the controller has stored one.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

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
    Store,
)
from odradek.coord.znode import CorruptNodeError

log = logging.getLogger(__name__)

LOWEST: Final = Features(epoch=0, transaction_version=1)
CHANGED: Final = "transaction.version is %d now"  # logged with each change
LOOKS: Final = 5  # at registrations that change while they are looked at
_PAUSE_S: Final = 0.1


class Registration(NamedTuple):
    """A broker's registration in the store: which one it is, and by which session."""

    broker_epoch: int
    session: int


Registrations = Mapping[int, Registration]


def is_one_picture(before: Registrations, after: Registrations) -> bool:
    """Whether marks that were read between these two belong to these registrations."""
    return before == after


def all_are_ours(registered: Registrations, marks: Mapping[int, int]) -> bool:
    """Whether each registration has a mark of the same session. `marks` are sessions, by broker."""
    return all(
        marks.get(broker) == registration.session for broker, registration in registered.items()
    )


class FeatureShell:
    """One broker's view of the features; and their minder, while it is the controller."""

    def __init__(
        self,
        store: Store,
        *,
        guard: Callable[[], Check | None],
        transaction_version_max: Callable[[], int],
    ) -> None:
        """`guard` is what a controller writes under, None if this broker is not the controller."""
        self._store = store
        self._guard = guard
        self._transaction_version_max = transaction_version_max
        self._something = asyncio.Event()
        self._watch = self._something.set  # one object: a watcher that is set twice is told once
        self._known = asyncio.Event()
        self.present = LOWEST
        self.all_are_ours = False  # each broker that is registered

    @property
    def is_known(self) -> bool:
        """Whether `present` is the cluster's level, and not only where every broker begins."""
        return self._known.is_set()

    async def wait_known(self, within_ms: int) -> None:
        """Wait until `is_known`, but not for longer than this."""
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._known.wait()
        except TimeoutError:
            log.warning("no controller has stored the features of this cluster yet")

    def look(self) -> None:
        """A session, a controller or a broker has come or gone."""
        self._something.set()

    async def learn(self) -> None:
        """See what holds, before this broker is registered.

        Raises:
            ConnectionLostError, SessionExpiredError: see `odradek.coord.store`.
        """
        is_reviewed = await self._review()
        while not is_reviewed:
            await asyncio.sleep(_PAUSE_S)
            is_reviewed = await self._review()

    async def run(self) -> None:
        """Follow what is stored and who is registered, until cancelled."""
        while True:
            self._something.clear()
            try:
                is_reviewed = await self._review()
            except (ConnectionLostError, SessionExpiredError, BadVersionError, NodeExistsError):
                is_reviewed = False
            if not is_reviewed:
                await asyncio.sleep(_PAUSE_S)
                self._something.set()
            await self._something.wait()

    # -------------------------------------------------------------------------------- inside

    async def _review(self) -> bool:
        """Look at what is stored and who is registered. False: they change too fast to tell."""
        is_ours = await self._all_are_ours()
        if is_ours is None:
            return False
        self.all_are_ours = is_ours
        stored, version = await self._stored()
        guard = self._guard()
        if guard is not None:
            wanted = min(2, self._transaction_version_max()) if is_ours else 1
            if version is None or stored.transaction_version != wanted:
                stored = Features(epoch=stored.epoch + 1, transaction_version=wanted)
                await self._store_features(stored, version, guard)
        present = stored if is_ours else LOWEST._replace(epoch=stored.epoch)
        if present != self.present:
            log.info(CHANGED, present.transaction_version)
            self.present = present
        if version is not None or guard is not None or not is_ours:
            self._known.set()
        return True

    async def _all_are_ours(self) -> bool | None:
        """Whether all registered brokers are ours; None if they come and go too fast to tell."""
        await self._store.children(layout.ODRADEK_BROKERS, self._watch)
        for _ in range(LOOKS):
            before = await self._registered()
            marks = await self._marks(before)
            if is_one_picture(before, await self._registered()):
                return all_are_ours(before, marks)
        return None

    async def _registered(self) -> Registrations:
        ids = [int(name) for name in await self._store.children(layout.BROKER_IDS, self._watch)]
        nodes = await self._store.get_many([layout.broker_path(id_) for id_ in ids])
        return {
            id_: Registration(node[1].created_id, node[1].ephemeral_owner)
            for id_, node in zip(ids, nodes, strict=True)
            if node is not None  # it has left since
        }

    async def _marks(self, registered: Registrations) -> Mapping[int, int]:
        nodes = await self._store.get_many([layout.odradek_broker_path(id_) for id_ in registered])
        return {
            id_: node[1].ephemeral_owner
            for id_, node in zip(registered, nodes, strict=True)
            if node is not None
        }

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
