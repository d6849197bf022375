"""Flushing logs in the background, so that a start after a crash has little to read.

Recovery reads what follows a log's recovery point, which otherwise moves only when a segment is
rolled or closed: up to `segment.bytes` of each log. A round settles

* logs that nothing was appended to since the last round: the kernel has written most of it already,
* logs with more than 64 MiB behind their recovery point,

one after the other, and none with less than 128 KiB behind it, which are read as fast as a flush
takes. Apache Kafka leaves all this to the kernel, and reads the whole active segment of each log.
"""

import asyncio
from typing import Final

from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.logs import Logs
from odradek.model.partition import TopicPartition

SETTLED_BYTES_MIN: Final = 128 << 10
UNSETTLED_BYTES_MAX: Final = 64 << 20
_LOGS_A_TURN: Final = 500


class LogSettler:
    """Settles the logs of one broker."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._ends: dict[TopicPartition, int] = {}  # of logs that were not settled

    async def round(self) -> None:
        """Settle what is due, and write the recovery points."""
        for log in await self._due():
            if not log.removed:
                await self._settle(log)
        self._logs.checkpoint_recovery_points()

    async def _due(self) -> list[Log]:
        before, self._ends = self._ends, {}
        due = []
        for number, log in enumerate(self._logs, 1):
            if not number % _LOGS_A_TURN:
                await asyncio.sleep(0)
            behind_bytes = log.bytes_between(max(log.recovery_point, log.log_start_offset), log.leo)
            if behind_bytes < SETTLED_BYTES_MIN:
                continue
            if before.get(log.partition) == log.leo or behind_bytes > UNSETTLED_BYTES_MAX:
                due.append(log)
            else:
                self._ends[log.partition] = log.leo
        return due

    async def _settle(self, log: Log) -> None:
        flushed = asyncio.get_running_loop().create_future()

        def done(_: StorageError | None) -> None:  # the log has reported it
            if not flushed.done():
                flushed.set_result(None)

        try:
            log.settle(done)
        except StorageError as error:
            self._logs.failed(error)
        else:
            await flushed
