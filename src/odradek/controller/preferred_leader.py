"""Elections that nobody's failure calls for.

on demand    ElectLeaders, for the preferred replicas or against a standstill
by ratio     a broker that should lead and does not, for more than so many percent of the
partitions whose preferred replica it is, gets back those it may lead
allowed      unclean election was allowed for topics with leaderless partitions
"""

from functools import partial

from odradek.controller.causes import Cause, CauseKind
from odradek.controller.context import Partition
from odradek.controller.effects import Answer, Effect, ElectionsAnswer, Proceed
from odradek.controller.events import (
    ElectionKind,
    ElectionsRequested,
    RebalanceDue,
    UncleanElectionsEnabled,
)
from odradek.controller.machines import Machines
from odradek.controller.proposals import Purpose
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

ASKED = Cause(CauseKind.ELECTION_ASKED)
ALLOWED = Cause(CauseKind.UNCLEAN_ALLOWED)


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
        if not machines.partitions.propose(partition, purpose, ASKED):
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


def rebalance_due(machines: Machines, event: RebalanceDue) -> list[Effect]:
    """Give leadership back to brokers that lead too little of what they should."""
    preferred: dict[int, list[Partition]] = {}
    for partition in machines.context.partitions():
        if partition.leader_and_isr and not machines.context.is_being_deleted(partition.name):
            preferred.setdefault(partition.assignment.replicas[0], []).append(partition)
    wanted: dict[TopicPartition, int] = {}
    for broker, partitions in sorted(preferred.items()):
        missed = [p.name for p in partitions if p.leader != broker]
        if len(missed) * 100 > event.percentage_max * len(partitions):
            wanted |= dict.fromkeys(missed, broker)

    def elect(partition: Partition) -> None:
        cause = Cause(CauseKind.LEADERS_IMBALANCED, (wanted[partition.name],))
        if not partition.assignment.is_being_reassigned:
            machines.partitions.propose(partition, Purpose.PREFERRED_ELECTION, cause)

    return machines.each(wanted, elect)


def unclean_enabled(machines: Machines, event: UncleanElectionsEnabled) -> list[Effect]:
    """Try the leaderless partitions of these topics again."""

    def elect(partition: Partition) -> None:
        if not machines.context.is_being_deleted(partition.name):
            machines.partitions.bring_online(partition, ALLOWED)

    topics = machines.context.topics
    names = topics if event.topics is None else [name for name in event.topics if name in topics]
    return machines.each((p.name for n in names for p in topics[n].partitions.values()), elect)
