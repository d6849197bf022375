"""Executes one plan at a time in this process, from the file it was saved to.

The state is the cluster's: which reassignments run, which throttles are set, which replicas there
are. If this process ends, the copies of the running batch go on under their throttles; the file
remains, and the next process offers to continue: it plans the rest from the replicas as they are.
"""

import asyncio
import json
import logging
import pathlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from odradek.client.admin.partitions import PREFERRED, elect_leaders, list_reassignments
from odradek.client.admin.topics import MorePartitions, create_partitions
from odradek.client.cluster import Cluster
from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.net.clock import real_wall_ms
from odradek.plan.cluster import ClusterPicture
from odradek.plan.collect import picture_of
from odradek.plan.execute import (
    MovePace,
    MoveProgress,
    cancel,
    change_throttles,
    clear_all_throttles,
    execute,
    settle,
)
from odradek.plan.movement import MovementPlan, PlanError
from odradek.plan.quantities import bytes_text, parse_bytes
from odradek.plan.reassignment import plan_to, reassignment
from odradek.web.moves.planned import PlannedMove
from odradek.web.moves.request import PlanKind, PlanRequest, title_of
from odradek.web.moves.saved import SavedPlan, load_newest, mark_done, save_pace, save_plan

log = logging.getLogger(__name__)
KEPT: Final = 16  # plans that were shown, and may be executed

