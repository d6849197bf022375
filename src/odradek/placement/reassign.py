"""Which reassignments are refused: the rules for a partition's new replicas.

Kafka's rules (KIP-455), and two of our own for a running reassignment that is cancelled or
replaced. If no replica of the ISR stayed, the records would be lost. If only one stayed of several
that hold every committed record, records acknowledged by all of them would be on that one only,
and its failure would lose them.
"""

from collections.abc import Collection, Sequence

from odradek.model.partition import Assignment


def target_problem(target: Sequence[int]) -> str | None:
    """Why this is not a valid list of replicas, in Kafka's words; None if it is."""
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) < len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {_show(target)}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {_show(target)}"
    return None


def newcomers_problem(assignment: Assignment, live: Collection[int]) -> str | None:
    """Why these replicas cannot be added: some brokers do not run. None if all do."""
    if set(assignment.adding) <= set(live):
        return None
    return (
        "Replica assignment has brokers that are not alive. "
        f"Replica list: {_show(assignment.adding)}, live broker list: {_show(sorted(live))}"
    )


def remainder_problem(
    assignment: Assignment, isr: Sequence[int], holders: Collection[int]
) -> str | None:
    """Why this cannot replace the running reassignment; None if it can.

    `holders` are the ISR and the replicas that left it last, which have every committed record.
    """
    if not set(isr) & set(assignment.replicas):
        return (
            f"No in-sync replica would be left: the ISR is {_show(isr)}, and none of it is among "
            f"{_show(assignment.replicas)}. Wait until the running reassignment is complete."
        )
    left = set(holders) & set(assignment.replicas)
    if len(left) == 1 < min(len(holders), len(assignment.replicas)):
        return (
            f"Of brokers {_show(sorted(holders))}, which have all records, only {min(left)} would "
            "be left. Wait until the running reassignment is complete, or until another of "
            f"{_show(assignment.replicas)} is in sync."
        )
    return None


def _show(brokers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"
