"""The process that cleans logs: `python -m odradek.broker.storage.cleaner_worker`.

A line of JSON on stdin is a job, a line on stdout its outcome; one at a time. It runs at the lowest
priority, reads segments, writes `.cleaned` files, and keeps to
`log.cleaner.io.max.bytes.per.second`. When stdin ends, because the broker has nothing more to clean
or has died, it exits at once: it must not write while the next broker process recovers the logs.

The broker's side is `odradek.broker.storage.cleaner_process`.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Final

from odradek.log.cleaning.round import CleaningJob, CleaningOutcome, Steps, cleaning
from odradek.log.disk import Disk, StorageError
from odradek.log.system.disk import RealDisk
from odradek.model.errors import ApiError

_PRIORITY: Final = 19
# Shorter waits take longer than asked for.
_WAIT_MIN_S: Final = 0.01


def main() -> None:
    """Serve jobs until stdin ends."""
    os.nice(_PRIORITY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker
    jobs: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    disk = RealDisk(call_soon=lambda callback, *arguments: callback(*arguments))
    while True:
        answer = serve(json.loads(jobs.get()), disk)
        print(json.dumps(answer), flush=True)  # noqa: T201 - the broker reads it


def _read_jobs(jobs: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)  # also in the middle of a job


def serve(request: Mapping[str, Any], disk: Disk) -> dict[str, Any]:
    """Do one job. Returns its outcome, the damage found, or the failed disk access."""
    steps = cleaning(CleaningJob.from_json(request["job"]), disk)
    try:
        outcome = paced(steps, request["bytes_per_second"], time.monotonic, time.sleep)
    except StorageError as error:
        return {"storage": [error.path, error.errno]}
    except ApiError as error:
        return {"damage": str(error)}
    return {"outcome": outcome.to_json()}


def paced(
    steps: Steps,
    bytes_per_second: float,
    now_s: Callable[[], float],
    wait: Callable[[float], None],
) -> CleaningOutcome:
    """Clean a log, waiting when it is ahead of the allowed bytes a second."""
    due_s = now_s()
    while True:
        try:
            due_s += next(steps) / bytes_per_second
        except StopIteration as stop:
            outcome: CleaningOutcome = stop.value
            return outcome
        ahead_s = due_s - now_s()
        if ahead_s > _WAIT_MIN_S:
            wait(ahead_s)
        elif ahead_s < 0:
            due_s -= ahead_s  # unused time is not saved up


if __name__ == "__main__":
    main()
