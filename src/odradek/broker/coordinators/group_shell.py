"""Runs the group coordinators of this broker: a machine for each partition that it leads.

    a request                becomes an event of `odradek.group`
    `Answer`                 answers the request with that number
    `Append`                 is appended; `Appended` is the next event
    `AppendTombstones`       is appended; an error is logged
    `next_deadline_ms`       sets one timer for each partition

A client gets the errors of the log as from Kafka: see `_APPEND_ERRORS` in
`odradek.group.membership` and `odradek.group.commits`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar, assert_never

from odradek.broker.coordinators.coordinator_log import CoordinatorLog, CoordinatorTopic
from odradek.broker.coordinators.coordinator_requests import CoordinatorRequests
from odradek.broker.storage.housekeeping import in_slices
from odradek.broker.world import World
from odradek.group.effects import (
    Answer,
    AnyAnswer,
    Append,
    AppendTombstones,
    OwnEffect,
)
from odradek.group.events import (
    Appended,
    DeadlineReached,
    Event,
    ExpirationDue,
    TopicsDeleted,
    TransactionEnded,
)
from odradek.group.machine import GroupMachine
from odradek.group.records import is_too_long
from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import Loaded, Resigned

Known = TypeVar("Known", bound=AnyAnswer)

log = logging.getLogger(__name__)

# Timers may be this late; one wake-up serves all that fall into it.
_TIMER_SLACK_MS: Final = 1

Coordinator = CoordinatorLog[GroupMachine]


class TransactionVerifier(Protocol):
    """Asks whether a producer's transaction is open and includes a partition (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
    ) -> Awaitable[Callable[[], ErrorCode]]:
        """When the coordinator has answered: a function to call right before the append.

        It returns the error, or NONE. `add`: the partition joins the transaction.
        """


