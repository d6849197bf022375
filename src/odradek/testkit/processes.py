"""Brokers as processes, as `odradek up` starts them; they end with the process of the test."""

import asyncio
import os
import pathlib
import shutil
import tempfile
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.loop_thread import LoopThread
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.faults import ClusterFaults, FaultSocket, Member
from odradek.local.options import UpOptions
from odradek.local.processes import ProcessId
from odradek.local.supervisor import Supervisor
from odradek.testkit.brokers import ANSWER_S

T = TypeVar("T")


class ProcessBrokers:
    """The brokers of one cluster, each a process (`odradek.testkit.brokers.Brokers`)."""

    def __init__(self, count: int, properties: Mapping[str, str]) -> None:
        self.ids = tuple(range(count))
        self._properties = properties
        self._ends = ExitStack()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="odradek-kit-"))
        self._ends.callback(shutil.rmtree, folder, ignore_errors=True)
        self._directory = ClusterDirectory(folder / "cluster")
        self._supervisor = Supervisor(self._directory, say=lambda _: None)
        self._faults = ClusterFaults(self._directory)
        self._attended: dict[int, FaultSocket] = {}
        self._ahead_ms = 0
        self._thread = LoopThread("odradek-kit")
        self._ends.callback(self._thread.close)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work, ANSWER_S)

    def address(self, broker_id: int) -> str:
        record = self._directory.expect().brokers[broker_id]
        return record.listeners[0].partition("://")[2]

    def state(self, broker_id: int) -> str:
        found = {each["id"]: each["state"] for each in self._supervisor.status()["brokers"]}
        return str(found[broker_id])

    def start_all(self) -> None:
        options = UpOptions(brokers=len(self.ids), faults=True, properties=self._properties)
        self._supervisor.up(options)
        for broker_id in self.ids:
            self._attend(broker_id)
        self.run(self._all_seen())

    async def _all_seen(self) -> None:
        """Wait until every broker has all of them in its metadata."""
        for broker_id in self.ids:
            async with await Cluster.bootstrap(self.address(broker_id)) as cluster:
                while len(await cluster.nodes()) < len(self.ids):
                    await asyncio.sleep(0.005)
                    await cluster.refresh()

    def _attend(self, broker_id: int) -> None:
        """The broker ends when this process does, and has the clock of the others."""
        self._leave(broker_id)
        attending = FaultSocket(self._directory.faults(broker_id))
        attending.ask({"do": "attend"})
        self._attended[broker_id] = attending
        if self._ahead_ms:
            self._faults.set_clock(self._ahead_ms, broker_id)

    def _leave(self, broker_id: int) -> None:
        former = self._attended.pop(broker_id, None)
        if former is not None:
            former.close()

    def start(self, broker_id: int) -> None:
        self._supervisor.start(broker_id)
        self._attend(broker_id)

    def stop(self, broker_id: int) -> None:
        self._supervisor.stop(broker_id)
        self._leave(broker_id)

    def kill(self, broker_id: int) -> None:
        self._supervisor.kill(broker_id)
        self._leave(broker_id)

    def pause(self, broker_id: int) -> None:
        self._supervisor.pause(broker_id)

    def resume(self, broker_id: int) -> None:
        self._supervisor.resume(broker_id)

    def pid(self, broker_id: int) -> int:
        process = self._directory.expect().brokers[broker_id].process
        if process is None:
            raise LocalError(f"broker {broker_id} was never started")
        return process.pid

    def partition(self, groups: Iterable[Iterable[Member]]) -> None:
        self._faults.partition(*groups)

    def heal(self) -> None:
        self._faults.heal()

    def slow(self, broker_id: int, ms: int) -> None:
        self._faults.slow(broker_id, ms)

    def fail_next(self, api: str, error: str, *, times: int, broker_id: int | None) -> None:
        self._faults.fail_next(api, error, times=times, broker_id=broker_id)

    def expire_session(self, broker_id: int) -> None:
        self._faults.expire_session(broker_id)

    def set_clock(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms
        for broker_id in self.ids:
            if self.state(broker_id) == "running":
                self._faults.set_clock(ahead_ms, broker_id)

    def close(self) -> None:
        with self._ends:
            with suppress(LocalError):  # it was never started
                self._supervisor.kill_all()
                for record in self._directory.expect().brokers.values():
                    _reap(record.process)
            for broker_id in self.ids:
                self._leave(broker_id)


def _reap(process: ProcessId | None) -> None:
    """Wait until nothing is left of a process that was killed: its threads may end after it."""
    if process is not None:
        with suppress(ChildProcessError):
            os.waitpid(process.pid, 0)
