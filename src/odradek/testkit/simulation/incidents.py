"""What can go wrong in a run: kinds of faults, and the schedule that is drawn from the seed.

A schedule is a list, so that a failing one can be shrunk by leaving faults out: each of them has
everything that it draws in itself.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.sim.run.faults import Fault as BrokerFault
from odradek.sim.run.faults import Kind as BrokerKind
from odradek.testkit.simulation.errors import SimulationError


class FaultKind(Enum):
    """The kinds of faults, as tests name them: `FaultKind.PROGRAM_KILLED` or "program killed"."""

    PROGRAM_KILLED = "program killed"
    PROGRAM_PAUSED = "program paused"
    PROGRAM_SLOW = "program slow"
    PROGRAM_CUT_OFF = "program cut off"
    PROGRAM_JOINS = "program joins"
    PROGRAM_LEAVES = "program leaves"
    DEPLOYMENT = "deployment"
    CLOCK_JUMP = "clock jump"
    BROKER_KILLED = "broker killed"
    BROKER_POWER_LOST = "broker power lost"
    BROKER_PAUSED = "broker paused"
    BROKER_RESTARTED = "broker restarted"
    BROKER_CUT_OFF = "broker cut off"
    DISK_FULL = "disk full"
    DISK_SLOW = "disk slow"
    CONTROLLER_GONE = "controller gone"
    LEADERS_MOVED = "leaders moved"
    CONNECTIONS_RESET = "connections reset"
    NETWORK_SLOW = "network slow"
    ERRORS_ANSWERED = "errors answered"


OF_PROGRAMS: Final = frozenset(
    {
        FaultKind.PROGRAM_KILLED,
        FaultKind.PROGRAM_PAUSED,
        FaultKind.PROGRAM_SLOW,
        FaultKind.PROGRAM_CUT_OFF,
        FaultKind.PROGRAM_JOINS,
        FaultKind.PROGRAM_LEAVES,
        FaultKind.DEPLOYMENT,
        FaultKind.CLOCK_JUMP,
    }
)
# The simulator's own faults, of brokers and of what is between them.
OF_BROKERS: Final = {
    FaultKind.BROKER_KILLED: BrokerKind.KILL,
    FaultKind.BROKER_POWER_LOST: BrokerKind.POWER,
    FaultKind.BROKER_PAUSED: BrokerKind.PAUSE,
    FaultKind.BROKER_RESTARTED: BrokerKind.STOP,
    FaultKind.BROKER_CUT_OFF: BrokerKind.CUT,
    FaultKind.DISK_FULL: BrokerKind.DIR_FULL,
    FaultKind.DISK_SLOW: BrokerKind.SLOW_DISK,
    FaultKind.CONTROLLER_GONE: BrokerKind.DEPOSE,
    FaultKind.LEADERS_MOVED: BrokerKind.LEADER_CHANGES,
    FaultKind.CONNECTIONS_RESET: BrokerKind.RESET,
    FaultKind.NETWORK_SLOW: BrokerKind.SLOW_NETWORK,
}
# They need a second broker, which takes over.
_OF_SEVERAL: Final = frozenset(
    {
        FaultKind.BROKER_POWER_LOST,
        FaultKind.BROKER_CUT_OFF,
        FaultKind.CONTROLLER_GONE,
        FaultKind.LEADERS_MOVED,
        FaultKind.DISK_FULL,
    }
)


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault of a schedule."""

    number: int
    kind: FaultKind
    at_s: float
    lasts_s: float
    target: str  # a program's instance or a broker; "" for what concerns all
    detail: float  # between 0 and 1: all further choices derive from it

    def __str__(self) -> str:
        whom = f", {self.target}" if self.target else ""
        return f"{self.at_s:.3f} s: {self.kind.value}{whom} ({self.lasts_s:.1f} s)"

    def of_broker(self) -> BrokerFault:
        """The same as a fault of the simulator."""
        broker = int(self.target.removeprefix("broker-") or 0)
        return BrokerFault(
            self.number, OF_BROKERS[self.kind], 0.0, self.lasts_s, broker, self.detail
        )


def kinds_of(names: Iterable["FaultKind | str"]) -> tuple[FaultKind, ...]:
    """The kinds that a test names.

    Raises:
        SimulationError: there is no such kind.
    """
    found = []
    for name in names:
        try:
            found.append(FaultKind(name))
        except ValueError:
            known = ", ".join(f'"{kind.value}"' for kind in FaultKind)
            raise SimulationError(f"{name!r} is no kind of fault: such are {known}") from None
    return tuple(found)


def draw_incidents(
    chance: random.Random,
    *,
    seconds: float,
    kinds: Sequence[FaultKind],
    instances: Sequence[str],
    brokers: int,
) -> list[Incident]:
    """The faults within so many seconds: few kinds in most seeds, each with its own frequency."""
    possible = [
        kind
        for kind in kinds
        if (instances or kind not in OF_PROGRAMS) and (brokers > 1 or kind not in _OF_SEVERAL)
    ]
    if not possible:
        return []
    # Swarm testing: with all kinds at once, each hides what the others would show.
    frequent = [kind for kind in possible for _ in range(chance.choice((0, 0, 1, 1, 2, 5)))]
    frequent = frequent or [chance.choice(possible)]
    mean_s = chance.choice((1.5, 3.0, 6.0))
    incidents: list[Incident] = []
    at_s = 1.0 + chance.expovariate(1 / mean_s)
    while at_s < seconds:
        kind = chance.choice(frequent)
        target = (
            chance.choice(instances)
            if kind in OF_PROGRAMS
            else f"broker-{chance.randrange(brokers)}"
        )
        lasts_s = chance.choice((0.05, 0.5, 2.0, 12.0)) * chance.uniform(0.5, 1.5)
        number = len(incidents)
        incidents.append(Incident(number, kind, at_s, lasts_s, target, chance.random()))
        at_s += chance.expovariate(1 / mean_s)
    return incidents
