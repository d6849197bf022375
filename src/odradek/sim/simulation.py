"""One simulation: a seed in, violations out. A function of its seed, and of nothing else.

    0 s           brokers start, clients go
    ... seconds   faults come and heal
    healed        everything must come to work again, readers come to the end
    the end       checkers look at everything once more; brokers stop and start a last time

The digest is that of the trace: every byte that arrived anywhere, every birth, death and fault.
Two runs of a seed that differ in it have found something that is not ours to decide.
"""

import asyncio
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.log.disk import StorageError
from odradek.model.partition import TopicPartition
from odradek.sim.checkers import LogChecker
from odradek.sim.client import TROUBLE, Client
from odradek.sim.cluster import SimulatedBroker, SimulatedCluster
from odradek.sim.disk import Crash
from odradek.sim.faults import USUAL, Fault, FaultPlayer, Kind, draw_schedule
from odradek.sim.groups import GROUP_OVER_S, GroupBook, group_properties
from odradek.sim.history import History
from odradek.sim.network import SimulatedLoop
from odradek.sim.replication import ReplicationChecker, Tally
from odradek.sim.transactions import TRANSACTIONS_OVER_S, Ledger, TransactionOptions
from odradek.sim.transactions import kinds as kinds_of_transactions
from odradek.sim.workload import Workload

VIOLATIONS_MAX: Final = 20
# What a seed of several brokers has to have gone through, to count.
SECONDS_MIN: Final = 60.0
FAULTS_MIN: Final = 20
RECORDS_MIN: Final = 1_000
PROBE_S: Final = 1.0
# How long a healed cluster may take: a session's end, a start, an election, clients' pauses.
RECOVER_S: Final = 60.0
# How long a follower may lag: longer than most faults, or shorter.
LAGS_MS: Final = ("2000", "4000", "30000")
# What brokers say that a run is for.
_HAPPENED: Final = {
    "loaded __consumer_offsets": "group coordinators loaded",
    "loaded __transaction_state": "transaction coordinators loaded",
    "decided before": "failovers between decision and end",
    "open for too long": "transactions timed out",
}
BROKER_PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "4000",
    "log.flush.start.offset.checkpoint.interval.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "4000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "connections.max.idle.ms": "20000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is made from besides its seed."""

    seconds: float = 60.0
    brokers: int = 1
    only: frozenset[int] | None = None  # of the faults, by number; None: all
    kinds: tuple[Kind, ...] | None = None  # from which faults are drawn; None: the usual ones
    transactions: TransactionOptions | None = None  # instead of the usual clients
    groups: bool = False  # members of a group, instead of the usual clients
    durable: bool = False  # brokers acknowledge what is on their disk (odradek.flush.before.ack)

    @property
    def fault_kinds(self) -> tuple[Kind, ...]:
        """From which faults are drawn."""
        if self.kinds is not None:
            return self.kinds
        if self.transactions is None and not self.groups:
            return USUAL
        return kinds_of_transactions(self.brokers, durable=self.durable)


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    seed: int
    options: Options
    schedule: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    trace: list[str] = field(default_factory=list)  # if it was to be kept
    simulated_s: float = 0.0
    faults: int = 0
    lives: int = 0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    tally: Tally = field(default_factory=Tally)
    ledger: Ledger | None = None
    book: GroupBook | None = None
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def counts(self) -> bool:
        """Whether enough has happened for the seed to be worth counting."""
        if self.options.brokers == 1:
            return bool(self.acknowledged)
        long_enough = self.simulated_s >= SECONDS_MIN and self.faults >= FAULTS_MIN
        return long_enough and self.acknowledged >= RECORDS_MIN and self.tally.is_eventful

    @property
    def replay(self) -> str:
        """The command that does it again."""
        words = [f"python -m odradek.sim --seed {self.seed}"]
        usual = Options()
        if self.options.seconds != usual.seconds:
            words.append(f"--minutes {self.options.seconds / 60:g}")
        if self.options.brokers != usual.brokers:
            words.append(f"--brokers {self.options.brokers}")
        if self.options.kinds is not None:
            words.append(f"--kinds {','.join(kind.name for kind in self.options.kinds)}")
        if self.options.only is not None:
            words.append(f"--only {','.join(map(str, sorted(self.options.only))) or 'none'}")
        if self.options.transactions is not None:
            words.append(f"--transactions {self.options.transactions.version}")
        if self.options.groups:
            words.append("--groups")
        if self.options.durable:
            words.append("--durable")
        return " ".join(words)


