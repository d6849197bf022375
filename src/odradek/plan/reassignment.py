"""Assignments as Kafka's reassignment JSON, plans to a given assignment, and batches. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture
from odradek.plan.movement import Assignment, MovementPlan, PlanError


def reassignment(
    assignment: Mapping[TopicPartition, Sequence[int]], changed: Iterable[TopicPartition]
) -> dict[str, Any]:
    """The JSON for `kafka-reassign-partitions --reassignment-json-file`."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(assignment[partition]),
                "log_dirs": ["any"] * len(assignment[partition]),
            }
            for partition in sorted(changed)
        ],
    }


def parse_reassignment(tree: Any) -> Assignment:
    """The assignment of a reassignment JSON.

    Raises:
        PlanError: it is not one.
    """
    try:
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(
                int(broker) for broker in each["replicas"]
            )
            for each in tree["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"this is not a reassignment JSON: {error!r}") from None


def plan_to(
    picture: ClusterPicture, targets: Mapping[TopicPartition, Sequence[int]]
) -> MovementPlan:
    """The plan that moves some partitions to given replicas, the preferred leader first.

    Nothing is optimized, so `bound_bytes` is what is copied, and both imbalances are 0.

    Raises:
        PlanError: a partition does not exist, or would have a replica on a broker twice, on one
        that is not registered and has none now, or none at all.
    """
    before = {partition: held.brokers for partition, held in picture.partitions.items()}
    after = dict(before)
    for partition, target in sorted(targets.items()):
        if partition not in before:
            raise PlanError(f"there is no partition {partition}")
        if not target or len(set(target)) < len(target):
            raise PlanError(
                f"{partition}: {list(target)} must have at least one broker, and none twice"
            )
        away = sorted(set(target) - set(before[partition]) - set(picture.racks))
        if away:
            raise PlanError(f"{partition}: broker {away[0]} is not registered")
        after[partition] = tuple(target)
    sizes = {partition: held.size_bytes for partition, held in picture.partitions.items()}
    moved = sum(len(set(after[p]) - set(before[p])) * sizes[p] for p in targets)
    return MovementPlan(before, after, sizes, moved, float(moved), 0.0, 0.0)


def copied_bytes(plan: MovementPlan, partition: TopicPartition) -> int:
    """The bytes that a plan copies of one partition."""
    copies = set(plan.after[partition]) - set(plan.before[partition])
    return len(copies) * plan.sizes.get(partition, 0)


def batches(
    plan: MovementPlan, partitions: Sequence[TopicPartition], count: int, bytes_max: float | None
) -> Iterator[list[TopicPartition]]:
    """Groups of at most `count` partitions that copy at most `bytes_max`, or of one partition."""
    group: list[TopicPartition] = []
    total = 0
    for partition in partitions:
        size = copied_bytes(plan, partition)
        if group and (len(group) == count or (bytes_max is not None and total + size > bytes_max)):
            yield group
            group, total = [], 0
        group.append(partition)
        total += size
    if group:
        yield group
