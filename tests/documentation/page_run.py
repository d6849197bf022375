"""Runs the blocks of a page in a directory of its own, and compares what they print.

    with PageRun(page, text, directory) as run:
        run.check()

Commands run in `sh`, with the environment's programs first on PATH. Each is a process of its own;
exported variables and the working directory are kept from one to the next. The ports that a page
names are replaced by free ones. At the end every cluster and every process that a page has started
is stopped.
"""

import contextlib
import difflib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tests.documentation.blocks import HIDDEN, INTERRUPT, Block, Command, blocks, commands
from tests.documentation.masks import Bindings, as_on_page, matched, ports

SUPPORT = pathlib.Path(__file__).parent  # of hidden commands
HOME = "/home/me"  # what pages show in place of the directory
COMMAND_S = 300.0
STOP_S = 20.0
UNTIL_S = 60.0
MEANWHILE_LINES = 20
REFRESH_UNTIL_S = 10.0  # then what is printed is what the page shall show
RUN = 10  # a port that is named stands for so many: `--port P` takes P, P+1 ...
# Below the range from which the system takes ports for outgoing connections.
PORTS = range(20_000, 32_000, RUN)
_KEEP_STATE = 'status=$?; export -p >"$PAGE_STATE/env"; pwd >"$PAGE_STATE/cwd"; exit $status'
_PYTHON = """
import ast, asyncio, inspect, sys
code = compile(sys.stdin.read(), "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
if code.co_flags & inspect.CO_COROUTINE:
    asyncio.run(eval(code, {"__name__": "__main__"}))
else:
    exec(code, {"__name__": "__main__"})
"""


class PageDiffersError(Exception):
    """A block does not do what the page shows: the message says where, and the difference."""


@dataclass(slots=True)
class Change:
    """The lines of a page that are to be replaced, by numbers from 1."""

    first: int
    count: int
    lines: list[str]


