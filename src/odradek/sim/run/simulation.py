"""One simulation: a seed in, violations out. It is a function of its seed.

    0 s           brokers and clients start
    ... seconds   faults occur and heal
    healed        everything must recover, readers reach the end
    the end       final checks; brokers stop and start once more

The digest is that of the trace: all received bytes, all starts, ends and faults. If two runs of a
seed have different digests, something is not deterministic.
"""

import asyncio
import gc
import hashlib
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.broker.cluster import features
from odradek.broker.replication import truncation
from odradek.log.disk import StorageError
from odradek.sim.checks.checkers import LogChecker
from odradek.sim.checks.coverage import watched
from odradek.sim.checks.history import History
from odradek.sim.checks.invariants import validated
from odradek.sim.checks.open_transactions import OpenTransactions
from odradek.sim.checks.quotas import QuotaChecker, draw_windows
from odradek.sim.checks.replication import ReplicationChecker, Tally
from odradek.sim.clients.all_clients import AllClients
from odradek.sim.clients.groups import GroupBook, group_properties
from odradek.sim.clients.registers import register_properties
from odradek.sim.clients.transactions import Fate as TransactionFate
from odradek.sim.clients.transactions import Ledger, TransactionOptions
from odradek.sim.run.faults import (
    OF_MOMENTS,
    USUAL,
    Fault,
    FaultPlayer,
    Kind,
    kinds_with_coordinators,
)
from odradek.sim.run.schedule import draw_schedule, draw_slow_stores
from odradek.sim.run.settling import RECOVER_S, Settling
from odradek.sim.traits import Trait, draw_traits, possible
from odradek.sim.traits import names as trait_names
from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster
from odradek.sim.world.descriptors import ENOUGH
from odradek.sim.world.disk import Crash
from odradek.sim.world.network import SimulatedLoop
from odradek.txn.transaction import Transaction

VIOLATIONS_MAX: Final = 20
# What must have happened in a seed of several brokers for it to count.
SECONDS_MIN: Final = 60.0
FAULTS_MIN: Final = 20
RECORDS_MIN: Final = 1_000
COMMITTED_MIN: Final = 20  # transactions, of transactional runs
COMMITS_MIN: Final = 10  # of group runs
GENERATIONS_MIN: Final = 3
THROTTLED_MIN: Final = 20  # responses, of runs with quotas
PROBE_S: Final = 1.0
FEW_FILES: Final = (192, 300)  # with as few as 43 files of logs, and 43 connections
LINES_AT_ONCE: Final = 1_000  # of the trace, for the digest
_COLLECT_AFTER: Final = 1_000_000  # new objects, minus freed ones
# replica.lag.time.max.ms: longer than most faults, or shorter.
LAGS_MS: Final = ("2000", "4000", "30000")
BROKER_PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "4000",
    "log.flush.start.offset.checkpoint.interval.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "4000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "connections.max.idle.ms": "20000",
}

