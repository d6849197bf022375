"""One run: a test and a seed in, an outcome out. It is a function of both.

    0 s          brokers start, topics are made, programs start
    ... seconds  faults occur and heal
    healed       programs are told to come to an end (`context.stopping`)
    at rest      no event for a while: the test's checks

The digest is that of the trace: all received bytes, all starts, ends, faults and events.
"""

import asyncio
import gc
import hashlib
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.sim.clients.client import Client
from odradek.sim.scenes.replicas import NoWitness
from odradek.sim.scenes.scene import make, until
from odradek.sim.world.cluster import ProcessState, SimulatedCluster
from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.incidents import draw_incidents
from odradek.testkit.simulation.loop import ProgramLoop
from odradek.testkit.simulation.outcome import Event, RunOptions, RunOutcome
from odradek.testkit.simulation.outside import Outside
from odradek.testkit.simulation.patches import Replacements
from odradek.testkit.simulation.plan import SimulationPlan
from odradek.testkit.simulation.player import Player
from odradek.testkit.simulation.program import Instance, describe
from odradek.testkit.simulation.program_plan import ProgramPlan
from odradek.testkit.simulation.world import SimulatedWorld
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

FAILURES_MAX: Final = 20
EVENTS_MAX: Final = 100_000
_NOTICE_MS: Final = 50  # until the store notices a dead broker
_PROPERTIES: Final = {
    "auto.leader.rebalance.enable": "false",
    "controller.socket.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}

Test = Callable[[SimulationPlan], object]


def play(
    test: Test, options: RunOptions, *, brokers: int, seconds: float, test_name: str = ""
) -> RunOutcome:
    """Run a test once. An error of the test itself is in the outcome, too.

    Garbage is collected after the run only: when a collection comes depends on what there was
    before, and it may run code of the program.
    """
    outcome = RunOutcome(options)
    began_s = time.process_time()
    gc.collect()
    gc.disable()
    try:
        simulation = SimulationPlan(brokers)
        try:
            test(simulation)
        except Exception as error:
            outcome.error = f"{test_name or 'the test'} could not be set up: {describe(error)}"
            return outcome
        if not simulation.plan.programs:
            outcome.error = 'the test has no program: sim.process("name", main)'
            return outcome
        Run(simulation, outcome, brokers=brokers, seconds=seconds).play()
    finally:
        gc.enable()
    outcome.cpu_s = time.process_time() - began_s
    return outcome


class Run:
    """The state of one run."""

    def __init__(
        self, simulation: SimulationPlan, outcome: RunOutcome, *, brokers: int, seconds: float
    ) -> None:
        self.plan = simulation.plan
        self.outcome = outcome
        self.seconds = seconds
        self._brokers = brokers
        self._seed = outcome.options.seed
        self._digest = hashlib.blake2b(digest_size=8)
        self._last_event_s = 0.0
        self.loop = ProgramLoop(self.chance("executor"))
        self.instances: dict[str, Instance] = {}
        self.cluster = self._make_cluster()
        self.outside = Outside(self._appended)
        self.world = SimulatedWorld(self.cluster, self.instances, self.outside)
        self._is_over = False
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def chance(self, what: str) -> random.Random:
        """A random generator for one purpose, independent of the others."""
        return random.Random(f"{self._seed}/{what}")

    # -------------------------------------------------------------------------- the run

    def play(self) -> None:
        patches = Replacements(self.loop, self.chance("programs"))
        logger = logging.getLogger("odradek")
        level, propagates = logger.level, logger.propagate
        logger.setLevel(logging.CRITICAL + 1)
        logger.propagate = False
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.get_loop().set_exception_handler(self._unhandled)
                try:
                    with patches:
                        runner.run(self._main())
                except (SimulationError, RuntimeError) as error:
                    self.failed(describe(error))
                finally:
                    self._is_over = True
                    for instance in self.instances.values():
                        instance.forget()
                    self.cluster.bury()
            for instance in self.instances.values():
                instance.bury()
        finally:
            logger.setLevel(level)
            logger.propagate = propagates
        self.outcome.simulated_s = self.loop.time()
        self.outcome.digest = self._digest.hexdigest()

    async def _main(self) -> None:
        cluster = self.cluster
        self._make_instances()
        for broker in cluster.brokers:
            broker.start()
        await until(lambda: all(b.state is ProcessState.RUNNING for b in cluster.brokers))
        await until(
            lambda: all(len(b.running.metadata.brokers) == self._brokers for b in cluster.brokers)
        )
        await self._make_topics()
        started_s = self.loop.time()
        options = self.outcome.options
        drawn = draw_incidents(
            self.chance("faults"),
            seconds=self.seconds,
            kinds=self.plan.kinds,
            instances=[name for name, each in self.instances.items() if each.has_faults],
            brokers=self._brokers,
        )
        only = options.only
        self.outcome.incidents = [i for i in drawn if only is None or i.number in only]
        player = Player(self, self.outcome.incidents)
        for instance in self.instances.values():
            instance.start()
        watching = [
            asyncio.create_task(player.at(started_s + at_s, action))
            for at_s, action in self.plan.timed
        ]
        watching += [
            asyncio.create_task(player.when(condition, action))
            for condition, action in self.plan.conditional
        ]
        await asyncio.gather(player.play(), asyncio.sleep(self.seconds))
        for task in watching:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.failed(describe(task.exception()))  # type: ignore[arg-type]
            task.cancel()
        await player.heal()
        self.happened("", "all faults are over")
        for instance in self.instances.values():
            if instance.winds_up:
                instance.wind_up()
        await self._settle()
        self._check_end()
        player.stop()

    def _make_cluster(self) -> SimulatedCluster:
        copies = str(min(3, self._brokers))
        cluster = SimulatedCluster(
            self.loop,
            seed=self._seed,
            brokers=self._brokers,
            witness=NoWitness(),
            trace=self._trace,
            properties={
                **_PROPERTIES,
                "offsets.topic.replication.factor": copies,
                "transaction.state.log.replication.factor": copies,
                "transaction.state.log.min.isr": str(min(2, self._brokers)),
                "default.replication.factor": copies,
                "min.insync.replicas": str(min(2, self._brokers)),
                **self.plan.broker_options,
            },
        )
        cluster.draw_notice_ms = lambda: _NOTICE_MS  # type: ignore[method-assign]
        return cluster

    def _make_instances(self) -> None:
        most = self.outcome.options.instances_max
        for program in self.plan.programs:
            count = program.instances
            if most is not None and count > 1:
                count = max(1, min(most, count))
            for number in range(1, count + 1):
                self.instance(program, f"{program.name}-{number}", number)
            if not program.instances:
                self.instance(program, program.name, 1)

    def instance(self, program: ProgramPlan, name: str, number: int) -> Instance:
        """One more instance of a program; it is not started."""
        made = self.instances[name] = Instance(
            self.loop,
            self.cluster.network,
            name=name,
            number=number,
            program=program,
            bootstrap=self.cluster.bootstrap,
            outside=self.outside,
            note=self.happened,
            failed=self.failed,
        )
        return made

    async def _make_topics(self) -> None:
        client = Client(self.cluster, "odradek-testkit")
        for topic in self.plan.topics:
            wanted = CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replicas,
                assignments=[],
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.options.items()],
            )
            await client.run(make(client, wanted, timeout_ms=5_000))
        client.process.kill()
        self.cluster.network.host_died(client.process.name, power=False)

    async def _settle(self) -> None:
        """Wait until nothing has happened for a while, and no group waits for a member."""
        plan = self.plan
        end_s = self.loop.time() + plan.settle_s_max
        while self.loop.time() < end_s:
            quiet_s = self.loop.time() - self._last_event_s
            if quiet_s >= plan.quiet_s and self.world.groups_are_at_rest():
                return
            await asyncio.sleep(max(0.5, plan.quiet_s - quiet_s))

    def _check_end(self) -> None:
        for check in self.plan.checks:
            try:
                if check(self.world) is False:
                    self.failed("a check at the end is False")
            except Exception as error:
                self.failed(_told(error))

    # ---------------------------------------------------------------------- what happens

    def happened(self, who: str, what: str) -> None:
        """Note an event; invariants of the test are checked."""
        self._last_event_s = self.loop.time()
        self._trace(f"{who}: {what}")
        if len(self.outcome.events) < EVENTS_MAX:
            self.outcome.events.append(Event(round(self.loop.time(), 6), who, what))
        for future in self._waiting.pop(who, ()):
            if not future.done():
                future.set_result(None)
        for invariant in self.plan.invariants:
            try:
                if invariant(self.world) is False:
                    self.failed("an invariant is False")
            except Exception as error:
                self.failed(_told(error))

    async def next_event(self, who: str, timeout_s: float) -> None:
        """Wait until something happens in a program: a fault right after it may show the most."""
        future = self.loop.create_future()
        self._waiting.setdefault(who, []).append(future)
        await asyncio.wait([future], timeout=timeout_s)

    def _appended(self, who: str, ledger: str, value: object) -> None:
        self.happened(who, f"{ledger}: {value!r}")

    def failed(self, what: str) -> None:
        """Note a failure of the test."""
        if self._is_over or what in self.outcome.failures:
            return
        self._trace(f"FAILED {what}")
        if len(self.outcome.failures) < FAILURES_MAX:
            self.outcome.failures.append(what)

    def _trace(self, what: str) -> None:
        line = f"{self.loop.time():.6f} {what}\n"
        self._digest.update(line.encode(errors="backslashreplace"))
        if self.outcome.options.traced:
            self.outcome.trace.append(line)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exceptions of a callback, or of a task that nobody waits for."""
        del loop
        error = context.get("exception")
        if isinstance(error, SimulationError):
            self.failed(str(error))
        elif error is not None and not isinstance(error, OdradekError | OSError):
            # As in production: it is logged, and the program goes on.
            self._trace(f"unhandled: {context.get('message')}: {error!r}")


def _told(error: Exception) -> str:
    if isinstance(error, AssertionError) and error.args:
        return str(error).splitlines()[0]
    return describe(error)
