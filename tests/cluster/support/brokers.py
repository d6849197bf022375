"""One broker as a process of its own, started by a test: `odradek server-start`.

Not by `odradek up`: these tests kill brokers a hundred times, set limits on them and check how
they ended, without a supervisor.
"""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any

from odradek.broker.http_token import headers

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# A failure that no handler had foreseen has one of these in the log.
TRACES = ("Traceback (most recent call last)", "was never retrieved", "was never awaited")


class BrokerEndedError(Exception):
    """The broker ended instead of serving; the text has its output."""

    def __init__(self, exit_code: int, printed: str) -> None:
        super().__init__(f"exit code {exit_code}; its log ends with:\n{printed[-3000:]}")
        self.exit_code = exit_code
        self.output = printed


class BrokerProcess:
    """A broker that can be started, killed, stopped and started again on its data."""

    def __init__(self, home: pathlib.Path, options: Mapping[str, object] | None = None) -> None:
        self.home = home
        self.log = home / "broker.log"
        self.port = 0  # of the first listener
        self.ports: list[int] = []
        self.http = ""
        self.files_max: tuple[int, int] | None = None  # its limits of open files, soft and hard
        self.process: subprocess.Popen[bytes] | None = None
        self.options: dict[str, str] = {
            "broker.id": "0",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(home / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            **{key: str(value) for key, value in (options or {}).items()},
        }
        home.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def data(self) -> pathlib.Path:
        """The first log directory."""
        return pathlib.Path(self.options["log.dirs"].partition(",")[0])

    def start(self) -> "BrokerProcess":
        """Start, and wait until it serves.

        Raises:
            BrokerEndedError: it ended instead.
        """
        begin = self.log.stat().st_size if self.log.exists() else 0
        with open(self.start_without_waiting()) as pipe:
            line = pipe.readline()
        assert self.process is not None
        if not line:
            raise BrokerEndedError(self.process.wait(START_TIMEOUT_S), self.output()[begin:])
        reported = json.loads(line)
        self.ports = [int(each.rpartition(":")[2]) for each in reported["listeners"]]
        self.port = self.ports[0]
        self.http = reported["http"] or ""
        return self

    def start_without_waiting(self) -> int:
        """Start. Returns the pipe on which it reports that it serves."""
        file = self.home / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.options.items()))
        ready, theirs = os.pipe()
        command = [sys.executable, "-m", "odradek", "server-start", file, "--ready-fd", str(theirs)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs,),
                preexec_fn=self._limit_files if self.files_max else None,  # noqa: PLW1509
            )
        os.close(theirs)
        return ready

    def _limit_files(self) -> None:
        assert self.files_max is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, self.files_max)

    def kill(self) -> None:
        """Kill it (SIGKILL), if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """Stop it cleanly (SIGTERM). Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def wait(self) -> int:
        """Wait until it ends by itself. Returns the exit code."""
        assert self.process is not None
        return self.process.wait(STOP_TIMEOUT_S)

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # ------------------------------------------------------------------ observations

    def output(self) -> str:
        """Its log, since its first start."""
        return self.log.read_text(errors="replace")

    def traces(self) -> list[str]:
        """The beginnings of stack traces in its log, each with the lines around it."""
        lines = self.output().splitlines()
        return [
            "\n".join(lines[max(0, n - 2) : n + 40])
            for n, line in enumerate(lines)
            if any(mark in line for mark in TRACES)
        ]

    def ask_http(self, path: str, *, with_token: bool = True) -> Any:
        """The answer of its HTTP port, with the token of its file if it has one."""
        file = str(self.data / "http.token") if with_token else None
        request = urllib.request.Request(f"{self.http}/{path}", headers=headers(file))
        return urllib.request.urlopen(request, timeout=30)

    def metric(self, name: str, **labels: str) -> float:
        """A number at /metrics; 0 if it is not there."""
        with self.ask_http("metrics") as answer:
            text = answer.read().decode()
        inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wanted = name + (f"{{{inside}}}" if inside else "")
        for line in text.splitlines():
            if line.startswith(wanted + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    @property
    def rss_bytes(self) -> int:
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def rss_max_bytes(self) -> int:
        """The most resident memory it ever had."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024