@dataclass(slots=True)
class PageRun:
    """One run of a page; with `is_refreshing` differences are changes instead of failures."""

    name: str
    text: str
    directory: pathlib.Path
    is_refreshing: bool = False
    changes: list[Change] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _bindings: Bindings = field(default_factory=Bindings)
    _directories: int = 0
    _cwd: pathlib.Path = pathlib.Path()
    _root: pathlib.Path = pathlib.Path()
    _state: pathlib.Path = pathlib.Path()
    _background: list[tuple[subprocess.Popen[bytes], pathlib.Path]] = field(default_factory=list)
    _programs: list[str] = field(default_factory=list)
    _groups: list[int] = field(default_factory=list)  # of processes that commands left behind
    _ports: set[int] = field(default_factory=set)

    def __enter__(self) -> "PageRun":
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def check(self) -> None:
        """Run all blocks.

        Raises:
            PageDiffersError: one does not print what the page shows, or fails.
        """
        output: list[str] = []
        for block in blocks(self.text):
            if "fresh" in block.directives:
                self._end()
                self._begin()
            if (name := block.directives.get("file")) is not None:
                self._write(block, name)
            elif "prints" in block.directives:
                self._compare(block.first, "the program above", block.lines, block.first, output)
            elif block.is_executed:
                output = self._run(block)

    # ------------------------------------------------------------------------------- one block

    def _run(self, block: Block) -> list[str]:
        match block.language:
            case "console":
                self._console(block)
                return []
            case "python":
                return self._python(block)
            case _:
                output, status = self._shell("set -e\n" + block.text)
                self._expect(block, block.first, f"the script\n{block.text}", status, output)
                return output

    def _console(self, block: Block) -> None:
        found = commands(block)
        for command in found:
            if INTERRUPT in command.prints:
                at = command.prints.index(INTERRUPT)
                printed = self._stays(block, command, command.prints[:at])
                self._interrupt(block, command, at, printed)
            elif "stays" in block.directives and command is found[-1]:
                self._stays(block, command, command.prints)
            else:
                self._command(block, command, is_last=command is found[-1])

    def _command(self, block: Block, command: Command, *, is_last: bool) -> None:
        deadline_s = time.monotonic() + (REFRESH_UNTIL_S if self.is_refreshing else UNTIL_S)
        output, status = self._shell(command.text)
        while "until" in block.directives and not self._is_shown(command, output):
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
            output, status = self._shell(command.text)
        self._compare(
            command.line, command.text, command.prints, command.prints_from, output, block.indent
        )
        if is_last or status:
            self._expect(block, command.line, command.text, status, output)

    def _is_shown(self, command: Command, output: Sequence[str]) -> bool:
        return matched(command.prints, output, self._bindings) is not None

    def _stays(self, block: Block, command: Command, prints: Sequence[str]) -> int:
        """Begin a command that runs on, wait for what the page shows; how many lines that is."""
        file = self._state / f"background-{len(self._background)}"
        self._ask_for_ports(command.text)
        with file.open("wb") as output:
            process = subprocess.Popen(
                ["sh", "-c", self._script("exec " + self._bindings.in_command(command.text))],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=self._cwd, env=self._environment(), start_new_session=True,
            )  # fmt: skip
        self._background.append((process, file))
        deadline_s = time.monotonic() + UNTIL_S
        has_ended = False
        while not has_ended:
            has_ended = process.poll() is not None or time.monotonic() > deadline_s
            printed = self._lines(file)
            if matched(prints, printed, self._bindings) is not None:
                break
            time.sleep(0.05)
        self._compare(
            command.line, command.text, prints, command.prints_from, printed, block.indent
        )
        return len(printed)

    def _printed_meanwhile(self) -> str:
        """The last lines of the programs that run beside the page's commands."""
        printed = [line for _, file in self._background for line in self._lines(file)]
        return "".join(f"printed meanwhile: {line}\n" for line in printed[-MEANWHILE_LINES:])

    def _interrupt(self, block: Block, command: Command, at: int, printed: int) -> None:
        process, file = self._background.pop()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(COMMAND_S)
        output = self._lines(file)[printed:]
        first = command.prints_from + at + 1
        text = f"Ctrl-C at {command.text}"
        self._compare(command.line, text, command.prints[at + 1 :], first, output, block.indent)

    def _python(self, block: Block) -> list[str]:
        if "continues" not in block.directives:
            self._programs.clear()
        self._programs.append(block.text)
        program = "".join(self._programs)
        self._ask_for_ports(program)
        output, status = self._process(
            [sys.executable, "-c", _PYTHON], self._bindings.in_command(program)
        )
        self._expect(block, block.first, "the program", status, output)
        return output

    def _write(self, block: Block, name: str) -> None:
        self._ask_for_ports(block.text)
        text = self._bindings.in_command(block.text).replace(HOME, str(self._root))
        path = self._cwd / name.replace(HOME, str(self._root))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    # ------------------------------------------------------------------------------ comparison

    def _compare(
        self,
        line: int,
        command: str,
        prints: Sequence[str],
        prints_from: int,
        output: Sequence[str],
        indent: str = "",
    ) -> None:
        found = matched(prints, output, self._bindings)
        if found is not None:
            self._bindings = found
            return
        shown = as_on_page(prints, output, self._bindings)
        if self.is_refreshing:
            # The ports that are new on the page stand for themselves from now on.
            self._bindings = matched(shown, output, self._bindings) or self._bindings
            lines = [f"{indent}{each}".rstrip() for each in shown]
            self.changes.append(Change(prints_from, len(prints), lines))
            return
        difference = "\n".join(
            difflib.unified_diff(prints, shown, "the page", "this run", lineterm="", n=2)
        )
        raise PageDiffersError(
            f"{self.name}:{line}: {command}\n{difference}\n{self._printed_meanwhile()}"
            f"To write what is printed into the page: ./run docs --refresh {self.name}"
        )

    def _expect(
        self, block: Block, line: int, command: str, status: int, output: Sequence[str]
    ) -> None:
        wanted = int(block.directives.get("exit", "0"))
        if status != wanted:
            printed = "\n".join(output[-30:])
            text = f"{self.name}:{line}: {command}\nexit code {status}, not {wanted}\n{printed}"
            if not self.is_refreshing:
                raise PageDiffersError(text)
            self.failures.append(text)

    def _ask_for_ports(self, text: str) -> None:
        """Find free ports for those that the page names and that no output has shown."""
        for port in ports(text):
            if ("address", str(port)) in self._bindings.to_actual:
                continue
            free = _free_run(self._ports)
            self._ports.add(free)
            for offset in range(RUN):
                self._bindings.bind("address", str(port + offset), str(free + offset))

    # ------------------------------------------------------------------------------- processes

    def _shell(self, text: str) -> tuple[list[str], int]:
        self._ask_for_ports(text)
        return self._process(["sh", "-c", self._script(self._bindings.in_command(text))])

    def _script(self, text: str) -> str:
        return (
            f'[ ! -f "$PAGE_STATE/env" ] || . "$PAGE_STATE/env"\n'
            f'cd "$(cat "$PAGE_STATE/cwd")"\ntrap {_quoted(_KEEP_STATE)} EXIT\n{text}\n'
        )

    def _process(self, command: Sequence[str], given: str = "") -> tuple[list[str], int]:
        file = self._state / "output"
        # A file, not a pipe: a broker that a command leaves behind would keep a pipe open.
        with file.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                cwd=self._cwd, env=self._environment(), start_new_session=True,
            )  # fmt: skip
        try:
            process.communicate(given.encode(), COMMAND_S)
        except subprocess.TimeoutExpired:
            raise PageDiffersError(f"{self.name}: too long: {command[-1]}") from None
        finally:
            if _is_group(process.pid):
                self._groups.append(process.pid)
        if (saved := self._state / "cwd").exists():
            self._cwd = pathlib.Path(saved.read_text().rstrip("\n"))
        return self._lines(file), process.returncode

    def _lines(self, file: pathlib.Path) -> list[str]:
        text = file.read_text(errors="replace").replace(str(self._root), HOME)
        return text.rstrip().splitlines()

    def _environment(self) -> dict[str, str]:
        kept = {"LANG", "JAVA_HOME", "MAVEN_OPTS", "SSL_CERT_FILE"}
        here = {
            "COLUMNS": "120",
            "HOME": str(self._root),
            "PAGE_SUPPORT": str(SUPPORT),
            "NO_COLOR": "1",
            "PAGE_STATE": str(self._state),
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self._state),
            "TZ": "UTC",
        }
        return {name: os.environ[name] for name in kept & os.environ.keys()} | here

    def _begin(self) -> None:
        self._directories += 1
        self._root = (self.directory / f"home-{self._directories}").resolve()
        self._state = (self.directory / f"state-{self._directories}").resolve()
        self._cwd = self._root
        self._root.mkdir(parents=True)
        self._state.mkdir(parents=True)
        (self._state / "cwd").write_text(f"{self._cwd}\n")
        self._bindings = Bindings()

    def _end(self) -> None:
        while self._background:
            process, _ = self._background.pop()
            _stop(process)
        while self._groups:
            _stop_group(self._groups.pop())
        for record in sorted(self._root.rglob("cluster.json")):
            subprocess.run(
                [sys.executable, "-m", "odradek", "down", "--dir", str(record.parent)],
                env=self._environment(), capture_output=True, check=False, timeout=COMMAND_S,
            )  # fmt: skip
        shutil.rmtree(self._root, ignore_errors=True)


