"""The controller: one event in, effects out; which part of its mind minds which event.

It lives for one reign: made when this broker is elected, dropped with all it believes when
another one is. Every external event ends with the announcement of what has come of it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.controller import (
    broker_changes,
    controlled_shutdown,
    failover,
    isr_changes,
    preferred_leader,
    topic_changes,
)
from odradek.controller.context import ControllerContext
from odradek.controller.effects import Effect, Proceed
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
    LeaderAndIsrAnswered,
    LoadingFinished,
    LogDirsFailed,
    LogEndsHeard,
    ReassignmentsAskedFor,
    ReassignmentsRequested,
    ReassignmentsSeen,
    RebalanceDue,
    ReplicasDeleted,
    Stored,
    TopicsChanged,
    TopicsLoaded,
    TopicsRead,
    TopicsRemoved,
    UncleanAllowed,
    UncleanElectionsEnabled,
)
from odradek.controller.machines import Machines, make_machines

Handler = Callable[[Any], list[Effect]]


class Controller:
    """The cluster's mind, for one controller epoch."""

    def __init__(self, *, controller_epoch: int, deletion_enabled: bool = True) -> None:
        machines = make_machines(controller_epoch, deletion_enabled=deletion_enabled)
        self._machines = machines
        self._external: dict[type, Handler] = {
            BrokersLoaded: partial(failover.brokers_loaded, machines),
            TopicsLoaded: partial(failover.topics_loaded, machines),
            LoadingFinished: partial(failover.loading_finished, machines),
            BrokersChanged: partial(broker_changes.brokers_changed, machines),
            LogDirsFailed: partial(broker_changes.log_dirs_failed, machines),
            LeaderAndIsrAnswered: partial(broker_changes.leader_and_isr_answered, machines),
            TopicsChanged: partial(topic_changes.topics_changed, machines),
            TopicsRead: partial(topic_changes.topics_read, machines),
            DeletionsChanged: lambda event: machines.deletion.asked(event.names),
            ReplicasDeleted: self._replicas_deleted,
            IsrChangesRequested: partial(isr_changes.requested, machines),
            ControlledShutdownRequested: partial(controlled_shutdown.requested, machines),
            ElectionsRequested: partial(preferred_leader.requested, machines),
            ElectionsSeen: partial(preferred_leader.by_node, machines),
            ReassignmentsRequested: machines.reassignment.requested,
            ReassignmentsAskedFor: machines.reassignment.asked_for,
            ReassignmentsSeen: machines.reassignment.seen,
            RebalanceDue: partial(preferred_leader.rebalance_due, machines),
            UncleanElectionsEnabled: partial(preferred_leader.unclean_enabled, machines),
            LogEndsHeard: machines.partitions.log_ends_heard,
        }
        self._reported: dict[type, Handler] = {
            Stored: lambda event: machines.partitions.stored(event.outcomes),
            AssignmentsWritten: machines.reassignment.written,
            UncleanAllowed: lambda event: machines.partitions.unclean_allowed(event.topics),
            TopicsRemoved: self._topics_removed,
        }

    @property
    def context(self) -> ControllerContext:
        """What it believes; to be looked at only."""
        return self._machines.context

    @property
    def machines(self) -> Machines:
        """The parts of its mind; to be looked at only."""
        return self._machines

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; give back what has to be done about it, in order."""
        external = self._external.get(type(event))
        if external is None:
            return self._reported[type(event)](event)
        machines = self._machines
        finish = Proceed(machines.reassignment.look)
        return [*external(event), finish, Proceed(machines.batch.flush)]

    def _replicas_deleted(self, event: ReplicasDeleted) -> list[Effect]:
        broker = self.context.brokers.get(event.broker)
        if broker is None or broker.broker_epoch != event.broker_epoch:
            return []  # said in a former life
        return self._machines.deletion.replicas_answered(event.broker, event.errors)

    def _topics_removed(self, event: TopicsRemoved) -> list[Effect]:
        self._machines.deletion.removed(event.names)
        return []
