"""Elections that are not caused by a failure.

on request   ElectLeaders, for preferred replicas or unclean
by node      /admin/preferred_replica_election, as tools from before ElectLeaders request it
by ratio     if other brokers lead more than so many percent of the partitions whose preferred
             replica is on a broker, those that this broker may lead are given to it
allowed      unclean election was allowed for topics with leaderless partitions
"""

from odradek.controller.answers import ElectionsAnswer
from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.controller.context import Partition
from odradek.controller.effects import (
    Answer,
    Effect,
    Proceed,
    RemoveElections,
    in_slices,
    mapping_in_slices,
    then_store,
)
from odradek.controller.events import (
    ElectionKind,
    ElectionsRequested,
    RebalanceDue,
    UncleanElectionsEnabled,
)
from odradek.controller.machines import Machines
from odradek.controller.proposals import Purpose
from odradek.controller.steps import (
    AnswerElections,
    ElectAsRequested,
    ElectPreferred,
    Rebalance,
    RetryElections,
)
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.placement.balance import LeaderImbalance, leader_imbalance

ASKED = Cause(CauseKind.ELECTION_ASKED)
BY_NODE = Cause(CauseKind.ELECTION_BY_NODE)
ALLOWED = Cause(CauseKind.UNCLEAN_ALLOWED)


def requested(machines: Machines, event: ElectionsRequested) -> list[Effect]:
    """Hold the elections that are needed, then answer for each partition."""
    context = machines.context
    names = event.partitions
    if names is None:
        names = tuple(partition.name for partition in context.partitions())
    errors = machines.election_errors
    errors.clear()
    errors.update((name, _refused(machines, name, event.kind)) for name in names)
    if event.kind is ElectionKind.PREFERRED:
        purpose, failed = Purpose.PREFERRED_ELECTION, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        purpose, failed = Purpose.UNCLEAN_ELECTION, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    wanted = [name for name, error in errors.items() if error is ErrorCode.NONE]
    elections = in_slices(lambda some: ElectAsRequested(some, purpose, failed), wanted)
    return [*then_store(elections), Proceed(AnswerElections())]


def elect_as_requested(machines: Machines, step: ElectAsRequested) -> None:
    """Propose a leader for each, or note the error for the answer."""
    for partition in machines.context.known(step.partitions):
        if not machines.partitions.propose(partition, step.purpose, ASKED):
            machines.election_errors[partition.name] = step.error


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


def answer(machines: Machines) -> list[Effect]:
    """Answer with the error of each partition, and the leaders that were elected."""
    errors = dict(machines.election_errors)
    machines.election_errors.clear()
    held = [name for name, error in errors.items() if error is ErrorCode.NONE]
    leaders = {p.name: p.leader_and_isr for p in machines.context.known(held) if p.leader_and_isr}
    return [Answer(ElectionsAnswer(errors, leaders))]


def by_node(machines: Machines, partitions: tuple[TopicPartition, ...] | None) -> list[Effect]:
    """Hold the elections that are needed, then remove the node, whatever came of them."""
    if partitions is None:
        return []
    wanted = []
    for name in partitions:
        error = _refused(machines, name, ElectionKind.PREFERRED)
        if error is ErrorCode.NONE:
            wanted.append(name)
        elif error is not ErrorCode.ELECTION_NOT_NEEDED:
            refused = Decision(Verdict.ELECTION_REFUSED, name, BY_NODE, detail=error.name)
            machines.batch.decided(refused)
    return [*then_store(in_slices(ElectPreferred, wanted)), RemoveElections()]


def elect_preferred(machines: Machines, step: ElectPreferred) -> None:
    """Propose the preferred leader of each, or enter why it does not lead yet."""
    for partition in machines.context.known(step.partitions):
        if not machines.partitions.propose(partition, Purpose.PREFERRED_ELECTION, BY_NODE):
            _waits(machines, partition, BY_NODE)


def rebalance_due(machines: Machines, event: RebalanceDue) -> list[Effect]:
    """Let preferred replicas lead where the imbalance of a broker exceeds the limit."""
    context = machines.context
    due = leader_imbalance(
        (p.name, p.assignment.replicas[0], p.leader)
        for p in context.partitions()
        if p.leader_and_isr is not None and not context.is_being_deleted(p.name)
    )
    wanted: dict[TopicPartition, int] = {}
    for broker, imbalance in due.items():
        if imbalance.exceeds(event.percentage_max):
            wanted |= dict.fromkeys(imbalance.led_by_others, broker)
        elif imbalance.led_by_others:
            _tolerated(machines, broker, imbalance, event.percentage_max)
    context.entered = {
        key: why for key, why in context.entered.items() if key in due or key in wanted
    }
    return then_store(mapping_in_slices(Rebalance, wanted))


def rebalance(machines: Machines, step: Rebalance) -> None:
    """Propose the preferred leader of each, or enter why it does not lead yet."""
    for partition in machines.context.known(step.partitions):
        name = partition.name
        cause = Cause(CauseKind.LEADERS_IMBALANCED, (step.partitions[name],))
        if partition.assignment.is_being_reassigned:
            _once(machines, Verdict.PREFERRED_WAITS, name, cause, "it is being reassigned")
        elif not machines.partitions.propose(partition, Purpose.PREFERRED_ELECTION, cause):
            _waits(machines, partition, cause)


def _tolerated(
    machines: Machines, broker: int, imbalance: LeaderImbalance, percentage_max: int
) -> None:
    detail = (
        f"{len(imbalance.led_by_others)} of {imbalance.preferred_count} partitions: "
        f"{imbalance.ratio:.0%} is not above {percentage_max}%"
    )
    cause = Cause(CauseKind.LEADERS_CHECKED)
    _once(machines, Verdict.IMBALANCE_TOLERATED, broker, cause, detail)


def _waits(machines: Machines, partition: Partition, cause: Cause) -> None:
    preferred = partition.assignment.replicas[0]
    if not machines.context.is_online(preferred, partition.name):
        why = "offline"
    elif preferred in machines.context.shutting_down:
        why = "shutting down"
    else:
        why = "not in sync"
    detail = f"replica {preferred} is {why}"
    _once(machines, Verdict.PREFERRED_WAITS, partition.name, cause, detail)


def _once(
    machines: Machines, verdict: Verdict, subject: TopicPartition | int, cause: Cause, detail: str
) -> None:
    """Enter it, unless the last check entered the same."""
    if machines.context.entered.get(subject) != detail:
        machines.context.entered[subject] = detail
        machines.batch.decided(Decision(verdict, subject, cause, detail=detail))


def unclean_enabled(machines: Machines, event: UncleanElectionsEnabled) -> list[Effect]:
    """Try the leaderless partitions of these topics again."""
    topics = machines.context.topics
    names = topics if event.topics is None else [name for name in event.topics if name in topics]
    partitions = [p.name for name in names for p in topics[name].partitions.values()]
    return then_store(in_slices(lambda some: RetryElections(some, ALLOWED), partitions))


def retry_elections(machines: Machines, step: RetryElections) -> None:
    """Elect a leader for each partition that has none."""
    for partition in machines.context.known(step.partitions):
        if not machines.context.is_being_deleted(partition.name):
            machines.partitions.bring_online(partition, step.cause)
