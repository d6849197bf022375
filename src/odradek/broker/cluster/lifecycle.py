"""A broker in the coordination store: its session, its registration, its cluster.

    start      a session, Kafka's fixed nodes, the cluster's id, `/brokers/ids/N`
    lost       the session expired: a new one is opened and the broker registers again; the
               controller sees a bounced broker with a new broker epoch

The transaction id of the registration node is the broker epoch: it fences requests that were meant
for an earlier registration (KIP-380). If a node with our id belongs to another session, we wait
until that session ends or times out: a broker that was killed and restarts must not fail because
its earlier session has not expired yet (Apache Kafka exits there).
"""

import asyncio
import base64
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from odradek.coord import layout, layout_odradek
from odradek.coord.store import (
    BadVersionError,
    ConnectionLostError,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SetData,
    Stat,
    Store,
    StoreError,
)
from odradek.coord.znode import CorruptNodeError
from odradek.model.clock import Clock, WallMs
from odradek.model.cluster import Broker
from odradek.model.errors import StartupError
from odradek.net.retry import retry

log = logging.getLogger(__name__)
_PAUSE_S: Final = 0.1
_REOPEN_PAUSE_S: Final = 1.0  # as Apache Kafka
_RETRY_MS_MAX: Final = 10_000
T = TypeVar("T")


class Comparison(Protocol):
    """What is compared with the store before each registration."""

    async def before_registration(self) -> None:
        """Raise the store to what this broker's disks prove, if it is older.

        Raises:
            ConnectionLostError, SessionExpiredError: to be called again.
        """


