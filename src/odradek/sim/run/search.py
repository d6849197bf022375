"""Runs many seeds in several processes; outcomes come in the order of the seeds.

Each worker is a Python process, replaced after some seeds, so that memory does not grow in a long
search. All workers are replaced at the same time: with `max_tasks_per_child` a pool can hang when
it has no process left (Python 3.11 to 3.13).
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
    """Run one seed and measure its CPU time; the result can be pickled.

    Garbage is collected once, when nothing of the seed is left: each collection before that would
    look at all of its objects, and free few.
    """
    began_s = time.process_time()
    gc.disable()
    gc.freeze()  # what is there before the seed is not looked at
    try:
        outcome = simulate(seed, options)
        outcome.ledger = outcome.book = None  # they refer to the whole simulation
        gc.collect()
    finally:
        gc.unfreeze()
        gc.enable()
    outcome.cpu_s = time.process_time() - began_s
    return outcome


def play_until_counted(seeds: Iterable[int], options: Options, count: int) -> list[Outcome]:
    """Run seeds in order, until `count` of them have counted or one has failed."""
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcomes.append(play(seed, options))
        if outcomes[-1].violations or sum(outcome.counts for outcome in outcomes) == count:
            break
    return outcomes


def search(seeds: Sequence[int], options: Options, *, jobs: int = 1) -> Iterator[Outcome]:
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
    """A pool of workers that ignore Ctrl-C, which the main process handles."""
    return ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
