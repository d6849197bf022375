"""Creating, deleting and growing topics, on the controller's broker.

Creating a topic is writing two nodes, its configuration and its assignment; the controller sees
them and does the rest. A request is answered when this broker's metadata shows the outcome, or with
REQUEST_TIMED_OUT when its time is up (the work continues). Each item of a request succeeds or fails
on its own, with Kafka's messages.

Only the controller's broker does this; the store refuses writes of a former controller.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol, TypeVar
from uuid import UUID

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.topic_ids import draw_topic_id
from odradek.broker.controller.election import ControllerTerm
from odradek.config.broker import BrokerConfig
from odradek.config.dynamic import check_new_topic
from odradek.config.topic import TopicConfig
from odradek.coord import layout
from odradek.coord.layout_config import encode_config, topic_entity
from odradek.coord.store import (
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
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import (
    GROUP_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_TOPIC,
    topic_name_problem,
)
from odradek.model.partition import Assignment
from odradek.placement.assign import place
from odradek.placement.expand import expand
from odradek.placement.manual import check_new
from odradek.placement.walk import RoundStart

K = TypeVar("K")
# Called with the number of partitions that a topic gets or loses, before anything is written.
# Raises ApiError: THROTTLING_QUOTA_EXCEEDED.
Admit = Callable[[int], None]

DEFAULT: Final = -1  # for partitions and replication factor: the broker's options
SLICE: Final = 100  # topics planned before others may run
GROWN_SLICE: Final = 20  # topics that grow: each is read and written by itself
# Beyond this a topic's node would not fit into ZooKeeper's 1 MiB, and a plan not into memory.
PARTITIONS_MAX: Final = 50_000
_ATTEMPTS: Final = 5
_COUNT_OPTIONS: Final = {
    GROUP_TOPIC: "offsets.topic.num.partitions",
    TRANSACTION_TOPIC: "transaction.state.log.num.partitions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic to create."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)  # empty: place it
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTopic:
    """A topic that was created, or (without an id) would have been."""

    name: str
    id: UUID | None
    assignment: Mapping[int, tuple[int, ...]]
    config: TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPartitions:
    """A topic and the number of partitions that it shall have."""

    name: str
    count: int  # after the change
    assignment: Sequence[Sequence[int]] | None = None  # of the added partitions


class ActiveController(Protocol):
    """The controller of this broker, while it is the active one."""

    @property
    def term(self) -> ControllerTerm | None:
        """Its present term; None while another broker is the controller."""

    @property
    def topics(self) -> list[str] | None:
        """The topics that are not being deleted; None while the controller loads them."""

    @property
    def unreadable_topics(self) -> Mapping[str, str]:
        """What is wrong with the znodes of topics that cannot be read, by their names."""

    def deletion_goes_on(self, topic: str) -> bool:
        """Whether a topic that is being deleted is still there, and nothing delays that."""

    async def next_turn(self) -> None:
        """Wait until the controller has handled further events."""


@contextmanager
def store_errors_answered() -> Iterator[None]:
    """Turn errors of the store into errors for the client: the write may have succeeded or not."""
    try:
        yield
    except CorruptNodeError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    except (ConnectionLostError, SessionExpiredError) as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error


class TopicAdmin:
    """Creates, deletes and grows topics, on one broker."""

    def __init__(
        self,
        *,
        store: Store,
        metadata: MetadataCache,
        controller: ActiveController,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        random: Random,
    ) -> None:
        self._store = store
        self.metadata = metadata
        self._controller = controller
        self._config = config
        self._clock = clock
        self._random = random
        self._shown: ControllerTerm | None = None  # all of whose topics the metadata has had

    @property
    def config(self) -> BrokerConfig:
        """The broker's present options."""
        return self._config()

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the active controller and its metadata has all topics."""
        return self._present_term() is not None

    def deadline_ms(self, timeout_ms: int) -> int:
        """When (monotonic) a request with this time-out has to be answered."""
        return self._clock.monotonic_ms() + timeout_ms

    def check_term(self) -> ControllerTerm:
        """The present term of this broker's controller.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        term = self._present_term()
        if term is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return term

    def _present_term(self) -> ControllerTerm | None:
        """The present term, once this broker's metadata has all topics that it has loaded.

        Before that, the metadata has neither the brokers to place replicas on nor the topics of
        requests. Clients retry after NOT_CONTROLLER; after INVALID_REPLICATION_FACTOR they give up,
        and UNKNOWN_TOPIC_OR_PARTITION counts as the success of a deletion.
        """
        term = self._controller.term
        if term is None or term is self._shown:
            return term
        topics = self._controller.topics
        if not self.metadata.brokers or topics is None:
            return None
        if any(self.metadata.topic(name) is None for name in topics):
            return None
        self._shown = term
        return term

    @property
    def unreadable_topics(self) -> Mapping[str, str]:
        """What is wrong with the znodes of topics that only a deletion can repair, by name."""
        return self._controller.unreadable_topics

    # ---------------------------------------------------------------------------- create

    async def create_one(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic, without waiting until the metadata has it.

        Raises:
            ApiError: it is invalid, or exists already.
        """
        wanted = WantedTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
        )
        (outcome,) = (await self._make([wanted], validate_only=False)).values()
        if isinstance(outcome, ApiError):
            raise outcome

    async def create(
        self,
        wanted: Sequence[WantedTopic],
        *,
        deadline_ms: int,
        validate_only: bool = False,
        admit: Admit | None = None,
    ) -> dict[str, MadeTopic | ApiError]:
        """Create topics and wait until the metadata has them; names must be different."""
        outcomes = await self._make(wanted, validate_only=validate_only, admit=admit)
        if validate_only:
            return outcomes
        made = {name: topic for name, topic in outcomes.items() if isinstance(topic, MadeTopic)}
        late = await self._until(made, self._shows, deadline_ms)
        return {**outcomes, **dict.fromkeys(late, _timed_out())}

    async def _make(
        self, wanted: Sequence[WantedTopic], *, validate_only: bool, admit: Admit | None = None
    ) -> dict[str, MadeTopic | ApiError]:
        term = self.check_term()
        with store_errors_answered():
            taken = await self._taken()
            outcomes: dict[str, MadeTopic | ApiError] = {}
            for number, topic in enumerate(wanted, 1):
                try:
                    plan = self._plan(topic, taken, with_id=not validate_only)
                    if admit is not None and not validate_only:
                        admit(len(plan.assignment))
                    outcomes[topic.name] = plan
                except ApiError as error:
                    outcomes[topic.name] = error.with_traceback(None)
                else:
                    taken.add(topic.name)
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            if not validate_only:
                planned = [topic for topic in outcomes.values() if isinstance(topic, MadeTopic)]
                outcomes |= await self._write_new(planned, term)
            return outcomes

    async def _taken(self) -> "_Taken":
        """The names in use, from the store, because the metadata may lag behind."""
        return _Taken(
            await self._store.children(layout.TOPICS),
            await self._store.children(layout.DELETE_TOPICS),
            self.unreadable_topics,
        )

    def _plan(self, topic: WantedTopic, taken: "_Taken", *, with_id: bool) -> MadeTopic:
        if topic.name in self.metadata.topics:
            raise _already_exists(topic.name)
        assignment = self._assign(topic)
        taken.check(topic.name)
        if topic.assignment:
            assignment = check_new(topic.assignment, brokers=self.metadata.brokers)
        return MadeTopic(
            name=topic.name,
            id=draw_topic_id(self._random) if with_id else None,
            assignment=assignment,
            config=check_new_topic(topic.configs, self.config),
        )

    def _assign(self, topic: WantedTopic) -> dict[int, tuple[int, ...]]:
        if topic.assignment:
            if (topic.partitions, topic.replication_factor) != (DEFAULT, DEFAULT):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "Both numPartitions or replicationFactor and replicasAssignments were set. "
                    "Both cannot be used at the same time.",
                )
            _check_count(len(topic.assignment))
            return {}
        partitions, factor = topic.partitions, topic.replication_factor
        if partitions == DEFAULT:
            partitions = self.config.num_partitions
        if factor == DEFAULT:
            factor = self.config.default_replication_factor
        _check_count(partitions)
        racks = {broker.id: broker.rack for broker in self.metadata.brokers.values()}
        brokers = max(1, len(racks))
        start = RoundStart(self._random.randrange(brokers), self._random.randrange(brokers))
        return place(racks, partitions=partitions, replication_factor=factor, start=start)

    async def _write_new(
        self, planned: Sequence[MadeTopic], term: ControllerTerm
    ) -> dict[str, MadeTopic | ApiError]:
        batches: list[list[Operation]] = []
        for number, topic in enumerate(planned, 1):
            batches.append([term.token, *_nodes(topic)])
            if number % SLICE == 0:
                await asyncio.sleep(0)
        results = await self._store.multi_many(batches)
        outcomes: dict[str, MadeTopic | ApiError] = {}
        for topic, result in zip(planned, results, strict=True):
            outcomes[topic.name] = topic
            if isinstance(result, MultiError):
                outcomes[topic.name] = await self._again(topic, result, term)
        return outcomes

    async def _again(
        self, topic: MadeTopic, error: MultiError, term: ControllerTerm
    ) -> MadeTopic | ApiError:
        """Retry if a deleted topic has left its configuration; otherwise the error."""
        if error.index == 1 and isinstance(error.cause, NodeExistsError):
            config, node = _nodes(topic)
            assert isinstance(config, Create)
            overwrite = SetData(config.path, config.data)
            (result,) = await self._store.multi_many([[term.token, overwrite, node]])
            if not isinstance(result, MultiError):
                return topic
            error = result
        if error.index == 0:
            return ApiError(ErrorCode.NOT_CONTROLLER)
        if error.index == 2 and isinstance(error.cause, NodeExistsError):
            return _already_exists(topic.name)
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

    def _shows(self, topic: MadeTopic) -> bool:
        topic_id = None if topic.id is None else topic.id.bytes
        return self._leads(topic.name, topic_id, len(topic.assignment))

    def _leads(self, name: str, topic_id: bytes | None, partitions: int) -> bool:
        shown = self.metadata.topic(name)
        return (
            shown is not None
            and topic_id in (None, shown.topic_id)
            and len(shown.partitions) >= partitions
            and all(partition.leader >= 0 for partition in shown.partitions.values())
        )

    # ---------------------------------------------------------------------------- delete

    async def delete(self, names: Sequence[str], *, deadline_ms: int) -> dict[str, ApiError | None]:
        """Delete topics and wait until they are deleted; None for each success.

        It is enough that the metadata does not have them. If nothing delays the deletion, its end
        is waited for nevertheless, so that the name can be used again (Kafka does not wait).
        """
        token = self.check_term().token
        requests = [(token, Create(layout.delete_topic_path(name))) for name in names]
        with store_errors_answered():
            nodes = await self._store.get_many([layout.topic_path(name) for name in names])
            results = await self._store.multi_many(requests)
        outcomes: dict[str, ApiError | None] = {}
        for name, node, result in zip(names, nodes, results, strict=True):
            outcomes[name] = None
            if isinstance(result, MultiError):
                outcomes[name] = _deletion_error(result)
            elif node is None:  # the controller deletes the request's node
                outcomes[name] = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        asked = {name: name for name, error in outcomes.items() if error is None}
        late = await self._until(asked, lambda name: not self.metadata.topic(name), deadline_ms)
        await self._until_removed(asked, deadline_ms)
        return {**outcomes, **dict.fromkeys(late, _timed_out())}

    async def _until_removed(self, names: Iterable[str], deadline_ms: int) -> None:
        left_ms = deadline_ms - self._clock.monotonic_ms()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, left_ms) / 1000):
                while any(map(self._controller.deletion_goes_on, names)):
                    await self._controller.next_turn()

    # ------------------------------------------------------------------------ partitions

    async def create_partitions(
        self,
        wanted: Sequence[WantedPartitions],
        *,
        deadline_ms: int,
        validate_only: bool = False,
        admit: Admit | None = None,
    ) -> dict[str, ApiError | None]:
        """Add partitions, and wait until the metadata has them; None for each success."""
        self.check_term()
        outcomes: dict[str, ApiError | None] = {}
        for number, topic in enumerate(wanted, 1):
            try:
                with store_errors_answered():
                    await self._grow(topic, validate_only=validate_only, admit=admit)
                outcomes[topic.name] = None
            except ApiError as error:
                outcomes[topic.name] = error.with_traceback(None)
            if number % GROWN_SLICE == 0:  # a store without waiting gives other tasks no turn
                await asyncio.sleep(0)
        if validate_only:
            return outcomes
        grown = {topic.name: topic for topic in wanted if outcomes[topic.name] is None}
        late = await self._until(
            grown, lambda topic: self._leads(topic.name, None, topic.count), deadline_ms
        )
        return {**outcomes, **dict.fromkeys(late, _timed_out())}

    async def _grow(
        self, wanted: WantedPartitions, *, validate_only: bool, admit: Admit | None
    ) -> None:
        if topic_name_problem(wanted.name) is not None:  # it cannot exist, and is no path
            raise _does_not_exist(wanted.name)
        path = layout.topic_path(wanted.name)
        marked_deleted, *_ = await self._store.get_many([layout.delete_topic_path(wanted.name)])
        if marked_deleted is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        for _ in range(_ATTEMPTS):
            try:
                data, stat = await self._store.get(path)
                node = layout.decode_topic(wanted.name, data)
            except NoNodeError:
                raise _does_not_exist(wanted.name) from None
            check_may_grow(wanted.name)
            more = self._grown(wanted, node)
            grown = layout.encode_topic(more)
            if validate_only:
                return
            if admit is not None:
                admit(len(more.assignments) - len(node.assignments))
                admit = None  # another attempt makes the same change
            token = self.check_term().token
            try:
                await self._store.multi([token, SetData(path, grown, stat.version)])
            except MultiError as error:
                if error.index == 0:
                    raise ApiError(ErrorCode.NOT_CONTROLLER) from error
            else:
                return
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} was written {_ATTEMPTS} times meanwhile"
        )

    def _grown(self, wanted: WantedPartitions, node: layout.TopicNode) -> layout.TopicNode:
        if any(assignment.is_being_reassigned for assignment in node.assignments.values()):
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{wanted.name}'.",
            )
        _check_count(wanted.count)
        racks = {broker.id: broker.rack for broker in self.metadata.brokers.values()}
        existing = {number: a.replicas for number, a in sorted(node.assignments.items())}
        added = expand(existing, racks, partitions=wanted.count, manual=wanted.assignment)
        more = {number: Assignment(replicas=replicas) for number, replicas in added.items()}
        return layout.TopicNode(topic_id=node.topic_id, assignments={**node.assignments, **more})

    # ---------------------------------------------------------------------------- shared

    async def _until(
        self, items: Mapping[str, K], true: Callable[[K], bool], deadline_ms: int
    ) -> list[str]:
        """Wait until `true` holds for all items; returns the names of the others."""
        waiting = dict(items)

        def all_true() -> bool:
            for name in [name for name, item in waiting.items() if true(item)]:
                del waiting[name]
            return not waiting

        await self.metadata.wait_until(all_true, deadline_ms)
        return list(waiting)


def check_may_grow(topic: str) -> None:
    """Refuse to grow an internal topic: its keys are hashed over the number of partitions.

    Raises:
        ApiError: INVALID_PARTITIONS. Apache Kafka adds the partitions, and does not find the
            earlier state after its brokers have restarted.
    """
    if topic in INTERNAL_TOPICS:
        keys = "groups" if topic == GROUP_TOPIC else "transactional ids"
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions of {topic} cannot be changed: {keys} are hashed over it, "
            "and what is stored of them would no longer be found. Only a topic that is created "
            f"again gets another number ({_COUNT_OPTIONS[topic]}).",
        )


class _Taken:
    """Topic names in use."""

    def __init__(
        self,
        there: Iterable[str],
        marked_deleted: Iterable[str],
        unreadable: Mapping[str, str],
    ) -> None:
        self._there = set(there)
        self._unreadable = unreadable
        self._marked_deleted = frozenset(marked_deleted)
        self._by_metric: dict[str, list[str]] = {}
        for name in sorted(self._there):
            self._by_metric.setdefault(_metric_name(name), []).append(name)

    def check(self, name: str) -> None:
        """Refuse a name that is invalid or in use, or collides with a name in use."""
        problem = topic_name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name in self._marked_deleted:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion."
            )
        if name in self._there and name in self._unreadable:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"Topic '{name}' already exists and cannot be read: {self._unreadable[name]}. "
                "Delete it first.",
            )
        if name in self._there:
            raise _already_exists(name)
        colliding = self._by_metric.get(_metric_name(name))
        if colliding:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
            )

    def add(self, name: str) -> None:
        """Add a name that is in use now."""
        self._there.add(name)
        self._by_metric.setdefault(_metric_name(name), []).append(name)


def _metric_name(topic: str) -> str:
    """The name in Kafka's metrics, which two topics must not share."""
    return topic.replace(".", "_")


def _nodes(topic: MadeTopic) -> list[Operation]:
    """The two nodes of a topic, the configuration first."""
    assignments = {n: Assignment(replicas=replicas) for n, replicas in topic.assignment.items()}
    node = layout.TopicNode(topic_id=topic.id, assignments=assignments)
    return [
        Create(topic_entity(topic.name).path, encode_config(topic.config.overrides)),
        Create(layout.topic_path(topic.name), layout.encode_topic(node)),
    ]


def _does_not_exist(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_count(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions; a topic has at most {PARTITIONS_MAX}",
        )


def _already_exists(name: str) -> ApiError:
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _deletion_error(error: MultiError) -> ApiError | None:
    if error.index == 0:
        return ApiError(ErrorCode.NOT_CONTROLLER)
    if isinstance(error.cause, NodeExistsError):
        return None  # the deletion was requested before: wait for it
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _timed_out() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT)
