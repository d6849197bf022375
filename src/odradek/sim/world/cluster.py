"""Simulated brokers: each has a process that can be killed, and a disk and a clock that remain.

    broker.start()          starts a process: network host, store session, `Broker`
    broker.stop()           SIGTERM; waits for the end
    broker.kill()           SIGKILL: the page cache stays, a write in progress may be torn
    broker.lose_power()     keeps only what was flushed, and a random part of the rest
    broker.pause()          SIGSTOP; `resume` is SIGCONT
    broker.crash_after(n)   kills the process within its n-th change of the disk from now

A broker that stops by itself (it cannot start, or all its log dirs failed) is down; only the
simulation starts it again. The steps of `odradek.broker.main` are repeated here in the same order.

A `Witness` is notified of starts and ends of brokers; the checkers use it.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, Protocol

from odradek.broker.server import Broker
from odradek.broker.storage.open_files import shares
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.coord.memory import MemoryStore, RequestFate
from odradek.model.errors import OdradekError
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.descriptors import ENOUGH, Descriptors
from odradek.sim.world.disk import Crash, SimulatedDisk
from odradek.sim.world.ensemble import WatchedTree
from odradek.sim.world.network import SimulatedLoop, SimulatedNetwork
from odradek.sim.world.process import MortalLoop
from odradek.sim.world.slow_store import SlowStore
from odradek.sim.world.stored import Directory

PORT: Final = 9092
LOG_DIRS: Final = ("/data/a", "/data/b")
SESSION_TIMEOUT_MS: Final = 6_000
_STOP_TIMEOUT_S: Final = 60.0
_BACKLOG: Final = 50


class ProcessState(Enum):
    """The state of a simulated broker's process."""

    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"


class Witness(Protocol):
    """Receives the starts and ends of brokers."""

    def loaded(self, broker: "SimulatedBroker") -> None:
        """The broker has opened its logs, and has not received any request."""

    def started(self, broker: "SimulatedBroker") -> None:
        """The broker has started and accepts requests."""

    def dying(self, broker: "SimulatedBroker") -> None:
        """The process is about to end: its memory can be read for the last time."""

    def died(self, broker: "SimulatedBroker", how: Crash) -> None:
        """The process has ended, and its disk is as the next start will find it."""

    def put_back(self, broker: "SimulatedBroker") -> None:
        """Log directories of the broker, which is down, are those of a backup."""

    def stopped(self, broker: "SimulatedBroker") -> None:
        """The broker has stopped by itself, cleanly or after an error."""

    def violated(self, what: str) -> None:
        """A check has failed."""


