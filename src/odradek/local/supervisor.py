"""The supervisor: starts the brokers of one machine, each a process of its own, and stops them.

No process has to live for the cluster to live. Every command reads what is written down in the
cluster's directory, acts, and writes down what it did; `up` in the foreground merely stays to
tell what happens. The rules:

* Brokers are signalled only if they are the very processes that were started here.
* What a command wants is written down before it is done: whoever sees a broker gone can tell a
  crash from a wish.
* The lock is held while something is written down, never while something is waited for: a broker
  that takes its time to start can be killed meanwhile.
* A broker has started when it says so itself (`odradek.local.ready`).
"""

import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

from odradek import __version__
from odradek.local import processes
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterState, LocalError, Wanted
from odradek.local.ends import end_of, last_lines
from odradek.local.options import Wishes, read_log_dirs, write_options
from odradek.local.processes import ProcessId
from odradek.local.ready import listen

PROGRAM: Final = (sys.executable, "-m", "odradek")
_KILL_TIMEOUT_S: Final = 10.0
_WATCH_S: Final = 0.2
_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 16_384


class Look(Enum):
    """How a broker looks from outside."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    KILLED = "killed"
    CRASHED = "crashed"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self in {Look.STARTING, Look.RUNNING, Look.PAUSED}


class Supervisor:
    """The brokers of one directory."""

    def __init__(
        self,
        directory: ClusterDirectory,
        *,
        say: Callable[[str], None],
        program: Sequence[str] = PROGRAM,
        start_timeout_s: float = 300.0,
        stop_timeout_s: float = 60.0,
    ) -> None:
        self._directory = directory
        self._say = say
        self._program = program
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s

    # ------------------------------------------------------------------------ the whole cluster

    def up(self, wishes: Wishes) -> None:
        """Start all brokers and wait until they serve; if one does not, stop all.

        Raises:
            LocalError: the cluster runs already, a wish cannot be granted, a broker died.
        """
        self._directory.load()  # refuses a foreign directory before anything is made in it
        with self._directory.locked():
            state = self._directory.load() or ClusterState(up=False, brokers={})
            self._refuse_second(state)
            brokers = _count(state, wishes)
            write_options(self._directory, wishes, brokers=brokers)
            state.brokers = {i: state.brokers.get(i, BrokerRecord()) for i in range(brokers)}
            state.up = True
            pipes = self._spawn(state, range(brokers))
        try:
            self._await(pipes)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stop every broker cleanly; kill those that do not stop in time, and say so."""
        with self._changing() as state:
            state.up = False
            for record in state.brokers.values():
                record.wanted = Wanted.STOPPED
            self._directory.save(state)
        running = _running(state)
        for process in running.values():
            _terminate(process)
        deadline_s = time.monotonic() + self._stop_timeout_s
        for broker_id, process in running.items():
            left_s = max(0.0, deadline_s - time.monotonic())
            if not processes.wait_until_gone(process, timeout_s=left_s):
                self._say(
                    f"broker {broker_id} did not stop in {self._stop_timeout_s:.0f} s: killed"
                )
                _kill(process)

    def kill_all(self) -> None:
        """Kill every broker: for the second Ctrl-C."""
        for process in _running(self._directory.expect()).values():
            _kill(process)

    def watch(self, show: Callable[[], None] = lambda: None) -> None:
        """Tell of brokers that die, until the cluster is taken down; `show` each time one looks.

        Raises:
            LocalError: the last one has died, and nobody wanted it.
        """
        told: set[ProcessId] = set()
        while True:
            state, looks = self._look()
            crashed = [i for i, look in looks.items() if look is Look.CRASHED]
            if not state.up and not any(look.is_alive for look in looks.values()):
                return
            for broker_id in crashed:
                process = state.brokers[broker_id].process
                if process is not None and process not in told:
                    told.add(process)
                    self._say(self._obituary(broker_id, "died"))
                    self._say(f"odradek start {broker_id} --dir {self._directory.path} revives it")
            if state.up and len(crashed) == len(looks):
                raise LocalError("no broker is left")
            show()
            time.sleep(_WATCH_S)

    def status(self) -> dict[str, Any]:
        """What `odradek status --json` prints."""
        state, looks = self._look()
        records = list(state.brokers.items())
        addresses = [_address(record.listeners[0]) for _, record in records if record.listeners]
        http = [record.http for i, record in records if looks[i].is_alive and record.http]
        return {
            "version": __version__,
            "bootstrap": ",".join(addresses),
            "http": http[0] if http else None,
            "brokers": [
                {
                    "id": broker_id,
                    "pid": record.process.pid
                    if record.process and looks[broker_id].is_alive
                    else None,
                    "state": looks[broker_id].value,
                    "listeners": record.listeners,
                    "http": record.http if looks[broker_id].is_alive else None,
                    "log_dirs": read_log_dirs(self._directory, broker_id),
                    "reason": self._reason(broker_id, looks[broker_id]),
                }
                for broker_id, record in records
            ],
        }

    def _reason(self, broker_id: int, look: Look) -> str | None:
        """Why a broker's process ended by itself, as its log says; None if it did not."""
        if look is not Look.CRASHED:
            return None
        log = self._directory.log(broker_id)
        return end_of(last_lines(log)) or (
            f"{log} does not say why (kill -9, or the system's out-of-memory killer: see dmesg)"
        )

    # ------------------------------------------------------------------------------- one broker

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run, and wait until it serves."""
        with self._changing() as state:
            record = self._record(state, broker_id)
            if record.process and processes.is_alive(record.process):
                raise LocalError(f"broker {broker_id} runs already (pid {record.process.pid})")
            state.up = True
            pipes = self._spawn(state, [broker_id])
        self._await(pipes)

    def stop(self, broker_id: int) -> None:
        """Let a broker finish (SIGTERM) and wait for its end."""
        process = self._want(broker_id, Wanted.STOPPED)
        _terminate(process)
        if not processes.wait_until_gone(process, timeout_s=self._stop_timeout_s):
            raise LocalError(
                f"broker {broker_id} (pid {process.pid}) did not stop in "
                f"{self._stop_timeout_s:.0f} s; odradek kill {broker_id} "
                f"--dir {self._directory.path} ends it at once"
            )

    def kill(self, broker_id: int) -> None:
        """End a broker where it stands (SIGKILL)."""
        _kill(self._want(broker_id, Wanted.KILLED))

    def pause(self, broker_id: int) -> None:
        """Freeze a broker (SIGSTOP): its connections stay, it does not answer."""
        process = self._want(broker_id, Wanted.RUNNING)
        processes.send(process, signal.SIGSTOP)
        deadline_s = time.monotonic() + _KILL_TIMEOUT_S
        while processes.is_alive(process) and not processes.is_paused(process):
            if time.monotonic() >= deadline_s:
                raise LocalError(f"broker {broker_id} (pid {process.pid}) does not freeze")
            time.sleep(0.001)

    def resume(self, broker_id: int) -> None:
        """Let a frozen broker go on (SIGCONT)."""
        processes.send(self._want(broker_id, Wanted.RUNNING), signal.SIGCONT)

    def restart(self, broker_id: int) -> None:
        """Stop a broker if it runs, then start it."""
        record = self._record(self._directory.expect(), broker_id)
        if record.process and processes.is_alive(record.process):
            self.stop(broker_id)
        self.start(broker_id)

    # ---------------------------------------------------------------------------------- the parts

    def _look(self) -> tuple[ClusterState, dict[int, Look]]:
        """What is written down, and how each broker looks at that moment."""
        while True:
            state = self._directory.expect()
            looks = {broker_id: _look(record) for broker_id, record in state.brokers.items()}
            # What is wanted is written down first: if nothing was meanwhile, a broker that is
            # gone is not gone because somebody wanted it.
            if self._directory.load() == state:
                return state, looks

    @contextmanager
    def _changing(self) -> Iterator[ClusterState]:
        """Alone with the state of a cluster that is there."""
        self._directory.expect()  # refuses before a lock is left where there is no cluster
        with self._directory.locked():
            yield self._directory.expect()

    def _record(self, state: ClusterState, broker_id: int) -> BrokerRecord:
        if broker_id not in state.brokers:
            known = ", ".join(map(str, sorted(state.brokers)))
            raise LocalError(f"there is no broker {broker_id} in {self._directory.path}: {known}")
        return state.brokers[broker_id]

    def _want(self, broker_id: int, wanted: Wanted) -> ProcessId:
        """Write down what is wanted of a running broker, before it is done."""
        with self._changing() as state:
            record = self._record(state, broker_id)
            if record.process is None or not processes.is_alive(record.process):
                raise LocalError(f"broker {broker_id} does not run ({_look(record).value})")
            record.wanted = wanted
            self._directory.save(state)
            return record.process

    def _refuse_second(self, state: ClusterState) -> None:
        for broker_id, process in _running(state).items():
            raise LocalError(
                f"a cluster runs in {self._directory.path} (broker {broker_id} is pid "
                f"{process.pid}): odradek status and odradek down speak to it, or choose "
                "another --dir"
            )

    def _spawn(self, state: ClusterState, broker_ids: Sequence[int]) -> dict[int, int]:
        """Start the processes and write them down; the pipes on which they will tell."""
        pipes: dict[int, int] = {}
        try:
            for broker_id in broker_ids:
                record = state.brokers[broker_id]
                record.wanted = Wanted.RUNNING
                record.ready = False
                pipes[broker_id], theirs = os.pipe()
                file = str(self._directory.properties_file(broker_id))
                try:
                    record.process = processes.start(
                        [
                            *(*self._program, "server-start", file, "--ready-fd", str(theirs)),
                            *("--dir", str(self._directory.path)),
                        ],
                        log=self._directory.open_log(broker_id),
                        inherited_fd=theirs,
                    )
                finally:
                    os.close(theirs)
        finally:
            self._directory.save(state)
        return pipes

    def _await(self, pipes: dict[int, int]) -> None:
        silent = set(pipes)
        for broker_id, told in listen(
            pipes, timeout_s=self._start_timeout_s, progress=self._still_starting
        ):
            if told is None:
                raise LocalError(self._obituary(broker_id, "died while it was starting"))
            silent.discard(broker_id)
            with self._changing() as state:
                record = state.brokers[broker_id]
                record.listeners, record.http = list(told.listeners), told.http
                record.ready = True
                self._directory.save(state)
        if silent:
            raise LocalError(
                f"broker {min(silent)} did not serve within {self._start_timeout_s:.0f} s: "
                f"see {self._directory.log(min(silent))}"
            )

    def _still_starting(self, broker_ids: list[int]) -> None:
        for broker_id in broker_ids:
            self._say(f"broker {broker_id} is still starting: see {self._directory.log(broker_id)}")

    def _obituary(self, broker_id: int, what: str) -> str:
        log = self._directory.log(broker_id)
        return f"broker {broker_id} {what}; {log} ends with:\n{_tail(log)}"


def _count(state: ClusterState, wishes: Wishes) -> int:
    there = len(state.brokers)
    if there and wishes.brokers not in {None, there}:
        raise LocalError(
            f"--brokers {wishes.brokers}: the cluster in this directory has {there}; "
            "leave the option out, or choose another --dir"
        )
    return there or wishes.brokers or len(wishes.racks) or 1


def _running(state: ClusterState) -> dict[int, ProcessId]:
    return {
        broker_id: record.process
        for broker_id, record in sorted(state.brokers.items())
        if record.process and processes.is_alive(record.process)
    }


def _look(record: BrokerRecord) -> Look:
    if record.process is None or not processes.is_alive(record.process):
        return Look.CRASHED if record.wanted is Wanted.RUNNING else Look(record.wanted.value)
    if processes.is_paused(record.process):
        return Look.PAUSED
    return Look.RUNNING if record.ready else Look.STARTING


def _terminate(process: ProcessId) -> None:
    processes.send(process, signal.SIGTERM)
    processes.send(process, signal.SIGCONT)  # a paused one would never hear of it


def _kill(process: ProcessId) -> None:
    processes.send(process, signal.SIGKILL)
    if not processes.wait_until_gone(process, timeout_s=_KILL_TIMEOUT_S):
        raise LocalError(f"pid {process.pid} survives SIGKILL: the system holds it, look at dmesg")


def _address(listener: str) -> str:
    return listener.partition("://")[2]


def _tail(log: pathlib.Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"
