"""The controller's effects as writes to the coordination store, and the nodes it loads.

Every write is a transaction that checks the version of `/controller_epoch`. If that check fails,
another controller was elected, and `ControllerMovedError` ends the term. Everything else that fails
does so for one partition or topic and is reported, not raised; whether a write whose answer was
lost is stored is found by reading it. Many writes go out in few pipelined steps, encoded in slices.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from odradek.broker.controller.election import ControllerTerm
from odradek.broker.controller.protocols import ControllerOptions
from odradek.broker.controller.topic_nodes import TopicNodeReader
from odradek.controller.events import TopicSeen
from odradek.controller.proposals import (
    NO_VERSION,
    Accepted,
    Conflicting,
    Outcome,
    Proposal,
    StoredState,
)
from odradek.coord import layout, layout_odradek
from odradek.coord.layout_config import decode_config, topic_entity
from odradek.coord.layout_odradek import NotedRegistration, NotedRegistrations
from odradek.coord.store import (
    ConnectionLostError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    SetData,
    Stat,
    Store,
    StoreError,
    Watcher,
)
from odradek.coord.znode import CorruptNodeError, decimals
from odradek.model.cluster import Broker
from odradek.model.errors import OdradekError
from odradek.model.partition import NO_LEADER, Assignment, TopicPartition
from odradek.net.retry import retry

T = TypeVar("T")

SLICE: Final = 250  # nodes encoded or decoded before others may run
STEP: Final = 2_000  # transactions in one pipelined step
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.1
_UNCLEAN: Final = "unclean.leader.election.enable"
_ISR_MIN: Final = "min.insync.replicas"


class ControllerMovedError(OdradekError):
    """Another controller was elected: nothing of this term can be written any more."""


def slices(items: Iterable[T], size: int) -> Iterable[tuple[T, ...]]:
    """The items in their order, so many at a time."""
    left = iter(items)
    while chunk := tuple(islice(left, size)):
        yield chunk


def write_history(proposal: Proposal) -> list[Operation]:
    """The ISR history that belongs to a state, written in its transaction."""
    if proposal.history is None:
        return []
    data = layout_odradek.encode_isr_history(proposal.history)
    return [SetData(layout_odradek.isr_history_path(proposal.partition), data)]


class ControllerStore:
    """The store, for one term."""

    def __init__(
        self,
        store: Store,
        term: ControllerTerm,
        options: ControllerOptions,
        *,
        draw_id: Callable[[], UUID],
        skip: Callable[[str], None],
    ) -> None:
        self._store = store
        self._term = term
        self._options = options
        self.topic_nodes = TopicNodeReader(draw_id=draw_id, skip=skip)
        self._skip = skip  # called with what is wrong with a node that cannot be decoded
        # Topics with a partition whose state cannot be read. If they have no other partition, they
        # are announced to no broker.
        self.without_state: set[str] = set()
        # Brokers that were registered in the term before, and were not when they were last read.
        self.unregistered: tuple[int, ...] = ()

    # ------------------------------------------------------------------------- reading

    async def brokers(self, watch_all: Watcher, watch_one: Watcher) -> tuple[Broker, ...]:
        """The registered brokers, in the order of their ids."""
        names = await self._store.children(layout.BROKER_IDS, watch_all)
        found = []
        for id_ in decimals(names):
            try:
                data, stat = await self._store.get(layout.broker_path(id_), watch_one)
                found.append(layout.decode_broker(id_, data, broker_epoch=stat.created_id))
            except NoNodeError:
                continue  # it went between the two reads
            except CorruptNodeError as error:
                self._skip(str(error))
        paths = [layout_odradek.broker_logs_path(broker.id) for broker in found]
        notes = await self._store.get_many(paths)
        return await self.note_registrations(list(map(self._with_note, found, notes)))

    async def note_registrations(self, brokers: Sequence[Broker]) -> tuple[Broker, ...]:
        """Note in the store which registrations this controller read, before it decides by them.

        1. Broker 2 of ISR {1,2} restarts. 2. The controller, which has not read that yet, writes an
        ISR with 2 in it, and stops. 3. The state is newer than the registration, and still says
        nothing about what broker 2 has on its disk. So the next controller goes by these notes.
        They are void if a controller of another kind was elected since, which makes none.
        """
        (node,) = await self._store.get_many([layout_odradek.NOTED])
        before = NotedRegistrations(-1, {})
        if node is None:
            with suppress(NodeExistsError):
                await self._persist(layout_odradek.NOTED, None)
        elif node[0]:
            try:
                before = layout_odradek.decode_noted(node[0], modified_id=node[1].modified_id)
            except CorruptNodeError as error:
                self._skip(str(error))
        epoch = self._term.controller_epoch
        follows = before.controller_epoch in {epoch, epoch - 1}
        registered = {broker.id for broker in brokers}
        self.unregistered = tuple(sorted(before.brokers.keys() - registered)) if follows else ()
        registrations = {}
        for broker in brokers:
            known = before.brokers.get(broker.id)
            if known is None or known.broker_epoch != broker.broker_epoch:
                since = layout_odradek.SINCE_NOW if follows else broker.broker_epoch
                known = NotedRegistration(broker.broker_epoch, since)
            registrations[broker.id] = known
        noted_id = 0
        if (epoch, registrations) != before:
            data = layout_odradek.encode_noted(NotedRegistrations(epoch, registrations))
            operations: list[Operation] = [
                self._term.token,
                SetData(layout_odradek.NOTED, data),
            ]
            (result,) = await self._multi_many([operations])
            if isinstance(result, MultiError):
                self._check_term(result)
                raise result
            written = result[-1]
            assert isinstance(written, Stat), result
            noted_id = written.modified_id
        return tuple(
            replace(broker, noted_id=registrations[broker.id].transaction_id or noted_id)
            for broker in brokers
        )

    def _with_note(self, broker: Broker, note: tuple[bytes | None, Stat] | None) -> Broker:
        """Since which transaction it has lost nothing, if it is an Odradek broker."""
        if note is None or note[1].modified_id != broker.broker_epoch:
            return broker
        try:
            logs = layout_odradek.decode_broker(broker.id, note[0], modified_id=broker.broker_epoch)
        except CorruptNodeError as error:
            self._skip(str(error))
            return broker
        return replace(broker, **logs._asdict())

    async def children(self, path: str, watch: Watcher) -> tuple[str, ...]:
        """The names below one of Kafka's fixed nodes; none if it is not there yet."""
        try:
            return tuple(await self._store.children(path, watch))
        except NoNodeError:
            return ()

    async def reassignments(self, watch: Watcher) -> dict[TopicPartition, tuple[int, ...]]:
        """The targets in `/admin/reassign_partitions`; empty if it is not there."""
        data = await self._watched(layout.REASSIGN_PARTITIONS, watch)
        if data is None:
            return {}
        try:
            return layout.decode_reassign_partitions(data)
        except CorruptNodeError as error:
            self._skip(str(error))
            return {}

    async def elections(self, watch: Watcher) -> tuple[TopicPartition, ...] | None:
        """The partitions in `/admin/preferred_replica_election`; None if it is not there."""
        path = layout.PREFERRED_REPLICA_ELECTION
        data = await self._watched(path, watch)
        if data is None:
            return None
        try:
            return tuple(layout.decode_partitions(path, data))
        except CorruptNodeError as error:
            self._skip(str(error))
            return ()  # so it is removed

    async def _watched(self, path: str, watch: Watcher) -> bytes | None:
        """A node that comes and goes; `watch` fires when it does either."""
        if await self._store.exists(path, watch) is None:
            return None
        (node,) = await self._store.get_many([path])
        return (node[0] or b"") if node else None

    async def topics(
        self, names: Sequence[str], watch: Callable[[str], Watcher]
    ) -> tuple[TopicSeen, ...]:
        """These topics' nodes, each watched."""
        found: list[TopicSeen] = []
        for chunk in slices(names, SLICE):
            reads = (self._store.get(layout.topic_path(name), watch(name)) for name in chunk)
            nodes = await asyncio.gather(*reads, return_exceptions=True)
            for name, node in zip(chunk, nodes, strict=True):
                seen = self.topic_nodes.seen(name, node)
                if seen is not None:
                    found.append(seen)
        return tuple(found)

    async def states(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, StoredState]:
        """The states of those of these partitions that have one."""
        found = {}
        for chunk in slices(partitions, SLICE):
            nodes = await self._store.get_many([layout.partition_state_path(p) for p in chunk])
            for partition, node in zip(chunk, nodes, strict=True):
                state = self._state(partition, node)
                if state is not None:
                    found[partition] = state
            await asyncio.sleep(0)
        return await self._with_histories(found)

    async def _with_histories(
        self, states: dict[TopicPartition, StoredState]
    ) -> dict[TopicPartition, StoredState]:
        """Add the ISR history to states with one in-sync replica or without a leader."""
        critical = [
            partition
            for partition, state in states.items()
            if len(state.leader_and_isr.isr) == 1 or state.leader_and_isr.leader == NO_LEADER
        ]
        for chunk in slices(critical, SLICE):
            nodes = await self._store.get_many([layout_odradek.isr_history_path(p) for p in chunk])
            for partition, node in zip(chunk, nodes, strict=True):
                try:
                    if node is not None:
                        history = layout_odradek.decode_isr_history(partition, node[0])
                        states[partition] = states[partition]._replace(history=history)
                except CorruptNodeError as error:
                    self._skip(str(error))
        return states

    async def create_histories(self, proposals: Sequence[Proposal]) -> None:
        """Create missing nodes of ISR histories, so that each can be written with its state.

        A history that is created here is void until its state is stored; an existing one holds
        until then.
        """
        histories = {
            layout_odradek.isr_history_path(p.partition): p.history
            for p in proposals
            if p.history is not None
        }
        if not histories:
            return
        missing: dict[str, bytes] = {}
        for chunk in slices([layout_odradek.ISR, *histories], SLICE):
            for path, node in zip(chunk, await self._store.get_many(chunk), strict=True):
                if node is None and path == layout_odradek.ISR:
                    with suppress(NodeExistsError):
                        await self._persist(path, None)
                elif node is None:
                    missing[path] = layout_odradek.encode_isr_history(histories[path])
        batches: list[list[Operation]] = [
            [self._term.token, Create(path, data)] for path, data in missing.items()
        ]
        results = await self._multi_many(batches) if batches else []
        for (path, data), result in zip(missing.items(), results, strict=True):
            if not isinstance(result, MultiError):
                continue
            self._check_term(result)
            # A request whose answer was lost may have created it already, with this content.
            with suppress(NodeExistsError):
                await self._persist(path, data)

    async def _persist(self, path: str, data: bytes | None) -> None:
        create = partial(self._store.create, path, data, make_parents=True)
        await retry(create, _PAUSE_SECONDS, on=ConnectionLostError)

    async def isr_min(self, names: Sequence[str], *, default: int) -> dict[str, int]:
        """How many each of these topics has to have in sync."""
        found = await self._overrides(names)
        return {name: (decimals([found[name].get(_ISR_MIN, "")]) or [default])[0] for name in names}

    async def _overrides(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        paths = [topic_entity(name).path for name in names]
        found: dict[str, Mapping[str, str]] = {}
        for name, path, node in zip(names, paths, await self._store.get_many(paths), strict=True):
            try:
                found[name] = decode_config(path, node[0]) if node else {}
            except CorruptNodeError as error:
                self._skip(str(error))
                found[name] = {}
        return found

    def _state(
        self, partition: TopicPartition, node: tuple[bytes | None, Stat] | None
    ) -> StoredState | None:
        if node is None:
            return None
        data, stat = node
        try:
            state = layout.decode_partition_state(partition, data, partition_epoch=stat.version)
        except CorruptNodeError as error:
            self._skip(str(error))
            self.without_state.add(partition.topic)
            return None
        return StoredState(state.leader_and_isr, state.controller_epoch, stat.modified_id)

    async def allows_unclean(self, names: Sequence[str], *, default: bool) -> dict[str, bool]:
        """Whether each of these topics allows unclean election."""
        allowed = {}
        for name, overrides in (await self._overrides(names)).items():
            text = overrides.get(_UNCLEAN)
            allowed[name] = default if text is None else text.strip().lower() == "true"
        return allowed

    # ------------------------------------------------------------------ partition states

    async def store(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        """Write what is proposed; each succeeds or conflicts on its own."""
        outcomes: list[Outcome] = []
        for chunk in slices(proposals, STEP):
            await self.create_histories(chunk)
            outcomes += await self._store_step(chunk)
        return outcomes

    async def _store_step(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        batches = []
        for number, proposal in enumerate(proposals):
            batches.append(self._write_state(proposal))
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        outcomes: dict[int, Outcome] = {}
        for index, result in enumerate(await self._multi_many(batches)):
            if isinstance(result, MultiError):
                outcomes[index] = await self._refused(proposals[index], result)
            else:
                written = result[-1]
                version = written.version if isinstance(written, Stat) else 0
                outcomes[index] = Accepted(proposals[index], version)
        return [outcomes[index] for index in range(len(proposals))]

    def _write_state(self, proposal: Proposal) -> list[Operation]:
        path = layout.partition_state_path(proposal.partition)
        data = layout.encode_partition_state(
            layout.LeaderIsrAndControllerEpoch(proposal.proposed, self._term.controller_epoch)
        )
        version = proposal.proposed.partition_epoch
        history = write_history(proposal)
        if version != NO_VERSION:
            return [self._term.token, *history, SetData(path, data, version)]
        create: list[Operation] = [
            self._term.token,
            Create(layout.partition_path(proposal.partition)),
            *history,
            Create(path, data),
        ]
        if proposal.partition.partition == 0:  # as a rule the topic's first: see _refused
            create.insert(1, Create(layout.topic_partitions_path(proposal.partition.topic)))
        return create

    async def _refused(self, proposal: Proposal, error: MultiError) -> Outcome:
        """Find out why, and write what can be written all the same."""
        self._check_term(error)
        path = layout.partition_state_path(proposal.partition)
        for _ in range(_ATTEMPTS):
            found = await self.states([proposal.partition])
            if proposal.partition in found:
                return self._judge(proposal, found[proposal.partition])
            if proposal.proposed.partition_epoch != NO_VERSION:
                return Conflicting(proposal, None)
            missing = await self._missing(proposal.partition)
            if missing is None:
                return Conflicting(proposal, None)
            operations = [
                self._term.token,
                *missing,
                *write_history(proposal),
                Create(path, self._state_data(proposal)),
            ]
            (result,) = await self._multi_many([operations])
            if not isinstance(result, MultiError):
                return Accepted(proposal, 0)
            self._check_term(result)
        return Conflicting(proposal, None)

    def _state_data(self, proposal: Proposal) -> bytes:
        state = layout.LeaderIsrAndControllerEpoch(proposal.proposed, self._term.controller_epoch)
        return layout.encode_partition_state(state)

    def _judge(self, proposal: Proposal, found: StoredState) -> Outcome:
        """The stored state may be this proposal's: its answer may have been lost."""
        stands, wanted = found.leader_and_isr, proposal.proposed
        is_own = found.controller_epoch == self._term.controller_epoch
        follows = stands.partition_epoch == wanted.partition_epoch + 1
        same = (stands.leader, stands.leader_epoch, stands.isr, stands.leader_recovery_state) == (
            wanted.leader,
            wanted.leader_epoch,
            wanted.isr,
            wanted.leader_recovery_state,
        )
        if is_own and follows and same:
            return Accepted(proposal, stands.partition_epoch)
        return Conflicting(proposal, found)

    async def _missing(self, partition: TopicPartition) -> list[Operation] | None:
        """The parent nodes of a state that do not exist; None if the topic itself was removed."""
        paths = [
            layout.topic_path(partition.topic),
            layout.topic_partitions_path(partition.topic),
            layout.partition_path(partition),
        ]
        topic, *parents = await self._store.get_many(paths)
        if topic is None:
            return None
        pairs = zip(paths[1:], parents, strict=True)
        return [Create(path) for path, node in pairs if node is None]

    # ---------------------------------------------------------------------------- topics

    async def write_topics(self, topics: Sequence[TopicSeen]) -> None:
        """Write their nodes if they are unchanged; if not, the watch on them has fired."""
        batches = []
        for seen in topics:
            node = layout.TopicNode(topic_id=seen.id, assignments=seen.assignments)
            path = layout.topic_path(seen.name)
            batches.append([SetData(path, layout.encode_topic(node), seen.store_version)])
        await self._write_all(batches)

    async def write_assignments(
        self, assignments: Mapping[TopicPartition, Assignment]
    ) -> dict[TopicPartition, Assignment]:
        """Put these into their topics' nodes, beside whatever else stands there by now.

        Returns those that are stored; the topics of the others are removed or cannot be decoded.
        """
        left: dict[str, dict[int, Assignment]] = {}
        for name, assignment in assignments.items():
            left.setdefault(name.topic, {})[name.partition] = assignment
        stands: dict[TopicPartition, Assignment] = {}
        for _ in range(_ATTEMPTS):
            left = await self._write_assignments(left, stands)
            if not left:
                return stands
        raise StoreError(f"{', '.join(left)}: other clients wrote {_ATTEMPTS} times in between")

    async def _write_assignments(
        self,
        wanted: Mapping[str, dict[int, Assignment]],
        stands: dict[TopicPartition, Assignment],
    ) -> dict[str, dict[int, Assignment]]:
        """One attempt; returns the topics whose nodes another client wrote in between."""
        batches: dict[str, list[Operation]] = {}
        paths = [layout.topic_path(topic) for topic in wanted]
        nodes = await self._store.get_many(paths)
        for (topic, changed), path, node in zip(wanted.items(), paths, nodes, strict=True):
            await asyncio.sleep(0)
            seen = self.topic_nodes.seen(topic, node) if node is not None else None
            if seen is None or not changed.keys() <= seen.assignments.keys():
                continue
            written = layout.TopicNode(
                topic_id=seen.id, assignments={**seen.assignments, **changed}
            )
            data = layout.encode_topic(written)
            batches[topic] = [self._term.token, SetData(path, data, seen.store_version)]
        left = {}
        results = await self._multi_many(list(batches.values()))
        for topic, result in zip(batches, results, strict=True):
            if isinstance(result, MultiError):
                self._check_term(result)
                left[topic] = wanted[topic]
            else:
                stands |= {TopicPartition(topic, n): a for n, a in wanted[topic].items()}
        return left

    async def remove_reassignments(self, partitions: Sequence[TopicPartition]) -> None:
        """Take these out of `/admin/reassign_partitions`; when nothing is left in it, remove it."""
        path = layout.REASSIGN_PARTITIONS
        for _ in range(_ATTEMPTS):
            (node,) = await self._store.get_many([path])
            if node is None:
                return
            data, stat = node
            left = layout.decode_reassign_partitions(data)
            for partition in partitions:
                left.pop(partition, None)
            write: Operation = Delete(path, stat.version)
            if left:
                write = SetData(path, layout.encode_reassign_partitions(left), stat.version)
            (result,) = await self._multi_many([[self._term.token, write]])
            if not isinstance(result, MultiError):
                return
            self._check_term(result)

    async def remove_elections(self) -> None:
        await self._write_all([[Delete(layout.PREFERRED_REPLICA_ELECTION)]])

    async def remove_deletions(self, names: Sequence[str]) -> None:
        """Remove requests to delete topics that the controller does not know.

        With them goes what is stored of a topic whose node still cannot be read, if topics may be
        deleted. Its logs stay on the brokers' disks: which brokers have them is not known.
        """
        if self._options.deletion_enabled:
            known = [name for name in names if name in self.topic_nodes.unreadable]
            nodes = await self._store.get_many([layout.topic_path(name) for name in known])
            for name, node in zip(known, nodes, strict=True):
                self.topic_nodes.seen(name, node)
            await self.remove_topics([n for n in known if n in self.topic_nodes.unreadable])
        await self._write_all([[Delete(layout.delete_topic_path(name))] for name in names])

    async def remove_topics(self, names: Sequence[str]) -> tuple[str, ...]:
        """Remove all that is stored of these topics: states first, the request last.

        Returns those of which nothing is left; others may have got another child in between.
        """
        left = [name for chunk in slices(names, SLICE) for name in await self._remove_some(chunk)]
        return tuple(name for name in names if name not in left)

    async def _remove_some(self, names: Sequence[str]) -> list[str]:
        """Returns those of which something is left."""
        left = list(names)
        for _ in range(_ATTEMPTS):
            await self._remove_partitions([p for name in left for p in await self._below(name)])
            await self._remove([_topic_nodes(name) for name in left])
            requests = [layout.delete_topic_path(name) for name in left]
            nodes = await self._store.get_many(requests)
            left = [name for name, node in zip(left, nodes, strict=True) if node is not None]
            if not left:
                break
        return left

    async def _below(self, topic: str) -> list[TopicPartition]:
        try:
            names = await self._store.children(layout.topic_partitions_path(topic))
        except NoNodeError:
            return []
        return [TopicPartition(topic, number) for number in decimals(names)]

    async def _remove_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        for chunk in slices(partitions, SLICE):
            await self._remove(
                [[layout.partition_state_path(p), layout.partition_path(p)] for p in chunk]
            )
            await self._remove([[layout_odradek.isr_history_path(p)] for p in chunk])
            await asyncio.sleep(0)

    async def _remove(self, groups: Sequence[Sequence[str]]) -> None:
        """Remove those of these nodes that are there, each group as a whole and in its order."""
        nodes = iter(await self._store.get_many([path for group in groups for path in group]))
        there = [[path for path in group if next(nodes) is not None] for group in groups]
        await self._write_all([[Delete(path) for path in group] for group in there if group])

    async def remove_notices(self, path: str, names: Sequence[str]) -> None:
        """Remove sequential notices that were read."""
        await self._write_all([[Delete(f"{path}/{name}")] for name in names])

    async def set_up_features(self) -> None:
        """`/feature`: enabled, and nothing finalized, as every broker since 2.7 has it."""
        data = layout.encode_feature(layout.FeatureNode(enabled=True, features={}))
        await self._write_all([[Create(layout.FEATURE, data)]])

    async def _write_all(self, batches: Sequence[Sequence[Operation]]) -> None:
        """Write each batch; one that is refused was written by another client, and stays so."""
        for chunk in slices(batches, STEP):
            with_token = [[self._term.token, *operations] for operations in chunk]
            for result in await self._multi_many(with_token):
                if isinstance(result, MultiError):
                    self._check_term(result)

    async def _multi_many(
        self, batches: Sequence[Sequence[Operation]]
    ) -> list[list[Result] | MultiError]:
        """Write, again after a lost connection: what was done the first time is refused then.

        So a caller must be able to recognize its own write (`_judge`).
        """
        write = partial(self._store.multi_many, batches)
        return await retry(write, _PAUSE_SECONDS, on=ConnectionLostError)

    def _check_term(self, error: MultiError) -> None:
        """Raise `ControllerMovedError` if it was the token that was refused."""
        if error.index == 0:
            raise ControllerMovedError(
                f"controller epoch {self._term.controller_epoch} is over: {error}"
            )


def _topic_nodes(topic: str) -> list[str]:
    return [
        layout.topic_partitions_path(topic),
        layout.topic_path(topic),
        topic_entity(topic).path,
        layout.delete_topic_path(topic),
    ]