class Lifecycle:
    """One broker's sessions with the store, one after the other."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        randomness: random.Random,
        *,
        session_timeout_ms: int,
        lost: Callable[[], None],
        registered: Callable[[int], None],
    ) -> None:
        """`lost` is called when a session has ended, `registered` with each later broker epoch."""
        self._store = store
        self._clock = clock
        self._random = randomness
        self._session_timeout_ms = session_timeout_ms
        self._lost = asyncio.Event()
        self._epoch: int | None = None  # the last broker epoch of this process
        self._session_ended = lost
        self._registered = registered
        # For reports: since when the store is silent, and since when this broker is not registered
        # any more, in wall time. None: it answers; it is registered, or was not yet.
        self.silent_ms: WallMs | None = None
        self.unregistered_ms: WallMs | None = None
        store.on_session_lost = self._session_lost
        if store.counts is not None:
            store.counts.changed = self._connection_changed

    async def open(self) -> None:
        """Open the first session and create the nodes that every cluster has.

        Raises:
            StartupError: the store cannot be used.
        """
        try:
            await self._store.open()
            await self.persist(self._make_nodes)
        except StoreError as error:
            raise StartupError(f"the coordination store: {error}") from error

    async def _make_nodes(self) -> None:
        for path in layout.TOP_LEVEL:
            with suppress(NodeExistsError):
                await self._store.create(path, make_parents=True)

    async def persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run one step of the start; retry it while the connection is lost or the session expires.

        Brokers often start together, and disks are busy then: the ensemble may be slow, and a
        broker that exits for that reason would have to be started again by hand.

        Raises:
            StartupError: the step still fails after the session timeout and ten more seconds.
        """
        deadline_ms = self._clock.monotonic_ms() + self._session_timeout_ms + _RETRY_MS_MAX
        has_logged = False
        while True:
            try:
                if not self._store.session_id:
                    self._lost.clear()
                    await self._store.open()
                return await work()
            except (ConnectionLostError, SessionExpiredError) as error:
                if self._clock.monotonic_ms() > deadline_ms:
                    raise StartupError(f"the coordination store: {error}") from error
                if not has_logged:
                    has_logged = True
                    log.warning("the coordination store: %s; trying again", error)
                await asyncio.sleep(_PAUSE_S)

    async def cluster_id(self) -> str:
        """The cluster's id; the first broker of a cluster generates it.

        Raises:
            StartupError: the node that holds it is corrupt, or the store does not answer.
        """
        return await self.persist(self._cluster_id)

    async def _cluster_id(self) -> str:
        while True:
            try:
                data, _ = await self._store.get(layout.CLUSTER_ID)
                return layout.decode_cluster_id(data)
            except CorruptNodeError as error:
                raise StartupError(f"{error}; restore it, it names the cluster") from error
            except NoNodeError:
                pass
            drawn = base64.urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")
            with suppress(NodeExistsError):
                await self._store.create(
                    layout.CLUSTER_ID, layout.encode_cluster_id(drawn), make_parents=True
                )

    async def register(
        self,
        broker: Broker,
        *,
        clean_epoch: int | None = None,
        is_empty: bool = False,
        is_put_back: bool = False,
        new_directories: Collection[str] = (),
    ) -> int:
        """Register this broker. Returns its broker epoch.

        `clean_epoch` is the broker epoch of the registration after which no record was lost, if
        there is one: the broker stopped cleanly, or still runs. `new_directories` had no
        `meta.properties`; `is_empty` means that there are such, or that no directory has a log,
        `is_put_back` that all are an older copy: written for the controller (`/odradek/lives/N`).

        Raises:
            StartupError: another running broker has registered with this id.
        """
        path = layout.broker_path(broker.id)
        patience_ms = self._session_timeout_ms + _RETRY_MS_MAX
        deadline_ms = self._clock.monotonic_ms() + patience_ms
        has_logged = False
        while True:
            data = layout.encode_broker(broker, timestamp_ms=self._clock.wall_ms())
            try:
                note, is_known = await self._note(
                    broker.id, clean_epoch, is_empty=is_empty, is_put_back=is_put_back
                )
                if is_known and new_directories:
                    log.warning(
                        "broker %d was registered before, and there is no meta.properties in %s: "
                        "its replicas there are missing, and are copied again from other brokers; "
                        "records that no other broker has are lost",
                        broker.id,
                        ", ".join(new_directories),
                    )
                return self._is_now(await self._write(broker.id, data, note))
            except ConnectionLostError:
                pass  # the write may have succeeded: read
            except MultiError as error:
                if not isinstance(error.cause, (NodeExistsError, BadVersionError)):
                    raise
            stat = await self._store.exists(path)
            if stat is not None and stat.ephemeral_owner == self._store.session_id:
                return self._is_now(stat)
            if self._clock.monotonic_ms() > deadline_ms:
                raise StartupError(
                    f"broker.id={broker.id} is registered by another broker, which runs; "
                    "give this one another broker.id, or stop the other"
                )
            if stat is not None and not has_logged:
                has_logged = True
                log.info(
                    "broker.id=%d is already registered, perhaps by this broker before it was "
                    "killed: waiting up to %d ms for that session to end",
                    broker.id,
                    patience_ms,
                )
            await asyncio.sleep(_PAUSE_S)

    async def _write(self, broker_id: int, data: bytes, note: SetData) -> Stat:
        """The registration node, the mark of our brokers and the note, in one transaction.

        Like Apache Kafka in two steps: the node's version is 1, and the result of the second has
        the broker epoch: it needs no second request, while the controller sees the node already.
        """
        path = layout.broker_path(broker_id)
        results = await self._store.multi(
            [
                Create(path, None, ephemeral=True),
                SetData(path, data, 0),
                Create(layout.odradek_broker_path(broker_id), ephemeral=True),
                note,
            ]
        )
        return next(result for result in results if isinstance(result, Stat))

    def _is_now(self, registration: Stat) -> int:
        self._epoch = registration.created_id
        self.unregistered_ms = None
        return registration.created_id

    async def tell_log_dir_failed(self, broker_id: int) -> None:
        """Notify the controller, which then asks which replicas this broker still has.

        A broker that registers again is asked in any case, so an expired session ends this, too.
        """
        path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
        data = layout.encode_log_dir_event(broker_id)
        notify = partial(self._store.create, path, data, sequential=True)
        with suppress(SessionExpiredError):
            await retry(notify, _PAUSE_S, on=ConnectionLostError)  # a second notice does no harm

    async def _note(
        self, broker_id: int, clean_epoch: int | None, *, is_empty: bool, is_put_back: bool
    ) -> tuple[SetData, bool]:
        """The node about its logs, written with its registration; and whether it had one before."""
        path = layout_odradek.broker_logs_path(broker_id)
        with suppress(NodeExistsError):
            await self._store.create(path, None, make_parents=True)
        data, stat = await self._store.get(path)
        now = layout_odradek.SINCE_NOW
        before = layout_odradek.BrokerLogs(now)
        with suppress(CorruptNodeError):
            before = layout_odradek.decode_broker(broker_id, data, modified_id=stat.modified_id)
        goes_on = clean_epoch is not None and clean_epoch == stat.modified_id
        logs = layout_odradek.BrokerLogs(
            before.clean_since if goes_on else now,
            now if is_empty else before.empty_since,
            now if is_put_back else before.put_back_since,
        )
        return SetData(path, layout_odradek.encode_broker(logs), stat.version), data is not None

    async def keep_registered(self, broker: Broker, comparison: Comparison) -> None:
        """Register again after each lost session, until cancelled."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            self._session_ended()
            log.warning("the session with the coordination store is over; opening another")
            try:
                if not self._store.session_id:  # otherwise only a response was lost
                    await retry(
                        self._store.open,
                        _REOPEN_PAUSE_S,
                        on=StartupError,
                        failed=lambda error: log.warning("%s: trying again", error),
                    )
                await comparison.before_registration()
                epoch = await self.register(broker, clean_epoch=self._epoch)
            except (SessionExpiredError, ConnectionLostError):
                self._lost.set()
                await asyncio.sleep(_PAUSE_S)
                continue
            self._registered(epoch)

    def _session_lost(self) -> None:
        self._lost.set()
        if self._epoch is not None and self.unregistered_ms is None:
            self.unregistered_ms = self._clock.wall_ms()

    def _connection_changed(self, is_there: bool) -> None:
        self.silent_ms = None if is_there else self._clock.wall_ms()
