"""Moves of replicas to another log directory of this broker (KIP-113).

`odradek.log.moving` copies a log and replaces it by the copy; this task advances the copies, a
little at a time, while there are any. A restarted broker continues its moves.
"""

import asyncio
import logging
from typing import Final

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.tasks import Tasks
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.logs import Logs
from odradek.log.moving import MovingLogs
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.replica.throttle import ReplicationQuota

log = logging.getLogger(__name__)
# When there is nothing to copy (a disk read is pending, the log has not grown), look again then.
_PAUSE_S: Final = 0.02


class LogDirMoves:
    """All moves between the log directories of one broker."""

    def __init__(
        self,
        logs: Logs,
        replicas: ReplicaManager,
        tasks: Tasks,
        clock: Clock,
        *,
        quota: ReplicationQuota,
    ) -> None:
        self._quota = quota
        self._clock = clock
        self._logs = logs
        self._replicas = replicas
        self._tasks = tasks
        self._copies = MovingLogs(logs, self._moved)
        self._task: asyncio.Task[None] | None = None

    def resume(self) -> None:
        """Start the task, if there are moves and it does not run."""
        if self._has_work and (self._task is None or self._task.done()):
            self._task = self._tasks.start(self._advance(), "moves to other log directories")

    def begin(self, partition: TopicPartition, directory: str) -> None:
        """Begin to move a replica; a move to that directory that is under way continues.

        Raises:
            ApiError: there is no such directory, it has failed, or the replica is not held here.
        """
        if directory not in self._logs.directories:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not one of log.dirs")
        if self._logs.is_offline(directory):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} has failed")
        found = self._replicas.find(*partition)
        if isinstance(found, ErrorCode):
            raise ApiError(found)
        if found.log is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            self._copies.start(partition, directory)
        except StorageError as error:
            self._logs.failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.resume()

    @property
    def _has_work(self) -> bool:
        return any(self._logs.get(partition) is not None for partition in self._logs.futures)

    async def _advance(self) -> None:
        while self._has_work:
            copied = 0
            if self._quota.is_exceeded(self._clock.monotonic_ms()):
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                copied = self._copies.step()
                self._quota.record(copied, self._clock.monotonic_ms())
            except StorageError as error:
                self._logs.failed(error)
            except ApiError as error:
                log.warning("a move to another log directory is cancelled: %s", error)
            await asyncio.sleep(0 if copied else _PAUSE_S)

    def _moved(self, partition: TopicPartition, moved: Log) -> None:
        held = self._replicas.get(*partition)
        if held is not None and held.log is not None:
            moved.update_config(held.log.config)
            held.log = moved
        log.info("%s has moved to %s", partition, moved.directory)
