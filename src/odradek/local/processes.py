"""Processes that outlive the command that started them, identified by pid and start time.

The system reuses a pid once its process has ended. So a process is identified by its pid *and* its
start time as the kernel has it; a process with another start time is never signalled. On Linux the
start time is in /proc, and a pidfd keeps the pid from being reused between the check and the
signal; elsewhere `ps` prints the start time.

A child that has ended but was not waited for (a zombie process) counts as ended, and is waited for.
"""

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

PROC: Final = pathlib.Path("/proc")
_LOOK_AGAIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process: its pid, and its start time, which no later process with that pid has."""

    pid: int
    born: str


class _Seen(NamedTuple):
    born: str
    state: str  # as /proc and ps write it: R, S, D, T (stopped by a signal), Z (zombie) ...


def start(command: Sequence[str], *, log: pathlib.Path, inherited_fd: int) -> ProcessId:
    """Start a program in a session of its own: it gets no Ctrl-C and no hang-up of the terminal.

    Its input is empty, its output `log`; it inherits `inherited_fd` under the same number.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(inherited_fd,),
            start_new_session=True,
        )
    # Popen must not wait for it: it may outlive us, and `_look` reaps it if it does not.
    process.returncode = 0
    return ProcessId(process.pid, born_of(process.pid))


def born_of(pid: int) -> str:
    """The start time of the process with this pid, as `ProcessId` has it; "" if there is none."""
    seen = _look(pid)
    return seen.born if seen else ""


def is_alive(process: ProcessId) -> bool:
    """Whether this process runs or is paused."""
    return _state(process) is not None


def is_paused(process: ProcessId) -> bool:
    """Whether this process was stopped by SIGSTOP and waits for SIGCONT."""
    return _state(process) == "T"


def output_of(process: ProcessId) -> pathlib.Path | None:
    """The file to which this process writes, under its present name, where the system shows it."""
    try:
        link = os.readlink(PROC / str(process.pid) / "fd" / "1")
    except OSError:
        return None
    return pathlib.Path(link) if is_alive(process) and link.startswith("/") else None


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal this process. False if it has ended."""
    descriptor = _hold(process.pid)
    try:
        # Checked only now: while the pidfd is open its pid is not reused.
        if not is_alive(process):
            return False
        if descriptor is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def wait_until_ended(process: ProcessId, *, timeout_s: float) -> bool:
    """Wait for its end. False if it still runs after the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while is_alive(process):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _hold(pid: int) -> int | None:
    """A pidfd of the process that has this pid now, where the system supports it."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _state(process: ProcessId) -> str | None:
    seen = _look(process.pid)
    return seen.state if seen is not None and seen.born == process.born else None


def _look(pid: int) -> _Seen | None:
    seen = _look_in_proc(pid) if (PROC / "self" / "stat").exists() else _look_with_ps(pid)
    if seen is not None and seen.state.startswith(("Z", "X")):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return None
    return seen


def _look_in_proc(pid: int) -> _Seen | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text()
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, which may contain spaces and ")".
    fields = stat[stat.rindex(")") + 2 :].split()
    # Ticks since the boot: only together with the boot id do they identify a moment.
    return _Seen(f"{boot}:{fields[19]}", fields[0])


def _look_with_ps(pid: int) -> _Seen | None:
    answer = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, born = answer.stdout.strip().partition(" ")
    return _Seen(born.strip(), state[:1]) if born else None
