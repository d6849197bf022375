"""Features beyond Kafka 3.9, used while every registered broker is an Odradek broker.

    transaction.version    1, or 2: each transaction has an epoch of its own (KIP-890)

An Odradek broker creates a node under `/odradek/brokers`, its mark, together with its registration;
an Apache Kafka broker does not. While each registered broker has its mark, the controller raises
the level that is stored in `/odradek/features`; when a broker without a mark registers, it lowers
the level. A broker uses the stored level only after it has itself seen the marks of all brokers,
because the controller may be Apache Kafka's. Kafka's own `/feature` is left alone: an Apache Kafka
broker exits if it finds unknown features there.

A broker that stops removes its registration and its mark in one transaction of the store, but the
two are read one after the other. So marks count only if the registrations are the same before and
after the marks are read.

Clients read the level in ApiVersions, once for each connection; `epoch` grows with each change. A
starting broker reads the level before it listens. In a cluster without a stored level, ApiVersions
waits until the controller has stored one.
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
from odradek.coord.znode import CorruptNodeError, decimals
from odradek.net.retry import until

log = logging.getLogger(__name__)

LOWEST: Final = Features(epoch=0, transaction_version=1)
CHANGED: Final = "transaction.version is %d now"  # logged with each change
LOOKS: Final = 5  # attempts to read registrations that do not change meanwhile
_PAUSE_S: Final = 0.1


class Registration(NamedTuple):
    """A broker's registration in the store: its broker epoch and its session."""

    broker_epoch: int
    session: int


Registrations = Mapping[int, Registration]


def is_one_picture(before: Registrations, after: Registrations) -> bool:
    """Whether marks that were read between these two reads belong to these registrations."""
    return before == after


def all_are_ours(registered: Registrations, marks: Mapping[int, int]) -> bool:
    """Whether each registration has a mark of the same session. `marks` are sessions, by broker."""
    return all(
        marks.get(broker) == registration.session for broker, registration in registered.items()
    )


class FeatureShell:
    """One broker's view of the features; the controller's also stores them."""

    def __init__(
        self,
        store: Store,
        *,
        guard: Callable[[], Check | None],
        transaction_version_max: Callable[[], int],
    ) -> None:
        """`guard` returns the `Check` that is part of each store write of the active controller.

        It returns None if another broker is the controller.
        """
        self._store = store
        self._guard = guard
        self._transaction_version_max = transaction_version_max
        self._something = asyncio.Event()
        self._watch = self._something.set  # one object: the store notifies a watcher once
        self._known = asyncio.Event()
        self.present = LOWEST
        self.all_are_ours = False  # every registered broker is an Odradek broker
        self.broker_epochs: Mapping[int, int] = {}  # of the brokers that are registered

    @property
    def is_known(self) -> bool:
        """Whether `present` is the cluster's level, and not the initial one."""
        return self._known.is_set()

    async def wait_known(self, within_ms: int) -> None:
        """Wait until `is_known`, at most for `within_ms`."""
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._known.wait()
        except TimeoutError:
            log.warning("no controller has stored the features of this cluster yet")

    def look(self) -> None:
        """Review the features: a session, a controller or a registration has changed."""
        self._something.set()

    async def learn(self) -> None:
        """Read the present level, before this broker registers.

        Raises:
            ConnectionLostError, SessionExpiredError: see `odradek.coord.store`.
        """
        await until(self._review, _PAUSE_S)

    async def run(self) -> None:
        """Follow the stored features and the registrations, until cancelled."""
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
        """Read features and registrations. False: the registrations keep changing."""
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
        """Whether all registered brokers are Odradek's; None if registrations keep changing."""
        await self._store.children(layout.ODRADEK_BROKERS, self._watch)
        for _ in range(LOOKS):
            before = await self._registered()
            self.broker_epochs = {id_: each.broker_epoch for id_, each in before.items()}
            marks = await self._marks(before)
            if is_one_picture(before, await self._registered()):
                return all_are_ours(before, marks)
        return None

    async def _registered(self) -> Registrations:
        ids = decimals(await self._store.children(layout.BROKER_IDS, self._watch))
        nodes = await self._store.get_many([layout.broker_path(id_) for id_ in ids])
        return {
            id_: Registration(node[1].created_id, node[1].ephemeral_owner)
            for id_, node in zip(ids, nodes, strict=True)
            if node is not None  # its registration ended since
        }

    async def _marks(self, registered: Registrations) -> Mapping[int, int]:
        nodes = await self._store.get_many([layout.odradek_broker_path(id_) for id_ in registered])
        return {
            id_: node[1].ephemeral_owner
            for id_, node in zip(registered, nodes, strict=True)
            if node is not None
        }

    async def _stored(self) -> tuple[Features, int | None]:
        """The stored features and the version of their node, which is None if there is no node."""
        try:
            data, stat = await self._store.get(layout.ODRADEK_FEATURES, self._watch)
        except NoNodeError:
            await self._store.exists(layout.ODRADEK_FEATURES, self._watch)
            return LOWEST, None
        try:
            return layout.decode_features(data), stat.version
        except CorruptNodeError as error:
            log.error("%s: the lowest level is used", error)  # noqa: TRY400 - it is no bug
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
