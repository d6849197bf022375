"""Acknowledges the first bytes of a task at once, so that Spark sends the rest without a delay.

Spark's JVM writes to a reused Python worker twice: the function, then the partition. Its sockets
use Nagle's algorithm, so the second write waits until the first is acknowledged, which Linux
delays by 40 ms while the worker sends nothing. An object that is unpickled from the first write
can have it acknowledged at once (TCP_QUICKACK). Unix sockets
(`spark.python.unix.domain.socket.enabled`) have no such delay.
"""

import os
import pathlib
import socket
import stat
from typing import Any, Final

_OPEN_FILES: Final = pathlib.Path("/proc/self/fd")


def acknowledge() -> int:
    """Acknowledge what was received on every TCP connection. Returns their number.

    Only Linux has this option; elsewhere the result is 0. It applies once and does not change the
    connections.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN_FILES.is_dir():
        return 0
    return sum(_acknowledge_quickly(int(name), option) for name in os.listdir(_OPEN_FILES))


def _acknowledge_quickly(descriptor: int, option: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
    except OSError:  # closed meanwhile, or not TCP
        return False
    return True


class QuickAcknowledged:
    """Base of the objects that Spark pickles into its first write to a worker."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        acknowledge()
        self.__dict__.update(state)
