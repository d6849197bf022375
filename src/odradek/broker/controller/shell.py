"""The controller's shell: it reads what changed, and carries out what the state machine decides.

One task takes one thing at a time: a notice (a watch fired, and its node is to be read), an event,
or a request of a broker that waits for its answer. Each becomes an event of the state machine; the
effects are carried out in order, and the outcome of each is handled, with all that follows from it,
before the next. In between, other tasks of the event loop run.

    not elected    the broker tries to create `/controller`; if another one did, it waits for a
                   notice that the node is removed
    elected        the term begins with loading everything from the store. It ends with the session,
                   when the store refuses a write because the controller epoch is a later one, or
                   when an invariant does not hold (an assertion) or an event cannot be handled:
                   then the broker resigns, and the next term loads what is stored

The shell decides nothing: what concerns leaders or ISRs belongs in `odradek.controller`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar, assert_never
from uuid import UUID

from odradek.broker.controller.channels import ControllerChannels
from odradek.broker.controller.election import ControllerElection, ControllerTerm
from odradek.broker.controller.event_recorder import EventRecorder
from odradek.broker.controller.log_end_reader import LogEndReader
from odradek.broker.controller.notices import Notice, by_size, failed_log_dirs
from odradek.broker.controller.protocols import ControllerOptions, Journal
from odradek.broker.controller.store import SLICE, ControllerMovedError, ControllerStore, slices
from odradek.controller.answers import (
    AnyAnswer,
    ElectionsAnswer,
    IsrChangesAnswer,
    ReassignmentsAnswer,
    ReassignmentsList,
    ShutdownAnswer,
)
from odradek.controller.controller import Controller
from odradek.controller.effects import (
    Answer,
    AskUnclean,
    Connect,
    Disconnect,
    Effect,
    Proceed,
    ReadLogEnds,
    ReadTopics,
    RecordDecisions,
    RemoveDeletions,
    RemoveElections,
    RemoveReassignments,
    RemoveTopics,
    Resign,
    SendRequests,
    StoreStates,
    WriteAssignments,
    WriteTopics,
)
from odradek.controller.events import (
    AssignmentsWritten,
    BrokersChanged,
    BrokersLoaded,
    ControlledShutdownRequested,
    DeletionsChanged,
    ElectionsRequested,
    ElectionsSeen,
    Event,
    IsrChangesRequested,
    LoadingFinished,
    LogDirsFailed,
    LogEndsRead,
    ReassignmentsListed,
    ReassignmentsRequested,
    ReassignmentsSeen,
    RebalanceDue,
    Stored,
    TopicsChanged,
    TopicsLoaded,
    TopicsRead,
    TopicsRemoved,
    UncleanAllowed,
    UncleanElectionsEnabled,
)
from odradek.coord import layout
from odradek.coord import store as coord
from odradek.coord.restored import restored_epoch
from odradek.coord.watches import Watch
from odradek.model.cluster import Broker
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.trampoline import Trampoline
from odradek.obs.metrics import Histogram

log = logging.getLogger(__name__)

FIRST_REBALANCE_SECONDS: Final = 5  # after a term has begun, as Apache Kafka has it
DELIVERY_SECONDS_MAX: Final = 2.0  # for what was decided last, when the broker stops
REQUESTS_MAX: Final = 1_000  # in the queue; further requests wait for a place
_PAUSE_S: Final = 1.0

Asked = (
    IsrChangesRequested
    | ControlledShutdownRequested
    | ElectionsRequested
    | ReassignmentsRequested
    | ReassignmentsListed
)
A = TypeVar(
    "A",
    IsrChangesAnswer,
    ShutdownAnswer,
    ElectionsAnswer,
    ReassignmentsAnswer,
    ReassignmentsList,
)


@dataclass(slots=True)
class _Request:
    asked: Asked
    answer: asyncio.Future[AnyAnswer]


class ControllerShell:
    """One broker's part in the controller's work: most of the time it waits to be elected."""

    def __init__(  # noqa: PLR0913 - what a controller works with
        self,
        *,
        store: coord.Store,
        election: ControllerElection,
        channels: ControllerChannels,
        options: ControllerOptions,
        journal: Journal,
        draw_id: Callable[[], UUID],
        log_ends: LogEndReader,
        recorder: EventRecorder | None = None,
    ) -> None:
        self._log_ends = log_ends
        self._recorder = recorder
        self._store = store
        self._election = election
        self._channels = channels
        self._options = options
        self._journal = journal
        self._draw_id = draw_id
        election.on_change = partial(self.notice, Notice.CONTROLLER)
        channels.answered = self._put
        channels.fenced = lambda _: self.notice(Notice.CONTROLLER)
        channels.is_registered = self._is_registered
        self.term: ControllerTerm | None = None
        self.store_ms = Histogram()  # of writing leaders and ISRs
        self._machine: Controller | None = None
        self._handle: Callable[[Event], list[Effect]] | None = None  # of `_machine`
        self._has_loaded = False
        self._term_store: ControllerStore | None = None
        self._asked: _Request | None = None  # the one that is being settled
        # In order: notices (each once), events, requests (at most so many).
        self._inbox: dict[Notice | int, Event | _Request | None] = {}
        self._numbered = 0
        self._turn: asyncio.Future[None] | None = None
        self._is_stopping = False
        self._something = asyncio.Event()
        self._room = asyncio.Semaphore(REQUESTS_MAX)
        self._rebalance: asyncio.TimerHandle | None = None
        self._changed_topics: dict[str, None] = {}
        self._unclean_allowed: dict[str | None, None] = {}

    # --------------------------------------------------------------------- from outside

    @property
    def controller_id(self) -> int:
        """The broker that is controller, as last read by this broker; -1 if there is none."""
        return self._election.controller_id

    @property
    def machine(self) -> Controller | None:
        """The state machine of the present term, for metrics and reports; None on other brokers."""
        return self._machine

    @property
    def queued(self) -> int:
        """What waits for its turn."""
        return len(self._inbox)

    def deletion_goes_on(self, topic: str) -> bool:
        """Whether a topic is being deleted, and nothing stands in the way of that."""
        machine = self._machine
        return topic in self.unreadable_topics or (
            machine is not None
            and topic in machine.context.being_deleted
            and topic not in machine.machines.deletion.halted
        )

    @property
    def unreadable_topics(self) -> Mapping[str, str]:
        """What is wrong with the znodes of topics that this term cannot read, by their names."""
        return self._term_store.topic_nodes.unreadable if self._term_store else {}

    async def next_turn(self) -> None:
        """Wait until something more has been settled."""
        if self._turn is None or self._turn.done():
            self._turn = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._turn)

    @property
    def topics(self) -> list[str] | None:
        """The topics that all brokers get to know; None while this term still loads them."""
        if self._machine is None or self._term_store is None or not self._has_loaded:
            return None
        unknown = self._machine.context.being_deleted | self._term_store.without_state
        return [name for name in self._machine.context.topics if name not in unknown]

    def topic_name(self, topic_id: bytes, announced: str | None) -> str | None:
        """The name of the topic with this id; None if there is none.

        `announced` is the name by which this broker's metadata has it: where to look first. What
        was announced here is no answer by itself, for a term begins before anything is.

        Raises:
            ApiError: NOT_CONTROLLER, this broker is not the controller, or is still loading.
        """
        if self._machine is None or not self._has_loaded:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        topics, wanted = self._machine.context.topics, UUID(bytes=topic_id)
        if announced in topics and topics[announced].id == wanted:
            return announced
        return next((name for name, topic in topics.items() if topic.id == wanted), None)

    def notice(self, notice: Notice) -> None:
        """Have something looked into."""
        self._inbox.setdefault(notice, None)
        self._something.set()

    def unclean_allowed(self, topic: str | None) -> None:
        """Unclean election was allowed for a topic; None: for all that do not configure it."""
        if self.term is not None:
            self._unclean_allowed[topic] = None
            self.notice(Notice.UNCLEAN)

    def session_lost(self) -> None:
        """The session is over, and so is the term; `session_opened` begins another race."""
        self._end_term("the session with the coordination store is over")

    def session_opened(self) -> None:
        """There is a (new) session, and this broker is registered."""
        self.notice(Notice.CONTROLLER)

    async def ask(self, asked: Asked, kind: type[A]) -> A:
        """Hand in a request of a broker or client; its answer, once it is settled.

        Raises:
            ApiError: NOT_CONTROLLER, this broker is not (or not any longer).
        """
        async with self._room:
            if self.term is None:
                raise ApiError(ErrorCode.NOT_CONTROLLER)
            request = _Request(asked, asyncio.get_running_loop().create_future())
            self._put(request)
            answer = await request.answer
        assert isinstance(answer, kind), answer
        return answer

    async def run(self) -> None:
        """Take one thing after the other, until cancelled."""
        try:
            while True:
                while not self._inbox:
                    self._something.clear()
                    await self._something.wait()
                await self._handle_next()
                if self._turn is not None and not self._turn.done():
                    self._turn.set_result(None)
        finally:
            self._end_term("the broker stops")

    def stop_racing(self) -> None:
        """Go on as controller, but do not become it: this broker is about to stop."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Resign, so that the next controller need not wait for the end of this session.

        Requests to brokers that are still queued are sent first, such as the new leaders of the
        partitions that this broker led.
        """
        self._is_stopping = True
        if self.term is not None:
            await self._channels.drain(DELIVERY_SECONDS_MAX)
        term = self.term
        self._end_term("the broker stops")
        if term is not None:
            with suppress(coord.StoreError):  # then the session's end will do it
                await self._election.abdicate(term)

    # ------------------------------------------------------------------------- the inbox

    def _put(self, item: Event | _Request) -> None:
        self._numbered += 1
        self._inbox[self._numbered] = item
        self._something.set()

    async def _handle_next(self) -> None:
        key = next(iter(self._inbox))
        item = self._inbox.pop(key)
        try:
            if isinstance(item, _Request):
                await self._settle_request(item)
            elif item is not None:
                await self._settle(item)
            elif isinstance(key, Notice):
                await self._look_into(key)
        except ControllerMovedError as error:
            self._end_term(str(error))
            self.notice(Notice.CONTROLLER)
        except coord.SessionExpiredError:
            self.session_lost()
        except coord.StoreError as error:
            # Whether a write was stored is not known: load everything again.
            self._journal.note_names(f"the controller loads all again in {_PAUSE_S} s: {error}")
            self._end_term("the coordination store failed, and all is to be loaded again")
            await asyncio.sleep(_PAUSE_S)
            self.notice(Notice.CONTROLLER)
        except AssertionError as error:
            await self._give_up(f"an invariant of the controller does not hold: {error!r}")
        except Exception as error:  # one event must not end the broker, then the next controller
            log.exception("the controller gives up its term")
            await self._give_up(f"an event cannot be handled: {error!r}")

    async def _give_up(self, why: str) -> None:
        term = self.term
        self._end_term(why)
        if term is not None:
            with suppress(coord.StoreError):  # then the session's end will do it
                await self._election.abdicate(term)
        await asyncio.sleep(_PAUSE_S)
        self.notice(Notice.CONTROLLER)

    def _end_term(self, why: str) -> None:
        if self.term is None:
            return
        self._journal.note(f"controller epoch {self.term.controller_epoch} ends: {why}")
        if self._recorder is not None:
            self._recorder.end(why)
        self.term = self._machine = self._term_store = self._handle = None
        self._has_loaded = False
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        self._channels.close()
        if self._asked is not None:
            self._refuse(self._asked)
        for item in self._inbox.values():
            if isinstance(item, _Request):
                self._refuse(item)
        # Notices and events of this term are void, but not that another controller was elected.
        self._inbox = {key: None for key in self._inbox if key is Notice.CONTROLLER}
        self._changed_topics.clear()
        self._unclean_allowed.clear()

    def _refuse(self, request: _Request) -> None:
        if not request.answer.done():
            request.answer.set_exception(ApiError(ErrorCode.NOT_CONTROLLER))

    # ------------------------------------------------------------------------- the notices

    async def _look_into(self, notice: Notice) -> None:
        if notice is Notice.CONTROLLER:
            await self._race()
        elif self._term_store is not None:
            await self._settle(await self._read(notice, self._term_store))

    async def _read(self, notice: Notice, store: ControllerStore) -> Event:
        watch = Watch(self.notice, notice)
        event: Event
        match notice:
            case Notice.BROKERS:
                event = BrokersChanged(await store.brokers(watch, watch))
            case Notice.TOPICS:
                event = TopicsChanged(await store.children(layout.TOPICS, watch))
            case Notice.TOPIC_NODES:
                names, self._changed_topics = tuple(self._changed_topics), {}
                event = TopicsRead(await store.topics(names, self._topic_watch))
            case Notice.DELETIONS:
                event = DeletionsChanged(await store.children(layout.DELETE_TOPICS, watch))
            case Notice.REASSIGNMENTS:
                event = ReassignmentsSeen(await store.reassignments(watch))
            case Notice.ELECTIONS:
                event = ElectionsSeen(await store.elections(watch))
            case Notice.LOG_DIRS:
                event = LogDirsFailed(await self._log_dir_events(store, watch))
            case _:
                event = self._unwatched(notice)
        return event

    def _unwatched(self, notice: Notice) -> Event:
        """What is not about a node: the timer went off, an option changed."""
        if notice is Notice.REBALANCE:
            self._schedule_rebalance(self._options.rebalance_interval_seconds)
            return RebalanceDue(self._options.rebalance_percentage)
        assert notice is Notice.UNCLEAN, notice
        allowed, self._unclean_allowed = self._unclean_allowed, {}
        topics = None if None in allowed else tuple(t for t in allowed if t is not None)
        return UncleanElectionsEnabled(topics)

    def _topic_watch(self, name: str) -> coord.Watcher:
        return Watch(self._topic_changed, name)

    def _topic_changed(self, name: str) -> None:
        self._changed_topics[name] = None
        self.notice(Notice.TOPIC_NODES)

    async def _log_dir_events(
        self, store: ControllerStore, watch: coord.Watcher
    ) -> tuple[int, ...]:
        names = await store.children(layout.LOG_DIR_EVENTS, watch)
        brokers = await failed_log_dirs(self._store, names, self._journal.note)
        await store.remove_notices(layout.LOG_DIR_EVENTS, names)
        return brokers

    # --------------------------------------------------------------------------- the term

    async def _race(self) -> None:
        if self._is_stopping:
            return
        term = await self._election.race()
        if term == self.term:
            return
        self._end_term(f"broker {self._election.controller_id} is elected")
        if term is not None:
            self._journal.note(f"controller epoch {term.controller_epoch} begins")
            await self._begin(term)

    async def _begin(self, term: ControllerTerm) -> None:
        self.term = term
        store = self._term_store = ControllerStore(
            self._store, term, self._options, draw_id=self._draw_id, skip=self._journal.note_names
        )
        self._machine = Controller(
            controller_epoch=term.controller_epoch,
            deletion_enabled=self._options.deletion_enabled,
        )
        self._handle = self._machine.handle
        if self._recorder is not None:
            self._handle = self._recorder.begin(self._machine)
        self._channels.begin(term.controller_epoch)
        await store.set_up_features()
        await self._remove_notices(store)
        watch = Watch(self.notice, Notice.BROKERS)
        brokers = await store.brokers(watch, watch)
        restored = await restored_epoch(self._store)
        await self._settle(BrokersLoaded(brokers, store.unregistered, restored))
        names = await store.children(layout.TOPICS, Watch(self.notice, Notice.TOPICS))
        watch_deletions = Watch(self.notice, Notice.DELETIONS)
        deletions = await store.children(layout.DELETE_TOPICS, watch_deletions)
        chunks = slices(names, SLICE)
        found = [t for chunk in chunks for t in await store.topics(chunk, self._topic_watch)]
        for topics in by_size(store.topic_nodes.loaded(found), SLICE) if names else ():
            partitions = [TopicPartition(t.name, n) for t in topics for n in t.assignments]
            await self._settle(TopicsLoaded(topics, await store.states(partitions)))
        moves = await store.reassignments(Watch(self.notice, Notice.REASSIGNMENTS))
        elections = await store.elections(Watch(self.notice, Notice.ELECTIONS))
        await self._settle(LoadingFinished(deletions, moves, elections))
        self._has_loaded = True
        if self._options.rebalance_enabled:
            self._schedule_rebalance(FIRST_REBALANCE_SECONDS)

    def _schedule_rebalance(self, seconds: int) -> None:
        loop = asyncio.get_running_loop()
        self._rebalance = loop.call_later(seconds, self.notice, Notice.REBALANCE)

    @property
    def rebalance_percentage(self) -> int:
        """How many percent of what a broker should lead others may lead."""
        return self._options.rebalance_percentage

    @property
    def rebalance_in_seconds(self) -> float | None:
        """When the leaders' balance is looked at next; None if that is not done here."""
        if self._rebalance is None:
            return None
        return max(0.0, self._rebalance.when() - asyncio.get_running_loop().time())

    async def _is_registered(self, broker: Broker) -> bool:
        stat = await self._store.exists(layout.broker_path(broker.id))
        return stat is not None and stat.created_id == broker.broker_epoch

    async def _remove_notices(self, store: ControllerStore) -> None:
        """Notices meant for an earlier controller: the new controller reads their znodes itself."""
        for path, watch in (
            (layout.LOG_DIR_EVENTS, Watch(self.notice, Notice.LOG_DIRS)),
            (layout.ISR_CHANGES, _ignore),
        ):
            names = await store.children(path, watch)
            await store.remove_notices(path, names)

    # -------------------------------------------------------------------- settling an event

    async def _settle_request(self, request: _Request) -> None:
        self._asked = request
        try:
            await self._settle(request.asked)
        finally:
            self._asked = None
            self._refuse(request)  # unless it is answered

    async def _settle(self, event: Event) -> None:
        """One event, and everything that follows from it, in order."""
        machine, store = self._machine, self._term_store
        if machine is None or store is None or self._handle is None:
            return  # of a term that is over
        trampoline = Trampoline(self._handle)
        for effect in trampoline.settle(event):
            if self._machine is not machine:
                raise ControllerMovedError("the session ended while an event was settled")
            if effect is None:
                await asyncio.sleep(0)
            else:
                trampoline.report(*await self._perform(effect, store))

    async def _perform(  # noqa: C901 - one case for each kind of effect
        self, effect: Effect, store: ControllerStore
    ) -> Iterable[Event]:
        match effect:
            case SendRequests():
                await self._channels.send(effect)
            case Connect(broker):
                self._channels.add(broker)
            case Disconnect(broker_id):
                self._channels.remove(broker_id)
            case RecordDecisions(decisions):
                for number, decision in enumerate(decisions, 1):
                    self._journal.record(decision)
                    if number % SLICE == 0:
                        await asyncio.sleep(0)
            case Answer(answer):
                asked = self._asked
                if asked is not None and not asked.answer.done():  # else its asker was cancelled
                    asked.answer.set_result(answer)
            case Resign(reason):
                raise ControllerMovedError(reason)
            case ReadLogEnds(replicas):
                names = tuple({partition.topic: None for partition in replicas})
                isr_min = await store.isr_min(names, default=self._options.isr_min)
                machine = self._machine
                self._log_ends.find(
                    effect, lambda ends: self._log_ends_found(machine, LogEndsRead(ends, isr_min))
                )
            case Proceed(step):
                return (step,)
            case _:
                return await self._perform_on_store(effect, store)
        return ()

    def _log_ends_found(self, asker: Controller | None, read: LogEndsRead) -> None:
        if self._machine is asker and asker is not None:  # else the term is over
            self._put(read)

    async def _perform_on_store(
        self,
        effect: StoreStates
        | ReadTopics
        | WriteTopics
        | WriteAssignments
        | AskUnclean
        | RemoveTopics
        | RemoveDeletions
        | RemoveReassignments
        | RemoveElections,
        store: ControllerStore,
    ) -> Iterable[Event]:
        match effect:
            case StoreStates(proposals):
                began_s = asyncio.get_running_loop().time()
                outcomes = await store.store(proposals)
                self.store_ms.observe(1000 * (asyncio.get_running_loop().time() - began_s))
                return map(Stored, slices(outcomes, SLICE))
            case ReadTopics(names):
                return (TopicsRead(await store.topics(names, self._topic_watch)),)
            case WriteTopics(topics):
                await store.write_topics(topics)
            case AskUnclean(names):
                default = self._options.unclean_allowed
                return (UncleanAllowed(await store.allows_unclean(names, default=default)),)
            case RemoveTopics(names):
                return (TopicsRemoved(await store.remove_topics(names)),)
            case WriteAssignments(assignments):
                return (AssignmentsWritten(await store.write_assignments(assignments)),)
            case RemoveDeletions() | RemoveReassignments() | RemoveElections():
                await _remove_requests(effect, store)
            case _:
                assert_never(effect)
        return ()


async def _remove_requests(
    effect: RemoveDeletions | RemoveReassignments | RemoveElections, store: ControllerStore
) -> None:
    """Remove the nodes of requests that are carried out or refused."""
    match effect:
        case RemoveDeletions(names):
            await store.remove_deletions(names)
        case RemoveReassignments(partitions):
            await store.remove_reassignments(partitions)
        case RemoveElections():
            await store.remove_elections()


def _ignore() -> None:
    """No watch: ISR notifications of brokers before 2.7 are removed, and not used."""
