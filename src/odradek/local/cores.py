"""How many brokers `odradek up --brokers auto` starts.

A broker uses one core for its requests, so a machine needs as many brokers as cores.
"""

import math
import os
import pathlib
import socket
from typing import Final

from odradek.local.directory import ClusterDirectory
from odradek.local.options import BROKERS_MAX

_CPU_MAX: Final = pathlib.Path("/sys/fs/cgroup/cpu.max")


def usable_cores(cpu_max: pathlib.Path = _CPU_MAX) -> int:
    """The cores that this process may use: its affinity, and at most its cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = map(int, cpu_max.read_text().split())
    except (OSError, ValueError):  # not Linux, cgroup v1, or "max" for no quota
        return cores or 1
    return max(1, min(cores or 1, math.ceil(quota / period)))


def one_per_core(directory: ClusterDirectory, cores: int) -> tuple[int, tuple[str, ...]]:
    """The number of brokers, and the racks of a new cluster; an existing one never shrinks.

    The rack is this host, so that replicas go to different hosts where brokers of several have
    joined one cluster.
    """
    there = directory.load()
    if there is not None and there.brokers:
        return max(len(there.brokers), min(cores, BROKERS_MAX)), ()
    return min(cores, BROKERS_MAX), (socket.gethostname() or "localhost",)
