"""The supervisor: starts and stops the brokers of one machine, each a process of its own.

No supervisor process has to keep running. Every command reads the record in the cluster's
directory, acts, and updates the record; `up` in the foreground only stays to report what happens.
The rules:

* Only processes that were started here are signalled.
* The target state is recorded before a command acts: so a broker that has ended without being
  stopped is known to have crashed.
* The lock is held while the record is updated, never while waiting: a broker that starts slowly
  can be killed meanwhile.
* A broker has started when it reports that it serves (`odradek.local.ready`).
"""

import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import Any, Final

from odradek import __version__
from odradek.broker.http_token import token_file
from odradek.local import processes
from odradek.local.directory import (
    BrokerRecord,
    ClusterDirectory,
    ClusterRecord,
    LocalError,
    TargetState,
)
from odradek.local.ends import end_of, last_lines
from odradek.local.options import UpOptions, options_of, read_log_dirs, settle, write_options
from odradek.local.processes import ProcessId
from odradek.local.ready import listen

PROGRAM: Final = (sys.executable, "-m", "odradek")
_KILL_TIMEOUT_S: Final = 10.0
_WATCH_S: Final = 0.2
_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 16_384


class BrokerStatus(Enum):
    """The state of a broker as seen from outside."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    KILLED = "killed"
    CRASHED = "crashed"

    @property
    def is_alive(self) -> bool:
        """Whether the broker has a process."""
        return self in {BrokerStatus.STARTING, BrokerStatus.RUNNING, BrokerStatus.PAUSED}


class Supervisor:
    """Starts, stops and reports on the brokers of one directory."""

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

    def up(self, options: UpOptions) -> None:
        """Start all brokers and wait until they serve; if one does not, stop all.

        Raises:
            LocalError: the cluster runs already, an option cannot be applied, or a broker ended.
        """
        # Refuses another program's directory before creating anything.
        more = _added_while_running(self._directory.load(), options)
        if more:
            self.add(more)
            return
        with self._directory.locked():
            state = self._directory.load() or ClusterRecord(up=False, brokers={})
            self._directory.refuse_copy(state)
            self._refuse_second(state)
            settle(self._directory, state)
            brokers, there = _count(state, options), len(state.brokers)
            if there:
                self._write_added(range(there, brokers), None)
            self._write_options(options, brokers)
            if options.faults:
                self._directory.faults(0).parent.mkdir(mode=0o700, exist_ok=True)
            state.brokers = {i: state.brokers.get(i, BrokerRecord()) for i in range(brokers)}
            state.up = True
            pipes = self._spawn(state, range(brokers))
        try:
            self._await(pipes)
        except BaseException:
            self.down()
            raise
        self._refresh_clients()

    def add(self, count: int = 1, *, rack: str | None = None) -> list[int]:
        """Add brokers to a cluster that runs, and wait until they serve. Returns their ids.

        Raises:
            LocalError: the cluster does not run, there would be too many brokers, broker 0 has an
                option that another one cannot take over, or a new broker ended.
        """
        with self._changing() as state:
            there = len(state.brokers)
            if not _running(state):
                start = self._directory.command("up", "--brokers", str(there + count))
                raise LocalError(
                    f"no broker of {self._directory.path} runs: {start} starts it with more brokers"
                )
            added = list(range(there, UpOptions(brokers=there + count).brokers or 0))
            settle(self._directory, state)
            self._write_added(added, rack)
            state.brokers |= {i: BrokerRecord() for i in added}
            state.up = True
            self._renew(added)
            pipes = self._spawn(state, added)
        self._await(pipes)
        self._refresh_clients()
        return added

    def down(self) -> None:
        """Stop every broker cleanly; kill and report those that do not stop in time."""
        with self._ending() as state:
            state.up = False
            for record in state.brokers.values():
                record.wanted = TargetState.STOPPED
            self._save_if_possible(state)
        running = _running(state)
        for process in running.values():
            _terminate(process)
        deadline_s = time.monotonic() + self._stop_timeout_s
        for broker_id, process in running.items():
            left_s = max(0.0, deadline_s - time.monotonic())
            if not processes.wait_until_ended(process, timeout_s=left_s):
                self._say(
                    f"broker {broker_id} did not stop in {self._stop_timeout_s:.0f} s: killed"
                )
                _kill(process)

    def kill_all(self) -> None:
        """Kill every broker: for the second Ctrl-C."""
        for process in _running(self._directory.expect()).values():
            _kill(process)

    def watch(self, show: Callable[[], None] = lambda: None) -> None:
        """Report brokers that end by themselves, until `down`; call `show` at each check.

        Raises:
            LocalError: the last broker has ended by itself.
        """
        reported: set[ProcessId] = set()
        while True:
            state, looks = self._look()
            crashed = [i for i, look in looks.items() if look is BrokerStatus.CRASHED]
            if not state.up and not any(look.is_alive for look in looks.values()):
                return
            for broker_id in crashed:
                process = state.brokers[broker_id].process
                if process is not None and process not in reported:
                    reported.add(process)
                    self._say(self._end_of_log(broker_id, "died"))
                    start = self._directory.command("start", str(broker_id))
                    self._say(f"{start} starts it again")
            if state.up and len(crashed) == len(looks):
                raise LocalError("no broker is left")
            show()
            time.sleep(_WATCH_S)

    def status(self) -> dict[str, Any]:
        """The content of `odradek status --json`."""
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
                    "http_token_file": token_file(options_of(self._directory, broker_id)),
                    "log_dirs": read_log_dirs(self._directory, broker_id),
                    "reason": self._reason(broker_id, looks[broker_id]),
                }
                for broker_id, record in records
            ],
        }

    def _reason(self, broker_id: int, look: BrokerStatus) -> str | None:
        """Why a broker's process ended by itself, from its log; None if it did not."""
        if look is not BrokerStatus.CRASHED:
            return None
        log = self._directory.log(broker_id)
        return end_of(last_lines(log)) or (
            f"{log} does not show why (kill -9, or the system's out-of-memory killer: see dmesg)"
        )

    # ------------------------------------------------------------------------------- one broker

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run, and wait until it serves.

        Raises:
            LocalError: it runs, an option has a wrong value, a port is in use, or it ended.
        """
        from odradek.local.startable import check_startable  # noqa: PLC0415 - for starts only

        with self._changing() as state:
            record = self._record(state, broker_id)
            if record.process and processes.is_alive(record.process):
                raise LocalError(f"broker {broker_id} runs already (pid {record.process.pid})")
            state.up = True
            settle(self._directory, state)
            check_startable({broker_id: options_of(self._directory, broker_id)})
            self._renew([broker_id])
            pipes = self._spawn(state, [broker_id])
        self._await(pipes)
        self._refresh_clients()

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly (SIGTERM) and wait for its end."""
        process = self._want(broker_id, TargetState.STOPPED)
        _terminate(process)
        if not processes.wait_until_ended(process, timeout_s=self._stop_timeout_s):
            kill = self._directory.command("kill", str(broker_id))
            raise LocalError(
                f"broker {broker_id} (pid {process.pid}) did not stop in "
                f"{self._stop_timeout_s:.0f} s; {kill} ends it at once"
            )

    def kill(self, broker_id: int) -> None:
        _kill(self._want(broker_id, TargetState.KILLED))

    def pause(self, broker_id: int) -> None:
        """Pause a broker (SIGSTOP): its connections stay open, it does not answer."""
        process = self._want(broker_id, TargetState.RUNNING)
        processes.send(process, signal.SIGSTOP)
        deadline_s = time.monotonic() + _KILL_TIMEOUT_S
        while processes.is_alive(process) and not processes.is_paused(process):
            if time.monotonic() >= deadline_s:
                raise LocalError(f"broker {broker_id} (pid {process.pid}) does not pause")
            time.sleep(0.001)

    def resume(self, broker_id: int) -> None:
        """Continue a paused broker (SIGCONT)."""
        processes.send(self._want(broker_id, TargetState.RUNNING), signal.SIGCONT)

    def restart(self, broker_id: int) -> None:
        """Stop a broker if it runs, then start it."""
        record = self._record(self._directory.expect(), broker_id)
        if record.process and processes.is_alive(record.process):
            self.stop(broker_id)
        self.start(broker_id)

    # ---------------------------------------------------------------------------------- the parts

    def _look(self) -> tuple[ClusterRecord, dict[int, BrokerStatus]]:
        """The record of the cluster, and the state of each broker at that moment."""
        while True:
            state = self._directory.expect()
            looks = {broker_id: _look(record) for broker_id, record in state.brokers.items()}
            # Commands record the target state before they act: if the record is still the
            # same, a broker that has ended was not stopped by a command.
            if self._directory.load() == state:
                return state, looks

    @contextmanager
    def _changing(self) -> Iterator[ClusterRecord]:
        """Lock the record of an existing cluster.

        Raises:
            LocalError: there is no cluster, or it is a copy beside its original.
        """
        # Refuses before a lock file is left where there is no cluster.
        self._directory.refuse_copy(self._directory.expect())
        with self._directory.locked():
            yield self._directory.expect()

    @contextmanager
    def _ending(self) -> Iterator[ClusterRecord]:
        """As `_changing`, for commands that signal processes: they need no disk.

        On a full or read-only file system they go on without the lock and the record.
        """
        self._directory.refuse_copy(self._directory.expect())
        with ExitStack() as held:
            with suppress(OSError):
                held.enter_context(self._directory.locked())
            yield self._directory.expect()

    def _save_if_possible(self, state: ClusterRecord) -> None:
        try:
            self._directory.save(state)
        except OSError as error:
            self._say(
                f"{self._directory.path}: {error.strerror}: this command is carried out and not "
                "recorded; a broker that it ends is shown as crashed"
            )

    def _write_options(self, options: UpOptions, brokers: int) -> None:
        if not options.secure and not self._directory.is_secured:
            write_options(self._directory, options, brokers=brokers)
            return
        from odradek.local.secure import write_secure_options  # noqa: PLC0415

        write_secure_options(self._directory, options, brokers=brokers, say=self._say)

    def _write_added(self, broker_ids: Sequence[int], rack: str | None) -> None:
        if not broker_ids:
            return
        from odradek.local.growth import write_added  # noqa: PLC0415 - for added brokers only

        write_added(self._directory, broker_ids, rack)
        names = ", ".join(map(str, broker_ids))
        self._say(
            f"added to the {broker_ids[0]} broker{'s' * (broker_ids[0] > 1)} of this directory: "
            f"{names}; replicas of existing partitions move there by odradek plan rebalance"
        )

    def _renew(self, broker_ids: Sequence[int]) -> None:
        """Make certificates that are missing, or expire soon, in a secure cluster."""
        if self._directory.is_secured:
            from odradek.local.secure import renew  # noqa: PLC0415 - of secure clusters only

            for line in renew(self._directory, broker_ids):
                self._say(line)

    def _refresh_clients(self) -> None:
        """Correct the addresses in the files of clients: the brokers may serve at others."""
        if self._directory.is_secured:
            from odradek.local.secure import refresh_clients  # noqa: PLC0415

            refresh_clients(self._directory, self.status()["bootstrap"])

    def _record(self, state: ClusterRecord, broker_id: int) -> BrokerRecord:
        if broker_id not in state.brokers:
            known = ", ".join(map(str, sorted(state.brokers)))
            raise LocalError(f"there is no broker {broker_id} in {self._directory.path}: {known}")
        return state.brokers[broker_id]

    def _want(self, broker_id: int, wanted: TargetState) -> ProcessId:
        """Record the target state of a running broker, before acting on it."""
        with self._ending() as state:
            record = self._record(state, broker_id)
            if record.process is None or not processes.is_alive(record.process):
                raise LocalError(f"broker {broker_id} does not run ({_look(record).value})")
            record.wanted = wanted
            self._save_if_possible(state)
            return record.process

    def _refuse_second(self, state: ClusterRecord) -> None:
        for broker_id, process in _running(state).items():
            raise LocalError(
                f"a cluster runs in {self._directory.path} (broker {broker_id} is pid "
                f"{process.pid}): odradek status, odradek add and odradek down are for it; or "
                "choose another --dir"
            )

    def _spawn(self, state: ClusterRecord, broker_ids: Sequence[int]) -> dict[int, int]:
        """Start the processes and record them. Returns the pipes on which they report."""
        pipes: dict[int, int] = {}
        for record in (state.brokers[broker_id] for broker_id in broker_ids):
            record.wanted, record.ready, record.process = TargetState.RUNNING, False, None
        # Once before there are processes: what cannot be recorded is not started.
        self._directory.save(state)
        try:
            for broker_id in broker_ids:
                record = state.brokers[broker_id]
                pipes[broker_id], theirs = os.pipe()
                file = str(self._directory.properties_file(broker_id))
                faults = ["--faults", str(self._directory.faults(broker_id))]
                try:
                    record.process = processes.start(
                        [
                            *(*self._program, "server-start", file, "--ready-fd", str(theirs)),
                            *("--dir", str(self._directory.path)),
                            *(faults if self._directory.has_faults else ()),
                        ],
                        log=self._directory.open_log(broker_id),
                        inherited_fd=theirs,
                    )
                finally:
                    os.close(theirs)
        finally:
            self._save_started(state, broker_ids)
        return pipes

    def _save_started(self, state: ClusterRecord, broker_ids: Sequence[int]) -> None:
        try:
            self._directory.save(state)
        except OSError:
            # No command would find them.
            for broker_id in broker_ids:
                process = state.brokers[broker_id].process
                if process is not None:
                    _kill(process)
            raise

    def _await(self, pipes: dict[int, int]) -> None:
        silent = set(pipes)
        for broker_id, reported in listen(
            pipes, timeout_s=self._start_timeout_s, progress=self._still_starting
        ):
            if reported is None:
                raise LocalError(self._end_of_log(broker_id, "ended while it was starting"))
            silent.discard(broker_id)
            with self._changing() as state:
                record = state.brokers[broker_id]
                record.listeners, record.http = list(reported.listeners), reported.http
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

    def _end_of_log(self, broker_id: int, what: str) -> str:
        log = self._directory.log(broker_id)
        return f"broker {broker_id} {what}; {log} ends with:\n{_tail(log)}"


