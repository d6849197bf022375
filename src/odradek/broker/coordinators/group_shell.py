"""The group coordinator's hands: one machine for each partition of `__consumer_offsets` led here.

    a request      becomes an event, or a plain call for positions and heartbeats
    Reply          fills the ticket of the request that waits
    Store          is appended; its outcome is the next event
    Erase          is appended, and nobody waits
    a deadline     of the machine is met by one timer for each partition

The errors of the log are told as Kafka's coordinator tells them: a group that could not be stored
in time rebalances once more, one that is too large is an UNKNOWN_SERVER_ERROR; positions that
are too large are INVALID_COMMIT_OFFSET_SIZE.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol, assert_never

from odradek.broker.coordinators.coordinator_log import CoordinatorLog, CoordinatorTopic
from odradek.broker.storage.housekeeping import in_slices
from odradek.broker.world import World
from odradek.group.effects import (
    Answer,
    Effect,
    Erase,
    Event,
    Loaded,
    Note,
    Now,
    Reply,
    Store,
    Stored,
    Tick,
    Unloaded,
)
from odradek.group.machine import Commit, Committer, GroupMachine
from odradek.group.offsets import Place
from odradek.group.records import STRING_BYTES_MAX, Committed
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

log = logging.getLogger(__name__)

_STORE_ERRORS: Final = {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_COMMIT_ERRORS: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
# Timers may be this late; one wake-up serves all that fall into it.
_TICK_MS: Final = 1

Led = CoordinatorLog[GroupMachine]


class Ticket:
    """Who waits for an answer of the machine."""

    __slots__ = ("answer", "future")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.future: asyncio.Future[Answer] | None = None


class Transactions(Protocol):
    """Who can tell whether a producer's transaction is open and includes a partition (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
    ) -> Awaitable[Callable[[], ErrorCode]]:
        """When the coordinator has spoken: what tells, right before the append, whether it may be.

        `add`: the partition joins the transaction, if it is not in it.
        """


