"""The round over the brokers that both kinds of assignment use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundStart:
    """Where the round begins. Index and shift are drawn at random for a new topic."""

    index: int  # of the first broker that leads
    shift: int  # of the followers against their leader
    first_partition: int = 0


def follower_index(first: int, shift: int, step: int, brokers: int) -> int:
    """The index after `step` steps over all brokers except the first."""
    return (first + 1 + (shift + step) % (brokers - 1)) % brokers