# In half of the seeds of several brokers, leaders are balanced as soon as one partition is not led
# by its preferred replica, instead of every five minutes.
BALANCE: Final = {
    "leader.imbalance.check.interval.seconds": "5",
    "leader.imbalance.per.broker.percentage": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run besides its seed."""

    seconds: float = 60.0
    brokers: int = 1
    only: frozenset[int] | None = None  # numbers of the faults to play; None: all
    kinds: tuple[Kind, ...] | None = None  # None: the default kinds
    transactions: TransactionOptions | None = None  # instead of the default clients
    holds_metadata: bool = False  # Metadata responses wait for a leader that is expected
    groups: bool = False  # group members instead of the default clients
    quotas: bool = False  # clients with quotas instead of the default clients
    reassigns: bool = False  # an administrator reassigns during the whole run
    scarce: bool = False  # few descriptors, and single operations of the disks fail
    durable: bool = False  # brokers acknowledge what is on their disk (odradek.flush.before.ack)
    traits: frozenset[Trait] | None = None  # None: drawn from the seed

    def traits_of(self, seed: int) -> frozenset[Trait]:
        """The traits of a seed, set or drawn."""
        if self.traits is not None:
            return self.traits
        has_transactions = self.transactions is not None
        traits = possible(groups=self.groups, transactions=has_transactions, quotas=self.quotas)
        return draw_traits(seed, traits)

    @property
    def fault_kinds(self) -> tuple[Kind, ...]:
        """The kinds from which faults are drawn."""
        if self.kinds is not None:
            return self.kinds
        if self.transactions is None and not self.groups:
            return USUAL
        return kinds_with_coordinators(self.brokers, durable=self.durable)

    def kinds_with(self, traits: frozenset[Trait]) -> tuple[Kind, ...]:
        """The kinds of faults of a seed with these traits.

        Several brokers have no old formats on their disks: there the epochs of leaders are missing,
        by which replicas are compared.
        """
        kinds = self.fault_kinds
        if self.kinds is not None:
            return kinds
        if Trait.OLD in traits and self.brokers == 1:
            kinds = (*kinds, Kind.OLD_FORMATS, Kind.OLD_FORMATS)
        if self.scarce:
            kinds = (*kinds, *self._scarce_kinds * (1 + len(kinds) // 8))
        return kinds

    @property
    def _scarce_kinds(self) -> tuple[Kind, ...]:
        """Without replicas, coordinators need directories that stay online."""
        has_coordinators = self.transactions is not None or self.groups
        return (Kind.DESCRIPTORS,) if self.brokers == 1 and has_coordinators else OF_MOMENTS

    def files_max(self, seed: int) -> int:
        """The limit of open files and sockets of a seed's brokers."""
        is_scarce = self.scarce if self.kinds is None else Kind.DESCRIPTORS in self.kinds
        return random.Random(f"{seed}/files").choice(FEW_FILES) if is_scarce else ENOUGH

    @property
    def broker_properties(self) -> dict[str, str]:
        """The brokers' options that follow from flags alone."""
        hold_ms = 300 if self.holds_metadata else 0
        flushes = "true" if self.durable else "false"
        return {"odradek.metadata.hold.ms": str(hold_ms), "odradek.flush.before.ack": flushes}

    @property
    def words(self) -> str:
        """The same options for the command line."""
        words = []
        usual = Options()
        if self.seconds != usual.seconds:
            words.append(f"--minutes {self.seconds / 60:g}")
        if self.brokers != usual.brokers:
            words.append(f"--brokers {self.brokers}")
        if self.kinds is not None:
            words.append(f"--kinds {','.join(kind.name for kind in self.kinds)}")
        if self.only is not None:
            words.append(f"--only {','.join(map(str, sorted(self.only))) or 'none'}")
        if self.transactions is not None:
            words.append(f"--transactions {self.transactions.version}")
        if self.groups:
            words.append("--groups")
        if self.quotas:
            words.append("--quotas")
        usual_clients = self.transactions is None and not self.groups and not self.quotas
        if self.brokers > 1 and usual_clients and not self.reassigns:
            words.append("--no-reassign")
        flags = {
            "--scarce": self.scarce,
            "--durable": self.durable,
            "--hold-metadata": self.holds_metadata,
        }
        words += [flag for flag, is_set in flags.items() if is_set]
        if self.traits is not None:
            words.append(f"--traits {trait_names(self.traits)}")
        return " ".join(words)


@dataclass(slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    options: Options
    schedule: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    trace: list[str] = field(default_factory=list)  # if `keep_trace` was set
    simulated_s: float = 0.0
    faults: int = 0
    starts: int = 0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    committed: int = 0  # transactions
    commits: int = 0  # of members of the group
    generations: int = 0
    cpu_s: float = 0.0  # if measured
    tally: Tally = field(default_factory=Tally)
    ledger: Ledger | None = None
    book: GroupBook | None = None
    happened: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)  # of event and state, see `coverage`

    @property
    def shortfalls(self) -> list[str]:
        """Why the seed does not count; empty if it does."""
        if self.options.brokers == 1:
            is_anything = self.acknowledged or self.committed or self.commits
            return [] if is_anything else ["nothing acknowledged"]
        tally = self.tally
        enough = {
            f"less than {SECONDS_MIN:.0f} s": self.simulated_s >= SECONDS_MIN,
            f"less than {FAULTS_MIN} faults": self.faults >= FAULTS_MIN,
            "no election": tally.elections > 0,
            "no ISR change": tally.isr_changes > 0,
            "no other controller": tally.controllers > 1,  # the first election is not a change
            **self._enough_of_clients(),
        }
        return [what for what, is_enough in enough.items() if not is_enough]

    def _enough_of_clients(self) -> dict[str, bool]:
        if self.options.transactions is not None:
            return {
                f"less than {COMMITTED_MIN} transactions": self.committed >= COMMITTED_MIN,
                "no other coordinator": self.happened["transaction coordinators loaded"] > 1,
            }
        if self.options.groups:
            return {
                f"less than {COMMITS_MIN} commits": self.commits >= COMMITS_MIN,
                f"less than {GENERATIONS_MIN} generations": self.generations >= GENERATIONS_MIN,
                "no other coordinator": self.happened["group coordinators loaded"] > 1,
            }
        if self.options.quotas:
            throttled = self.happened["throttled responses"]
            return {f"less than {THROTTLED_MIN} throttled responses": throttled >= THROTTLED_MIN}
        return {
            f"less than {RECORDS_MIN} records": self.acknowledged >= RECORDS_MIN,
            "no truncation": self.tally.truncations > 0,
        }

    @property
    def counts(self) -> bool:
        """Whether enough has happened for the seed to prove something."""
        return not self.shortfalls

    @property
    def kinds_played(self) -> Counter[str]:
        """The number of faults of each kind."""
        return Counter(fault.kind.value for fault in self.schedule)

    @property
    def replay(self) -> str:
        """The command that repeats the run."""
        return f"python -m odradek.sim --seed {self.seed} {self.options.words}".rstrip()


def simulate(
    seed: int,
    options: Options = Options(),
    *,
    keep_trace: bool = False,
) -> Outcome:
    simulation = Simulation(seed, options, keep_trace=keep_trace)
    # When the loop is closed, waiting tasks are cancelled, which is not an error.
    with (
        watched(simulation.outcome.pairs, simulation.outcome.happened),
        validated(simulation.violated),
        _listening(lambda _record: None),
        _collecting_seldom(),
        asyncio.Runner(loop_factory=SimulatedLoop) as runner,
    ):
        return runner.run(simulation.run())


class Simulation:
    """One run. It is the `Witness` of its brokers."""

    def __init__(self, seed: int, options: Options, *, keep_trace: bool) -> None:
        self.outcome = Outcome(seed, options)
        self._keep_trace = keep_trace
        self._digest = hashlib.blake2b(digest_size=8)
        self._lines: list[str] = []  # of the trace, which the digest does not have yet
        self.history = History(self.violated)
        is_alone = options.brokers == 1
        self._checker = LogChecker(self.history, self.violated, is_alone=is_alone)

    async def run(self) -> Outcome:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        loop.set_exception_handler(self._unhandled)
        outcome, options = self.outcome, self.outcome.options
        transactions, traits = options.transactions, options.traits_of(outcome.seed)
        balances = options.brokers > 1 and random.Random(f"{outcome.seed}/balance").random() < 0.5
        windows = draw_windows(random.Random(f"{outcome.seed}/windows"))
        cluster = self.cluster = SimulatedCluster(
            loop,
            seed=outcome.seed,
            brokers=options.brokers,
            witness=self,
            trace=self.trace,
            properties=self._properties(traits)
            | (BALANCE if balances else {})
            | ({"quota.window.num": str(windows)} if options.quotas else {}),
            files_max=options.files_max(outcome.seed),
        )
        cluster.strays = Trait.STRAYS in traits
        outcome.schedule = self._draw_schedule(traits)
        self._player = FaultPlayer(cluster, outcome.schedule)
        self._workload = AllClients(
            cluster,
            self.history,
            transactions,
            groups=options.groups,
            quotas=options.quotas,
            reassigns=options.reassigns,
            traits=traits,
        )
        self._replication = ReplicationChecker(cluster, self.history, self.violated)
        self._open_transactions = OpenTransactions(self.violated)
        self._settling = Settling(
            cluster,
            self._workload,
            self._replication,
            self.violated,
            leaders_return=balances,
        )
        self._quotas = (
            QuotaChecker(cluster, self.violated, windows=windows) if options.quotas else None
        )
        with (
            _listening(self._logged),
            self._replication.watching_fetches(),
            nullcontext() if self._quotas is None else self._quotas.watching(),
        ):
            try:
                await self._play()
            except Exception as error:  # any error is a finding of the seed
                self.violated(f"the simulation failed: {error!r}")
                raise
            finally:
                cluster.bury()
        self._count_up()
        outcome.digest = self._hexdigest()
        return outcome

    def _properties(self, traits: frozenset[Trait]) -> dict[str, str]:
        """The options of the brokers that follow from the options of the run, and from the seed."""
        outcome, options = self.outcome, self.outcome.options
        transactions = options.transactions
        lag_ms = random.Random(f"{outcome.seed}/lag").choice(LAGS_MS)
        return (
            BROKER_PROPERTIES
            | ({"replica.lag.time.max.ms": lag_ms} if options.brokers > 1 else {})
            | (transactions.properties(options.brokers) if transactions else {})
            | (group_properties(options.brokers) if options.groups or transactions else {})
            | (register_properties() if Trait.REGISTERS in traits else {})
            | options.broker_properties
        )

    def _draw_schedule(self, traits: frozenset[Trait]) -> list[Fault]:
        cluster, options = self.cluster, self.outcome.options
        drawn = draw_schedule(
            cluster.randomness("faults"),
            seconds=options.seconds,
            brokers=options.brokers,
            kinds=options.kinds_with(traits),
            is_uneven=Trait.UNEVEN in traits,
        )
        is_slow = options.kinds is None or Kind.SLOW_STORE in options.kinds
        if is_slow and Trait.SLOW_STORE in traits:
            drawn += draw_slow_stores(
                cluster.randomness("slow stores"),
                seconds=options.seconds,
                brokers=options.brokers,
                first=len(drawn),
            )
        only = options.only
        return drawn if only is None else [fault for fault in drawn if fault.number in only]

    def _count_up(self) -> None:
        outcome = self.outcome
        outcome.simulated_s = self._loop.time()
        outcome.faults = self._player.played
        outcome.starts = sum(broker.starts for broker in self.cluster.brokers)
        outcome.sent, outcome.read = self.history.sent, self.history.read
        outcome.acknowledged = self.history.acknowledged
        outcome.tally = self._replication.tally
        outcome.ledger = self._workload.ledger
        outcome.book = self._workload.book
        if outcome.ledger is not None:
            outcome.committed = outcome.ledger.count(TransactionFate.COMMITTED)
        if outcome.book is not None:
            outcome.commits = outcome.book.commits
            outcome.generations = outcome.book.generations
        outcome.happened.update(self._workload.happened)
        failures = sum(broker.descriptors.failures for broker in self.cluster.brokers)
        if failures:
            outcome.happened["refused for lack of descriptors"] = failures
        if self._quotas is not None:
            outcome.happened.update(self._quotas.happened)

    async def _play(self) -> None:
        for broker in self.cluster.brokers:
            broker.start()
        self._workload.start()
        probing = asyncio.create_task(self._probe())
        await asyncio.gather(self._player.play(), asyncio.sleep(self.outcome.options.seconds))
        self.trace("everything is healed")
        await self._settling.run()
        probing.cancel()
        for broker in self.cluster.brokers:
            self._checker.end(broker, self.cluster.tree, self._replication.may_be_left)
        self._replication.end()
        administrator = self._workload.quota_administrator
        if self._quotas is not None and administrator is not None:
            self._quotas.end(administrator.known, administrator.unsure)
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
            self._look_at_transactions()
            healed_s = self._player.healed_for_s
            silent_s = self._loop.time() - self._workload.last_success_s
            if min(healed_s, silent_s) > RECOVER_S and not self._workload.is_over:
                self.violated(f"nothing was written for {silent_s:.0f} s; healed {healed_s:.0f} s")
                return

    def _look_at_transactions(self) -> None:
        """With transaction.version 2 only: version 1 cannot tell transactions apart."""
        options = self.outcome.options.transactions
        if options is not None and options.version > 1:
            coordinated: dict[int, Transaction] = {}
            for broker in self.cluster.brokers:
                if broker.broker is None:
                    continue
                for transaction in broker.broker.transactions.transactions().transactions:
                    known = coordinated.setdefault(transaction.producer_id, transaction)
                    if transaction.producer_epoch > known.producer_epoch:
                        coordinated[transaction.producer_id] = transaction
            self._open_transactions.look(self._replication.leading(), coordinated)

    # --------------------------------------------------------------- what is witnessed

    def trace(self, what: str) -> None:
        lines = self._lines
        lines.append(f"{self._loop.time():.6f} {what}")
        if len(lines) >= LINES_AT_ONCE:
            self._digest_lines()

    def _hexdigest(self) -> str:
        self._digest_lines()
        return self._digest.hexdigest()

    def _digest_lines(self) -> None:
        self._digest.update("".join(self._lines).encode())
        if self._keep_trace:
            self.outcome.trace += self._lines
        self._lines.clear()

    def violated(self, what: str) -> None:
        """Record a violation."""
        self.trace(f"VIOLATION {what}")
        if len(self.outcome.violations) < VIOLATIONS_MAX:
            self.outcome.violations.append(f"{self._loop.time():.3f} s: {what}")

    def started(self, broker: SimulatedBroker) -> None:
        self.trace(f"{broker.name} serves")

    def loaded(self, broker: SimulatedBroker) -> None:
        self._checker.loaded(broker)

    def dying(self, broker: SimulatedBroker) -> None:
        self._checker.dying(broker)

    def died(self, broker: SimulatedBroker, how: Crash) -> None:
        self._checker.died(broker, how)
        if how is Crash.POWER:
            self._replication.lost_records(broker.id)

    def put_back(self, broker: SimulatedBroker) -> None:
        self._replication.put_back(broker.id, self._checker.put_back(broker))

    def stopped(self, broker: SimulatedBroker) -> None:
        self._checker.stopped(broker)
        if broker.gave_up and self._player.healed_for_s > RECOVER_S:
            self.violated(f"{broker.name} gave up for no reason: {broker.gave_up}")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        future = context.get("future")
        if isinstance(future, asyncio.Future) and not isinstance(future, asyncio.Task):
            return  # the process is dead
        self.violated(f"unhandled: {context.get('message')}: {context.get('exception')!r}")

    def _logged(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.trace(f"log: {text}")
        if record.msg == truncation.TRUNCATED:
            self._replication.tally.truncations += 1
        if record.msg == features.CHANGED:
            level = int(text.split()[2])
            self._replication.transaction_version_used("a broker", level)
        error = record.exc_info[1] if record.exc_info else None
        # The simulator injects disk errors. One that has ended a task was not handled.
        is_expected = isinstance(error, StorageError) and record.funcName != "task_failed"
        if error is not None and not is_expected:
            self.violated(f"logged: {text}: {error!r}")


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Collect garbage seldom: a run drops hardly any cycles, and has many objects to search.

    Only for CPython, whose thresholds these are.
    """
    if sys.implementation.name != "cpython":
        yield
        return
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _listening:  # noqa: N801 - read as a verb
    """Receive the log records, instead of the usual handlers."""

    def __init__(self, heard: Any) -> None:
        self._handler = logging.Handler()
        self._handler.emit = heard  # type: ignore[method-assign]
        self._logger = logging.getLogger("odradek")

    def __enter__(self) -> None:
        self._propagated, self._level = self._logger.propagate, self._logger.level
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate = self._propagated
        self._logger.setLevel(self._level)  # clears what the loggers below it have cached
