"""Child processes that run seeds side by side."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Final

from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.outcome import RunOptions, RunOutcome
from odradek.testkit.simulation.runs.pipe import CHILD, HASH_SEED

_SHOWN_LINES: Final = 30


class Children:
    """A context manager: so many children, each with one run at a time."""

    def __init__(self, command: Sequence[str], *, jobs: int, call: int = 0, cwd: str = "") -> None:
        """`command`: arguments of Python that start a child.

        `call`: which call of the fixture in its test it is for.
        """
        self.jobs = jobs
        self._command = command
        self._call = call
        self._cwd = cwd or None
        self._children: list[_Child] = []

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()
        self._children.clear()

    def play(self, asked: Iterable[RunOptions]) -> Iterator[RunOutcome]:
        """Play runs; outcomes come as they are ready. The iterator may be left at any time.

        Raises:
            SimulationError: a child has ended, with what it printed.
        """
        more = iter(asked)
        with selectors.DefaultSelector() as ready:
            busy = 0
            for _ in range(self.jobs):
                options = next(more, None)
                if options is None:
                    break
                child = self._idle()
                child.ask(options)
                ready.register(child.answers, selectors.EVENT_READ, child)
                busy += 1
            while busy:
                for key, _ in ready.select():
                    child = key.data
                    ready.unregister(child.answers)
                    busy -= 1
                    outcome = child.answer()
                    options = next(more, None)
                    if options is not None:
                        other = self._idle()
                        other.ask(options)
                        ready.register(other.answers, selectors.EVENT_READ, other)
                        busy += 1
                    yield outcome

    def _idle(self) -> "_Child":
        for child in self._children:
            if not child.is_busy:
                return child
        child = _Child(self._command, self._call, self._cwd)
        self._children.append(child)
        return child


class _Child:
    def __init__(self, command: Sequence[str], call: int, cwd: str | None) -> None:
        self.is_busy = False
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        read, self_write = os.pipe()
        self_read, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "odradek.testkit.simulation.runs.fixed", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            pass_fds=(read, write),
            cwd=cwd,
            env={
                **os.environ,
                "PYTHONHASHSEED": HASH_SEED,
                CHILD: f"{read},{write},{call}",
            },
        )
        os.close(read)
        os.close(write)
        self._asked = os.fdopen(self_write, "w", encoding="utf-8")
        self.answers = os.fdopen(self_read, encoding="utf-8")

    def ask(self, options: RunOptions) -> None:
        self.is_busy = True
        try:
            self._asked.write(json.dumps(options.encode()) + "\n")
            self._asked.flush()
        except BrokenPipeError:  # `answer` tells why
            pass

    def answer(self) -> RunOutcome:
        line = self.answers.readline()
        if not line:
            code = self._process.wait()
            raise SimulationError(f"a child process ended with {code}:\n{self._last_lines()}")
        self.is_busy = False
        return RunOutcome.decode(json.loads(line))

    def _last_lines(self) -> str:
        self._printed.seek(0)
        lines = self._printed.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])

    def end(self) -> None:
        if self.is_busy:
            self._process.kill()
        self._asked.close()
        self.answers.close()
        self._process.wait()
        self._printed.close()
