"""Draws the faults of a run from its seed."""

import random
from collections.abc import Sequence
from typing import Final

from odradek.sim.run.faults import OF_SEVERAL, Fault, Kind

FAULTS_MIN: Final = 20  # in a minute or more, of several brokers


def draw_schedule(
    chance: random.Random,
    *,
    seconds: float,
    brokers: int,
    kinds: Sequence[Kind],
    is_uneven: bool = False,
) -> list[Fault]:
    """The faults within so many seconds; `is_uneven`: of few kinds, with different frequencies."""
    if brokers == 1:
        kinds = [kind for kind in kinds if kind not in OF_SEVERAL]
    elif len(kinds) > 1 and Kind.ISOLATE in kinds:
        # Isolated leaders make logs diverge most.
        kinds = [*kinds, *[Kind.ISOLATE] * 3]
    if is_uneven and len(kinds) > 1:
        kinds = _uneven(chance, kinds)
    faults: list[Fault] = []
    # One broker's faults come one after the other; several brokers have them concurrently.
    mean_s = chance.choice((3.0, 6.0, 12.0)) if brokers == 1 else chance.choice((1.0, 2.0, 2.5))
    at_s = 2.0 + chance.expovariate(1 / mean_s)
    while at_s < seconds or (brokers > 1 and seconds >= 60.0 and len(faults) < FAULTS_MIN):
        kind = chance.choice(kinds)
        lasts_s = chance.choice((0.05, 0.5, 2.0, 8.0)) * chance.uniform(0.5, 1.5)
        faults.append(
            Fault(len(faults), kind, at_s, lasts_s, chance.randrange(brokers), chance.random())
        )
        at_s += chance.expovariate(1 / mean_s)
    return faults


def draw_slow_stores(
    chance: random.Random, *, seconds: float, brokers: int, first: int
) -> list[Fault]:
    """Slow answers of the store, in addition to other faults: they begin with the brokers.

    `first` is the number of the first of them.
    """
    faults: list[Fault] = []
    at_s = chance.uniform(0.0, 0.2)
    while at_s < seconds:
        lasts_s = chance.choice((0.5, 2.0, 8.0)) * chance.uniform(0.5, 1.5)
        broker, detail = chance.randrange(brokers), chance.random()
        number = first + len(faults)
        faults.append(Fault(number, Kind.SLOW_STORE, at_s, lasts_s, broker, detail))
        at_s += chance.expovariate(1 / 8.0)
    return faults


def _uneven(chance: random.Random, kinds: Sequence[Kind]) -> list[Kind]:
    """Some of the kinds, each with a drawn frequency (swarm testing, Groce et al. 2012).

    With equal frequencies, it is very unlikely that three faults of one kind come in a row, and
    no fault of another kind hides their effect.
    """
    drawn = [
        kind for kind in dict.fromkeys(kinds) for _ in range(chance.choice((0, 0, 0, 1, 2, 6)))
    ]
    return drawn or [chance.choice(kinds)]
