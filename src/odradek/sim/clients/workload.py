"""What simulated clients share: the cluster, the history and the clock.

Some clients share a process, and so a connection with its order of requests; others have their
own. Error codes that no client can handle are violations.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final, Protocol

from odradek.client.connection import Connection
from odradek.model.clock import WallMs
from odradek.model.errors import RETRIABLE, ErrorCode
from odradek.sim.checks.history import Facts, History, Topic
from odradek.sim.clients.client import Client
from odradek.sim.traits import Trait
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster

STEADY_TOPICS: Final = 3


class LastLook(Protocol):
    """A client that has to read to the end after all faults."""

    async def read_some(self) -> None:
        """Read the next records, if there are any."""

    @property
    def has_read_all(self) -> bool:
        """Whether nothing is left to read."""


class Workload:
    """The clients of one simulation and the state that they share."""

    def __init__(
        self, cluster: SimulatedCluster, history: History, *, traits: Collection[Trait] = ()
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.traits = frozenset(traits)
        self.is_over = False
        self.replication_factor = min(3, len(cluster.brokers))
        self.last_success_s = 0.0  # time of the last acknowledgement to a producer
        self.readers: list[LastLook] = []
        self.happened = Counter[str]()  # the number of events that tests require of a run
        self.clients: list[Client] = []
        self._broker_of = {broker.name: broker for broker in cluster.brokers}
        self._producer_ids: set[int] = set()
        draw = cluster.randomness("workload")
        self.produces_each_second = draw.choice((0.5, 2.0, 5.0))
        if self.replication_factor > 1:  # enough records for a run to count, despite the faults
            self.produces_each_second = 2.0

    def stop(self) -> None:
        """Kill the processes of all clients."""
        for client in self.clients:
            client.process.kill()
            self.cluster.network.host_died(client.process.name, power=False)

    def client(self, name: str, *, timeout_ms: int | None = None) -> Client:
        """A client process; `timeout_ms` instead of a drawn time-out."""
        client = Client(self.cluster, name, timeout_ms=timeout_ms)
        self.clients.append(client)
        return client

    # --------------------------------------------------------------------- for clients

    @property
    def topics(self) -> list[Topic]:
        """The topics whose deletion was not requested."""
        return [topic for topic in self.history.topics.values() if not topic.is_doomed]

    def now_s(self) -> float:
        """Seconds of simulated time."""
        return self.cluster.loop.time()

    def wall_ms(self) -> WallMs:
        """The wall clock of clients, which has no error."""
        return WallMs(EPOCH_MS + int(self.now_s() * 1000))

    def process_and_epoch_of(self, connection: Connection, facts: Facts) -> object:
        """The broker, the number of its starts and its leader epoch of the partition."""
        broker = self._broker_of[connection.name.partition(":")[0]]
        if facts.topic.replicas == 1:
            return broker.name, broker.starts
        return broker.name, broker.starts, _leader_epoch(broker, facts)

    def leader_epoch_at(self, connection: Connection, facts: Facts) -> int:
        """The leader epoch of a partition at the connected broker; -1 if it has none."""
        return _leader_epoch(self._broker_of[connection.name.partition(":")[0]], facts)

    def succeeded(self) -> None:
        """A producer got an acknowledgement."""
        self.last_success_s = self.now_s()

    def producer_id_given(self, producer_id: int) -> None:
        """Check that no other producer has, or had, this id."""
        if producer_id in self._producer_ids:
            self.violated(f"producer id {producer_id} was given twice")
        self._producer_ids.add(producer_id)

    def fenced(self, facts: Facts, error: ErrorCode) -> None:
        """A sequence was refused: allowed only if a power loss truncated earlier batches."""
        if not facts.cuts and not facts.topic.is_doomed:
            self.violated(f"{facts}: {error.name}, and no power was lost")

    def expect_retriable(self, what: str, code: int) -> None:
        """Report an error code after which clients do not retry."""
        if code not in RETRIABLE:
            self.unexpected(f"{what}: {ErrorCode(code).name}")

    def unexpected(self, what: str) -> None:
        """Report a response that no client can handle."""
        self.violated(f"unexpected answer: {what}")

    def violated(self, what: str) -> None:
        """Report a violation to the simulation, which fails then."""
        self.cluster.witness.violated(what)


def _leader_epoch(broker: SimulatedBroker, facts: Facts) -> int:
    running = broker.broker
    held = running.replicas.get(facts.topic.name, facts.index) if running is not None else None
    return held.leader_epoch if held else -1
