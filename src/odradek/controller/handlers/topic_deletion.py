"""Topic deletion: queued, carried out when every replica can take part, halted by offline replicas.

    requested       the topic has a node under /admin/delete_topics
    started         leadership ends (leader -1, a new leader epoch); brokers drop the topic from
                    their metadata; online replicas get StopReplica and delete their logs
    waiting         partitions of the topic are being reassigned: it starts when that is done
    halted          a replica is offline or its broker refused: the others are deleted, and the
                    deletion resumes when that broker registers
    done            every replica is deleted; states, partitions, topic, configuration and the
                    request are removed from the store

A deletion that started is never cancelled; a new controller starts it again.
"""

from collections.abc import Collection, Iterable, Mapping

from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.controller.context import ControllerContext, Partition, Topic
from odradek.controller.effects import (
    Effect,
    Proceed,
    RemoveDeletions,
    RemoveTopics,
    in_slices,
    then_store,
)
from odradek.controller.partition_machine import PartitionMachine
from odradek.controller.proposals import Purpose
from odradek.controller.request_batch import RequestBatch
from odradek.controller.states import PartitionState, ReplicaState
from odradek.controller.steps import EndLeadership, ResumeDeletions, StopReplicas
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

ASKED = Cause(CauseKind.TOPIC_DELETED)