class GroupShell:
    """The group coordinators of one broker."""

    def __init__(
        self,
        topic: CoordinatorTopic[GroupMachine],
        world: World,
        *,
        commit_timeout_ms: Callable[[], int],
        transactions: TransactionVerifier | None = None,
    ) -> None:
        self.topic = topic
        self.transactions = transactions
        self._world = world
        self._commit_timeout_ms = commit_timeout_ms
        self._requests: CoordinatorRequests[AnyAnswer] = CoordinatorRequests()
        self._timers: dict[Coordinator, tuple[int, asyncio.TimerHandle]] = {}
        # Topics that were deleted while a log is loaded.
        self._deleted_topics: dict[Coordinator, frozenset[str]] = {}
        topic.perform = self._perform
        topic.loaded = self._loaded
        topic.unloaded = self._unloaded

    # --------------------------------------------------------------------------- queries

    def find(self, group_id: str, *, may_be_empty: bool = False) -> Coordinator | ErrorCode:
        """The coordinator of a group, or why it is not here."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if is_too_long(group_id):
            return ErrorCode.INVALID_GROUP_ID
        return self.topic.find(group_id)

    def now(self) -> Now:
        """Both clocks."""
        return self.topic.now()

    def fresh_member_id(self, prefix: str) -> str:
        """A new member id: the prefix and a random UUID."""
        digits = f"{self._world.random.getrandbits(128):032x}"
        parts = digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:]
        return "-".join((prefix, *parts))

    # ---------------------------------------------------------------------------- events

    def ask(
        self, coordinator: Coordinator, event: Callable[[int], Event]
    ) -> AnyAnswer | asyncio.Future[AnyAnswer]:
        """Hand in the event of a request, made from its number; the answer, if it is known."""
        return self._requests.ask(lambda number: self._handle(coordinator, event(number)))

    def ask_now(
        self, coordinator: Coordinator, event: Callable[[int], Event], kind: type[Known]
    ) -> Known:
        """Hand in the event of a request that never waits; its answer."""
        answer = self.ask(coordinator, event)
        assert isinstance(answer, kind), answer
        return answer

    def _handle(self, coordinator: Coordinator, event: Event) -> None:
        coordinator.handle(event)
        self._set_timer(coordinator)

    def transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """A marker in this partition of `__consumer_offsets` is committed.

        Called wherever WriteTxnMarkers is carried out. While the partition is loaded there is
        nothing to do: the marker is replayed.
        """
        coordinator = self.topic.at(index)
        if not isinstance(coordinator, ErrorCode):
            self._handle(coordinator, TransactionEnded(producer_id, committed))

    # --------------------------------------------------------------------------- effects

    def _perform(self, coordinator: Coordinator, effect: OwnEffect) -> None:
        match effect:
            case Answer():
                self._requests.answer(effect.request, effect.answer)
            case Append():
                coordinator.append(
                    effect.records,
                    partial(self._appended, coordinator, effect.number),
                    timeout_ms=self._commit_timeout_ms(),
                    producer_id=effect.producer_id,
                    producer_epoch=effect.producer_epoch,
                    base_sequence=effect.base_sequence,
                )
            case AppendTombstones(keys):
                error = coordinator.write([(key, None) for key in keys])
                if error is not ErrorCode.NONE:
                    log.warning(
                        "%s: %d tombstones not written: %s", coordinator, len(keys), error.name
                    )
            case _:
                assert_never(effect)

    def _appended(self, coordinator: Coordinator, number: int, error: ErrorCode) -> None:
        self._handle(coordinator, Appended(number, error))

    # ---------------------------------------------------------------------- housekeeping

    async def expire_offsets(self) -> None:
        """Remove offsets whose retention is over."""
        for coordinator in self.topic.serving:
            await self._for_each_group(coordinator, ExpirationDue)

    async def topics_deleted(self, topics: Iterable[str]) -> None:
        """Remove offsets in deleted topics; of a log that is being loaded, after that.

        Otherwise consumers of another topic of that name would start from these offsets.
        """
        deleted = frozenset(topics)
        for coordinator in self.topic.loading:
            before = self._deleted_topics.get(coordinator, frozenset())
            self._deleted_topics[coordinator] = before | deleted
        for coordinator in self.topic.serving:
            await self._for_each_group(coordinator, lambda group: TopicsDeleted(group, deleted))

    async def _for_each_group(
        self, coordinator: Coordinator, event: Callable[[str], Event]
    ) -> None:
        def steps() -> Iterator[None]:
            for group_id in list(coordinator.machine.groups):
                if coordinator.is_over:
                    return
                self._handle(coordinator, event(group_id))
                yield

        await in_slices(steps(), self._world.clock)

    # -------------------------------------------------------------------- time, leadership

    def _set_timer(self, coordinator: Coordinator) -> None:
        deadline_ms = coordinator.machine.next_deadline_ms
        if deadline_ms is None or coordinator.is_over:
            return
        timer = self._timers.get(coordinator)
        if timer is not None:
            if timer[0] <= deadline_ms:
                return
            timer[1].cancel()
        wait_ms = max(deadline_ms - self._world.clock.monotonic_ms(), 0)
        if wait_ms:
            wait_ms += _TIMER_SLACK_MS
        handle = self._world.loop.call_later(wait_ms / 1000, self._deadline_reached, coordinator)
        self._timers[coordinator] = (deadline_ms, handle)

    def _deadline_reached(self, coordinator: Coordinator) -> None:
        del self._timers[coordinator]
        self._handle(coordinator, DeadlineReached())

    def _loaded(self, coordinator: Coordinator) -> None:
        self._handle(coordinator, Loaded())
        deleted = self._deleted_topics.pop(coordinator, None)
        if deleted:
            for group_id in list(coordinator.machine.groups):
                self._handle(coordinator, TopicsDeleted(group_id, deleted))

    def _unloaded(self, coordinator: Coordinator) -> None:
        timer = self._timers.pop(coordinator, None)
        if timer is not None:
            timer[1].cancel()
        self._deleted_topics.pop(coordinator, None)
        self._handle(coordinator, Resigned())
