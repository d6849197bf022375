"""Replicas on their way into another log directory of this broker.

A move is a copy: batches are read from the log in its present directory and appended to the
future one as a follower would, a slice at a time. When both end at the same offset the future
takes the log's place, in one turn of the loop in which nothing can be appended. Moves that were
under way when the broker stopped go on when it starts again.
"""

import asyncio
import logging
from typing import Final

from odradek.broker.replica_manager import ReplicaManager
from odradek.broker.tasks import Tasks
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.logs import Logs
from odradek.log.slices import ColdRead
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition

log = logging.getLogger(__name__)
SLICE_BYTES: Final = 1 << 20


class LogDirMoves:
    """All moves of one broker; each has a task of its own."""

    def __init__(self, logs: Logs, replicas: ReplicaManager, tasks: Tasks) -> None:
        self._logs = logs
        self._replicas = replicas
        self._tasks = tasks
        self._moving: dict[TopicPartition, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Go on with what was under way when the broker stopped."""
        for partition in self._logs.futures:
            self._start(partition)

    def begin(self, partition: TopicPartition, directory: str) -> None:
        """Begin to move a replica.

        Raises:
            ApiError: it is not held here, or the directory cannot take it.
        """
        found = self._replicas.find(*partition)
        if isinstance(found, ErrorCode):
            raise ApiError(found)
        if found.log is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        self._cancel(partition)
        if self._logs.directory_of(found.log) == directory:
            self._logs.drop_future(partition)
            return
        try:
            self._logs.create_future(partition, directory)
        except StorageError as error:
            self._logs.failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._start(partition)

    def _start(self, partition: TopicPartition) -> None:
        self._moving[partition] = self._tasks.start(self._move(partition), f"move {partition}")

    def _cancel(self, partition: TopicPartition) -> None:
        task = self._moving.pop(partition, None)
        if task is not None:
            task.cancel()

    async def _move(self, partition: TopicPartition) -> None:
        try:
            while True:
                current, future = self._logs.get(partition), self._logs.future(partition)
                if current is None or future is None:
                    return  # deleted, or a directory failed
                if future.leo == current.leo and self._replicas.get(*partition) is not None:
                    self._swap(partition)
                    return
                await self._copy(current, future)
                await asyncio.sleep(0)
        except StorageError as error:
            self._logs.failed(error)
        except ApiError as error:
            log.warning("the move of %s is given up: %s", partition, error)
            self._logs.drop_future(partition)

    def _swap(self, partition: TopicPartition) -> None:
        moved = self._logs.swap_in(partition)
        held = self._replicas.get(*partition)
        if held is not None:
            held.log = moved
        self._moving.pop(partition, None)
        log.info("%s has moved to %s", partition, moved.directory)

    async def _copy(self, current: Log, future: Log) -> None:
        """One slice, or less if the log was cut or its beginning deleted meanwhile."""
        if future.leo > current.leo:
            future.truncate_to(current.leo)
        if future.leo < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        if future.leo == current.leo:
            return
        found = current.read(future.leo, SLICE_BYTES, end_offset=current.leo)
        if isinstance(found, ColdRead):
            await self._replicas.loaded(found)
            found = current.read(future.leo, SLICE_BYTES, end_offset=current.leo, wait=True)
        if found is None or isinstance(found, ColdRead):
            return
        assert found.data is not None
        future.append_as_follower(memoryview(found.data), now_ms=0)
