"""Each run in a fork of a process that has loaded the test.

So every run begins with the same state of all modules: libraries number their clients, cache and
remember. Whatever a run leaves ends with its fork.
"""

import faulthandler
import gc
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator

from odradek.testkit.simulation.outcome import RunOptions, RunOutcome

Play = Callable[[RunOptions], RunOutcome]

# A run that takes so long hangs: its stack goes to standard error, and it ends.
RUN_S_MAX = 120.0


def in_fork(play: Play, options: RunOptions) -> RunOutcome:
    """Play a run in a fork of this process, and wait for it."""
    read, write = os.pipe()
    gc.freeze()  # what is there now is shared with the fork, and not looked at in it
    pid = os.fork()
    if not pid:
        _play_and_end(play, options, read, write)
    gc.unfreeze()
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        text = answer.read()
    status = os.waitpid(pid, 0)[1]
    if text:
        return RunOutcome.decode(json.loads(text))
    return RunOutcome(options, error=f"the run of seed {options.seed} {_how(status)}")


def _play_and_end(play: Play, options: RunOptions, read: int, write: int) -> None:
    code = 1
    try:
        os.close(read)
        faulthandler.dump_traceback_later(RUN_S_MAX, exit=True)
        try:
            outcome = play(options)
        except BaseException:  # of the simulation itself
            outcome = RunOutcome(options, error=traceback.format_exc())
        text = json.dumps(outcome.encode())
        with os.fdopen(write, "w", encoding="utf-8") as answer:
            answer.write(text)
        code = 0
    finally:
        os._exit(code)  # nothing else of the process that was forked is run


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return (
        f"ended with {os.waitstatus_to_exitcode(status)}: it failed, or took more than "
        f"{RUN_S_MAX:.0f} s in one callback or in all; what it printed says where"
    )


class Here:
    """Runs from this process, one after the other.

    For a debugger (`forks` False), and for tests that no child can load.
    """

    jobs = 1

    def __init__(self, play: Play, *, forks: bool = True) -> None:
        self._play = play
        self._forks = forks

    def play(self, asked: Iterable[RunOptions]) -> Iterator[RunOutcome]:
        """Play runs in their order."""
        for options in asked:
            yield in_fork(self._play, options) if self._forks else self._play(options)


def has_fixed_hashes() -> bool:
    """Whether sets of strings have the order that they have in children."""
    return os.environ.get("PYTHONHASHSEED") == "0"
