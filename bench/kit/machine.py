"""Measurements: processor time, memory, and a description of the machine."""

import functools
import os
import pathlib
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any, Final, NamedTuple

from kit import ROOT

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CHUNK_BYTES: Final = 8 << 20
_FILL_BYTES_MAX: Final = 64 << 30


class CpuTime(NamedTuple):
    """Seconds of processor time, user and system."""

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def __add__(self, other: object) -> "CpuTime":
        assert isinstance(other, CpuTime)
        return CpuTime(self.user_s + other.user_s, self.system_s + other.system_s)

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.user_s - other.user_s, self.system_s - other.system_s)


def cpu_time(pids: list[int]) -> CpuTime:
    """The processor time of these processes so far, with all their threads."""
    total = CpuTime(0.0, 0.0)
    for pid in pids:
        # The command's name is in parentheses and may contain any character.
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += CpuTime(int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)
    return total


def rss_mib(pids: list[int]) -> float:
    """The resident memory of these processes."""
    return sum(_kib(f"/proc/{pid}/status", "VmRSS") for pid in pids) / 1024


def pss_mib(pids: list[int]) -> float:
    """Their memory; pages that several processes have count in equal parts."""
    return sum(_kib(f"/proc/{pid}/smaps_rollup", "Pss") for pid in pids) / 1024


def read_mib(pids: list[int]) -> float:
    """What they have read so far, from files and sockets, in the page cache or not."""
    texts = [pathlib.Path(f"/proc/{pid}/io").read_text() for pid in pids]
    return sum(int(text.partition("rchar: ")[2].split()[0]) for text in texts) / 2**20


def open_files(pids: list[int]) -> int:
    """Their open files and sockets."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


def _kib(path: str, field: str) -> int:
    text = pathlib.Path(path).read_text()
    (value,) = re.findall(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    return int(value)


def fill_memory() -> None:
    """Fill unused memory with cached pages of an empty file, as on a machine that has run for long.

    The host of a virtual machine takes back memory that nothing uses (the balloon's free page
    reporting). Who uses such a page again waits for the host: a broker then writes its logs with up
    to five times the processor time, and which of two systems meets how many of these pages is
    chance. Pages in the cache stay with the guest, and the kernel hands them on at little cost.
    """
    left_free_bytes = _kib("/proc/meminfo", "MemTotal") * 1024 // 50
    # Memory stays free in a container with a limit, on a file system that caches no holes, and
    # while others give memory back.
    chunks_max = min(2 * _free_bytes(), _FILL_BYTES_MAX) // _CHUNK_BYTES
    for _ in range(chunks_max):
        if _free_bytes() < left_free_bytes:
            return
        _empty_file().read(_CHUNK_BYTES)


def _free_bytes() -> int:
    return _kib("/proc/meminfo", "MemFree") * 1024


@functools.cache
def _empty_file() -> IO[bytes]:
    """A file of holes, without a name, that is as long as all fills of a benchmark together."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open until the process ends
    file.truncate(1 << 40)
    return file


def describe() -> dict[str, Any]:
    """The machine, the versions and the commit that a result belongs to."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "python_build": python_build(),
        "java": _output(["java", "-version"]).splitlines()[0],
        "odradek_fast": _version("odradek-fast"),
        "librdkafka": _version("confluent-kafka"),
        "commit": _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]).strip(),
        # Other load on the machine affects the result.
        "load_before": round(os.getloadavg()[0], 2),
    }


def python_build() -> str:
    """How this Python was optimised when it was built: it makes a difference of up to a half.

    Debian optimises by commands of its packages' rules, which are not in the configuration.
    """
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    flags = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    unnamed = "the distribution's" if sys.base_prefix == "/usr" else "plain"
    return " and ".join(name for flag, name in flags.items() if flag in arguments) or unnamed


def steal_s() -> float:
    """The seconds that the host has taken from this machine's processors so far."""
    fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / _TICKS_PER_S


def _processor() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*)$", info.read_text(), re.MULTILINE)
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    return done.stdout + done.stderr
