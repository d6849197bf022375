"""The walk over the brokers that both ways of placing share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Where the walk begins. Index and shift are drawn at random for a new topic."""

    index: int  # of the first broker that leads
    shift: int  # of the followers against their leader
    first_partition: int = 0


def follower_index(first: int, shift: int, step: int, brokers: int) -> int:
    """Where the walk is after `step` steps: over all others in turn, never back at the first."""
    return (first + 1 + (shift + step) % (brokers - 1)) % brokers