class GroupShell:
    """Runs the group machines of one broker."""

    def __init__(
        self,
        topic: CoordinatorTopic[GroupMachine],
        world: World,
        *,
        commit_timeout_ms: Callable[[], int],
        transactions: Transactions | None = None,
    ) -> None:
        self.topic = topic
        self.transactions = transactions
        self._world = world
        self._commit_timeout_ms = commit_timeout_ms
        self._events: deque[tuple[Led, Event]] = deque()
        self._telling = False
        self._timers: dict[Led, tuple[int, asyncio.TimerHandle]] = {}
        self._gone: dict[Led, frozenset[str]] = {}  # topics deleted while a log is loaded
        topic.loaded = self._loaded
        topic.unloaded = self._unloaded

    # ------------------------------------------------------------------------- questions

    def find(self, group_id: str, *, may_be_empty: bool = False) -> Led | ErrorCode:
        """The coordinator of a group, or why it is not here."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if len(group_id) > STRING_BYTES_MAX // 3 and len(group_id.encode()) > STRING_BYTES_MAX:
            return ErrorCode.INVALID_GROUP_ID
        return self.topic.find(group_id)

    def now(self) -> Now:
        """Both clocks."""
        clock = self._world.clock
        return Now(clock.monotonic_ms(), clock.wall_ms())

    def fresh_member_id(self, prefix: str) -> str:
        """A member id that nobody has: a prefix and a random UUID."""
        digits = f"{self._world.random.getrandbits(128):032x}"
        parts = digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:]
        return "-".join((prefix, *parts))

    # ------------------------------------------------------------------------ membership

    async def answered(self, ticket: Ticket) -> Answer:
        """The answer, when there is one."""
        if ticket.answer is not None:
            return ticket.answer
        assert ticket.future is None, "one waits for each ticket"
        ticket.future = self._world.loop.create_future()
        return await ticket.future

    def tell(self, led: Led, event: Event) -> None:
        """Give an event to a machine, and do what it asks for, and all that follows."""
        self._events.append((led, event))
        if self._telling:
            return  # an outcome that came at once: after what is being done
        self._telling = True
        try:
            while self._events:
                led, event = self._events.popleft()
                for effect in led.mind.handle(event, self.now()):
                    self._perform(led, effect)
                self.arm(led)
        finally:
            self._telling = False

    def _perform(self, led: Led, effect: Effect) -> None:
        match effect:
            case Reply(ticket, answer):
                assert isinstance(ticket, Ticket)
                ticket.answer = answer
                if ticket.future is not None and not ticket.future.done():
                    ticket.future.set_result(answer)
            case Store(_, records, _):
                done = partial(self._stored, led, effect)
                led.append(records, done, timeout_ms=self._commit_timeout_ms())
            case Erase(keys):
                error = led.write([(key, None) for key in keys])
                if error is not ErrorCode.NONE:
                    log.warning("%s: %d tombstones not written: %s", led, len(keys), error.name)
            case Note(text):
                log.info("%s: %s", led, text)
            case _:
                assert_never(effect)

    def _stored(self, led: Led, store: Store, error: ErrorCode) -> None:
        if not led.is_over:
            self.tell(led, Stored(store, _STORE_ERRORS.get(error, error)))

    # ------------------------------------------------------------------------- positions

    def commit(
        self,
        led: Led,
        who: Committer,
        positions: Mapping[Place, Committed],
        *,
        group_id: str,
        producer_epoch: int = -1,
    ) -> "CommitCall | ErrorCode":
        """Append positions. Whoever asked waits for the call, unless it is done at once."""
        commit = led.mind.commit(group_id, who, positions, self.now())
        if isinstance(commit, ErrorCode):
            return commit
        self.arm(led)
        call = CommitCall(commit)
        if not commit.records:
            call.settled(ErrorCode.NONE)
            return call
        led.append(
            commit.records,
            partial(self._committed, led, call),
            timeout_ms=self._commit_timeout_ms(),
            producer_id=who.producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,  # as Kafka writes positions, in transactions and without
        )
        return call

    def _committed(self, led: Led, call: "CommitCall", error: ErrorCode) -> None:
        led.mind.settle(call.commit, error)
        call.settled(_COMMIT_ERRORS.get(error, error))

    def transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """A marker that was written to a partition of `__consumer_offsets` is committed.

        To be told wherever WriteTxnMarkers is carried out. While the partition is being loaded
        there is nothing to do: the marker is read with all the rest.
        """
        led = self.topic.at(index)
        if not isinstance(led, ErrorCode):
            led.mind.transaction_ended(producer_id, committed=committed)

    # ----------------------------------------------------------------------- housekeeping

    async def expire_offsets(self) -> None:
        """Forget positions that nobody has wanted for long."""
        wall_ms = self._world.clock.wall_ms()
        for led in self.topic.serving:
            await in_slices(self._erasing(led, led.mind.expiring(wall_ms)), self._world.clock)

    async def topics_deleted(self, topics: Iterable[str]) -> None:
        """Forget offsets in topics that are gone; where the log is being loaded, after that.

        The next topic of that name would be read from the offset of the former one.
        """
        gone = frozenset(topics)
        for led in self.topic.loading:
            self._gone[led] = self._gone.get(led, frozenset()) | gone
        for led in self.topic.serving:
            await in_slices(self._erasing(led, led.mind.topics_deleted(gone)), self._world.clock)

    def _erasing(self, led: Led, steps: Iterator[list[Effect]]) -> Iterator[None]:
        for effects in steps:
            if led.is_over:
                return
            self.perform(led, effects)
            yield

    def perform(self, led: Led, effects: Iterable[Effect]) -> None:
        """Do what a plain call to the machine has asked for."""
        for effect in effects:
            self._perform(led, effect)

    # ---------------------------------------------------------------------- time, leadership

    def arm(self, led: Led) -> None:
        """Be woken when the machine wants to be."""
        deadline_ms = led.mind.next_deadline_ms
        if deadline_ms is None or led.is_over:
            return
        armed = self._timers.get(led)
        if armed is not None:
            if armed[0] <= deadline_ms:
                return
            armed[1].cancel()
        wait_ms = max(deadline_ms - self._world.clock.monotonic_ms(), 0)
        if wait_ms:
            wait_ms += _TICK_MS
        timer = self._world.loop.call_later(wait_ms / 1000, self._tick, led)
        self._timers[led] = (deadline_ms, timer)

    def _tick(self, led: Led) -> None:
        del self._timers[led]
        self.tell(led, Tick())

    def _loaded(self, led: Led) -> None:
        self.tell(led, Loaded())
        gone = self._gone.pop(led, None)
        for effects in led.mind.topics_deleted(gone) if gone else ():
            self.perform(led, effects)

    def _unloaded(self, led: Led) -> None:
        armed = self._timers.pop(led, None)
        if armed is not None:
            armed[1].cancel()
        self._gone.pop(led, None)
        self.tell(led, Unloaded())


class CommitCall:
    """One commit of positions: what was refused at once, and what became of the rest."""

    __slots__ = ("_future", "commit", "error")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.error: ErrorCode | None = None
        self._future: asyncio.Future[None] | None = None

    def settled(self, error: ErrorCode) -> None:
        """What became of the append."""
        self.error = error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def done(self) -> None:
        """Return when that is known."""
        if self.error is None:
            self._future = asyncio.get_running_loop().create_future()
            await self._future

    def of(self, place: Place) -> ErrorCode:
        """What became of one position."""
        assert self.error is not None
        return self.commit.refused.get(place, self.error)
