"""Many seeds, over several processes: outcomes come in the order of the seeds.

A seed needs a processor and nothing else, so as many processes work as may. Each is a Python of
its own, replaced after some seeds: what a run has left behind does not add up over a night. They
are all replaced at once, for a pool told to do it by itself (`max_tasks_per_child`) comes to stand
still when it has no process left: in Python 3.11 to 3.13, tried with all three.
"""

import gc
import multiprocessing
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from odradek.sim.run.simulation import Options, Outcome, simulate

SEEDS_OF_A_PROCESS: Final = 100


def play(seed: int, options: Options) -> Outcome:
    """One seed, and what it has cost; what is left of it can travel between processes."""
    began_s = time.process_time()
    outcome = simulate(seed, options)
    outcome.ledger = outcome.book = None  # they know the whole world
    outcome.cpu_s = time.process_time() - began_s
    gc.collect()
    return outcome


def play_until_counted(seeds: Iterable[int], options: Options, count: int) -> list[Outcome]:
    """Seeds in their order, until so many have counted or one has failed."""
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcomes.append(play(seed, options))
        if outcomes[-1].violations or sum(outcome.counts for outcome in outcomes) == count:
            break
    return outcomes


def search(seeds: Sequence[int], options: Options, *, jobs: int = 1) -> Iterator[Outcome]:
    """Play them all."""
    if jobs == 1:
        yield from (play(seed, options) for seed in seeds)
        return
    at_once = jobs * SEEDS_OF_A_PROCESS
    for first in range(0, len(seeds), at_once):
        with workers(jobs) as pool:
            try:
                yield from pool.map(partial(play, options=options), seeds[first : first + at_once])
            finally:
                pool.shutdown(cancel_futures=True)


def workers(jobs: int) -> ProcessPoolExecutor:
    """Processes that play; a Ctrl-C is for the one who has started them."""
    return ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