class SimulatedBroker:
    """One broker of the cluster, with all its processes one after the other."""

    def __init__(self, cluster: "SimulatedCluster", broker_id: int) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.state = ProcessState.DOWN
        self.starts = 0
        # What its processes have used of the processor. Simulated code takes no time, so that it
        # stands still unless somebody charges it (`odradek.sim.checks.quotas`).
        self.processor_ns = 0
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
        self.descriptors = Descriptors(cluster.files_max, self._open, self._ran_out)
        self.disk.descriptors = cluster.network.descriptors[self.name] = self.descriptors
        self._files = shares(cluster.files_max, backlog=_BACKLOG, directories=len(LOG_DIRS))
        self.disk.files_max = self._files.logs

    def _open(self) -> int:
        return self.disk.open_files + self._cluster.network.sockets[self.name]

    def _ran_out(self, what: str) -> None:
        self._cluster.witness.violated(
            f"{self.name} has run out of descriptors, and nobody took them: {what}"
        )

    @property
    def is_up(self) -> bool:
        """Whether a process exists, in whichever state."""
        return self.state is not ProcessState.DOWN

    @property
    def running(self) -> Broker:
        """The broker of its process.

        Raises:
            LookupError: no process of it has come that far.
        """
        if self.broker is None:
            raise LookupError(f"{self.name} does not run")
        return self.broker

    # ------------------------------------------------------------------------- its processes

    def start(self) -> None:
        """Start a process of this broker."""
        assert not self.is_up, self.name
        cluster = self._cluster
        self.starts += 1
        cluster.trace(f"{self.name} starts process {self.starts}")
        process = self.process = MortalLoop(cluster.loop, self.name)
        cluster.processes.append(process)
        process.on_crash = lambda: self._dead(Crash.PROCESS)
        self.disk.on_crash = lambda: self._last_look(process)
        over = self._over = cluster.loop.create_future()
        self._together_with = ()
        self._ended.clear()
        self.gave_up = ""
        self.state = ProcessState.STARTING
        store = self.store = MemoryStore(
            cluster.tree,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            fate=lambda operation: cluster.fate(operation, self.id),
        )
        process.create_task(self._live(process, over, store), name=self.name)

    async def _live(
        self, process: MortalLoop, over: asyncio.Future[str | None], store: MemoryStore
    ) -> None:
        cluster = self._cluster

        def end(reason: str | None) -> None:
            if not over.done():
                over.set_result(reason)

        # `MortalLoop` implements the part of a loop that a broker uses.
        loop: asyncio.AbstractEventLoop = process  # type: ignore[assignment]
        world = World(
            loop=loop,
            clock=self.clock,
            random=cluster.randomness(f"{self.name}/{self.starts}"),
            disk=self.disk,
            store=store,
            network=cluster.network.join(process, lambda: cluster.witness.loaded(self)),
            is_alone=cluster.loop.is_last,
            connections_max=self._files.connections,
            processor_ns=lambda: self.processor_ns,
        )
        broker = self.broker = Broker(cluster.config(self), world, on_fatal=end)
        try:
            await broker.start()
            if self.state is ProcessState.STARTING:
                self.state = ProcessState.RUNNING
            cluster.witness.started(self)
            self.gave_up = await over or ""
        except (OdradekError, OSError) as error:
            self.gave_up = str(error)
        cluster.trace(f"{self.name} stops: {self.gave_up or 'asked to'}")
        self.state = ProcessState.STOPPING
        await broker.stop(together_with=self._together_with)
        process.kill()
        store.crash(0)  # its session has ended already
        cluster.network.host_died(self.name, power=False)
        self.disk.crash(Crash.PROCESS)
        cluster.witness.stopped(self)
        self._down()

    def request_stop(self, together_with: Collection[int] = ()) -> None:
        """SIGTERM. `together_with` are brokers that are stopped at the same time."""
        self._together_with = together_with
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def ended(self) -> None:
        """Wait until no process exists."""
        await self._ended.wait()

    async def stop(self, together_with: Collection[int] = ()) -> None:
        """SIGTERM, and wait for the end."""
        self.resume()
        self.request_stop(together_with)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._ended.wait()
        except TimeoutError:
            self._cluster.witness.violated(f"{self.name} does not stop in {_STOP_TIMEOUT_S} s")
            self.kill()

    def kill(self) -> None:
        self._end(Crash.PROCESS)

    def lose_power(self) -> None:
        """Switch the host off, whether a process runs or not."""
        self._cluster.lossy.add(self.id)
        if self.is_up:
            self._end(Crash.POWER)
        else:
            self._cluster.network.host_died(self.name, power=True)
            self.disk.crash(Crash.POWER)
            self._cluster.witness.died(self, Crash.POWER)

    def put_back(self, path: str, backup: Directory) -> None:
        """Replace a log directory, or all of them (`/`), by a backup, while no process runs."""
        assert not self.is_up, self.name
        self._cluster.lossy.add(self.id)
        self.disk.put_back(backup, path)
        self._cluster.witness.put_back(self)

    def crash_after(self, operations: int) -> None:
        """SIGKILL within the n-th change of the disk from now."""
        if self.is_up:
            self.disk.crash_after(operations)

    def spare(self) -> None:
        self.disk.crash_after(1 << 60)

    def pause(self) -> None:
        """SIGSTOP: the process runs no code until `resume`."""
        if (
            self.state is ProcessState.RUNNING
            and self.process is not None
            and self.store is not None
        ):
            self._cluster.trace(f"{self.name} pauses")
            self.state = ProcessState.PAUSED
            self.process.pause()
            self.store.pause()

    def resume(self) -> None:
        """SIGCONT: continue a paused process."""
        if (
            self.state is ProcessState.PAUSED
            and self.process is not None
            and self.store is not None
        ):
            self._cluster.trace(f"{self.name} goes on")
            self.state = ProcessState.RUNNING
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
        self.state = ProcessState.DOWN
        self.broker = self.process = self.store = None
        self._ended.set()

    def _complete_later(self, delay_s: float, work: Callable[[], None]) -> None:
        if self.process is not None:
            self.process.call_later(delay_s, work)