def refreshed(text: str, changes: Sequence[Change]) -> str:
    """The page with the changed lines."""
    lines = text.splitlines()
    for change in sorted(changes, key=lambda each: each.first, reverse=True):
        lines[change.first - 1 : change.first - 1 + change.count] = change.lines
    return "".join(f"{line}\n" for line in lines)


def run_page(page: pathlib.Path, *, is_refreshing: bool = False) -> tuple[str, list[str]]:
    """The text of the page as this run prints it, and if it is refreshed, what failed.

    Raises:
        PageDiffersError: the page shows something else, or a command fails.
    """
    text = page.read_text(encoding="utf-8")
    with (
        tempfile.TemporaryDirectory(prefix="odradek-page-") as directory,
        PageRun(_name(page), text, pathlib.Path(directory), is_refreshing) as run,
    ):
        run.check()
        return refreshed(text, run.changes), run.failures


def _name(page: pathlib.Path) -> str:
    root = pathlib.Path(__file__).parents[2]
    with contextlib.suppress(ValueError):
        return str(page.resolve().relative_to(root))
    return str(page)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
            return


def _is_group(group: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def _stop_group(group: int) -> None:
    """End what a command has left behind, such as a program that it started with `&`."""
    deadline_s = time.monotonic() + STOP_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        while _is_group(group) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


def _free_run(used: Collection[int]) -> int:
    """The first of ten ports in a row that nothing listens on, and that are not used already."""
    begin = os.getpid() % len(PORTS)
    for port in [*PORTS[begin:], *PORTS[:begin]]:
        if port not in used and all(_is_free(port + offset) for offset in range(RUN)):
            return port
    raise PageDiffersError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def pages(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """README and the pages of docs/."""
    yield root / "README.md"
    yield from sorted((root / "docs").rglob("*.md"))


__all__ = ["HIDDEN", "PageDiffersError", "PageRun", "pages", "refreshed", "run_page"]
