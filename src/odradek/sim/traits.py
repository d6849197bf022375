"""Traits of a seed: which clients take part, and how its faults are drawn.

Each trait applies to about half of the seeds, independently of the others, so a search covers all
combinations. `--traits` sets them instead: some by name, or `none`.
"""

import random
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final


class Trait(Enum):
    """A property that some seeds have."""

    UNEVEN = "faults of few kinds, some much more often than others"
    SHIPPED = "clients of odradek.client take part"
    REGISTERS = "offset commits without a group, pipelined, and offsets that expire"
    LATE = "copies of group requests arrive late"
    STATIC = "members of a group have instance ids"
    SLOW_STORE = "the store answers late, again and again"
    STRAYS = "requests that a broker sent before it lost power arrive late"
    OLD = "clients of message formats v0 and v1; a single broker's logs have these formats, too"
    YOUNG = "topics are created, grown, truncated and deleted during transactions"


_OF_ALL: Final = (Trait.UNEVEN, Trait.SHIPPED, Trait.STRAYS, Trait.SLOW_STORE)
_USUAL: Final = (*_OF_ALL, Trait.OLD)
_OF_GROUPS: Final = (*_OF_ALL, Trait.REGISTERS, Trait.LATE, Trait.STATIC)
_OF_TRANSACTIONS: Final = (*_OF_GROUPS, Trait.YOUNG)
_OF_QUOTAS: Final = (Trait.UNEVEN, Trait.STRAYS, Trait.SLOW_STORE)


def possible(*, groups: bool, transactions: bool, quotas: bool = False) -> tuple[Trait, ...]:
    """The traits that a seed of this kind may have."""
    if quotas:
        return _OF_QUOTAS
    if transactions:
        return _OF_TRANSACTIONS
    return _OF_GROUPS if groups else _USUAL


def draw_traits(seed: int, traits: Iterable[Trait]) -> frozenset[Trait]:
    """The traits of a seed. Each is drawn by its own name, so adding one does not change the
    others.
    """
    return frozenset(
        trait for trait in traits if random.Random(f"{seed}/{trait.name}").random() < 0.5
    )


def names(traits: Collection[Trait]) -> str:
    """The traits in the format of `--traits`."""
    return ",".join(trait.name for trait in Trait if trait in traits) or "none"