class SimulatedCluster:
    """The brokers of one simulation with their network and coordination store."""

    def __init__(  # noqa: PLR0913 - what a simulation decides
        self,
        loop: SimulatedLoop,
        *,
        seed: int,
        brokers: int,
        witness: Witness,
        trace: Callable[[str], None],
        properties: Mapping[str, str],
        files_max: int = ENOUGH,
    ) -> None:
        """`files_max`: the limit of open files and sockets of each broker."""
        self.loop = loop
        self.files_max = files_max
        self.trace = trace
        self.witness = witness
        self.processes: list[MortalLoop] = []
        self.lossy: set[int] = set()  # brokers that lost power and may still lack records
        self.losing: set[int] = set()  # with failing flushes; also lossy
        self.racks: dict[int, str] = {}  # broker.rack of brokers that have one
        self.strays = False  # what is held up arrives even if its sender lost power
        self.missed_topic: str | None = (
            None  # a deleted topic that an administrator should create again
        )
        self._seed = seed
        self._properties = properties
        self.network = SimulatedNetwork(loop, self.randomness("network"), trace=trace)
        loop.network = self.network
        self.store_clock = SimulatedClock(loop.time)
        self.tree = WatchedTree(self.store_clock.wall_ms)
        self._store_random = self.randomness("store")
        self._waiting_for_promise: list[asyncio.Future[None]] = []
        self.draw_fate: Callable[[random.Random], RequestFate] = usual_fate
        self.slow_stores: list[SlowStore] = []  # those that are active; their delays add up
        self._slow_random = self.randomness("slow store")
        self.brokers = [SimulatedBroker(self, broker_id) for broker_id in range(brokers)]

    def randomness(self, what: str) -> random.Random:
        """A random generator for one purpose, independent of the others."""
        return random.Random(f"{self._seed}/{what}")

    def fate(self, operation: str, broker: int = -1) -> RequestFate:
        """Draw delays and loss of a request to the store, a watch event or a session's end.

        `broker` is whose session it is; -1: that of a client.
        """
        fate = self.draw_fate(self._store_random)
        for slow in self.slow_stores:
            fate = slow.delay(fate, self._slow_random, operation, broker)
        return fate

    def draw_notice_ms(self) -> int | None:
        """How long until the store notices a dead session: its time-out, or soon (as SQLite)."""
        return None if self._store_random.random() < 0.3 else self._store_random.randint(0, 250)

    def config(self, broker: SimulatedBroker) -> BrokerConfig:
        """The options in the broker's `server.properties`."""
        own = {
            "broker.id": str(broker.id),
            "listeners": f"PLAINTEXT://:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{broker.name}:{PORT}",
            "log.dirs": ",".join(LOG_DIRS),
            "odradek.http.port": "-1",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        if broker.id in self.racks:
            own["broker.rack"] = self.racks[broker.id]
        return BrokerConfig({**self._properties, **own}, host_name=broker.name)

    def controller(self) -> SimulatedBroker | None:
        """The first broker whose state is that of a controller."""
        for broker in self.brokers:
            if broker.broker is not None and broker.broker.controller.term is not None:
                return broker
        return None

    def promised(self) -> None:
        """An admin client received a definite response: success, or an error that is final."""
        waiting, self._waiting_for_promise = self._waiting_for_promise, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def next_promise(self, timeout_s: float) -> None:
        """Wait until an admin client receives its next definite response, at most `timeout_s`.

        A fault right after it is the most likely to lose what the response promised.
        """
        future = self.loop.create_future()
        self._waiting_for_promise.append(future)
        await asyncio.wait([future], timeout=timeout_s)

    @property
    def bootstrap(self) -> str:
        """The bootstrap.servers of the cluster."""
        return ",".join(f"{broker.name}:{PORT}" for broker in self.brokers)

    def bury(self) -> None:
        for process in self.processes:
            process.bury()


def usual_fate(randomness: random.Random) -> RequestFate:
    """Draw the delays of a request to a store without faults."""
    return RequestFate(
        request_delay_ms=randomness.randint(0, 3), answer_delay_ms=randomness.randint(0, 3)
    )
