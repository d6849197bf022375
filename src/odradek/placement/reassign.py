"""Which reassignments make sense: the rules for a partition's new replicas.

Kafka's rules (KIP-455), and two of our own for a running reassignment that is taken back or
replaced. If all of the ISR went, the records would be gone, too. If one were left of several that
hold everything, records that all had acknowledged would be on that one alone, and whatever befalls
it next takes them.
"""

from collections.abc import Collection, Sequence

from odradek.model.partition import Assignment


def target_problem(target: Sequence[int]) -> str | None:
    """Why this is no list of replicas, in Kafka's words; None if it is one."""
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) < len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {_show(target)}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {_show(target)}"
    return None


def newcomers_problem(assignment: Assignment, live: Collection[int]) -> str | None:
    """Why these replicas cannot be added: some are not alive. None if all are."""
    if set(assignment.adding) <= set(live):
        return None
    return (
        "Replica assignment has brokers that are not alive. "
        f"Replica list: {_show(assignment.adding)}, live broker list: {_show(sorted(live))}"
    )


def remainder_problem(
    assignment: Assignment, isr: Sequence[int], holders: Collection[int]
) -> str | None:
    """Why this cannot take the place of what is under way; None if it can.

    `holders` are the ISR and those who left it last, and have everything it has committed.
    """
    if not set(isr) & set(assignment.replicas):
        return (
            f"Nobody in sync would be left: the ISR is {_show(isr)}, and none of them is among "
            f"{_show(assignment.replicas)}. Let the running reassignment come to its end."
        )
    left = set(holders) & set(assignment.replicas)
    if len(left) == 1 < min(len(holders), len(assignment.replicas)):
        return (
            f"Of brokers {_show(sorted(holders))}, which have everything, only {min(left)} would "
            "be left. Let the running reassignment come to its end, or wait until another of "
            f"{_show(assignment.replicas)} is in sync."
        )
    return None


def _show(brokers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"
