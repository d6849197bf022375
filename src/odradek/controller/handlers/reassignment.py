"""Reassignment (KIP-455): a partition gets other replicas while it serves.

    begun       the topic's node names old and new replicas, and which are added and removed; a
                new leader epoch lets all of them know; the new ones begin to follow
    caught up   every replica of the target is in sync: leadership moves into the target if it is
                elsewhere, the removed ones leave the ISR and delete their files, the topic's node
                names the target alone

Each step is stored before the next is taken, so that another controller can go on wherever this
one stopped: it begins with the first step again, which changes nothing but the leader epoch. A
reassignment is cancelled by another whose target is what was there before; replicas that
only the former one wanted are deleted at once.

By `/admin/reassign_partitions` the same is asked for; the node loses what is done or was replaced
by a request, and goes with its last entry.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from odradek.controller.answers import ReassignmentsAnswer, ReassignmentsList, Refusal
from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import (
    Answer,
    Effect,
    Proceed,
    RemoveReassignments,
    WriteAssignments,
    in_slices,
    mapping_in_slices,
    then_store,
)
from odradek.controller.events import (
    AssignmentsWritten,
    ReassignmentsListed,
    ReassignmentsRequested,
    ReassignmentsSeen,
)
from odradek.controller.handlers.topic_deletion import TopicDeletion
from odradek.controller.isr_history import holders
from odradek.controller.partition_machine import PartitionMachine
from odradek.controller.proposals import Purpose
from odradek.controller.replica_machine import ReplicaMachine
from odradek.controller.request_batch import RequestBatch
from odradek.controller.states import ReplicaState
from odradek.controller.steps import (
    AdoptAssignments,
    AnswerReassignments,
    Assignments,
    AssignTargets,
    BeginReassignments,
    CompleteReassignments,
    ContinueReassignments,
    DeleteReplicas,
    FinishReassignments,
    FlushRequests,
    LeaveIsr,
    Leaving,
    LoadReassignments,
    MoveLeaders,
    ReassignmentStep,
    ReleaseReplicas,
    ResumeDeletions,
    ResumeReassignments,
)
from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, TopicPartition
from odradek.placement.reassign import newcomers_problem, remainder_problem, target_problem

ASKED = Cause(CauseKind.REASSIGNMENT_ASKED)
BY_NODE = Cause(CauseKind.REASSIGNMENT_BY_NODE)
CAUGHT_UP = Cause(CauseKind.REASSIGNMENT_CAUGHT_UP)


class Reassignment:
    """The reassignments in progress, and the targets in `/admin/reassign_partitions`."""

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        deletion: TopicDeletion,
    ) -> None:
        self._context = context
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self._by_node: dict[TopicPartition, tuple[int, ...]] = {}

    def handle(  # noqa: C901, PLR0912 - one case for each step
        self, step: ReassignmentStep
    ) -> list[Effect]:
        """The next step of a reassignment."""
        effects: list[Effect] = []
        match step:
            case LoadReassignments(targets):
                effects = self._loaded(targets)
            case ResumeReassignments(brokers):
                effects = self._resume(brokers)
            case AdoptAssignments():
                effects = self._adopt(step)
            case ContinueReassignments():
                effects = self._go_on(step)
            case BeginReassignments():
                self._begin(step)
            case FinishReassignments():
                effects = self._finish()
            case AssignTargets():
                self._assign_targets(step)
            case ReleaseReplicas():
                effects = self._release(step)
            case CompleteReassignments():
                effects = self._completed(step)
            case MoveLeaders():
                self._move_leaders(step)
            case LeaveIsr():
                self._leave_isr(step)
            case DeleteReplicas():
                self._delete(step)
            case AnswerReassignments():
                effects = self._answer(step)
            case _:
                assert_never(step)
        return effects

    # ---------------------------------------------------------------------- asked for

    def requested(self, event: ReassignmentsRequested) -> list[Effect]:
        """Start what can be started, and answer for each partition."""
        refusals: dict[TopicPartition, Refusal | None] = {}
        wanted: dict[TopicPartition, Assignment] = {}
        for name, target in event.targets.items():
            verdict = self._judge(name, target, self._context.brokers)
            if isinstance(verdict, Refusal):
                refusals[name] = verdict
            else:
                refusals[name], wanted[name] = None, verdict
        # The latest wins, however it was asked for.
        replaced = [name for name in wanted if name in self._by_node]
        answer = Proceed(AnswerReassignments(refusals, wanted))
        return [*self._remove_from_node(replaced), *self._start(wanted, ASKED), answer]

    def _answer(self, step: AnswerReassignments) -> list[Effect]:
        """Answer; a partition whose assignment could not be written is refused after all."""
        refusals = dict(step.refusals)
        for name, asked in step.wanted.items():
            partition = self._context.partition(name)
            if partition is None or partition.assignment.target != asked.target:
                why = "The topic is removed, or its node cannot be decoded."
                refusals[name] = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        return [Answer(ReassignmentsAnswer(refusals))]

    def asked_for(self, event: ReassignmentsListed) -> list[Effect]:
        names = event.partitions
        partitions = self._context.partitions() if names is None else self._context.known(names)
        running = {p.name: p.assignment for p in partitions if p.assignment.is_being_reassigned}
        return [Answer(ReassignmentsList(running))]

    def seen(self, event: ReassignmentsSeen) -> list[Effect]:
        """Start what the node names and is not in progress; take out what is refused."""
        return self._take_in(event.targets)[1]

    def _loaded(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> list[Effect]:
        """Resume what an earlier controller started, wherever it stopped."""
        cause = Cause(CauseKind.CONTROLLER_ELECTED)
        strays = {p.name: _strays(p) for p in self._context.partitions() if _strays(p)}
        begun, effects = self._take_in(targets)
        running = (p for p in self._running() if p.name not in begun)
        return [*self._take_out(strays, cause), *self._go_on_with(running, cause), *effects]

    def _take_in(
        self, targets: Mapping[TopicPartition, tuple[int, ...]]
    ) -> tuple[Assignments, list[Effect]]:
        refused: dict[TopicPartition, Refusal] = {}
        wanted: dict[TopicPartition, Assignment] = {}
        done: list[TopicPartition] = []
        self._by_node = dict(targets)
        for name, target in targets.items():
            # A node may name brokers that are not registered yet.
            verdict = self._judge(name, target, target)
            partition = self._context.partition(name)
            if isinstance(verdict, Refusal):
                refused[name] = verdict
            elif partition is not None and partition.assignment != verdict:
                wanted[name] = verdict
            elif not verdict.is_being_reassigned:
                done.append(name)
        for name, refusal in refused.items():
            detail = refusal.message
            self._batch.decided(
                Decision(Verdict.REASSIGNMENT_REFUSED, name, BY_NODE, detail=detail)
            )
        return wanted, [*self._remove_from_node([*refused, *done]), *self._start(wanted, BY_NODE)]

    def _judge(
        self, name: TopicPartition, target: tuple[int, ...] | None, live: Iterable[int]
    ) -> Assignment | Refusal:
        partition = self._context.partition(name)
        present = partition.assignment if partition else Assignment(replicas=())
        if target is None and not present.is_being_reassigned:
            none = "No partition reassignment is in progress."
            return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, none)
        problem = target_problem(target) if target is not None else None
        if problem is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        wanted = present.reassigned_to(present.origin if target is None else target)
        problem = newcomers_problem(wanted, frozenset(live))
        stands = partition.leader_and_isr if partition else None
        if problem is None and partition and stands and present.is_being_reassigned:
            holding = holders(stands.isr, partition.valid_history)
            problem = remainder_problem(wanted, stands.isr, holding)
        if problem is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        doomed = self._context.is_being_deleted(name) or (
            name.topic in self._deletion.waiting and target is not None
        )
        if partition is None or doomed:
            message = "The partition does not exist."
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        # One that never was led has no records: there is nothing to be moved.
        return wanted if stands is not None else Assignment(replicas=wanted.target)

    # ------------------------------------------------------------------------ begun

    def _resume(self, brokers: frozenset[int]) -> list[Effect]:
        """Go on with what waits for one of these brokers."""
        cause = Cause(CauseKind.BROKER_STARTED, tuple(sorted(brokers)))
        return self._go_on_with(
            (p for p in self._running() if not brokers.isdisjoint(p.assignment.target)), cause
        )

    def _running(self) -> Iterable[Partition]:
        return (p for p in self._context.partitions() if p.assignment.is_being_reassigned)

    def _go_on_with(self, partitions: Iterable[Partition], cause: Cause) -> list[Effect]:
        names = []
        for partition in partitions:
            names.append(partition.name)
            self._decided(Verdict.REASSIGNMENT_RESUMED, partition, cause)
        return self._go_on(ContinueReassignments(tuple(names), cause)) if names else []

    def _start(self, wanted: Assignments, cause: Cause) -> list[Effect]:
        if not wanted:
            return []
        before = {p.name: p.assignment for p in self._context.known(wanted)}
        changed = {name: new for name, new in wanted.items() if before[name] != new}
        write: list[Effect] = [WriteAssignments(changed)] if changed else []
        return [*write, Proceed(AdoptAssignments(before, wanted, cause))]

    def written(self, event: AssignmentsWritten) -> list[Effect]:
        """The store has accepted: these are the replicas."""
        for partition in self._context.known(event.assignments):
            partition.assignment = event.assignments[partition.name]
        return []

    def _adopt(self, step: AdoptAssignments) -> list[Effect]:
        """Enter what has started, take out replicas that are not needed any more, and go on."""
        before, wanted, cause = step.before, step.wanted, step.cause
        adopted = [p for p in self._context.known(wanted) if p.assignment == wanted[p.name]]
        unneeded: dict[TopicPartition, frozenset[int]] = {}
        for partition in adopted:
            former = before[partition.name]
            if partition.assignment.is_being_reassigned:
                verdict = Verdict.REASSIGNMENT_STARTED
            elif former.is_being_reassigned:
                verdict = Verdict.REASSIGNMENT_CANCELLED
            else:
                verdict = Verdict.REASSIGNMENT_COMPLETED  # another order, and nothing to copy
            self._decided(verdict, partition, cause, former)
            self._batch.metadata(partition)
            now = frozenset(partition.assignment.replicas)
            unneeded[partition.name] = frozenset(former.replicas) - now
        names = tuple(partition.name for partition in adopted)
        go_on = Proceed(ContinueReassignments(names, cause))
        never_led = [p.name for p in adopted if p.leader_and_isr is None]
        done = self._remove_from_node(name for name in never_led if name in self._by_node)
        return [*self._take_out(unneeded, cause), go_on, *done]

    def _go_on(self, step: ContinueReassignments) -> list[Effect]:
        """Complete the reassignments whose target is in sync, begin the others."""
        complete: list[TopicPartition] = []
        incomplete: list[TopicPartition] = []
        for partition in self._context.known(step.partitions):
            (complete if self._is_complete(partition) else incomplete).append(partition.name)
        begin = in_slices(lambda names: BeginReassignments(names, step.cause), incomplete)
        return [*then_store(begin), *self._complete(complete, step.cause)]

    def _begin(self, step: BeginReassignments) -> None:
        """Send the new replicas to all replicas, in a new leader epoch."""
        for partition in self._context.known(step.partitions):
            for replica in partition.assignment.replicas:
                if replica not in partition.replicas:
                    partition.enter_replica(replica, ReplicaState.NEW)
            if partition.leader_and_isr is None:
                self._partitions.bring_online(partition, step.cause)
            else:
                self._partitions.propose(partition, Purpose.NEW_ASSIGNMENT, step.cause)

    # -------------------------------------------------------------------- caught up

    def _finish(self) -> list[Effect]:
        """Complete those whose target came in sync with the present event."""
        caught_up = [
            partition.name
            for partition in self._context.known(self._partitions.take_moving())
            if partition.assignment.is_being_reassigned and self._is_complete(partition)
        ]
        return self._complete(caught_up, CAUGHT_UP)

    def _is_complete(self, partition: Partition) -> bool:
        assignment, stands = partition.assignment, partition.leader_and_isr
        if stands is None:
            return False
        if not assignment.is_being_reassigned:
            return True
        target = frozenset(assignment.target)
        return target <= {*stands.isr} and not target.isdisjoint(self._context.electable(partition))

    def _complete(self, names: list[TopicPartition], cause: Cause) -> list[Effect]:
        """Complete reassignments whose target replicas are all in the ISR.

        A target replica becomes leader, the removed replicas leave the ISR and delete their logs,
        and the store gets the new assignment last.
        """
        if not names:
            return []
        before = {p.name: p.assignment for p in self._context.known(names)}
        assign = in_slices(lambda some: AssignTargets(some, cause), names)
        return [*then_store(assign), Proceed(ReleaseReplicas(before, cause))]

    def _assign_targets(self, step: AssignTargets) -> None:
        """Make the target the assignment, in a new leader epoch, led by one of the target."""
        for partition in self._context.known(step.partitions):
            target = partition.assignment.target
            partition.assignment = Assignment(replicas=target)
            stays = partition.leader in target and self._context.is_online(
                partition.leader, partition.name
            )
            purpose = Purpose.NEW_ASSIGNMENT if stays else Purpose.REASSIGNMENT_ELECTION
            self._partitions.propose(partition, purpose, step.cause)

    def _release(self, step: ReleaseReplicas) -> list[Effect]:
        """Take the removed replicas out of the ISR and have them delete their logs."""
        before, cause = step.before, step.cause
        removed: dict[TopicPartition, frozenset[int]] = {}
        finished: dict[TopicPartition, Assignment] = {}
        for partition in self._context.known(before):
            former = before[partition.name]
            if former.is_being_reassigned and partition.leader not in former.target:
                # Another client wrote first, and the target cannot lead: it goes on as it was.
                partition.assignment = former
                continue
            removed[partition.name] = frozenset(former.removing)
            finished[partition.name] = former
        changed = {
            name: Assignment(replicas=former.target)
            for name, former in finished.items()
            if former.is_being_reassigned
        }
        write: list[Effect] = [WriteAssignments(changed)] if changed else []
        done = Proceed(CompleteReassignments(finished, cause))
        # StopReplica goes out before the store no longer names the removed replicas: a controller
        # that is elected in between would not send it.
        return [*self._take_out(removed, cause), Proceed(FlushRequests()), *write, done]

    def _completed(self, step: CompleteReassignments) -> list[Effect]:
        """Enter what is done; deletions may have waited for it."""
        before, cause = step.before, step.cause
        for partition in self._context.known(before):
            if before[partition.name].is_being_reassigned:
                self._decided(Verdict.REASSIGNMENT_COMPLETED, partition, cause)
        done = [name for name in before if name in self._by_node]
        return [*self._remove_from_node(done), Proceed(ResumeDeletions())]

    # ----------------------------------------------------------------------- shared

    def _take_out(self, leaving: Leaving, cause: Cause) -> list[Effect]:
        """These replicas stop leading, leave the ISR, and delete their files."""
        leaving = {name: ids for name, ids in leaving.items() if ids}
        if not leaving:
            return []
        return [
            *then_store(mapping_in_slices(lambda some: MoveLeaders(some, cause), leaving)),
            *then_store(mapping_in_slices(lambda some: LeaveIsr(some, cause), leaving)),
            *mapping_in_slices(DeleteReplicas, leaving),
        ]

    def _move_leaders(self, step: MoveLeaders) -> None:
        """Elect a leader from the target where a leaving replica leads."""
        for partition in self._context.known(step.leaving):
            if partition.leader in step.leaving[partition.name]:
                self._partitions.propose(partition, Purpose.REASSIGNMENT_ELECTION, step.cause)

    def _leave_isr(self, step: LeaveIsr) -> None:
        """Shrink the ISR to the replicas that stay."""
        for partition in self._context.known(step.leaving):
            self._replicas.leave(partition, step.leaving[partition.name], step.cause)

    def _delete(self, step: DeleteReplicas) -> None:
        """Send StopReplica to the replicas that leave."""
        for partition in self._context.known(step.leaving):
            self._replicas.delete(partition, step.leaving[partition.name])

    def _remove_from_node(self, names: Iterable[TopicPartition]) -> list[Effect]:
        names = tuple(names)
        for name in names:
            self._by_node.pop(name, None)
        return [RemoveReassignments(names)] if names else []

    def _decided(
        self,
        verdict: Verdict,
        partition: Partition,
        cause: Cause,
        former: Assignment | None = None,
    ) -> None:
        detail = describe(partition.assignment)
        preferred = partition.assignment.replicas[0]
        if former is not None and former.replicas[0] != preferred:
            detail += f", preferred {preferred} instead of {former.replicas[0]}"
        self._batch.decided(Decision(verdict, partition.name, cause, detail=detail))


def _strays(partition: Partition) -> frozenset[int]:
    """Members of the ISR that are no replicas any more, if others are left in it."""
    if partition.leader_and_isr is None:
        return frozenset()
    isr = frozenset(partition.leader_and_isr.isr)
    strays = isr.difference(partition.assignment.replicas)
    return strays if strays < isr else frozenset()


def describe(assignment: Assignment) -> str:
    """An assignment in words: `replicas 2,3,1, adding 2,3, removing 1`."""
    parts = [f"replicas {_list(assignment.replicas)}"]
    if assignment.adding:
        parts.append(f"adding {_list(assignment.adding)}")
    if assignment.removing:
        parts.append(f"removing {_list(assignment.removing)}")
    return ", ".join(parts)


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
