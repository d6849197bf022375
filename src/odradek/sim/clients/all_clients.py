"""All clients of one simulation: which take part, and how they are started."""

from collections.abc import Collection

from odradek.sim.checks.history import History
from odradek.sim.clients.admins import Administrator
from odradek.sim.clients.client import Client
from odradek.sim.clients.committed import start_readers
from odradek.sim.clients.groups import GroupBook, start_groups
from odradek.sim.clients.limited import QuotaAdministrator, start_limited
from odradek.sim.clients.movers import start_movers
from odradek.sim.clients.producers import SimulatedProducer
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
from odradek.sim.clients.workload import STEADY_TOPICS, Workload
from odradek.sim.clients.young import YoungAdministrator
from odradek.sim.traits import Trait
from odradek.sim.world.cluster import SimulatedCluster


class AllClients(Workload):
    """Starts the clients that the options of a simulation ask for."""

    def __init__(  # noqa: PLR0913 - one for each kind of clients
        self,
        cluster: SimulatedCluster,
        history: History,
        transactions: TransactionOptions | None = None,
        *,
        groups: bool = False,
        quotas: bool = False,
        reassigns: bool = False,
        traits: Collection[Trait] = (),
    ) -> None:
        """`transactions`: only transactional clients take part; `groups`: only members of groups;
        `quotas`: only clients with quotas.

        `reassigns`: among the usual clients, one moves replicas for the whole run.
        """
        super().__init__(cluster, history, traits=traits)
        self.ledger: Ledger | None = None
        self.book: GroupBook | None = None
        self._transactions = transactions
        self.quota_administrator: QuotaAdministrator | None = None
        self._groups = groups
        self._quotas = quotas
        self._reassigns = reassigns

    def start(self) -> None:
        """Start every client in a task of its own."""
        if self._transactions is not None:
            self._start_transactions(self._transactions)
        elif self._groups:
            self._start_groups()
        elif self._quotas:
            self.quota_administrator = start_limited(self)
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
            client.run(SimulatedProducer(self, client, f"p{number}").run())
        if Trait.SHIPPED in self.traits:
            start_shipped_producer(self, self.produces_each_second)
        if self.replication_factor > 1:
            client = self.client("torrent")
            client.run(SimulatedProducer(self, client, "torrent", torrent=True).run())
            if self._reassigns:
                client = self.client("reassigner")
                client.run(Reassigner(self, client).run())
        for number in range(draw.randint(1, 3)):
            self._read(draw.choice((*clients, self.client(f"reader-{number}"))), number)
        vandal = self.client("vandals")
        vandal.run(Vandal(self, "vandal").run())

    def _read(self, client: Client, number: int) -> None:
        reader = Reader(self, client, f"reader {number}")
        self.readers.append(reader)
        client.run(reader.run())
