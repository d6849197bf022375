"""Plays the faults of a run, drawn or ordered by the test, and restarts what has ended."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from odradek.broker.faults.failing import FailingAnswers, OrderedFailure
from odradek.model.errors import ErrorCode
from odradek.sim.run.faults import FaultPlayer
from odradek.sim.world.cluster import SimulatedCluster
from odradek.testkit.simulation.incidents import OF_BROKERS, FaultKind, Incident
from odradek.testkit.simulation.loop import ProgramLoop
from odradek.testkit.simulation.plan import Action, Condition
from odradek.testkit.simulation.program import Instance
from odradek.testkit.simulation.program_plan import ProgramPlan
from odradek.testkit.simulation.world import SimulatedWorld
from odradek.wire.api_keys import ApiKey

_LOOK_EVERY_S: Final = 0.005
_SLOW_S_MAX: Final = 0.05
_JUMP_S_MAX: Final = 3_600.0
_PATIENCE_S: Final = 5.0
# What brokers answer in the course of ordinary events, by API.
ANSWERS: Final = (
    (ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (ApiKey.OFFSET_COMMIT, ErrorCode.REBALANCE_IN_PROGRESS),
    (ApiKey.OFFSET_FETCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (ApiKey.HEARTBEAT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.JOIN_GROUP, ErrorCode.NOT_COORDINATOR),
    (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS),
)


class PlayedRun(Protocol):
    """What faults need of the run that they are played in."""

    cluster: SimulatedCluster
    loop: ProgramLoop
    instances: dict[str, Instance]
    world: SimulatedWorld

    def happened(self, who: str, what: str) -> None:
        """Note an event of the run."""

    async def next_event(self, who: str, timeout_s: float) -> None:
        """Wait until something happens in a program."""

    def instance(self, program: ProgramPlan, name: str, number: int) -> Instance:
        """Make one more instance of a program."""


class Player:
    """The faults of one run."""

    def __init__(self, run: PlayedRun, incidents: Sequence[Incident]) -> None:
        self._run = run
        self._incidents = incidents
        self._brokers = FaultPlayer(run.cluster, ())
        self._owned: dict[str, asyncio.Lock] = {}
        self._joined = 0

    async def play(self) -> None:
        """Play the schedule; returns when all of it has healed."""
        await self._brokers.play()  # it restarts brokers that have stopped by themselves
        async with asyncio.TaskGroup() as group:
            for incident in self._incidents:
                group.create_task(self._play(incident))

    def stop(self) -> None:
        """Restart nothing any more."""
        self._brokers.stop()

    async def heal(self) -> None:
        """Everything runs and is connected from now on."""
        self._run.cluster.network.heal()
        for broker in self._run.cluster.brokers:
            broker.resume()
            if not broker.is_up:
                broker.start()
        for instance in self._run.instances.values():
            instance.resume()
            if instance.slow_s:
                instance.slow_down(0.0)
            if instance.is_wanted and not instance.is_up and instance.is_restarted:
                instance.start()

    async def at(self, when_s: float, action: Action) -> None:
        """An action at a time."""
        await asyncio.sleep(max(0.0, when_s - self._run.loop.time()))
        await self._act(action)

    async def when(self, condition: Condition, action: Action) -> None:
        """An action as soon as a condition holds."""
        while not condition(self._run.world):  # noqa: ASYNC110 - what a test asks sets no event
            await asyncio.sleep(_LOOK_EVERY_S)
        await self._act(action)

    async def _act(self, action: Action) -> None:
        acted = action(self._run.world)
        if acted is not None:
            await acted

    # ----------------------------------------------------------------------------- drawn

    async def _play(self, incident: Incident) -> None:
        await asyncio.sleep(incident.at_s)
        run = self._run
        if incident.kind in OF_BROKERS:
            run.happened(incident.target, f"fault: {incident.kind.value}")
            await self._brokers.play_one(incident.of_broker())
            run.happened(incident.target, f"fault over: {incident.kind.value}")
        elif incident.kind is FaultKind.ERRORS_ANSWERED:
            self._answer_errors(incident)
        else:
            async with self._owned.setdefault(incident.target, asyncio.Lock()):
                await self._play_program(run.instances[incident.target], incident)

    def _answer_errors(self, incident: Incident) -> None:
        broker = self._run.cluster.brokers[int(incident.target.removeprefix("broker-"))]
        if broker.broker is None:
            return
        drawn = int(incident.detail * 1_000_000)
        api, code = ANSWERS[drawn % len(ANSWERS)]
        times = 1 + drawn // 100 % 3
        self._run.happened(broker.name, f"answers {api.name} with {code.name}, {times} times")
        answers = FailingAnswers(broker.broker.server.wrap_frames)
        answers.order(OrderedFailure(api, code, tuple(lambda: True for _ in range(times))))

    async def _play_program(self, instance: Instance, incident: Incident) -> None:
        kind, lasts_s = incident.kind, incident.lasts_s
        if kind is FaultKind.PROGRAM_KILLED:
            await self._worst_moment(instance, incident)
            instance.kill()
            await asyncio.sleep(lasts_s)
            instance.start()
        elif kind is FaultKind.PROGRAM_PAUSED:
            await self._worst_moment(instance, incident)
            instance.pause()
            await asyncio.sleep(lasts_s)
            instance.resume()
        elif kind is FaultKind.PROGRAM_SLOW:
            instance.slow_down(_SLOW_S_MAX * incident.detail)
            await asyncio.sleep(lasts_s)
            instance.slow_down(0.0)
        elif kind is FaultKind.PROGRAM_CUT_OFF:
            await self._cut_off(instance, incident)
        elif kind is FaultKind.PROGRAM_LEAVES:
            await instance.stop()
            await asyncio.sleep(lasts_s)
            instance.start()
        elif kind is FaultKind.PROGRAM_JOINS:
            await self._join(instance, incident)
        elif kind is FaultKind.DEPLOYMENT:
            await self._deploy(instance, incident)
        elif kind is FaultKind.CLOCK_JUMP:
            instance.set_clock((incident.detail * 2 - 1) * _JUMP_S_MAX)
            await asyncio.sleep(lasts_s)
            instance.set_clock(0.0)

    async def _worst_moment(self, instance: Instance, incident: Incident) -> None:
        """In half of the cases right after something has happened in the program."""
        if incident.detail > 0.5:
            await self._run.next_event(instance.name, _PATIENCE_S)
            await asyncio.sleep((incident.detail - 0.5) / 20)

    async def _cut_off(self, instance: Instance, incident: Incident) -> None:
        network, brokers = self._run.cluster.network, self._run.cluster.brokers
        drawn = int(incident.detail * 1_000)
        cut = [b for b in brokers if drawn >> b.id & 1] or [brokers[drawn % len(brokers)]]
        links = [link for b in cut for link in ((instance.name, b.name), (b.name, instance.name))]
        for link in links:
            network.cut(*link)
        self._run.happened(instance.name, f"is cut off from {', '.join(b.name for b in cut)}")
        await asyncio.sleep(incident.lasts_s)
        network.heal(links)
        self._run.happened(instance.name, "is connected again")

    async def _join(self, instance: Instance, incident: Incident) -> None:
        self._joined += 1
        program = instance.program
        count = sum(each.program is program for each in self._run.instances.values())
        other = self._run.instance(program, f"{program.name}-{count + 1}", count + 1)
        other.start()
        await asyncio.sleep(1.0 + 2 * incident.lasts_s)
        await other.stop()

    async def _deploy(self, instance: Instance, incident: Incident) -> None:
        program = instance.program
        for each in [i for i in self._run.instances.values() if i.program is program]:
            if each.is_wanted:
                await each.stop()
                await asyncio.sleep(min(1.0, incident.lasts_s))
                each.start()
