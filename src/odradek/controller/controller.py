"""The controller as one state machine: an event in, the effects to carry out comes back.

A `Controller` exists for one controller epoch: it is made when this broker is elected, and
discarded when another one is. It reads no clock: no decision depends on the time.
"""

from typing import assert_never

import odradek.controller.handlers.brokers as broker_changes
import odradek.controller.handlers.isr as isr_changes
import odradek.controller.handlers.topics as topic_changes
from odradek.controller import invariants
from odradek.controller import steps as s
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
    External,
    IsrChangesRequested,
    LeaderAndIsrAnswered,
    LoadingFinished,
    LogDirsFailed,
    LogEndsRead,
    ReassignmentsListed,
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
from odradek.controller.handlers import controlled_shutdown, failover, preferred_leader
from odradek.controller.machines import Machines, make_machines


class Controller:
    """The cluster's state and what is decided about it, for one controller epoch."""

    def __init__(self, *, controller_epoch: int, deletion_enabled: bool = True) -> None:
        self.deletion_enabled = deletion_enabled
        self._machines = make_machines(controller_epoch, deletion_enabled=deletion_enabled)

    @property
    def context(self) -> ControllerContext:
        """The state of brokers, topics and partitions; not to be changed from outside."""
        return self._machines.context

    @property
    def machines(self) -> Machines:
        """The parts; not to be changed from outside."""
        return self._machines

    def validate(self, *, is_settled: bool) -> None:
        """Check the invariants; with `is_settled` those that hold between external events, too.

        Raises:
            InvariantError: something does not hold.
        """
        invariants.check(self._machines)
        if is_settled:
            invariants.check_settled(self._machines)

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; return what is to be done, in order (`model.trampoline` says how)."""
        if isinstance(event, s.Step):
            return _go_on(self._machines, event)
        if isinstance(event, External):
            last: list[Effect] = [Proceed(s.FinishReassignments()), Proceed(s.FlushRequests())]
            return [*_begin(self._machines, event), *last]
        return _report(self._machines, event)


def _begin(machines: Machines, event: External) -> list[Effect]:  # noqa: C901, PLR0912, PLR0915 - one case for each
    """An external event: one case for each."""
    effects: list[Effect]
    match event:
        case BrokersLoaded():
            effects = failover.brokers_loaded(machines, event)
        case TopicsLoaded():
            effects = failover.topics_loaded(machines, event)
        case LoadingFinished():
            effects = failover.loading_finished(machines, event)
        case BrokersChanged():
            effects = broker_changes.brokers_changed(machines, event)
        case LogDirsFailed():
            effects = broker_changes.log_dirs_failed(machines, event)
        case LeaderAndIsrAnswered():
            effects = broker_changes.leader_and_isr_answered(machines, event)
        case TopicsChanged():
            effects = topic_changes.topics_changed(machines, event)
        case TopicsRead():
            effects = topic_changes.topics_read(machines, event)
        case DeletionsChanged(names):
            effects = machines.deletion.asked(names)
        case ReplicasDeleted():
            effects = _replicas_deleted(machines, event)
        case IsrChangesRequested():
            effects = isr_changes.requested(machines, event)
        case ControlledShutdownRequested():
            effects = controlled_shutdown.requested(machines, event)
        case ElectionsRequested():
            effects = preferred_leader.requested(machines, event)
        case ElectionsSeen(partitions):
            effects = preferred_leader.by_node(machines, partitions)
        case ReassignmentsRequested():
            effects = machines.reassignment.requested(event)
        case ReassignmentsListed():
            effects = machines.reassignment.asked_for(event)
        case ReassignmentsSeen():
            effects = machines.reassignment.seen(event)
        case RebalanceDue():
            effects = preferred_leader.rebalance_due(machines, event)
        case UncleanElectionsEnabled():
            effects = preferred_leader.unclean_enabled(machines, event)
        case LogEndsRead():
            effects = machines.partitions.log_ends_read(event)
        case _:
            assert_never(event)
    return effects


def _report(
    machines: Machines, event: Stored | AssignmentsWritten | UncleanAllowed | TopicsRemoved
) -> list[Effect]:
    """What became of an effect."""
    match event:
        case Stored(outcomes):
            return machines.partitions.stored(outcomes)
        case AssignmentsWritten():
            return machines.reassignment.written(event)
        case UncleanAllowed(topics):
            return machines.partitions.unclean_allowed(topics)
        case TopicsRemoved(names):
            machines.deletion.removed(names)
            return []
        case _:
            assert_never(event)


def _go_on(machines: Machines, step: s.Step) -> list[Effect]:  # noqa: C901, PLR0912, PLR0915 - one case for each
    """The next step of an external event: one case for each."""
    effects: list[Effect] = []
    match step:
        case s.StoreProposals():
            effects = machines.partitions.store()
        case s.FlushRequests():
            effects = machines.batch.flush()
        case s.DescribePartitions(keys):
            machines.batch.describe(keys)
        case s.BuildRequests():
            effects = machines.batch.build()
        case s.TakeOver():
            failover.take_over(machines, step)
        case s.JoinBrokers():
            effects = broker_changes.join(machines, step)
        case s.LoseReplicas():
            broker_changes.lose_replicas(machines, step)
        case s.RestoreReplicas():
            broker_changes.restore_replicas(machines, step)
        case s.SendStates():
            broker_changes.send_states(machines, step)
        case s.CreatePartitions():
            topic_changes.create_partitions(machines, step)
        case s.MoveOffBroker():
            controlled_shutdown.move_off_broker(machines, step)
        case s.AnswerShutdown():
            effects = controlled_shutdown.answer(machines, step)
        case s.AnswerIsrChanges():
            effects = isr_changes.answer(machines, step)
        case s.HoldElections(partitions):
            effects = preferred_leader.by_node(machines, partitions)
        case s.ElectAsRequested():
            preferred_leader.elect_as_requested(machines, step)
        case s.AnswerElections():
            effects = preferred_leader.answer(machines)
        case s.ElectPreferred():
            preferred_leader.elect_preferred(machines, step)
        case s.Rebalance():
            preferred_leader.rebalance(machines, step)
        case s.RetryElections():
            preferred_leader.retry_elections(machines, step)
        case s.ResumeDeletions(brokers):
            effects = machines.deletion.retry(brokers)
        case s.EndLeadership(partitions):
            machines.deletion.end_leadership(partitions)
        case s.StopReplicas(partitions):
            machines.deletion.stop_replicas(partitions)
        case _:
            effects = machines.reassignment.handle(step)
    return effects


def _replicas_deleted(machines: Machines, event: ReplicasDeleted) -> list[Effect]:
    broker = machines.context.brokers.get(event.broker)
    if broker is None or broker.broker_epoch != event.broker_epoch:
        return []  # of an earlier registration
    return machines.deletion.replicas_answered(event.broker, event.errors)
