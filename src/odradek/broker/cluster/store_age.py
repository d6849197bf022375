"""Compares the age of the coordination store with that of this broker's disks.

    before a registration   what the disks prove is compared with what the store says; an older
                            store is raised to it (`coord.restored`). Log directories that are
                            older are registered as such, and the controller elects accordingly
    every minute            the broker's counter is raised, in the store and on the disks, so that
                            a later comparison finds what was put back: the store, or the disks
    at a clean stop         once more: a copy of the store from before the stop is found to be one

Without the counter a store could be told from a copy of itself only by what the logs happen to
have: a leader that changed, a producer that began. A broker that ran for weeks without either would
go by the ISR of the copy.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from odradek.coord import layout_odradek
from odradek.coord.layout_odradek import Restored, StoreCounter
from odradek.coord.restored import (
    LogProof,
    Proofs,
    find_proof,
    raise_producer_ids,
    raise_to,
    read_marks,
)
from odradek.coord.store import (
    BadVersionError,
    ConnectionLostError,
    NodeExistsError,
    Store,
    StoreError,
)
from odradek.coord.znode import CorruptNodeError
from odradek.log.directories import KeptCounter
from odradek.log.disk import StorageError
from odradek.log.logs import Logs
from odradek.model.clock import Clock
from odradek.model.partition import TopicPartition

log = logging.getLogger(__name__)
COUNT_S: Final = 60.0
_LAST_S_MAX: Final = 2.0  # for the count at a clean stop
_PAUSE_S: Final = 0.1


class RefusingReplicas(Protocol):
    """Replicas that refuse a role if their log has a newer leader epoch."""

    @property
    def refused_roles(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """The leader epochs of each refused role: the role's, and the log's."""


@dataclass(slots=True)
class StoreAge:
    """What was found at the last comparison, for the reports."""

    restored: Restored | None = None  # the last restoration that the store knows of
    disks_behind: int = 0  # how many counts the oldest log directory is older than the store
    older_directories: tuple[str, ...] = ()  # those that were put back
    is_put_back: bool = False  # they are all that have a counter


class StoreComparison:
    """One broker's comparison of its store with its disks."""

    def __init__(
        self, store: Store, logs: Logs, replicas: RefusingReplicas, clock: Clock, *, broker_id: int
    ) -> None:
        self.age = StoreAge()
        self._store = store
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._broker_id = broker_id
        self._kept: KeptCounter | None = None  # None before the first registration
        self._turn = asyncio.Lock()

    async def before_registration(self) -> None:
        """Compare, raise the store if it is older, and count.

        Log directories that are older count after the registration only: a broker that is killed
        before it has to find them older again.

        The logs are compared at the start only: an ensemble from which every broker has lost its
        session has enough to do.

        Raises:
            ConnectionLostError, SessionExpiredError: to be called again.
        """
        async with self._turn:
            is_start = self._kept is None
            kept = self._kept or _newest(self._counters().values())
            if is_start:
                marks = await read_marks(self._store, self._broker_id)
                self._look_at_disks(marks.counter)
            await self._compare(_proofs(self._logs, kept) if is_start else Proofs(kept.written))
            if not (is_start and self.age.older_directories):
                await self._count(kept, is_start=is_start)

    async def run(self) -> None:
        """Count every minute; compare again if a role was refused. Until cancelled."""
        while True:
            await asyncio.sleep(COUNT_S if self._kept is not None else _PAUSE_S)
            with suppress(StoreError):  # without a session: the next registration counts
                async with self._turn:
                    kept = self._kept or _newest(self._counters().values())
                    if self._replicas.refused_roles:
                        await self._compare(_proofs(self._logs, kept))
                    await self._count(kept)

    async def last(self) -> None:
        """Count for the last time, at a clean stop; a store that does not answer is not awaited."""
        if self._kept is not None:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_LAST_S_MAX), self._turn:
                    await self._count(self._kept)

    # ------------------------------------------------------------------------- comparing

    def _counters(self) -> dict[str, KeptCounter]:
        """The counters of all log directories, as they were at the start."""
        return {path: found.counter for path, found in self._logs.directories.items()}

    def _look_at_disks(self, stored: StoreCounter) -> None:
        """Find out whether log directories were put back to an earlier state."""
        begun = {path: counter.begun for path, counter in self._counters().items()}
        older = older_directories(begun, stored.value)
        if not older:
            return
        lowest = min(begun[path] for path in older)
        self.age.disks_behind = stored.value - lowest
        self.age.older_directories = older
        self.age.is_put_back = all(path in older for path, number in begun.items() if number > -1)
        log.warning(
            "log directories of broker %d are older than the coordination store (the counter in %s "
            "is %d, the one stored is %d): they were put back to an earlier copy%s. What they lack "
            "is copied from other brokers; records that no other broker has are lost",
            self._broker_id,
            ", ".join(older),
            lowest,
            stored.value,
            "" if self.age.is_put_back else ", or their disk had failed for a time",
        )

    async def _compare(self, proofs: Proofs) -> None:
        marks = await read_marks(self._store, self._broker_id)
        if await find_proof(self._store, marks, proofs):
            await self._in_turn(proofs)
        else:
            await self._raise_producer_ids(proofs.producer_id)

    async def _raise_producer_ids(self, highest: int) -> None:
        try:
            if await raise_producer_ids(self._store, highest, self._broker_id):
                log.warning(
                    "logs have records of producer id %d, which the coordination store has not "
                    "given out: the next producer ids are above it",
                    highest,
                )
        except CorruptNodeError as error:
            # Without producer ids a broker still serves all clients that need no new one.
            log.error(  # noqa: TRY400 - it is no bug
                "%s; no producer gets a producer id until the node is repaired: set block_end to a "
                "number above %d, or above all that were given out",
                error,
                highest,
            )

    async def _in_turn(self, proofs: Proofs) -> None:
        """Raise the store, unless another broker has done it meanwhile: one at a time."""
        path = layout_odradek.RESTORING
        while True:
            # If it exists, it may be this session's: then only the response was lost.
            with suppress(NodeExistsError, ConnectionLostError):
                await self._store.create(path, ephemeral=True, make_parents=True)
            stat = await self._store.exists(path)
            if stat is not None and stat.ephemeral_owner == self._store.session_id:
                break
            await asyncio.sleep(_PAUSE_S)
        marks = await read_marks(self._store, self._broker_id)
        proof = await find_proof(self._store, marks, proofs)
        if proof:
            log.warning(
                "the coordination store is older than the logs of broker %d (%s): it was put back "
                "to an earlier state. Leader epochs, the controller epoch and producer ids are "
                "raised above what may have been given out since, and leaders are elected by the "
                "ends of the logs. Other changes since then (topics, partitions, options, ACLs, "
                "users, reassignments) are lost, and have to be made again",
                self._broker_id,
                proof,
            )
            await raise_to(
                self._store,
                proofs,
                broker=self._broker_id,
                at_ms=self._clock.wall_ms(),
                proof=proof,
            )
        await self._store.delete(path)

    # -------------------------------------------------------------------------- counting

    async def _count(self, kept: KeptCounter, *, is_start: bool = False) -> None:
        """Raise the counter: begun on the disks, written in the store, acknowledged on the disks.

        In this order the store is never below what the disks have as acknowledged, nor above what
        they have as begun, whatever stops the broker in between.
        """
        path = layout_odradek.counter_path(self._broker_id)
        with suppress(NodeExistsError):
            await self._store.create(path, make_parents=True)
        keep = self._keep_now if is_start else self._keep
        while True:
            marks = await read_marks(self._store, self._broker_id)
            self.age.restored = marks.restored
            _, stat = await self._store.get(path)
            value = max(*kept, marks.counter.value, 0) + 1
            await keep(KeptCounter(kept.written, value))
            if not self._logs.online_directories:
                return  # with the value in the store alone, they would seem to be put back
            counter = StoreCounter(value, marks.restored_epoch)
            data = layout_odradek.encode_counter(counter)
            with suppress(BadVersionError):  # by an earlier attempt, whose response was lost
                await self._store.set_data(path, data, stat.version)
                break
        self._kept = KeptCounter(value, value)
        await keep(self._kept)

    async def _keep_now(self, counter: KeptCounter) -> None:
        """Before the broker serves anything there is nobody to wait for a disk."""
        for path in self._logs.online_directories:
            try:
                self._logs.directories[path].keep_counter_now(counter)
            except StorageError as error:
                self._logs.take_offline(error)

    async def _keep(self, counter: KeptCounter) -> None:
        loop = asyncio.get_running_loop()
        waiting = []
        for path in self._logs.online_directories:
            kept: asyncio.Future[StorageError | None] = loop.create_future()
            self._logs.directories[path].keep_counter(counter, partial(_settle, kept))
            waiting.append(kept)
        for error in await asyncio.gather(*waiting):
            if error is not None:
                self._logs.take_offline(error)  # its file does not prove what it should

    def as_json(self) -> Mapping[str, Any]:
        """What was found, for the reports."""
        restored = self.age.restored
        return {
            "restored": None if restored is None else restored._asdict(),
            "disks_behind": self.age.disks_behind,
            "older_directories": list(self.age.older_directories),
            "refused_roles": [
                {"partition": str(name), "leader_epoch": refused, "log_epoch": own}
                for name, (refused, own) in sorted(self._replicas.refused_roles.items())
            ],
        }


def older_directories(begun: Mapping[str, int], stored: int) -> tuple[str, ...]:
    """The log directories whose counter is below the one stored; -1: it has none.

    The counter is written to the directories before it is written to the store.
    """
    return tuple(path for path, number in begun.items() if -1 < number < stored)


def _settle(future: asyncio.Future[StorageError | None], error: StorageError | None) -> None:
    if not future.done():  # otherwise the waiting task was cancelled
        future.set_result(error)


def _newest(kept: Iterable[KeptCounter]) -> KeptCounter:
    """The newest counter of several directories: one may have been replaced, or put back."""
    return max(kept, default=KeptCounter())


def _proofs(logs: Logs, kept: KeptCounter) -> Proofs:
    proven = {each.partition: LogProof(each.topic_id, each.epochs.latest_epoch) for each in logs}
    highest = max((each.producers.highest_id for each in logs), default=-1)
    return Proofs(kept.written, highest, proven)
