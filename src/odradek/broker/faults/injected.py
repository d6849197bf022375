"""The faults of one broker: its network, its store, its clock and its answers.

faults = Faults(config, world)      replaces network, store and clock of the world
broker = Broker(config, world, ...)
faults.attach(broker)
"""

import asyncio
from collections.abc import Collection, Sequence

from odradek.broker.faults.clients import ClientConnections
from odradek.broker.faults.failing import (
    FailingAnswers,
    OrderedFailure,
    api_of,
    code_of,
    tickets_in,
)
from odradek.broker.faults.gate import FaultError, StoreGate
from odradek.broker.server import Broker
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.model.clock import Clock, MonotonicMs, WallMs
from odradek.net.faulty import Address, CutsClient, FaultyNetwork, no_client


class ShiftedClock:
    """A clock whose wall time can be advanced; its monotonic time is that of the other clock.

    So records, committed offsets and transactions age, while sessions and requests do not time out:
    as if everything had run on in between.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def wall_ms(self) -> WallMs:
        """The other clock's wall time, advanced."""
        return WallMs(self._clock.wall_ms() + self.ahead_ms)

    def monotonic_ms(self) -> MonotonicMs:
        """The other clock's monotonic time."""
        return self._clock.monotonic_ms()


class Faults:
    """The faults of one broker; without effect until one is injected."""

    def __init__(
        self, config: BrokerConfig, world: World, clock: ShiftedClock | None = None
    ) -> None:
        """`clock` is the one that several brokers of a process share."""
        self._world = world
        self.clock = clock or ShiftedClock(world.clock)
        self.network = FaultyNetwork(world.network, world.loop)
        self.gate = StoreGate(world.store, session_timeout_ms=config.zookeeper_session_timeout_ms)
        world.clock, world.network, world.store = self.clock, self.network, self.gate
        self._broker: Broker | None = None
        self._answers: FailingAnswers | None = None
        self._clients: ClientConnections | None = None

    def attach(self, broker: Broker) -> None:
        """Be the faults of this broker."""
        self._broker = broker
        self._answers = FailingAnswers(broker.server.wrap_frames)
        self._clients = ClientConnections(self.network, broker.server.wrap_frames)

    def cut(
        self,
        addresses: Collection[Address],
        *,
        store: bool = False,
        cuts_client: CutsClient = no_client,
    ) -> None:
        """Cut these addresses, clients, and perhaps the store off; all others are connected again.

        `cuts_client` is given a client id.
        """
        self.network.cut(addresses, cuts_client)
        if self._clients is not None:
            self._clients.go_on()
        if store:
            self.gate.cut()
        else:
            self.gate.restore()

    def heal(self) -> None:
        """End all faults, except that the clock stays where it is."""
        self.cut(())
        self.slow(0)
        if self._answers is not None:
            self._answers.clear()

    def slow(self, ms: int) -> None:
        """Delay everything that this broker sends; 0 ends it.

        Raises:
            FaultError: the delay is negative.
        """
        if ms < 0:
            raise FaultError(f"a delay of {ms} ms: must be at least 0")
        self.network.slow(ms)

    def fail_next(self, api: str, error: str, tickets: Sequence[str]) -> None:
        """Answer the next requests of an API with an error, one for each ticket.

        Raises:
            FaultError: there is no such API or error.
        """
        failure = OrderedFailure(api_of(api), code_of(error), tickets_in(tickets))
        if self._answers is None:
            raise FaultError("the broker does not serve yet")
        self._answers.order(failure)

    def expire_session(self) -> None:
        """End the session with the coordination store.

        Raises:
            FaultError: there is none, or it is one of ZooKeeper.
        """
        self.gate.expire_session()

    async def set_clock(self, ahead_ms: int) -> None:
        """Set the wall clock ahead of the system's, and do what has become due.

        Raises:
            FaultError: it would go back.
        """
        if ahead_ms < self.clock.ahead_ms:
            raise FaultError("the clock does not go back")
        self.clock.ahead_ms = ahead_ms
        await self.do_due_work()

    async def do_due_work(self) -> None:
        """Retention, the expiry of offsets, of transactions and of producer ids."""
        if self._broker is not None:
            await self._broker.housekeeping.do_all()
            await asyncio.sleep(0)
