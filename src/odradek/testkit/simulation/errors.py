"""The errors of programs that cannot run in simulated time."""

from odradek.testkit.errors import KitError


class SimulationError(KitError):
    """A simulation cannot be made as the test asks, or could not go on."""


class NotSimulatedError(SimulationError):
    """A program has called what only an operating system has: a thread, a socket, a process."""

    def __init__(self, call: str, place: str) -> None:
        super().__init__(
            f"{call} is not simulated (called at {place}). Programs with threads, processes or "
            f"sockets of their own run against the kit's processes: docs/testing.md"
        )


class ProgramSpinsError(SimulationError):
    """A program makes turn after turn and waits for nothing."""

    def __init__(self, program: str, turns: int, place: str) -> None:
        super().__init__(f"{program} made {turns:,} turns in one simulated second, at {place}")
