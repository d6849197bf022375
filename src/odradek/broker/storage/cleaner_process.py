"""The broker's side of the process that cleans logs: it sends jobs and receives outcomes.

There is one process for each cleaner, started with its first job and ended when there is nothing
more to clean, so that an idle broker has none. When a process dies, its job is lost, and the next
job gets a new process. The other side is `odradek.broker.storage.cleaner_worker`.
"""

import asyncio
import json
import sys
from typing import Any, Final

from odradek.log.cleaning.round import CleaningJob, CleaningOutcome
from odradek.log.disk import StorageError
from odradek.model.errors import OdradekError

# A line holds a job's segments, producers and aborted transactions.
_LINE_BYTES_MAX: Final = 1 << 28


class CleaningError(OdradekError):
    """A round was not completed: the log is damaged, or the process died."""


class CleanerDiedError(CleaningError):
    """The process died during a round, for which the log need not be the cause."""


class CleanerProcess:
    """A process that cleans, started when there is a job."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, job: CleaningJob, *, bytes_per_second: float) -> CleaningOutcome:
        """Have the process clean a log.

        Raises:
            StorageError: the process got an error from the disk.
            CleanerDiedError: the process died.
            CleaningError: the log is damaged.
        """
        process = await self._running()
        if process.stdin is None or process.stdout is None:
            raise CleanerDiedError("the cleaner process was started without pipes")
        request = {"job": job.to_json(), "bytes_per_second": bytes_per_second}
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except ConnectionError:
            line = b""
        except asyncio.CancelledError:
            await self.end()
            raise
        if not line:
            await self.end()
            raise CleanerDiedError("the cleaner process has died")
        return _outcome(json.loads(line))

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "odradek.broker.storage.cleaner_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,  # a signal to the terminal's process group must not end it
            )
        return self._process

    async def end(self) -> None:
        """End the process; the next job starts another."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _outcome(answer: dict[str, Any]) -> CleaningOutcome:
    if "outcome" in answer:
        return CleaningOutcome.from_json(answer["outcome"])
    if "storage" in answer:
        path, error_number = answer["storage"]
        # The process writes files of its own, which are removed: the log is as it was.
        raise StorageError.of_read(path, error_number)
    raise CleaningError(answer["damage"])
