"""The replicas of one topic as a grid of partitions and brokers, to move them. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from odradek.plan.cluster import ClusterPicture
from odradek.plan.movement import MovementPlan

ROWS_MAX: Final = 50
CHANGES_MAX: Final = 500  # which are fields of the next request


class ChipState(StrEnum):
    """What a plan does with a replica."""

    STAYS = "stays"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A replica in the column of its broker."""

    broker: int
    state: ChipState
    is_preferred: bool  # the first replica, which leads


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """A partition; `chips` has an entry for each broker, None where there is no replica."""

    partition: int
    replicas: tuple[int, ...]  # as planned, in order
    chips: tuple[Chip | None, ...]
    is_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GridColumn:
    """A broker, with its rack if it has one."""

    broker: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGrid:
    """The grid; `more` partitions are not shown."""

    topic: str
    columns: tuple[GridColumn, ...]
    rows: tuple[GridRow, ...]
    more: int
    puts: tuple[str, ...]  # all changes, as fields of a request


def replica_grid(picture: ClusterPicture, plan: MovementPlan, topic: str) -> ReplicaGrid | None:
    """The grid of a topic as a plan leaves it, with the replicas that it removes.

    None if the plan changes too many partitions to go on with by hand.
    """
    found = sorted(p for p in plan.after if p.topic == topic)
    changed = [p for p in found if plan.after[p] != plan.before[p]]
    if len(changed) > CHANGES_MAX:
        return None
    # Partitions that change come first, if not all can be shown.
    shown = sorted(sorted(found, key=lambda p: plan.after[p] == plan.before[p])[:ROWS_MAX])
    held = {broker for p in shown for broker in (*plan.after[p], *plan.before[p])}
    brokers = sorted({*picture.racks, *held})
    rows = []
    for partition in shown:
        before, after = plan.before[partition], plan.after[partition]
        chips: list[Chip | None] = []
        for broker in brokers:
            if broker not in before and broker not in after:
                chips.append(None)
                continue
            state = ChipState.STAYS if broker in before else ChipState.ADDED
            if broker not in after:
                state = ChipState.REMOVED
            chips.append(Chip(broker=broker, state=state, is_preferred=after[0] == broker))
        rows.append(
            GridRow(
                partition=partition.partition,
                replicas=after,
                chips=tuple(chips),
                is_changed=before != after,
            )
        )
    return ReplicaGrid(
        topic=topic,
        columns=tuple(GridColumn(broker=b, rack=picture.racks.get(b)) for b in brokers),
        rows=tuple(rows),
        more=len(found) - len(shown),
        puts=tuple(f"{p.partition}:{','.join(map(str, plan.after[p]))}" for p in changed),
    )