def _added_while_running(state: ClusterRecord | None, options: UpOptions) -> int:
    """How many brokers `up --brokers N`, without other options, adds to a cluster that runs."""
    if state is None or not _running(state) or options != UpOptions(brokers=options.brokers):
        return 0
    return max(0, (options.brokers or 0) - len(state.brokers))


def _count(state: ClusterRecord, options: UpOptions) -> int:
    there = len(state.brokers)
    wanted = options.brokers or there or len(options.racks) or 1
    if wanted < there:
        raise LocalError(
            f"--brokers {wanted}: the cluster in this directory has {there}; leave the option out, "
            "or choose another --dir. To remove brokers: odradek plan drain, then odradek stop"
        )
    return wanted


def _running(state: ClusterRecord) -> dict[int, ProcessId]:
    return {
        broker_id: record.process
        for broker_id, record in sorted(state.brokers.items())
        if record.process and processes.is_alive(record.process)
    }


def _look(record: BrokerRecord) -> BrokerStatus:
    if record.process is None or not processes.is_alive(record.process):
        return (
            BrokerStatus.CRASHED
            if record.wanted is TargetState.RUNNING
            else BrokerStatus(record.wanted.value)
        )
    if processes.is_paused(record.process):
        return BrokerStatus.PAUSED
    return BrokerStatus.RUNNING if record.ready else BrokerStatus.STARTING


def _terminate(process: ProcessId) -> None:
    processes.send(process, signal.SIGTERM)
    processes.send(process, signal.SIGCONT)  # a paused process would not handle the signal


def _kill(process: ProcessId) -> None:
    processes.send(process, signal.SIGKILL)
    if not processes.wait_until_ended(process, timeout_s=_KILL_TIMEOUT_S):
        raise LocalError(f"pid {process.pid} survives SIGKILL: the system holds it, look at dmesg")


def _address(listener: str) -> str:
    return listener.partition("://")[2]


def _tail(log: pathlib.Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"
