"""Processes are identified by pid and start time, from /proc or ps."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from odradek.local import processes
from odradek.local.processes import ProcessId


@pytest.fixture(params=["proc", "ps"])
def system(request, monkeypatch):
    """Linux, and a system that has neither /proc nor pidfds."""
    if request.param == "ps":
        if shutil.which("ps") is None:
            pytest.skip("there is no ps")
        monkeypatch.setattr(processes, "PROC", pathlib.Path("/no/such/place"))
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    elif not processes.PROC.exists():
        pytest.skip("there is no /proc")


@pytest.fixture
def sleeper(system, tmp_path):
    read_end, write_end = os.pipe()
    process = processes.start(["sleep", "60"], log=tmp_path / "log", inherited_fd=write_end)
    os.close(write_end)
    yield process
    os.close(read_end)
    processes.send(process, signal.SIGKILL)
    processes.wait_until_ended(process, timeout_s=60)


def wait_for(condition):
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_a_process_runs_pauses_continues_and_ends(sleeper):
    assert processes.is_alive(sleeper)
    assert not processes.is_paused(sleeper)

    assert processes.send(sleeper, signal.SIGSTOP)
    wait_for(lambda: processes.is_paused(sleeper))
    assert processes.is_alive(sleeper)

    assert processes.send(sleeper, signal.SIGCONT)
    wait_for(lambda: not processes.is_paused(sleeper))

    assert processes.send(sleeper, signal.SIGTERM)
    assert processes.wait_until_ended(sleeper, timeout_s=60)
    assert not processes.send(sleeper, signal.SIGTERM)


def test_another_start_time_is_another_process(sleeper):
    stranger = ProcessId(sleeper.pid, sleeper.born + "0")

    assert not processes.is_alive(stranger)
    assert not processes.send(stranger, signal.SIGKILL)
    assert processes.is_alive(sleeper)


def test_waiting_ends_after_the_timeout(sleeper):
    assert not processes.wait_until_ended(sleeper, timeout_s=0.02)


@pytest.mark.usefixtures("system")
def test_a_child_that_was_not_waited_for_has_ended_and_is_reaped(tmp_path):
    read_end, write_end = os.pipe()
    child = processes.start(["true"], log=tmp_path / "log", inherited_fd=write_end)
    os.close(write_end)
    assert os.read(read_end, 1) == b""  # it has ended, and with it its end of the pipe
    os.close(read_end)

    assert processes.wait_until_ended(child, timeout_s=60)
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_a_process_has_a_session_of_its_own_and_its_output_goes_to_the_log(tmp_path):
    read_end, write_end = os.pipe()
    program = f"import os; os.write({write_end}, b'reported'); print(os.getsid(0), 'said')"
    command = [sys.executable, "-c", program]
    child = processes.start(command, log=tmp_path / "log", inherited_fd=write_end)
    os.close(write_end)
    with open(read_end) as pipe:
        assert pipe.read() == "reported"
    assert processes.wait_until_ended(child, timeout_s=60)

    session, output = (tmp_path / "log").read_text().split()
    assert (int(session), output) == (child.pid, "said")


def test_a_program_that_is_not_there(tmp_path):
    read_end, write_end = os.pipe()
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        processes.start(["no-such-program"], log=tmp_path / "log", inherited_fd=write_end)
    os.close(read_end)
    os.close(write_end)


def test_the_current_process_runs():
    done = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    removed = int(done.stdout)

    assert processes._look(os.getpid()) is not None
    assert processes._look(removed) is None
