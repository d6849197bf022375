"""What a run shows, as data that goes from a child process to its parent."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.testkit.simulation.incidents import FaultKind, Incident


class Event(NamedTuple):
    """Something that has happened, for the story of a run."""

    at_s: float
    who: str
    what: str


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is made of besides the test: a seed, and what was left out by shrinking."""

    seed: int
    only: frozenset[int] | None = None  # numbers of the faults to play; None: all
    instances_max: int | None = None  # of each program
    traced: bool = False  # keep everything that happened, not only what the digest needs

    def encode(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "only": None if self.only is None else sorted(self.only),
            "instances_max": self.instances_max,
            "traced": self.traced,
        }

    @classmethod
    def decode(cls, data: dict[str, Any]) -> "RunOptions":
        only = data["only"]
        return cls(
            data["seed"],
            None if only is None else frozenset(only),
            data["instances_max"],
            data["traced"],
        )


@dataclass(slots=True)
class RunOutcome:
    """The result of one run."""

    options: RunOptions
    failures: list[str] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)  # if `traced`
    digest: str = ""
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    error: str = ""  # the test itself is wrong: there is no run

    @property
    def failed(self) -> bool:
        return bool(self.failures or self.error)

    def encode(self) -> dict[str, Any]:
        return {
            "options": self.options.encode(),
            "failures": self.failures,
            "incidents": [
                [i.number, i.kind.value, i.at_s, i.lasts_s, i.target, i.detail]
                for i in self.incidents
            ],
            "events": [list(event) for event in self.events],
            "trace": self.trace,
            "digest": self.digest,
            "simulated_s": self.simulated_s,
            "cpu_s": self.cpu_s,
            "error": self.error,
        }

    @classmethod
    def decode(cls, data: dict[str, Any]) -> "RunOutcome":
        return cls(
            options=RunOptions.decode(data["options"]),
            failures=data["failures"],
            incidents=[
                Incident(number, FaultKind(kind), *others)
                for number, kind, *others in data["incidents"]
            ],
            events=[Event(*event) for event in data["events"]],
            trace=data["trace"],
            digest=data["digest"],
            simulated_s=data["simulated_s"],
            cpu_s=data["cpu_s"],
            error=data["error"],
        )
