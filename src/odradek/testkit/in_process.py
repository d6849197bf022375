"""Brokers on the loop of a thread: real sockets and files, and a coordination store in memory."""

import asyncio
import logging
import pathlib
import random
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeVar, cast

from odradek.broker.faults.gate import FaultError
from odradek.broker.faults.injected import Faults, ShiftedClock
from odradek.broker.server import Broker
from odradek.broker.world import World
from odradek.client.loop_thread import LoopThread
from odradek.config.broker import BrokerConfig
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.local.faults import NOTHING, Member, cuts
from odradek.local.startable import free_ports
from odradek.log.system.disk import RealDisk
from odradek.net.clock import RealClock
from odradek.net.server import RealNetwork
from odradek.testkit.broker_loop import BrokerLoop
from odradek.testkit.brokers import ANSWER_S
from odradek.testkit.errors import KitError

T = TypeVar("T")
HOST: Final = "127.0.0.1"
_READY_S: Final = 30.0


class _Disk(RealDisk):
    """A disk whose files are closed when the broker has ended, as with its process."""

    def close(self) -> None:
        super().close()
        for file in tuple(self._open):
            file.rest()


class _Loopback(RealNetwork):
    """Python 3.11 leaves a socket to the garbage collector that could not connect, with a warning;
    a test run that makes errors of warnings would fail when a broker is killed.
    """

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        loop = asyncio.get_running_loop()
        connecting = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            await loop.sock_connect(connecting, (host, port))
            _, protocol = await loop.create_connection(make_protocol, sock=connecting)
        except BaseException:
            connecting.close()
            raise
        return protocol


class InProcessBroker:
    """One broker, with all its starts."""

    def __init__(
        self, broker_id: int, properties: Mapping[str, str], tree: MemoryTree, clock: ShiftedClock
    ) -> None:
        self.id = broker_id
        self.state = "stopped"
        self.config = BrokerConfig(properties, host_name=HOST)
        self.reason = ""  # why it ended by itself
        for directory in self.config.log_dirs:
            pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        self._tree = tree
        self._clock = clock
        self._store: MemoryStore | None = None
        self._parts: tuple[Broker, Faults, BrokerLoop, _Disk] | None = None

    @property
    def broker(self) -> Broker:
        return self._running()[0]

    @property
    def faults(self) -> Faults:
        return self._running()[1]

    @property
    def is_up(self) -> bool:
        """Whether it runs or is paused."""
        return self._parts is not None

    def _running(self) -> tuple[Broker, Faults, BrokerLoop, _Disk]:
        if self._parts is None:
            raise KitError(f"broker {self.id} does not run ({self.state}): start({self.id}) first")
        return self._parts

    async def start(self) -> None:
        """Start it; when this returns it serves.

        Raises:
            KitError: it runs already.
        """
        if self._parts is not None:
            raise KitError(f"broker {self.id} runs already")
        loop = BrokerLoop(asyncio.get_running_loop())
        self._store = MemoryStore(
            self._tree, session_timeout_ms=self.config.zookeeper_session_timeout_ms
        )
        disk = _Disk(call_soon=loop.call_soon_threadsafe)
        world = World(
            loop=cast("asyncio.AbstractEventLoop", loop),
            clock=self._clock,
            random=random.Random(),
            disk=disk,
            store=self._store,
            network=_Loopback(),
        )
        faults = Faults(self.config, world, self._clock)
        broker = Broker(self.config, world, on_fatal=self._ended)
        faults.attach(broker)
        self._parts = (broker, faults, loop, disk)
        self.state = "running"
        try:
            await broker.start()
        except BaseException:
            await self.kill()
            raise

    def _ended(self, reason: str) -> None:
        self.reason, self.state = reason, "crashed"

    async def stop(self) -> None:
        """Stop it as SIGTERM does."""
        broker, _, loop, disk = self._running()
        self.resume()
        await broker.stop()
        await loop.end()
        self._end(disk, "stopped")

    async def kill(self) -> None:
        """End it without letting it do anything more."""
        broker, faults, loop, disk = self._running()
        faults.network.die()
        if self._store is not None:
            self._store.crash(0)
        await loop.end()
        for directory in broker.logs.directories.values():
            directory.release()
        self._end(disk, "killed")

    def _end(self, disk: _Disk, state: str) -> None:
        disk.close()
        self._parts = self._store = None
        self.state = state

    def expire_session(self) -> None:
        self.faults.expire_session()

    def pause(self) -> None:
        _, faults, loop, _ = self._running()
        if self.state != "paused":
            self.state = "paused"
            faults.network.freeze()
            faults.gate.freeze()
            loop.freeze()

    def resume(self) -> None:
        _, faults, loop, _ = self._running()
        if self.state == "paused":
            self.state = "running"
            loop.thaw()
            faults.gate.thaw()
            faults.network.thaw()


