"""What a seed has besides its number: which clients take part, and how its faults are drawn.

Each trait is there in about half of the seeds, independently of the others, so a search meets every
combination. `--traits` says it instead: some by name, or `none`.
"""

import random
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final


class Trait(Enum):
    """Something that some seeds have and others do not."""

    UNEVEN = "faults of few kinds, some far more often than others"
    SHIPPED = "clients of odradek.client take part"
    REGISTERS = "committers without a group, which pipeline, and whose offsets expire"
    LATE = "copies of requests of a group arrive late"
    STATIC = "members of a group have instance ids"
    STRAYS = "what a broker has sent another before it lost power arrives late"
    YOUNG = "topics are made, grown, cut and deleted while transactions write to them"


_USUAL: Final = (Trait.UNEVEN, Trait.SHIPPED, Trait.STRAYS)
_OF_GROUPS: Final = (*_USUAL, Trait.REGISTERS, Trait.LATE, Trait.STATIC)
_OF_TRANSACTIONS: Final = (*_OF_GROUPS, Trait.YOUNG)


def possible(*, groups: bool, transactions: bool) -> tuple[Trait, ...]:
    """The traits that a seed of this kind may have."""
    if transactions:
        return _OF_TRANSACTIONS
    return _OF_GROUPS if groups else _USUAL


def draw_traits(seed: int, traits: Iterable[Trait]) -> frozenset[Trait]:
    """The traits of a seed, each drawn on its own: a new one changes nothing of the others."""
    return frozenset(
        trait for trait in traits if random.Random(f"{seed}/{trait.name}").random() < 0.5
    )


def names(traits: Collection[Trait]) -> str:
    """As the command line takes them."""
    return ",".join(trait.name for trait in Trait if trait in traits) or "none"