def simulate(
    seed: int,
    options: Options = Options(),
    *,
    keep_trace: bool = False,
) -> Outcome:
    """Run one seed."""
    simulation = Simulation(seed, options, keep_trace=keep_trace)
    # When the loop is closed, what is still waiting somewhere is cancelled: that is no news.
    with (
        _listening(lambda _record: None),
        asyncio.Runner(loop_factory=SimulatedLoop) as runner,
    ):
        return runner.run(simulation.run())


class Simulation:
    """One run. Also the `Witness` of its brokers."""

    def __init__(self, seed: int, options: Options, *, keep_trace: bool) -> None:
        self.outcome = Outcome(seed, options)
        self._keep_trace = keep_trace
        self._digest = hashlib.blake2b(digest_size=8)
        self.history = History(self.violated)
        is_alone = options.brokers == 1
        self._checker = LogChecker(self.history, self.violated, is_alone=is_alone)

    async def run(self) -> Outcome:
        """All of it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        loop.set_exception_handler(self._unhandled)
        outcome, options = self.outcome, self.outcome.options
        transactions = options.transactions
        of_transactions = transactions and transactions.properties(options.brokers)
        lag_ms = random.Random(f"{outcome.seed}/lag").choice(LAGS_MS)
        cluster = self.cluster = SimulatedCluster(
            loop,
            seed=outcome.seed,
            brokers=options.brokers,
            witness=self,
            trace=self.trace,
            properties=BROKER_PROPERTIES
            | ({"replica.lag.time.max.ms": lag_ms} if options.brokers > 1 else {})
            | (of_transactions or {})
            | (group_properties(options.brokers) if options.groups or transactions else {})
            | ({"odradek.flush.before.ack": "true"} if options.durable else {}),
        )
        drawn = draw_schedule(
            cluster.randomness("faults"),
            seconds=options.seconds,
            brokers=options.brokers,
            kinds=options.fault_kinds,
        )
        outcome.schedule = [f for f in drawn if options.only is None or f.number in options.only]
        self._player = FaultPlayer(cluster, outcome.schedule)
        self._workload = Workload(cluster, self.history, transactions, groups=options.groups)
        self._replication = ReplicationChecker(cluster, self.history, self.violated)
        with _listening(self._logged):
            try:
                await self._play()
            except Exception as error:  # whatever it is, the seed has found it
                self.violated(f"the simulation failed: {error!r}")
                raise
            finally:
                cluster.bury()
        outcome.simulated_s = loop.time()
        outcome.faults = self._player.played
        outcome.lives = sum(broker.lives for broker in cluster.brokers)
        outcome.sent, outcome.read = self.history.sent, self.history.read
        outcome.acknowledged = self.history.acknowledged
        outcome.tally = self._replication.tally
        outcome.ledger = self._workload.ledger
        outcome.book = self._workload.book
        outcome.happened = self._workload.happened
        outcome.digest = self._digest.hexdigest()
        return outcome

    async def _play(self) -> None:
        for broker in self.cluster.brokers:
            broker.start()
        self._workload.start()
        probing = asyncio.create_task(self._probe())
        await asyncio.gather(self._player.play(), asyncio.sleep(self.outcome.options.seconds))
        self.trace("everything is healed")
        await self._settle()
        probing.cancel()
        for broker in self.cluster.brokers:
            self._checker.end(broker, self.cluster.tree)
        self._replication.end()
        self._workload.stop()
        self._player.stop()
        await self._checker.second_look(self.cluster.brokers)

    # ---------------------------------------------------------------------- on the way

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            for broker in self.cluster.brokers:
                self._checker.probe(broker)
            self._replication.probe()
            healed_s = self._player.healed_for_s
            silent_s = self._loop.time() - self._workload.last_success_s
            if min(healed_s, silent_s) > RECOVER_S and not self._workload.is_over:
                self.violated(f"nothing was written for {silent_s:.0f} s; healed {healed_s:.0f} s")
                return

    async def _settle(self) -> None:
        """What is healed must come to work: all partitions are led, written to, read to the end."""
        deadline_s = self._loop.time() + RECOVER_S
        client = Client(self.cluster, "judge")
        unserved = await client.run(self._serve_all(client, deadline_s))
        if unserved:
            self.violated(f"not served {RECOVER_S:.0f} s after everything has healed: {unserved}")
        self._workload.is_over = True
        await asyncio.sleep(5)  # for those who are in the middle of something
        if self._workload.ledger is not None:
            await asyncio.sleep(TRANSACTIONS_OVER_S)
        if self._workload.book is not None:
            await asyncio.sleep(GROUP_OVER_S)
        deadline_s = self._loop.time() + RECOVER_S
        for reader in self._workload.readers:
            while not reader.has_read_all and self._loop.time() < deadline_s:
                await client.run(reader.read_some())
            if not reader.has_read_all:
                self.violated("a reader does not come to the end")
        if self._workload.ledger is not None:
            self._workload.ledger.check()

    async def _serve_all(self, client: Client, deadline_s: float) -> list[str]:
        """Wait until all partitions have leaders, as clients see it. Returns those without."""
        while True:
            wanted = {
                TopicPartition(topic.name, index)
                for topic in self._workload.topics
                for index in range(topic.partitions)
            }
            try:
                answer = await client.refresh(None)
            except TROUBLE as error:
                missing = [str(error)]
                await client.begin_anew()
            else:
                led = {
                    TopicPartition(topic.name or "", partition.partition_index)
                    for topic in answer.topics
                    for partition in topic.partitions
                    if partition.leader_id >= 0 and not partition.error_code
                }
                for topic in answer.topics:
                    self.history.topic_seen(topic.topic_id, "metadata")
                missing = sorted(map(str, wanted - led))
                await client.pause()
            missing += self._replication.unsettled()
            if not missing or self._loop.time() > deadline_s:
                return missing

    # --------------------------------------------------------------- what is witnessed

    def trace(self, what: str) -> None:
        """Something happened."""
        line = f"{self._loop.time():.6f} {what}"
        self._digest.update(line.encode())
        if self._keep_trace:
            self.outcome.trace.append(line)

    def violated(self, what: str) -> None:
        """What must not happen has."""
        self.trace(f"VIOLATION {what}")
        if len(self.outcome.violations) < VIOLATIONS_MAX:
            self.outcome.violations.append(f"{self._loop.time():.3f} s: {what}")

    def started(self, broker: SimulatedBroker) -> None:
        """See `Witness`."""
        self.trace(f"{broker.name} serves")

    def loaded(self, broker: SimulatedBroker) -> None:
        """See `Witness`."""
        self._checker.loaded(broker)

    def dying(self, broker: SimulatedBroker) -> None:
        """See `Witness`."""
        self._checker.dying(broker)

    def died(self, broker: SimulatedBroker, how: Crash) -> None:
        """See `Witness`."""
        self._checker.died(broker, how)

    def stopped(self, broker: SimulatedBroker) -> None:
        """See `Witness`."""
        self._checker.stopped(broker)
        if broker.gave_up and self._player.healed_for_s > RECOVER_S:
            self.violated(f"{broker.name} gave up for no reason: {broker.gave_up}")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        future = context.get("future")
        if isinstance(future, asyncio.Future) and not isinstance(future, asyncio.Task):
            return  # nobody was left to hear of it
        self.violated(f"unhandled: {context.get('message')}: {context.get('exception')!r}")

    def _logged(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.trace(f"log: {text}")
        if " is cut from " in text:
            self._replication.tally.truncations += 1
        for words, what in _HAPPENED.items():
            if words in text:
                self._workload.happened[what] += 1
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StorageError):
            self.violated(f"logged: {text}: {error!r}")


class _listening:  # noqa: N801 - read as a verb
    """Hear what is logged, and keep it from everybody else."""

    def __init__(self, heard: Any) -> None:
        self._handler = logging.Handler()
        self._handler.emit = heard  # type: ignore[method-assign]
        self._logger = logging.getLogger("odradek")

    def __enter__(self) -> None:
        self._was = (self._logger.propagate, self._logger.level)
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate, self._logger.level = self._was


def kinds_of(faults: Sequence[Fault]) -> dict[str, int]:
    """How often what went wrong."""
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault.kind.value] = counts.get(fault.kind.value, 0) + 1
    return counts