class InProcessBrokers:
    """The brokers of one cluster, in this process (`odradek.testkit.brokers.Brokers`)."""

    def __init__(self, count: int, properties: Mapping[str, str]) -> None:
        # Without a handler, Python would print the brokers' warnings.
        logging.getLogger("odradek").addHandler(logging.NullHandler())
        self.ids = tuple(range(count))
        self._ends = ExitStack()
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="odradek-kit-"))
        self._ends.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._clock = ShiftedClock(RealClock())
        tree = MemoryTree(self._clock.wall_ms)
        self._ports = free_ports(HOST, count)
        self._brokers = {
            broker_id: InProcessBroker(
                broker_id, self._options(broker_id, properties), tree, self._clock
            )
            for broker_id in self.ids
        }
        self._thread = LoopThread("odradek-kit")
        self._ends.callback(self._thread.close)

    def _options(self, broker_id: int, properties: Mapping[str, str]) -> dict[str, str]:
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[broker_id]}",
            "log.dirs": str(self._folder / f"broker-{broker_id}"),
            "odradek.http.port": "-1",
            **properties,
        }

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work, ANSWER_S)

    def address(self, broker_id: int) -> str:
        self._broker(broker_id)
        return f"{HOST}:{self._ports[broker_id]}"

    def state(self, broker_id: int) -> str:
        return self._broker(broker_id).state

    def start_all(self) -> None:
        self.run(self._start_all())

    async def _start_all(self) -> None:
        brokers = self._brokers.values()
        outcomes = await asyncio.gather(*(b.start() for b in brokers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        for each in brokers:
            await self._seen(each)

    async def _seen(self, each: InProcessBroker) -> None:
        """Wait until a broker has all that run in its metadata."""
        metadata, up = each.broker.metadata, {b.id for b in self._brokers.values() if b.is_up}
        if not await metadata.wait_for(lambda: up <= metadata.brokers.keys(), int(_READY_S * 1000)):
            raise KitError(f"broker {each.id} has not seen all others within {_READY_S:.0f} s")

    def start(self, broker_id: int) -> None:
        async def start() -> None:
            broker = self._broker(broker_id)
            await broker.start()

        self.run(start())

    def stop(self, broker_id: int) -> None:
        self.run(self._broker(broker_id).stop())

    def kill(self, broker_id: int) -> None:
        self.run(self._broker(broker_id).kill())

    def pause(self, broker_id: int) -> None:
        self._do(self._broker(broker_id).pause)

    def resume(self, broker_id: int) -> None:
        self._do(self._broker(broker_id).resume)

    def pid(self, broker_id: int) -> int:
        raise KitError(
            f"broker {broker_id} runs in the process of the test and has no pid of its own: "
            "use KafkaCluster(processes=True)"
        )

    def partition(self, groups: Iterable[Iterable[Member]]) -> None:
        apart = cuts(groups, self.ids)

        def set_cuts() -> None:
            for each in self._up():
                cut = apart.get(each.id, NOTHING)
                addresses = [(HOST, self._ports[other]) for other in cut.brokers]
                each.faults.cut(addresses, store=cut.store, cuts_client=cut.cuts_client)

        self._do(set_cuts)

    def heal(self) -> None:
        def end_all() -> None:
            for each in self._up():
                each.faults.heal()

        self._do(end_all)

    def slow(self, broker_id: int, ms: int) -> None:
        self._do(lambda: self._broker(broker_id).faults.slow(ms))

    def fail_next(self, api: str, error: str, *, times: int, broker_id: int | None) -> None:
        tickets = [self._folder / f"{secrets.token_hex(8)}.ticket" for _ in range(times)]
        for ticket in tickets:
            ticket.touch()

        def order() -> None:
            chosen = self._up() if broker_id is None else [self._broker(broker_id)]
            for each in chosen:
                each.faults.fail_next(api, error, list(map(str, tickets)))

        self._do(order)

    def expire_session(self, broker_id: int) -> None:
        self._do(self._broker(broker_id).expire_session)

    def set_clock(self, ahead_ms: int) -> None:
        async def advance() -> None:
            self._clock.ahead_ms = ahead_ms
            for each in self._up():
                await each.faults.do_due_work()

        self.run(advance())

    def close(self) -> None:
        async def kill_all() -> None:
            for each in self._brokers.values():
                if each.is_up:
                    await each.kill()

        with self._ends:
            self.run(kill_all())

    def _up(self) -> list[InProcessBroker]:
        return [each for each in self._brokers.values() if each.is_up]

    def _broker(self, broker_id: int) -> InProcessBroker:
        if broker_id not in self._brokers:
            raise KitError(f"there is no broker {broker_id}: there are {list(self.ids)}")
        return self._brokers[broker_id]

    def _do(self, work: Callable[[], None]) -> None:
        """Call a function on the loop."""

        async def call() -> None:
            try:
                work()
            except FaultError as error:
                raise KitError(str(error)) from None

        self.run(call())
