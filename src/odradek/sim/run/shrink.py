"""Finds fewer faults that still fail (delta debugging).

Halves are left out, then quarters, and so on down to single faults, as long as any violation
remains. Each purpose has its own random generator, so leaving a fault out changes only its effects.
"""

from collections.abc import Callable
from dataclasses import replace

from odradek.sim.run.simulation import Outcome, simulate

RUNS_MAX = 200


def shrink(failed: Outcome, *, log: Callable[[str], object] = lambda _: None) -> Outcome:
    """The smallest failing schedule found, starting from a failing one."""
    assert failed.violations
    best = failed
    parts = 2
    runs = 0
    while runs < RUNS_MAX:
        numbers = [fault.number for fault in best.schedule]
        if not numbers:
            break
        smaller = None
        for chunk in _chunks(numbers, parts):
            runs += 1
            only = frozenset(numbers) - frozenset(chunk)
            outcome = simulate(failed.seed, replace(failed.options, only=only))
            if outcome.violations:
                smaller = outcome
                break
        if smaller is not None:
            best = smaller
            log(f"still fails with {len(best.schedule)} faults")
            parts = max(2, parts - 1)
        elif parts >= len(numbers):
            break
        else:
            parts = min(2 * parts, len(numbers))
    return best


def _chunks(numbers: list[int], parts: int) -> list[list[int]]:
    size = -(-len(numbers) // parts)
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]
