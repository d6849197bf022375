"""Risks of a plan: partitions whose reassignment is dangerous, or may never complete.

A reassignment copies first, and removes the old replicas when all of the new ones are in sync
(KIP-455); so the ISR is kept meanwhile, and no record is lost. But it completes only then, and
until then a partition has no more in-sync replicas than before.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture
from odradek.plan.movement import MovementPlan

SHOWN: Final = 5


class MoveRisk(NamedTuple):
    """One kind of risk, and the partitions that have it."""

    kind: str
    partitions: tuple[TopicPartition, ...]
    text: str

    def __str__(self) -> str:
        names = ", ".join(map(str, self.partitions[:SHOWN]))
        more = len(self.partitions) - SHOWN
        return f"{names}{f' and {more} more' if more > 0 else ''}: {self.text}"


def move_risks(picture: ClusterPicture, plan: MovementPlan) -> list[MoveRisk]:
    """The risks of the partitions that a plan changes; the worst first."""
    found: list[MoveRisk] = []
    changed = plan.changed
    seen: set[TopicPartition] = set()
    for kind, judge in _RULES:
        groups: dict[str, list[TopicPartition]] = {}
        for partition in changed:
            text = judge(picture, plan, partition)
            # Only the worst of a partition is reported; a factor below min.insync.replicas always
            # is.
            if text is not None and (kind == "factor" or partition not in seen):
                seen.add(partition)
                groups.setdefault(text, []).append(partition)
        found += [MoveRisk(kind, tuple(those), text) for text, those in groups.items()]
    return found


Judge = Callable[[ClusterPicture, MovementPlan, TopicPartition], str | None]


def _factor(picture: ClusterPicture, plan: MovementPlan, partition: TopicPartition) -> str | None:
    least, count = picture.isr_min.get(partition.topic, 1), len(plan.after[partition])
    if count >= least:
        return None
    return (
        f"min.insync.replicas is {least}, and there would be {count}: acks=all would be refused; "
        "set it lower first"
    )


def _offline(picture: ClusterPicture, _plan: MovementPlan, partition: TopicPartition) -> str | None:
    held = picture.partitions[partition]
    if held.leader >= 0:
        return None
    away = ",".join(map(str, held.in_sync or held.brokers))
    return f"there is no leader, so nothing is copied until broker {away} runs again"


def _no_kept_replica_in_sync(
    picture: ClusterPicture, plan: MovementPlan, partition: TopicPartition
) -> str | None:
    held, after = picture.partitions[partition], plan.after[partition]
    behind = [broker for broker in after if broker in held.brokers and broker not in held.in_sync]
    if not behind or set(after) & set(held.in_sync):
        return None
    return (
        f"none of those that stay ({_ids(behind)}) is in sync; broker {_ids(held.in_sync)} has to "
        "stay up until they have caught up"
    )


def _too_few(picture: ClusterPicture, plan: MovementPlan, partition: TopicPartition) -> str | None:
    held, least = picture.partitions[partition], picture.isr_min.get(partition.topic, 1)
    if len(held.in_sync) < least <= len(plan.after[partition]):
        return (
            f"{len(held.in_sync)} in sync, and min.insync.replicas is {least}: acks=all is "
            "refused until copies have caught up"
        )
    return None


def _behind(picture: ClusterPicture, plan: MovementPlan, partition: TopicPartition) -> str | None:
    held = picture.partitions[partition]
    behind = [b for b in plan.after[partition] if b in held.brokers and b not in held.in_sync]
    if not behind:
        return None
    return f"{_ids(behind)} stays and is not in sync: the move ends when it has caught up"


def _rack(picture: ClusterPicture, plan: MovementPlan, partition: TopicPartition) -> str | None:
    if not picture.knows_racks:
        return None
    before = Counter(map(picture.rack_of, plan.before[partition]))
    after = Counter(map(picture.rack_of, plan.after[partition]))
    free = sorted(picture.rack_names - after.keys())
    worse = sorted(rack for rack, count in after.items() if count > max(1, before[rack]))
    if not free or not worse:
        return None
    return (
        f"{after[worse[0]]} replicas would be in rack {worse[0]} and none in rack {free[0]}: they "
        "fail together"
    )


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


_RULES: Final[tuple[tuple[str, Judge], ...]] = (
    ("offline", _offline),
    ("none-in-sync", _no_kept_replica_in_sync),
    ("under-min-isr", _too_few),
    ("behind", _behind),
    ("rack", _rack),
    ("factor", _factor),
)