class TopicDeletion:
    """The topics that are being deleted, and those that wait for it."""

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        partitions: PartitionMachine,
        *,
        enabled: bool,
    ) -> None:
        self._context = context
        self._batch = batch
        self._partitions = partitions
        self._enabled = enabled
        self._started: set[str] = set()
        self.halted: dict[str, str] = {}  # topic -> why
        self.waiting: dict[str, str] = {}  # topic -> for what, before it is begun

    def asked(self, names: Iterable[str]) -> list[Effect]:
        """Take in the requests for deletion that are in the store."""
        known = self._context.being_deleted | self.waiting.keys()
        names = [name for name in names if name not in known]
        unserved = names
        if self._enabled:
            unserved = [name for name in names if name not in self._context.topics]
            for name in names:
                if name in self._context.topics:
                    self.waiting[name] = ""
                    self._leave_waiting_room(name)
        for name in unserved:
            why = "the topic does not exist" if self._enabled else "delete.topic.enable is false"
            self._batch.decided(Decision(Verdict.DELETION_REFUSED, name, ASKED, detail=why))
        refuse: list[Effect] = [RemoveDeletions(tuple(unserved))] if unserved else []
        return [*refuse, Proceed(ResumeDeletions())]

    def resume(self) -> list[Effect]:
        """Start what can be started, finish what is done."""
        for name in sorted(self.waiting):
            self._leave_waiting_room(name)
        finished, ready = [], []
        for name in sorted(self._context.being_deleted):
            states = {
                state
                for partition in self._context.topics[name].partitions.values()
                for state in partition.replicas.values()
            }
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                finished.append(name)
            elif ReplicaState.DELETION_STARTED not in states and name not in self.halted:
                ready.append(name)
        effects: list[Effect] = []
        for name in ready:
            effects += self._start(self._context.topics[name])
        effects = then_store(effects)
        effects += in_slices(StopReplicas, self._partitions_of(ready))
        if finished:
            effects.append(RemoveTopics(tuple(finished)))
        return effects

    def _leave_waiting_room(self, name: str) -> None:
        topic = self._context.topics[name]
        moving = [p for p in topic.partitions.values() if p.assignment.is_being_reassigned]
        if not moving:
            del self.waiting[name]
            self._context.being_deleted.add(name)
        elif not self.waiting[name]:
            others = f" and {len(moving) - 1} more" if len(moving) > 1 else ""
            why = f"{moving[0].name}{others} is being reassigned"
            self.waiting[name] = why
            self._batch.decided(Decision(Verdict.DELETION_HALTED, name, ASKED, detail=why))

    def _partitions_of(self, names: Iterable[str]) -> Iterable[TopicPartition]:
        return (p.name for name in names for p in self._context.topics[name].partitions.values())

    def _start(self, topic: Topic) -> list[Effect]:
        if topic.name in self._started:
            return []
        self._started.add(topic.name)
        self._batch.decided(Decision(Verdict.DELETION_STARTED, topic.name, ASKED))
        return in_slices(EndLeadership, self._partitions_of([topic.name]))

    def end_leadership(self, partitions: Iterable[TopicPartition]) -> None:
        """Propose a state without a leader for each."""
        for partition in self._context.known(partitions):
            partition.enter(PartitionState.OFFLINE)
            partition.enter(PartitionState.NON_EXISTENT)
            self._partitions.propose(partition, Purpose.DELETION, ASKED)

    def stop_replicas(self, partitions: Iterable[TopicPartition]) -> None:
        """Send StopReplica to the online replicas of each; one that is offline halts the topic."""
        for partition in self._context.known(partitions):
            self._stop_replicas(partition)

    def _stop_replicas(self, partition: Partition) -> None:
        self._batch.metadata(partition)
        for replica, state in partition.replicas.items():
            if state is ReplicaState.DELETION_SUCCESSFUL:
                continue
            partition.enter_replica(replica, ReplicaState.OFFLINE)
            if self._context.is_online(replica, partition.name):
                partition.enter_replica(replica, ReplicaState.DELETION_STARTED)
                self._batch.stop(partition, replica, delete=True)
            else:
                partition.enter_replica(replica, ReplicaState.DELETION_INELIGIBLE)
                self._halt(partition.name.topic, f"its replica on broker {replica} is offline")

    def _halt(self, name: str, why: str) -> None:
        if name not in self.halted:
            self._batch.decided(Decision(Verdict.DELETION_HALTED, name, ASKED, detail=why))
            self.halted[name] = why

    def replicas_answered(
        self, broker: int, errors: Mapping[TopicPartition, ErrorCode]
    ) -> list[Effect]:
        """Take in the errors of a StopReplica response."""
        for partition in self._context.known(errors):
            if partition.replicas.get(broker) is not ReplicaState.DELETION_STARTED:
                continue
            error = errors[partition.name]
            if error is ErrorCode.NONE:
                partition.enter_replica(broker, ReplicaState.DELETION_SUCCESSFUL)
            else:
                partition.enter_replica(broker, ReplicaState.DELETION_INELIGIBLE)
                self._halt(partition.name.topic, f"broker {broker} answered {error.name}")
        return self.resume()

    def go_offline(self, partition: Partition, brokers: Collection[int]) -> None:
        """Brokers failed before they answered StopReplica: the topic is halted."""
        for replica in partition.assignment.replicas:
            if replica not in brokers:
                continue
            if partition.replicas[replica] is ReplicaState.DELETION_STARTED:
                partition.enter_replica(replica, ReplicaState.DELETION_INELIGIBLE)
                self._halt(partition.name.topic, f"broker {replica} went offline")

    def retry(self, brokers: Collection[int]) -> list[Effect]:
        """Brokers are registered: the deletion of topics that was halted for them resumes."""
        for name in sorted(self.halted):
            held_by = {
                replica
                for partition in self._context.topics[name].partitions.values()
                for replica in partition.assignment.replicas
            }
            if not held_by.isdisjoint(brokers):
                del self.halted[name]
        return self.resume()

    def removed(self, names: Iterable[str]) -> None:
        """These topics are removed from the store: drop them."""
        for name in names:
            for partition in self._context.topics[name].partitions.values():
                for replica in partition.replicas:
                    partition.enter_replica(replica, ReplicaState.NON_EXISTENT)
            self._batch.decided(Decision(Verdict.TOPIC_DELETED, name, ASKED))
            self.drop(name)

    def drop(self, name: str) -> None:
        """Drop a topic that has no node any more."""
        topic = self._context.topics.pop(name)
        for broken in self._context.offline_dirs.values():
            broken.difference_update(partition.name for partition in topic.partitions.values())
        self._context.being_deleted.discard(name)
        self._started.discard(name)
        self.halted.pop(name, None)
        self.waiting.pop(name, None)