Connect = Callable[[], Awaitable[Cluster]]


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan that was shown, what it was asked for, and all that pages of it show."""

    request: PlanRequest
    plan: MovementPlan
    view: PlannedMove


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRunStatus:
    """What this process does with the saved plan."""

    is_running: bool = False
    pauses: bool = False  # after the current batch
    progress: MoveProgress | None = None
    problem: str | None = None  # why the last run ended early


class MoveTurn:
    """Which of the runners of this process executes a plan: one at a time."""

    def __init__(self) -> None:
        self.changing = asyncio.Lock()
        self.runner: MoveRunner | None = None


class MoveRunner:
    """The plans that were shown, and the task that executes one of them.

    `turn` is shared by the runners of all users.
    """

    def __init__(
        self,
        connect: Connect,
        folder: pathlib.Path,
        *,
        turn: MoveTurn | None = None,
        wall_ms: Callable[[], WallMs] = real_wall_ms,
    ) -> None:
        self.folder = folder
        self.planning = asyncio.Lock()  # one solver at a time
        self._connect = connect
        self._wall_ms = wall_ms
        self._shown: OrderedDict[str, ShownPlan] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._turn = turn or MoveTurn()
        self._changing = self._turn.changing
        self._filing = asyncio.Lock()  # the file of the plan is written by one at a time
        self._pauses = False
        self._progress: MoveProgress | None = None
        self._problem: str | None = None
        self._throttle: int | None = None  # instead of the plan's

    @property
    def status(self) -> MoveRunStatus:
        return MoveRunStatus(
            is_running=self._is_running,
            pauses=self._pauses,
            progress=self._progress if self._is_running else None,
            problem=self._problem,
        )

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    # ---- plans that were shown

    def keep(self, request: PlanRequest, plan: MovementPlan, view: PlannedMove) -> None:
        """Keep a plan that is shown, so that exactly this one can be executed."""
        self._shown[view.id] = ShownPlan(request, plan, view)
        self._shown.move_to_end(view.id)
        while len(self._shown) > KEPT:
            self._shown.popitem(last=False)

    def shown(self, name: str) -> ShownPlan:
        """A plan that was shown.

        Raises:
            PlanError: it is not kept any more.
        """
        found = self._shown.get(name)
        if found is None:
            raise PlanError("this plan is not kept any more: plan again")
        return found

    async def saved(self) -> SavedPlan | None:
        """The plan that was begun last.

        Raises:
            PlanError, BootstrapError: its file cannot be read, or no broker answers.
        """
        cluster = await self._connect()
        return await asyncio.to_thread(load_newest, self.folder, cluster.metadata.cluster_id)

    # ---- what the buttons do

    async def begin(self, name: str) -> str:
        """Begin to execute a plan that was shown. Returns what was done.

        Raises:
            PlanError: the cluster has changed since, or replicas are being moved.
            OSError: the file cannot be written. OdradekError: the cluster refuses.
        """
        async with self._changing:
            found = self.shown(name)
            cluster = await self._idle()
            if found.request.kind is PlanKind.PARTITIONS:
                return await _create(cluster, found)
            plan = found.plan
            picture = await picture_of(cluster, sizes=False)
            for partition in plan.changed:
                held = picture.partitions.get(partition)
                if held is None or held.brokers != plan.before[partition]:
                    raise PlanError(f"{partition} has changed since this was planned: plan again")
            if not plan.changed:
                raise PlanError("no change is needed")
            path = await asyncio.to_thread(
                save_plan,
                self.folder,
                cluster.metadata.cluster_id,
                title_of(found.request),
                plan,
                found.request.pace,
                self._wall_ms(),
            )
            self._throttle = None
            self._start(self._run(cluster, plan, found.request.pace, path))
            return f"begun; to roll back, the replicas as they were are in {path}"

    async def go_on(self) -> str:
        """Execute the rest of the saved plan.

        Raises:
            PlanError: there is none, it is being executed, or nothing of it is left.
        """
        async with self._changing:
            if self._is_running:
                if self._pauses:
                    self._pauses = False
                    return "it does not pause"
                raise PlanError("it is being executed")
            self._refuse_if_another_runs()
            saved = await self.saved()
            if saved is None or saved.is_done:
                raise PlanError(f"there is no plan to continue in {self.folder}")
            self._start(self._continue(await self._connect(), saved))
            return "continued"

    async def pause(self) -> str:
        """Begin no further batch.

        Raises:
            PlanError: no plan is being executed.
        """
        if not self._is_running:
            raise PlanError("no plan is being executed")
        self._pauses = True
        return "it pauses after the current batch, which is awaited under its throttle"

    async def change_throttle(self, text: str) -> str:
        """Throttle the running batch, and those after it, to another rate.

        It is kept in the file of the plan, and so holds when another process continues it.

        Raises:
            PlanError: it is not a number of bytes, or no broker is throttled.
        """
        try:
            throttle = int(parse_bytes(text))
        except ValueError as error:
            raise PlanError(str(error)) from None
        if throttle < 1:
            raise PlanError(f"{text}: must be 1 byte a second or more")
        async with self._changing:
            brokers = await change_throttles(await self._connect(), throttle)
            if not brokers:
                raise PlanError("no broker is throttled")
            self._throttle = throttle
            async with self._filing:
                saved = await self.saved()
                if saved is not None and not saved.is_done:
                    pace = saved.pace._replace(throttle=throttle)
                    await asyncio.to_thread(save_pace, pathlib.Path(saved.path), pace)
            return f"brokers {', '.join(map(str, brokers))}: {bytes_text(throttle)}/s"

    async def cancel(self) -> str:
        """End the execution, cancel every running reassignment, and clear the throttles."""
        async with self._changing:
            self._refuse_if_another_runs()
            self._pauses = True
            await self._end()
            cluster = await self._connect()
            await cluster.refresh()
            taken = await cancel(cluster, sorted(cluster.metadata.nodes))
            return f"{len(taken)} reassignments cancelled; throttles cleared"

    async def clear(self) -> str:
        """Clear the throttles that are left.

        Raises:
            PlanError: replicas are being moved, and need them.
        """
        async with self._changing:
            await clear_all_throttles(await self._idle())
            return "throttles cleared"

    async def close(self) -> None:
        """End the task; the copies of its batch go on."""
        await self._end()

    # ---- the task

    async def _idle(self) -> Cluster:
        if self._is_running:
            raise PlanError("a plan is being executed: pause or cancel it first")
        self._refuse_if_another_runs()
        cluster = await self._connect()
        moving = await list_reassignments(cluster)
        if moving:
            raise PlanError(
                f"{len(moving)} partitions are being moved, {min(moving)} first: wait, or cancel"
            )
        return cluster

    def _refuse_if_another_runs(self) -> None:
        runner = self._turn.runner
        if runner is not None and runner is not self and runner.status.is_running:
            raise PlanError("another user executes a plan: wait until it has ended")

    def _start(self, run: Awaitable[None]) -> None:
        self._pauses, self._progress, self._problem = False, None, None
        self._turn.runner = self
        self._task = asyncio.create_task(self._guarded(run))

    async def _guarded(self, run: Awaitable[None]) -> None:
        try:
            await run
        except (OdradekError, ConnectionError) as error:
            self._problem = str(error) or type(error).__name__
            log.warning("the execution of a plan has ended: %s", self._problem)
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"
            log.exception("the execution of a plan has ended")

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _continue(self, cluster: Cluster, saved: SavedPlan) -> None:
        await settle(cluster, self._tell)
        picture = await picture_of(cluster)
        plan = rest_of(saved, picture)
        await self._run(cluster, plan, saved.pace, pathlib.Path(saved.path))
        # What was moved while no process waited for it has not had its leaders elected.
        moved = sorted(partition for partition in saved.after if partition in picture.partitions)
        await elect_leaders(cluster, PREFERRED, moved)

    async def _run(
        self, cluster: Cluster, plan: MovementPlan, pace: MovePace, path: pathlib.Path
    ) -> None:
        done = await execute(
            cluster,
            plan,
            pace,
            tell=self._tell,
            goes_on=lambda: not self._pauses,
            rate=lambda throttle: throttle and (self._throttle or throttle),
        )
        if done == len(plan.changed):
            await clear_all_throttles(cluster)
            async with self._filing:
                await asyncio.to_thread(mark_done, path)

    def _tell(self, progress: MoveProgress) -> None:
        self._progress = progress


def rest_of(saved: SavedPlan, picture: ClusterPicture) -> MovementPlan:
    """What of a saved plan is not done; partitions that were deleted are left out.

    Raises:
        PlanError: a target is not possible any more.
    """
    return plan_to(picture, {p: held for p, held in saved.after.items() if p in picture.partitions})


async def _create(cluster: Cluster, found: ShownPlan) -> str:
    topic, plan = found.request.topic, found.plan
    added = [plan.after[p] for p in plan.changed]
    more = MorePartitions(found.request.count, added)
    outcome = (await create_partitions(cluster, {topic: more}))[topic]
    if outcome is not None:
        raise outcome
    return f"{len(added)} partitions added to {topic}"


def plan_file(plan: MovementPlan, *, back: bool = False) -> str:
    """The reassignment JSON of a plan, or of the way back."""
    return json.dumps(reassignment(plan.before if back else plan.after, plan.changed), indent=1)
