"""Elections on demand: ElectLeaders, for the preferred replicas or against a standstill."""

from functools import partial

from odradek.controller.causes import Cause, CauseKind
from odradek.controller.context import Partition
from odradek.controller.effects import Answer, Effect, ElectionsAnswer, Proceed
from odradek.controller.events import ElectionKind, ElectionsRequested
from odradek.controller.machines import Machines
from odradek.controller.proposals import Purpose
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

CAUSE = Cause(CauseKind.ELECTION_ASKED)


def requested(machines: Machines, event: ElectionsRequested) -> list[Effect]:
    """Hold the elections that are needed, then say for each partition what came of it."""
    context = machines.context
    names = event.partitions
    if names is None:
        names = tuple(partition.name for partition in context.partitions())
    errors = {name: _refused(machines, name, event.kind) for name in names}
    if event.kind is ElectionKind.PREFERRED:
        purpose, failed = Purpose.PREFERRED_ELECTION, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        purpose, failed = Purpose.UNCLEAN_ELECTION, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    def elect(partition: Partition) -> None:
        if not machines.partitions.propose(partition, purpose, CAUSE):
            errors[partition.name] = failed

    wanted = [name for name, error in errors.items() if error is ErrorCode.NONE]
    return [*machines.each(wanted, elect), Proceed(partial(_answer, errors))]


def _refused(machines: Machines, name: TopicPartition, kind: ElectionKind) -> ErrorCode:
    partition = machines.context.partition(name)
    if partition is None or partition.leader_and_isr is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if machines.context.is_being_deleted(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    leader = partition.leader_and_isr.leader
    if kind is ElectionKind.PREFERRED:
        needed = leader != partition.assignment.replicas[0]
    else:
        needed = not machines.context.is_online(leader, name)
    return ErrorCode.NONE if needed else ErrorCode.ELECTION_NOT_NEEDED


def _answer(errors: dict[TopicPartition, ErrorCode]) -> list[Effect]:
    return [Answer(ElectionsAnswer(errors))]
