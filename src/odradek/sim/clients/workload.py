"""What simulated clients do, all together: producers, readers, administrators, vandals.

Some share a process, and so a connection and its order; some have their own. What they see goes
into the `History`; answers that no client can make sense of are violations here.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final, Protocol

from odradek.client.connection import Connection
from odradek.model.errors import RETRIABLE, ErrorCode
from odradek.sim.checks.history import Facts, History, Topic
from odradek.sim.clients.admins import Administrator
from odradek.sim.clients.client import Client
from odradek.sim.clients.committed import start_readers
from odradek.sim.clients.groups import GroupBook, start_groups
from odradek.sim.clients.movers import start_movers
from odradek.sim.clients.producers import Producer
from odradek.sim.clients.readers import Reader
from odradek.sim.clients.reassigners import Reassigner
from odradek.sim.clients.registers import start_registers
from odradek.sim.clients.shipped import (
    start_shipped_group,
    start_shipped_movers,
    start_shipped_producer,
)
from odradek.sim.clients.transactions import Ledger, TransactionOptions, start_transactions
from odradek.sim.clients.vandals import Vandal
from odradek.sim.clients.young import YoungAdministrator
from odradek.sim.traits import Trait
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster

STEADY_TOPICS: Final = 3


class LastLook(Protocol):
    """Somebody who has to come to the end of something when all is healed."""

    async def read_some(self) -> None:
        """Go on."""

    @property
    def has_read_all(self) -> bool:
        """Whether it is at the end."""


class Workload:
    """All clients of one simulation."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        transactions: TransactionOptions | None = None,
        *,
        groups: bool = False,
        reassigns: bool = False,
        traits: Collection[Trait] = (),
    ) -> None:
        """`transactions`: there are transactors, and nobody else; `groups`: members of a group.

        `reassigns`: of the usual clients one gives partitions other replicas all the while.
        """
        self.cluster = cluster
        self.history = history
        self.traits = frozenset(traits)
        self.is_over = False
        self.replication_factor = min(3, len(cluster.brokers))
        self.last_success_s = 0.0  # when a producer was last told that all is well
        self.readers: list[LastLook] = []
        self.ledger: Ledger | None = None
        self._transactions = transactions
        self._groups = groups
        self._reassigns = reassigns
        self.book: GroupBook | None = None
        self.happened = Counter[str]()  # what clients met that a run is for
        self.clients: list[Client] = []
        self._broker_of = {broker.name: broker for broker in cluster.brokers}
        self._producer_ids: set[int] = set()
        draw = cluster.randomness("workload")
        self.produces_each_second = draw.choice((0.5, 2.0, 5.0))
        if self.replication_factor > 1:  # a history of some size, whatever stands in its way
            self.produces_each_second = 2.0

    def start(self) -> None:
        """Let them all go."""
        if self._transactions is not None:
            self._start_transactions(self._transactions)
        elif self._groups:
            self._start_groups()
        else:
            self._start_usual()

    def _start_transactions(self, options: TransactionOptions) -> None:
        self.ledger = start_transactions(self, options)
        self.book = start_movers(self, options, self.ledger)
        start_readers(self, self.ledger)
        self._read(self.client("reader"), 0)
        if Trait.REGISTERS in self.traits:
            start_registers(self, self.ledger, options)
        if Trait.SHIPPED in self.traits and options.version > 1:
            start_shipped_movers(self, self.ledger)
        if Trait.YOUNG in self.traits:
            client = self.client("admin-of-young")
            client.run(YoungAdministrator(self, client).run())

    def _start_groups(self) -> None:
        self.book = start_groups(self)
        if Trait.REGISTERS in self.traits:
            start_registers(self)
        if Trait.SHIPPED in self.traits:
            start_shipped_group(self)

    def _start_usual(self) -> None:
        draw = self.cluster.randomness("clients")
        administrator = self.client("admin")
        administrator.run(Administrator(self, administrator).run(STEADY_TOPICS))
        clients = [self.client(f"client-{number}") for number in range(draw.randint(1, 3))]
        for number in range(draw.randint(2, 5)):
            client = draw.choice(clients)
            client.run(Producer(self, client, f"p{number}").run())
        if Trait.SHIPPED in self.traits:
            start_shipped_producer(self, self.produces_each_second)
        if self.replication_factor > 1:
            client = self.client("torrent")
            client.run(Producer(self, client, "torrent", torrent=True).run())
            if self._reassigns:
                client = self.client("reassigner")
                client.run(Reassigner(self, client).run())
        for number in range(draw.randint(1, 3)):
            self._read(draw.choice((*clients, self.client(f"reader-{number}"))), number)
        vandal = self.client("vandals")
        vandal.run(Vandal(self, "vandal").run())

    def stop(self) -> None:
        """No more of it."""
        for client in self.clients:
            client.process.kill()
            self.cluster.network.host_died(client.process.name, power=False)

    def client(self, name: str) -> Client:
        """Another client process."""
        client = Client(self.cluster, name)
        self.clients.append(client)
        return client

    def _read(self, client: Client, number: int) -> None:
        reader = Reader(self, client, f"reader {number}")
        self.readers.append(reader)
        client.run(reader.run())

    # --------------------------------------------------------------------- for clients

    @property
    def topics(self) -> list[Topic]:
        """The topics that are there to be used."""
        return [topic for topic in self.history.topics.values() if not topic.is_doomed]

    def now_s(self) -> float:
        """Seconds of simulated time."""
        return self.cluster.loop.time()

    def wall_ms(self) -> int:
        """What time it is for clients, whose clocks are right."""
        return EPOCH_MS + int(self.now_s() * 1000)

    def life_of(self, connection: Connection, facts: Facts) -> object:
        """In which life of which broker, and in which reign, a request would be answered."""
        broker = self._broker_of[connection.name.partition(":")[0]]
        if facts.topic.replicas == 1:
            return broker.name, broker.lives
        return broker.name, broker.lives, _leader_epoch(broker, facts)

    def leader_epoch_at(self, connection: Connection, facts: Facts) -> int:
        """In which reign a broker believes to be."""
        return _leader_epoch(self._broker_of[connection.name.partition(":")[0]], facts)

    def succeeded(self) -> None:
        """A producer was told that its records are there."""
        self.last_success_s = self.now_s()

    def producer_id_given(self, producer_id: int) -> None:
        """Nobody else has it, or ever had."""
        if producer_id in self._producer_ids:
            self.violated(f"producer id {producer_id} was given twice")
        self._producer_ids.add(producer_id)

    def fenced(self, facts: Facts, error: ErrorCode) -> None:
        """A sequence was refused: right only if the power took what came before it."""
        if not facts.cuts and not facts.topic.is_doomed:
            self.violated(f"{facts}: {error.name}, and no power was lost")

    def expect_retriable(self, what: str, code: int) -> None:
        """Clients go on after these."""
        if code not in RETRIABLE:
            self.unexpected(f"{what}: {ErrorCode(code).name}")

    def unexpected(self, what: str) -> None:
        """An answer that no client can do anything with."""
        self.violated(f"unexpected answer: {what}")

    def violated(self, what: str) -> None:
        """What must not happen has."""
        self.cluster.witness.violated(what)


def _leader_epoch(broker: SimulatedBroker, facts: Facts) -> int:
    running = broker.broker
    held = running.replicas.get(facts.topic.name, facts.index) if running is not None else None
    return held.leader_epoch if held else -1
