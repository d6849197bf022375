"""What a test asks for: topics, programs, faults and checks. Nothing runs here.

def test_no_order_is_lost(sim):
    sim.topic("orders", partitions=2)
    sim.process("shop", shop, instances=2)
    sim.process("till", till)
    sim.at_end(lambda world: world.assert_each_once(world.outside.sent, world.outside.got))
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.testkit.options import broker_options, topic_options
from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.incidents import FaultKind, kinds_of
from odradek.testkit.simulation.program_plan import Ending, Main, ProgramPlan
from odradek.testkit.simulation.world import SimulatedWorld

Check = Callable[[SimulatedWorld], object]
Condition = Callable[[SimulatedWorld], bool]
Action = Callable[[SimulatedWorld], Awaitable[object] | None]

QUIET_S: Final = 10.0
SETTLE_S_MAX: Final = 90.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that is there before the programs start."""

    name: str
    partitions: int
    replicas: int
    options: Mapping[str, str]


@dataclass(slots=True)
class Setup:
    """Everything that a test has asked for."""

    topics: list[TopicPlan] = field(default_factory=list)
    programs: list[ProgramPlan] = field(default_factory=list)
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    timed: list[tuple[float, Action]] = field(default_factory=list)
    conditional: list[tuple[Condition, Action]] = field(default_factory=list)
    invariants: list[Check] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    broker_options: dict[str, str] = field(default_factory=dict)
    quiet_s: float = QUIET_S
    settle_s_max: float = SETTLE_S_MAX


class SimulationPlan:
    """What a test gets as `sim`: it says what there is, and what must hold."""

    def __init__(self, brokers: int) -> None:
        self.plan = Setup()
        self._brokers = brokers

    def topic(
        self, name: str, *, partitions: int = 1, replicas: int | None = None, **options: object
    ) -> None:
        """Create a topic before the programs start; `options` as `retention_ms=1000`.

        Raises:
            SimulationError: there are fewer brokers than replicas.
            KitError: an option does not exist.
        """
        replicas = min(3, self._brokers) if replicas is None else replicas
        if not 1 <= replicas <= self._brokers:
            raise SimulationError(
                f"topic {name!r} cannot have {replicas} replicas: there are {self._brokers} brokers"
            )
        self.plan.topics.append(TopicPlan(name, partitions, replicas, topic_options(options)))

    def process(
        self,
        name: str,
        main: Main,
        *arguments: Any,
        instances: int = 1,
        when_it_ends: Ending | str = Ending.RESTART,
        faults: bool = True,
    ) -> None:
        """Run `main(context, *arguments)` in so many processes: name-1, name-2, ...

        `when_it_ends`: "restart" as by a supervisor, "stay" ended, or "fail" the test if it has
        ended with an exception. `faults`: whether faults are drawn for it.

        Raises:
            SimulationError: there is such a program already.
        """
        if any(program.name == name for program in self.plan.programs):
            raise SimulationError(f"there are two programs {name!r}")
        self.plan.programs.append(
            ProgramPlan(name, main, arguments, instances, Ending(when_it_ends), faults)
        )

    def service(self, name: str, main: Main, *arguments: Any, faults: bool = False) -> None:
        """Another service that the programs use: a process on the host `name`.

        It listens by `asyncio.start_server`, at whatever port it likes.
        """
        self.process(name, main, *arguments, instances=0, faults=faults)

    def brokers(self, **options: object) -> None:
        """Options of the brokers, as `offsets_retention_minutes=1`.

        Raises:
            KitError: an option does not exist, or the simulation sets it.
        """
        named = {name.replace("_", "."): value for name, value in options.items()}
        self.plan.broker_options |= broker_options(named)

    def faults(self, *kinds: FaultKind | str, without: Iterable[FaultKind | str] = ()) -> None:
        """Draw faults of these kinds, or of all; without a call, of all. `sim.no_faults()`: none.

        Raises:
            SimulationError: there is no such kind.
        """
        left_out = kinds_of(without)
        chosen = kinds_of(kinds) or tuple(FaultKind)
        self.plan.kinds = tuple(kind for kind in chosen if kind not in left_out)

    def no_faults(self) -> None:
        """Draw no faults: only those of `at` and `when` happen."""
        self.plan.kinds = ()

    def at(self, seconds: float, action: Action) -> None:
        """Do something at a simulated time: `sim.at(12.5, kill("shop-1"))`."""
        self.plan.timed.append((seconds, action))

    def when(self, condition: Condition, action: Action) -> None:
        """Do something as soon as a condition holds, once."""
        self.plan.conditional.append((condition, action))

    def always(self, invariant: Check) -> None:
        """Check something after each event; it fails by an AssertionError or by being False."""
        self.plan.invariants.append(invariant)

    def at_end(self, check: Check) -> None:
        """Check something when all faults are over and the programs have come to rest."""
        self.plan.checks.append(check)

    def settle(self, *, quiet: float = QUIET_S, at_most: float = SETTLE_S_MAX) -> None:
        """The run ends after so many seconds without an event, when all faults are over."""
        self.plan.quiet_s, self.plan.settle_s_max = quiet, at_most
