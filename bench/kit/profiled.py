"""An Odradek broker under a profiler.

With py-spy on the PATH it is sampled from outside, at little cost, and the samples become a
table of functions: their own share, and their share with all they call. Without it the broker runs
under cProfile, which makes every Python call slower and so overestimates Python's share. Time in
the kernel counts as the calling function's own.
"""

import collections
import os
import pathlib
import pstats
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

from kit import raw
from kit.targets import Odradek

_ROWS = 45
_SAMPLES_PER_S = 500


class ProfiledOdradek(Odradek):
    """One Odradek broker; call `start_profile` and `profile` around the load."""

    def __init__(self, home: pathlib.Path) -> None:
        super().__init__(home)
        self._spy: subprocess.Popen[bytes] | None = None
        self._broker: subprocess.Popen[bytes] | None = None
        self._output = home.with_name("profile")

    def start(self) -> None:
        super().start()
        if shutil.which("py-spy"):
            return
        # The same broker again, started by the profiler.
        super().halt()
        properties = self._home / "broker-0" / "server.properties"
        profiler = [sys.executable, "-m", "cProfile", "-o", str(self._output)]
        command = [*profiler, "-m", "odradek", "server-start", str(properties)]
        with self._output.with_suffix(".log").open("wb") as log:
            self._broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        raw.wait_for_metadata(self.bootstrap, timeout_s=60)

    def pids(self) -> list[int]:
        return [self._broker.pid] if self._broker else super().pids()

    def start_profile(self) -> None:
        """Begin to sample here, if the profiler can attach to a running process."""
        if self._broker is None:
            command = ["py-spy", "record", "--format", "raw", "--threads"]
            command += ["--rate", str(_SAMPLES_PER_S)]
            command += ["--output", str(self._output), "--pid", str(self.pids()[0])]
            self._spy = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def profile(self) -> str:
        """The profile as a table."""
        if self._spy is not None:
            self._spy.send_signal(signal.SIGINT)
            self._spy.wait(60)
            return "\n".join(_table(self._output.read_text()))
        self.halt()
        report = self._output.with_suffix(".txt")
        with report.open("w") as file:
            pstats.Stats(str(self._output), stream=file).sort_stats("tottime").print_stats(_ROWS)
        return report.read_text()

    def halt(self) -> None:
        if self._broker is not None and self._broker.poll() is None:
            self._broker.terminate()
            self._broker.wait(60)
        super().halt()


def _table(samples: str) -> Iterator[str]:
    """py-spy's raw format is one line for each stack: `thread;outer;...;inner count`.

    Only of the loop's thread: py-spy takes threads that wait for work as busy.
    """
    own: collections.Counter[str] = collections.Counter()
    within: collections.Counter[str] = collections.Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *outer_to_inner = stack.split(";")
        if not outer_to_inner or "MainThread" not in thread:
            continue
        frames = [_function(frame) for frame in outer_to_inner]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            within[frame] += int(count)
    total = own.total()
    yield f"{total} samples"
    yield f"{'own':>7} {'with callees':>13}"
    for frame, hits in own.most_common(_ROWS):
        yield f"{hits / total:7.1%} {within[frame] / total:13.1%}  {frame}"


def _function(frame: str) -> str:
    """`name (a/long/path.py:123)` without the line, so that a function has one row."""
    name, _, place = frame.partition(" (")
    path = place.rstrip(")").rpartition(":")[0].split("/odradek/")[-1]
    return f"{name} ({os.path.normpath(path)})" if place else name
