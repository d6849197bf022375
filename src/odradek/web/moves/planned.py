"""A plan as a table, with the bytes it copies, its bound, its dangers and its commands. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from odradek.model.command import Command
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Load, loads
from odradek.plan.duration import duration_text, predict
from odradek.plan.move_risks import move_risks
from odradek.plan.movement import MovementPlan
from odradek.plan.quantities import bytes_text
from odradek.plan.reassignment import batches, copied_bytes, reassignment
from odradek.web.moves.grid import ReplicaGrid, replica_grid
from odradek.web.moves.request import (
    PlanKind,
    PlanRequest,
    kafka_command,
    own_command,
    title_of,
)
from odradek.web.paging import rows_of

DANGERS_MAX: Final = 20
_OPTIMIZED: Final = (PlanKind.REBALANCE, PlanKind.DRAIN, PlanKind.REPLICATION_FACTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A partition that a plan changes."""

    name: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    added: tuple[int, ...]
    removed: tuple[int, ...]
    preferred_leader_changes: bool
    copied_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """A broker before and after a plan."""

    broker: int
    rack: str | None
    replicas: tuple[int, int]
    leaders: tuple[int, int]
    size_bytes: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Danger:
    """Why a plan may do harm, or may never end."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """A plan that can be executed, as it is shown."""

    id: str
    kind: PlanKind
    title: str
    partitions: tuple[PlannedPartition, ...]  # of one page
    page: int
    pages: int
    changed: int
    copied: int
    copied_bytes: int
    bound_bytes: float | None  # no plan of the best balance copies less; None: not optimized
    gap: float | None
    imbalance: float | None
    imbalance_bound: float | None
    planned_s: float
    loads: tuple[PlannedLoad, ...]
    dangers: tuple[Danger, ...]
    more_dangers: int  # that are not listed
    throttle: int | None
    throttle_text: str | None
    batch: int
    batch_bytes: float | None
    batches: int
    duration: str | None  # a sentence, if there is a throttle
    seconds: float | None  # None: there is no throttle, or it never ends
    own_command: Command | None
    kafka_command: Command
    grid: ReplicaGrid | None


def plan_id(plan: MovementPlan) -> str:
    """A name of what a plan changes, and of what was there before."""
    tree = [reassignment(each, plan.changed) for each in (plan.before, plan.after)]
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()[:20]


def planned_move(
    request: PlanRequest,
    picture: ClusterPicture,
    plan: MovementPlan,
    inflow: Mapping[TopicPartition, float],
    *,
    planned_s: float = 0.0,
    server: Sequence[str] = (),
) -> PlannedMove:
    """The view of a plan, with all partitions in one page.

    `server` are the words that name the cluster in a command.
    """
    changed, pace = plan.changed, request.pace
    is_optimized = request.kind in _OPTIMIZED
    duration = predict(plan, pace.throttle, inflow) if pace.throttle else None
    topics = {partition.topic for partition in changed} or set(request.topics)
    grid = None
    if len(topics) == 1 and request.kind is not PlanKind.PARTITIONS:
        grid = replica_grid(picture, plan, min(topics))
    dangers = _dangers(request, picture, plan, inflow)
    is_known = duration is not None and duration.broker >= 0
    return PlannedMove(
        id=plan_id(plan),
        kind=request.kind,
        title=title_of(request),
        partitions=tuple(_partition(plan, partition) for partition in changed),
        page=1,
        pages=1,
        changed=len(changed),
        copied=0 if request.kind is PlanKind.PARTITIONS else len(plan.moved),
        copied_bytes=plan.moved_bytes,
        bound_bytes=plan.bound_bytes if is_optimized else None,
        gap=plan.gap if is_optimized else None,
        imbalance=plan.imbalance if is_optimized else None,
        imbalance_bound=plan.imbalance_bound if is_optimized else None,
        planned_s=planned_s,
        loads=_loads(picture, plan),
        dangers=dangers[:DANGERS_MAX],
        more_dangers=max(0, len(dangers) - DANGERS_MAX),
        throttle=pace.throttle,
        throttle_text=None if pace.throttle is None else f"{bytes_text(pace.throttle)}/s",
        batch=pace.batch,
        batch_bytes=pace.batch_bytes,
        batches=sum(1 for _ in batches(plan, changed, pace.batch, pace.batch_bytes)),
        duration=duration_text(duration, pace.throttle or 0.0) if duration and is_known else None,
        seconds=duration.seconds if duration and isfinite(duration.seconds) else None,
        own_command=own_command(request, server),
        kafka_command=kafka_command(request, plan, server),
        grid=grid,
    )


def page_of(view: PlannedMove, page: int, limit: int) -> PlannedMove:
    """A page of the partitions of a plan; the rest of the view is the same on each."""
    rows = rows_of(view.partitions, page, limit)
    return replace(view, partitions=rows.shown, page=rows.page, pages=rows.pages)


def _partition(plan: MovementPlan, partition: TopicPartition) -> PlannedPartition:
    before, after = plan.before[partition], plan.after[partition]
    return PlannedPartition(
        name=str(partition),
        before=before,
        after=after,
        added=tuple(broker for broker in after if broker not in before),
        removed=tuple(broker for broker in before if broker not in after),
        preferred_leader_changes=bool(before) and before[0] != after[0],
        copied_bytes=copied_bytes(plan, partition),
    )


def _loads(picture: ClusterPicture, plan: MovementPlan) -> tuple[PlannedLoad, ...]:
    before = loads(picture.racks, plan.before, plan.sizes)
    after = loads(picture.racks, plan.after, plan.sizes)
    found = []
    for broker in sorted({*before, *after}):
        now, then = before.get(broker, Load()), after.get(broker, Load())
        found.append(
            PlannedLoad(
                broker=broker,
                rack=picture.racks.get(broker),
                replicas=(now.replicas, then.replicas),
                leaders=(now.leaders, then.leaders),
                size_bytes=(now.size_bytes, then.size_bytes),
            )
        )
    return tuple(found)


def _dangers(
    request: PlanRequest,
    picture: ClusterPicture,
    plan: MovementPlan,
    inflow: Mapping[TopicPartition, float],
) -> tuple[Danger, ...]:
    if request.kind is PlanKind.PARTITIONS:
        return _dangers_of_partitions(request)
    found = []
    throttle = request.pace.throttle
    if throttle:
        duration = predict(plan, throttle, inflow)
        if not isfinite(duration.seconds):
            found.append(Danger(kind="throttle", text=duration_text(duration, throttle)))
    elif plan.moved_bytes:
        found.append(
            Danger(kind="no-throttle", text="without a throttle the copies take all of the network")
        )
    return (*found, *(Danger(kind=risk.kind, text=str(risk)) for risk in move_risks(picture, plan)))


def _dangers_of_partitions(request: PlanRequest) -> tuple[Danger, ...]:
    found = [
        Danger(
            kind="keys",
            text="records with a key are written to another partition from then on, so the order "
            "of a key's records is kept only within each partition; the number of partitions "
            "cannot be reduced again",
        )
    ]
    if request.topic in INTERNAL_TOPICS:
        found.append(
            Danger(
                kind="internal",
                text=f"{request.topic}: the coordinator of a group or transaction is chosen by the "
                "number of partitions: committed offsets would not be found",
            )
        )
    return tuple(found)
