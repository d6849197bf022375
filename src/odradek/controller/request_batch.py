"""The requests that are gathered while an event is settled: one of each kind for each broker.

    LeaderAndIsr     to the replicas of a partition, when its leader, ISR or replicas changed
    UpdateMetadata   to every broker: the same partitions, and the registered brokers
    StopReplica      to a replica that is to stop following, or to be deleted

What is sent is what the context holds when the event is settled, so a partition that changed twice
is sent once. Nothing comes in here before the store has accepted it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek.controller.causes import Decision
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import (
    BrokerRequests,
    Effect,
    PartitionUpdate,
    Proceed,
    RecordDecisions,
    SendRequests,
    StopUpdate,
    in_slices,
)
from odradek.controller.steps import BuildRequests, DescribePartitions
from odradek.model.partition import EPOCH_DURING_DELETE, TopicPartition

Marked: TypeAlias = dict[TopicPartition, bool]  # what the flag says depends on the request
Described: TypeAlias = dict[tuple[TopicPartition, bool], PartitionUpdate]


class RequestBatch:
    """What the brokers, and the journal, have to be marked about the present event."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._gathered = _Gathered()
        self._sending = _Gathered()  # what is being described
        self._described: Described = {}

    def leader_and_isr(
        self, partition: Partition, brokers: Iterable[int], *, is_new: bool = False
    ) -> None:
        """Send a partition to some of its replicas, and to every broker by UpdateMetadata."""
        for broker in brokers:
            marked = self._gathered.leader_and_isr.setdefault(broker, {})
            marked[partition.name] = is_new or marked.get(partition.name, False)
        self.metadata(partition)

    def metadata(self, partition: Partition) -> None:
        """Send a partition to every broker."""
        self._gathered.metadata[partition.name] = False

    def brokers_changed(self) -> None:
        """Send the registered brokers to every broker."""
        self._gathered.brokers_changed = True

    def send_everything(self, brokers: Iterable[int]) -> None:
        """Send every partition to these brokers: they have just registered."""
        self._gathered.joined.update(brokers)

    def stop(self, partition: Partition, broker: int, *, delete: bool) -> None:
        """Have a replica stop; a deletion that was requested before stays."""
        marked = self._gathered.stop.setdefault(broker, {})
        marked[partition.name] = delete or marked.get(partition.name, False)

    def decided(self, decision: Decision) -> None:
        """Enter a decision into the journal."""
        self._gathered.decisions.append(decision)

    def check_settled(self) -> None:
        """Assert that nothing is left to be sent."""
        assert self._gathered == self._sending == _Gathered(), (self._gathered, self._sending)
        assert not self._described, self._described

    def flush(self) -> list[Effect]:
        """Everything gathered, as effects, described in slices; the batch is empty again."""
        gathered, self._gathered = self._gathered, _Gathered()
        self._sending = gathered
        effects: list[Effect] = []
        if gathered.decisions:
            effects.append(RecordDecisions(tuple(gathered.decisions)))
        if gathered.joined:
            gathered.everything = {p.name: False for p in self._context.partitions()}
        keys = dict.fromkeys(key for marked in gathered.marked() for key in marked.items())
        return [*effects, *in_slices(DescribePartitions, keys), Proceed(BuildRequests())]

    def describe(self, keys: Iterable[tuple[TopicPartition, bool]]) -> None:
        """Describe partitions as they are to be sent, each once for all brokers."""
        for name, is_new in keys:
            self._describe(name, is_new=is_new)

    def _describe(self, name: TopicPartition, *, is_new: bool) -> None:
        partition = self._context.partition(name)
        if partition is None or partition.leader_and_isr is None:
            return  # removed, or without a leader so far: there is nothing to send
        assigned, online = partition.assignment.replicas, self._context.online_replicas(partition)
        all_online = len(online) == len(assigned)
        self._described[name, is_new] = PartitionUpdate(
            name,
            partition.leader_and_isr,
            partition.controller_epoch,
            partition.assignment,
            is_new,
            () if all_online else tuple(r for r in assigned if r not in online),
            self._context.is_being_deleted(name),
        )

    def build(self) -> list[Effect]:
        """The requests that were gathered, of what was described."""
        gathered, self._sending = self._sending, _Gathered()
        described, self._described = self._described, {}
        requests = tuple(self._requests(gathered, described))
        if not requests:
            return []
        topics = self._context.topics
        named = dict.fromkeys(name.topic for name, _ in described)
        named |= dict.fromkeys(name.topic for marked in gathered.stop.values() for name in marked)
        ids = {name: topics[name].id for name in named if name in topics}
        return [SendRequests(requests, dict(self._context.brokers), ids)]

    def _requests(self, gathered: "_Gathered", described: Described) -> Iterable[BrokerRequests]:
        everything = _pick(gathered.everything, described)
        changed = _pick(gathered.metadata, described)
        to_all = bool(changed) or gathered.brokers_changed
        for broker, registered in self._context.brokers.items():
            leader_and_isr = _pick(gathered.leader_and_isr.get(broker, {}), described)
            stop = tuple(self._stops(gathered.stop.get(broker, {})))
            metadata = changed if to_all else None
            if broker in gathered.joined:
                metadata = everything
            if leader_and_isr or stop or metadata is not None:
                epoch = registered.broker_epoch
                yield BrokerRequests(broker, epoch, leader_and_isr or None, metadata, stop or None)

    def _stops(self, marked: Marked) -> Iterable[StopUpdate]:
        for name, delete in marked.items():
            partition = self._context.partition(name)
            leader_epoch = -1
            if self._context.is_being_deleted(name):
                leader_epoch = EPOCH_DURING_DELETE
            elif partition is not None and partition.leader_and_isr is not None:
                leader_epoch = partition.leader_and_isr.leader_epoch
            yield StopUpdate(name, leader_epoch, delete)


@dataclass(slots=True)
class _Gathered:
    leader_and_isr: dict[int, Marked] = field(default_factory=dict)  # by broker; True: it is new
    metadata: Marked = field(default_factory=dict)
    stop: dict[int, Marked] = field(default_factory=dict)  # by broker; True: delete it, too
    joined: set[int] = field(default_factory=set)
    everything: Marked = field(default_factory=dict)  # for brokers that joined
    brokers_changed: bool = False
    decisions: list[Decision] = field(default_factory=list)

    def marked(self) -> Iterable[Marked]:
        """All partitions that are to be described."""
        return (*self.leader_and_isr.values(), self.metadata, self.everything)


def _pick(marked: Marked, described: Described) -> tuple[PartitionUpdate, ...]:
    return tuple(described[key] for key in marked.items() if key in described)
