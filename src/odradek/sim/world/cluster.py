"""Simulated brokers: each a process that dies, a disk and a clock that do not, and a session.

    broker.start()          a new life: process, network host, store session, `Broker`
    broker.stop()           as by SIGTERM; its end is awaited
    broker.kill()           as by SIGKILL: the page cache stays, a write under way may be torn
    broker.lose_power()     only what was flushed stays, and of the rest what chance left
    broker.pause()          as by SIGSTOP; `resume`
    broker.crash_after(n)   killed within its n-th change of the disk from now

A broker that gives up by itself (it cannot start, all its log dirs failed) is down; nobody starts
it again but who runs the simulation. What the shell around a real broker does
(`odradek.broker.main`) is done here in the same order.

`Witness` is told of the births and deaths of brokers: the checkers' eyes.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, Protocol

from odradek.broker.server import Broker
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.coord.memory import MemoryStore, RequestFate
from odradek.model.errors import OdradekError
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.disk import Crash, SimulatedDisk
from odradek.sim.world.ensemble import WatchedTree
from odradek.sim.world.network import SimulatedLoop, SimulatedNetwork
from odradek.sim.world.process import MortalLoop

PORT: Final = 9092
LOG_DIRS: Final = ("/data/a", "/data/b")
SESSION_TIMEOUT_MS: Final = 6_000
_STOP_TIMEOUT_S: Final = 60.0


class State(Enum):
    """What a process is doing."""

    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"


class Witness(Protocol):
    """Who wants to know what happens to brokers."""

    def loaded(self, broker: "SimulatedBroker") -> None:
        """It has opened its logs, and nobody has told it anything yet."""

    def started(self, broker: "SimulatedBroker") -> None:
        """It serves."""

    def dying(self, broker: "SimulatedBroker") -> None:
        """It is about to be dead: the last look at what it has in memory."""

    def died(self, broker: "SimulatedBroker", how: Crash) -> None:
        """It is dead, and its disk is as the next life will find it."""

    def stopped(self, broker: "SimulatedBroker") -> None:
        """It has ended by itself, cleanly or giving up."""

    def violated(self, what: str) -> None:
        """It did what it must not."""


class SimulatedBroker:
    """One broker of the cluster, through all its lives."""

    def __init__(self, cluster: "SimulatedCluster", broker_id: int) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.state = State.DOWN
        self.lives = 0
        self.broker: Broker | None = None
        self.process: MortalLoop | None = None
        self.store: MemoryStore | None = None
        self.gave_up = ""
        self._cluster = cluster
        self._over: asyncio.Future[str | None] | None = None
        self._together_with: Collection[int] = ()
        self._ended = asyncio.Event()
        self.clock = SimulatedClock(cluster.loop.time, started_ms=1_000_000 * (broker_id + 1))
        self.disk = SimulatedDisk(
            cluster.randomness(f"{self.name}/disk"),
            self._complete_later,
            wall_ms=self.clock.wall_ms,
        )

    @property
    def is_up(self) -> bool:
        """Whether there is a process."""
        return self.state is not State.DOWN

    # ------------------------------------------------------------------------- its lives

    def start(self) -> None:
        """Begin a life."""
        assert not self.is_up, self.name
        cluster = self._cluster
        self.lives += 1
        cluster.trace(f"{self.name} starts life {self.lives}")
        process = self.process = MortalLoop(cluster.loop, self.name)
        cluster.processes.append(process)
        process.on_crash = lambda: self._dead(Crash.PROCESS)
        self.disk.on_crash = lambda: self._last_look(process)
        self._over = cluster.loop.create_future()
        self._together_with = ()
        self._ended.clear()
        self.gave_up = ""
        self.state = State.STARTING
        self.store = MemoryStore(
            cluster.tree, session_timeout_ms=SESSION_TIMEOUT_MS, fate=cluster.fate
        )
        process.create_task(self._live(process), name=self.name)

    async def _live(self, process: MortalLoop) -> None:
        cluster, over = self._cluster, self._over
        assert over is not None
        assert self.store is not None

        def end(reason: str | None) -> None:
            if not over.done():
                over.set_result(reason)

        # `MortalLoop` is the part of a loop that a broker uses.
        loop: asyncio.AbstractEventLoop = process  # type: ignore[assignment]
        world = World(
            loop=loop,
            clock=self.clock,
            random=cluster.randomness(f"{self.name}/{self.lives}"),
            disk=self.disk,
            store=self.store,
            network=cluster.network.join(process, lambda: cluster.witness.loaded(self)),
        )
        broker = self.broker = Broker(cluster.config(self), world, on_fatal=end)
        try:
            await broker.start()
            if self.state is State.STARTING:
                self.state = State.RUNNING
            cluster.witness.started(self)
            self.gave_up = await over or ""
        except (OdradekError, OSError) as error:
            self.gave_up = str(error)
        cluster.trace(f"{self.name} stops: {self.gave_up or 'asked to'}")
        self.state = State.STOPPING
        await broker.stop(together_with=self._together_with)
        process.kill()
        self.store.crash(0)  # its session is over already; nothing reaches it any more
        cluster.network.host_died(self.name, power=False)
        self.disk.crash(Crash.PROCESS)
        cluster.witness.stopped(self)
        self._down()

    def request_stop(self, together_with: Collection[int] = ()) -> None:
        """SIGTERM; with the brokers that are being stopped at the same time, if it may know."""
        self._together_with = together_with
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def ended(self) -> None:
        """Wait until there is no process any more."""
        await self._ended.wait()

    async def stop(self, together_with: Collection[int] = ()) -> None:
        """SIGTERM, and wait."""
        self.resume()
        self.request_stop(together_with)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._ended.wait()
        except TimeoutError:
            self._cluster.witness.violated(f"{self.name} does not stop in {_STOP_TIMEOUT_S} s")
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self._end(Crash.PROCESS)

    def lose_power(self) -> None:
        """The host is off at once, be there a process or not."""
        self._cluster.lossy.add(self.id)
        if self.is_up:
            self._end(Crash.POWER)
        else:
            self._cluster.network.host_died(self.name, power=True)
            self.disk.crash(Crash.POWER)
            self._cluster.witness.died(self, Crash.POWER)

    def crash_after(self, operations: int) -> None:
        """SIGKILL within a change of the disk, so many of them from now."""
        if self.is_up:
            self.disk.crash_after(operations)

    def spare(self) -> None:
        """No crash is to come any more."""
        self.disk.crash_after(1 << 60)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.state is State.RUNNING and self.process is not None and self.store is not None:
            self._cluster.trace(f"{self.name} pauses")
            self.state = State.PAUSED
            self.process.pause()
            self.store.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.state is State.PAUSED and self.process is not None and self.store is not None:
            self._cluster.trace(f"{self.name} goes on")
            self.state = State.RUNNING
            self.store.resume()
            self.process.resume()

    # ------------------------------------------------------------------------ how it ends

    def _end(self, how: Crash) -> None:
        if self.process is not None and self.is_up:
            self._last_look(self.process)
            self._dead(how)

    def _last_look(self, process: MortalLoop) -> None:
        if not process.is_dead:
            self._cluster.witness.dying(self)
            process.kill()

    def _dead(self, how: Crash) -> None:
        assert self.store is not None
        self._cluster.trace(f"{self.name} dies: {how.value}")
        self.store.crash(self._cluster.draw_notice_ms())
        self._cluster.network.host_died(self.name, power=how is Crash.POWER)
        self.disk.crash(how)
        self._down()
        self._cluster.witness.died(self, how)

    def _down(self) -> None:
        self.state = State.DOWN
        self.broker = self.process = self.store = None
        self._ended.set()

    def _complete_later(self, delay_s: float, work: Callable[[], None]) -> None:
        if self.process is not None:
            self.process.call_later(delay_s, work)


class SimulatedCluster:
    """Brokers, their network and their ensemble."""

    def __init__(
        self,
        loop: SimulatedLoop,
        *,
        seed: int,
        brokers: int,
        witness: Witness,
        trace: Callable[[str], None],
        properties: Mapping[str, str],
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.witness = witness
        self.processes: list[MortalLoop] = []
        self.lossy: set[int] = set()  # brokers that lost power, and are not known to be whole again
        self.losing: set[int] = set()  # brokers whose disks lose pages now; they are lossy, too
        self.strays = False  # what a broker has sent another outlives its power
        self.missed_topic: str | None = None  # that is deleted, and that somebody wants back
        self._seed = seed
        self._properties = properties
        self.network = SimulatedNetwork(loop, self.randomness("network"), trace=trace)
        loop.network = self.network
        self.store_clock = SimulatedClock(loop.time)
        self.tree = WatchedTree(self.store_clock.wall_ms)
        self._store_random = self.randomness("store")
        self._waiting_for_promise: list[asyncio.Future[None]] = []
        self.draw_fate: Callable[[random.Random], RequestFate] = usual_fate
        self.brokers = [SimulatedBroker(self, broker_id) for broker_id in range(brokers)]

    def randomness(self, what: str) -> random.Random:
        """Chance for one purpose: it does not depend on what is drawn for another."""
        return random.Random(f"{self._seed}/{what}")

    def fate(self, operation: str) -> RequestFate:
        """What happens to a request to the store."""
        del operation
        return self.draw_fate(self._store_random)

    def draw_notice_ms(self) -> int | None:
        """When the ensemble notices a death: by the session's time-out, or soon as SQLite does."""
        return None if self._store_random.random() < 0.3 else self._store_random.randint(0, 250)

    def config(self, broker: SimulatedBroker) -> BrokerConfig:
        """What stands in its `server.properties`."""
        own = {
            "broker.id": str(broker.id),
            "listeners": f"PLAINTEXT://:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{broker.name}:{PORT}",
            "log.dirs": ",".join(LOG_DIRS),
            "odradek.http.port": "-1",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        return BrokerConfig({**self._properties, **own}, host_name=broker.name)

    def promised(self) -> None:
        """A client was just told that something is done."""
        waiting, self._waiting_for_promise = self._waiting_for_promise, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def next_promise(self, timeout_s: float) -> None:
        """Wait for the worst moment: right after a promise was made."""
        future = self.loop.create_future()
        self._waiting_for_promise.append(future)
        await asyncio.wait([future], timeout=timeout_s)

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return ",".join(f"{broker.name}:{PORT}" for broker in self.brokers)

    def bury(self) -> None:
        """The simulation is over."""
        for process in self.processes:
            process.bury()


def usual_fate(randomness: random.Random) -> RequestFate:
    """A store that works."""
    return RequestFate(
        request_delay_ms=randomness.randint(0, 3), answer_delay_ms=randomness.randint(0, 3)
    )
