"""Memory, files and threads of broker processes over hours, and whether they grow.

Samples are kept by pid, because a restarted process starts with fresh memory, and only a process
that ran for most of a period shows growth. The slope is that of a least-squares line through means
of equal spans; its error is the standard error of such a line's slope. The means are there because
neighbouring samples are correlated.

The first `WARM_UP_S` of a process are not checked, because memory with a limit is filled in them:
caches, the state of the clients that come and go, segments before their first roll, and the heap,
which keeps the free space of the largest peak so far (each restart of another broker is one). Half
an hour has some thirty faults of a soak. Both slopes are reported, and the memory of every
`SPAN_S`, so that growth during the warm-up is seen as well.
"""

import math
import os
import pathlib
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

INTERVAL_S = 5.0
WARM_UP_S = 1_800.0
CHECKED_S = 1_200.0  # a shorter time after the warm-up is not checked: one peak makes its slope
SPAN_S = 600.0
SPANS = 20
GROWTH_MAX = {"rss_mib": 16.0, "files": 8.0, "threads": 2.0}  # an hour, beyond twice the error


class Sample(NamedTuple):
    """The memory, files and threads of one process at one moment."""

    age_s: float  # since the first sample of this process
    rss_mib: float
    files: float
    threads: float


class Slope(NamedTuple):
    """Growth an hour, with its standard error."""

    by_hour: float
    error: float

    def exceeds(self, limit: float) -> bool:
        """Whether the slope is above a limit by more than twice its error."""
        return self.by_hour - 2 * self.error > limit

    def __str__(self) -> str:
        return f"{self.by_hour:+.2f} +- {self.error:.2f}"


def slope_of(points: list[tuple[float, float]]) -> Slope:
    """The slope of values over seconds, scaled to an hour.

    Raises:
        ValueError: fewer than `SPANS` points.
    """
    if len(points) < SPANS:
        raise ValueError(f"{len(points)} points are too few for a slope: {SPANS} are needed")
    size = len(points) / SPANS
    spans = [points[round(n * size) : round((n + 1) * size)] for n in range(SPANS)]
    hours = [statistics.fmean(at for at, _ in span) / 3600 for span in spans]
    values = [statistics.fmean(value for _, value in span) for span in spans]
    middle = statistics.fmean(hours)
    spread = sum((hour - middle) ** 2 for hour in hours)
    line = statistics.linear_regression(hours, values)
    residuals = sum(
        (value - line.slope * hour - line.intercept) ** 2
        for hour, value in zip(hours, values, strict=True)
    )
    return Slope(line.slope, math.sqrt(residuals / (SPANS - 2) / spread))


@dataclass
class Process:
    """A process and its samples."""

    name: str
    pid: int
    begun_s: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    def look(self) -> None:
        """Take a sample, unless the process has ended."""
        home = pathlib.Path(f"/proc/{self.pid}")
        try:
            report = dict(
                line.split(":", 1) for line in (home / "status").read_text().splitlines() if line
            )
            files = len(os.listdir(home / "fd"))
            rss_mib = int(report["VmRSS"].split()[0]) / 1024
        except (OSError, KeyError):  # it has just ended
            return
        age_s = time.monotonic() - self.begun_s
        self.samples.append(Sample(age_s, rss_mib, files, float(report["Threads"])))

    def slopes(self, begin_s: float, end_s: float = math.inf) -> dict[str, Slope]:
        """The slope of each column between two ages; empty if there are too few samples."""
        kept = [sample for sample in self.samples if begin_s <= sample.age_s < end_s]
        if len(kept) < SPANS:
            return {}
        return {
            name: slope_of([(sample.age_s, getattr(sample, name)) for sample in kept])
            for name in Sample._fields[1:]
        }

    def growth(self) -> dict[str, Any]:
        """The figures of this process; `grows` names each column that grows beyond its limit.

        `grows` is None for a process that did not run long enough to be checked.
        """
        age_s = self.samples[-1].age_s
        spans: dict[int, list[float]] = {}
        for sample in self.samples:
            spans.setdefault(int(sample.age_s // SPAN_S), []).append(sample.rss_mib)
        later = self.slopes(WARM_UP_S)
        return {
            "minutes": round(age_s / 60, 1),
            "rss_mib": round(self.samples[-1].rss_mib, 1),
            f"rss_mib of each {SPAN_S / 60:g} minutes": [
                round(statistics.fmean(values), 1) for values in spans.values()
            ],
            "an hour, in the warm-up": _texts(self.slopes(0, WARM_UP_S)),
            "an hour, after it": _texts(later),
            "grows": [name for name, slope in later.items() if slope.exceeds(GROWTH_MAX[name])]
            if age_s >= WARM_UP_S + CHECKED_S
            else None,
        }


def _texts(slopes: Mapping[str, Slope]) -> dict[str, str]:
    return {name: str(slope) for name, slope in slopes.items()}


class Watch:
    """Samples the processes that `pids` returns, in a thread, until `stop`."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self.processes: list[Process] = []
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        now: dict[str, Process] = {}
        while not self._ended.wait(INTERVAL_S):
            for name, pid in self._pids().items():
                if name not in now or now[name].pid != pid:
                    now[name] = Process(name, pid)
                    self.processes.append(now[name])
                now[name].look()

    def stop(self) -> None:
        """Take no more samples."""
        self._ended.set()
        self._thread.join()

    def longest(self) -> dict[str, Process]:
        """The process of each broker that was sampled for the longest time."""
        found: dict[str, Process] = {}
        for process in self.processes:
            if process.samples and (
                process.name not in found
                or process.samples[-1].age_s > found[process.name].samples[-1].age_s
            ):
                found[process.name] = process
        return found
