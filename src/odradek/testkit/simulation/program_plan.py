"""What a test says of one of its programs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

Main = Callable[..., Awaitable[object]]


class Ending(Enum):
    """What becomes of a program that ends by itself."""

    RESTART = "restart"
    STAY = "stay"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """A program with so many instances."""

    name: str
    main: Main
    arguments: tuple[Any, ...]
    instances: int
    ending: Ending
    has_faults: bool
