"""Manual assignments of new topics and of added partitions: which are refused.

The messages are Kafka's; its clients and tools print them. One rule is our own: a broker that does
not exist is refused also for a new topic, where Kafka 3.9 creates an offline replica.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from odradek.model.errors import ApiError, ErrorCode


def check_new(
    assignment: Mapping[int, Sequence[int]], *, brokers: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """The assignment of a new topic, checked.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT with Kafka's message.
    """
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        _refuse("All partitions should have the same number of replicas")
    for partition, replicas in sorted(assignment.items()):
        if not replicas:
            _refuse(f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(replicas)) < len(replicas):
            _refuse(f"Duplicate replica assignment found: {_show(assignment)}")
    if sorted(assignment) != list(range(len(assignment))):
        _refuse("partitions should be a consecutive 0-based integer sequence")
    _check_known(assignment.values(), brokers)
    return {partition: tuple(replicas) for partition, replicas in sorted(assignment.items())}


def check_added(
    assignments: Sequence[Sequence[int]],
    *,
    added: int,
    existing: Mapping[int, Sequence[int]],
    brokers: Collection[int],
) -> dict[int, tuple[int, ...]]:
    """The assignments of the partitions to be added, checked.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT with Kafka's message.
    """
    _check_known(assignments, brokers)
    if len(assignments) != added:
        _refuse(
            f"Increasing the number of partitions by {added} but {len(assignments)} "
            "assignments provided."
        )
    numbered = {len(existing) + i: tuple(replicas) for i, replicas in enumerate(assignments)}
    for partition, replicas in numbered.items():
        if not replicas:
            _refuse(f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(replicas)) < len(replicas):
            _refuse(
                f"Duplicate brokers not allowed in replica assignment: "
                f"{', '.join(map(str, replicas))} for partition id {partition}."
            )
    factor = len(existing[0])
    odd = {p: len(replicas) for p, replicas in numbered.items() if len(replicas) != factor}
    if odd:
        _refuse(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} "
            f"while partitions [{', '.join(map(str, odd))}] have replication factors "
            f"[{', '.join(map(str, odd.values()))}], respectively."
        )
    return numbered


def _check_known(assignments: Collection[Sequence[int]], brokers: Collection[int]) -> None:
    unknown = sorted({broker for replicas in assignments for broker in replicas} - set(brokers))
    if unknown:
        _refuse(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")


def _show(assignment: Mapping[int, Sequence[int]]) -> str:
    return ", ".join(f"{p}: {','.join(map(str, r))}" for p, r in sorted(assignment.items()))


def _refuse(message: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
