"""Tries seeds until one fails, makes its failure small, and checks that runs can be repeated."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

from odradek.testkit.simulation.outcome import RunOptions, RunOutcome

# Every so many seeds, one is run twice.
TWICE_EVERY: Final = 100
SHRINK_S_MAX: Final = 60.0
Say = Callable[[str], object]


class Runs(Protocol):
    """Where runs are played: in children, or here."""

    jobs: int

    def play(self, asked: Iterable[RunOptions]) -> Iterator[RunOutcome]:
        """Play runs; outcomes come as they are ready."""


@dataclass(slots=True)
class SeedSearch:
    """The result of a search."""

    seeds: int = 0  # tried
    seconds: float = 0.0
    failing: list[int] = field(default_factory=list)
    first: RunOutcome | None = None  # as it was drawn
    smallest: RunOutcome | None = None  # with what is needed to fail
    shrink_runs: int = 0
    unlike: str = ""  # the first event in which two runs of a seed differ


def search(
    runs: Runs,
    seeds: Sequence[RunOptions],
    *,
    say: Say = lambda _: None,
    stop_at_first: bool = True,
    shrinks: bool = True,
) -> SeedSearch:
    """Play all seeds, or until one fails."""
    found = SeedSearch()
    began_s = time.monotonic()
    twice = [options for index, options in enumerate(seeds) if index % TWICE_EVERY == 0]
    first: dict[RunOptions, str] = {}
    failing: list[RunOutcome] = []
    for outcome in runs.play(_with_repeats(seeds, twice)):
        options = outcome.options
        if options in first and first[options] != outcome.digest:
            found.unlike = _first_difference(runs, options)
            break
        if options in first:
            continue
        if options in twice:
            first[options] = outcome.digest
        found.seeds += 1
        if outcome.failed:
            found.failing.append(options.seed)
            failing.append(outcome)
            say(f"seed {options.seed} fails: {(outcome.error or outcome.failures[0])}")
            if stop_at_first:
                break
        elif found.seeds % 20 == 0:
            say(f"{found.seeds} of {len(seeds)} seeds")
    if failing:
        found.first = found.smallest = failing[0]
        if shrinks and not failing[0].error:
            found.smallest, found.shrink_runs = shrink(runs, failing[0], say=say)
    found.seconds = time.monotonic() - began_s
    return found


def _with_repeats(seeds: Sequence[RunOptions], twice: Sequence[RunOptions]) -> Iterator[RunOptions]:
    again = set(twice)
    for options in seeds:
        yield options
        if options in again:
            yield options


def _first_difference(runs: Runs, options: RunOptions) -> str:
    traced = replace(options, traced=True)
    one, other = islice(runs.play([traced, traced]), 2)
    for before, after in zip(one.trace, other.trace, strict=False):
        if before != after:
            return f"{before.strip()}   or   {after.strip()}"
    return "the end of the run" if len(one.trace) != len(other.trace) else "an event that came once"


def shrink(
    runs: Runs, failed: RunOutcome, *, say: Say, seconds: float = SHRINK_S_MAX
) -> tuple[RunOutcome, int]:
    """The smallest failure found in so many seconds: fewer faults, then fewer instances.

    Delta debugging: halves are left out, then quarters, down to single faults, as long as the run
    fails. Each purpose has its own random generator, so a fault that is left out changes only its
    effects. Returns the number of runs, too.
    """
    best, count, parts = failed, 0, 2
    end_s = time.monotonic() + seconds
    while best.incidents and time.monotonic() < end_s:
        numbers = [incident.number for incident in best.incidents]
        size = -(-len(numbers) // parts)
        chunks = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        asked = [
            replace(best.options, only=frozenset(numbers) - frozenset(chunk)) for chunk in chunks
        ]
        smaller, tried = _first_failing(runs, asked)
        count += tried
        if smaller is not None:
            best, parts = smaller, max(2, parts - 1)
            say(f"still fails with {len(best.incidents)} faults")
        elif parts >= len(numbers):
            break
        else:
            parts = min(2 * parts, len(numbers))
    if time.monotonic() < end_s:
        alone, tried = _first_failing(runs, [replace(best.options, instances_max=1)])
        count += tried
        if alone is not None and alone.digest != best.digest:  # there were others
            best = alone
    return best, count


def _first_failing(runs: Runs, asked: Sequence[RunOptions]) -> tuple[RunOutcome | None, int]:
    """The first of these runs that fails, in their order: so many at a time as run side by side."""
    count = 0
    for at in range(0, len(asked), runs.jobs):
        some = asked[at : at + runs.jobs]
        outcomes = list(runs.play(some))
        count += len(outcomes)
        failing = {outcome.options: outcome for outcome in outcomes if outcome.failed}
        for options in some:
            if options in failing and not failing[options].error:
                return failing[options], count
    return None, count
