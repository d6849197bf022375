"""A task's first bytes from Spark, without the pause between them.

Spark's JVM writes to a reused Python worker twice: what to do, then with which partition. Its
sockets have Nagle's algorithm on, so the second write waits until the first is acknowledged,
which Linux does after 40 ms: for a worker that has nothing to say yet. Who is loaded with the
first write can acknowledge it at once. Where Spark uses Unix sockets
(`spark.python.unix.domain.socket.enabled`) there is nothing to do.
"""

import os
import pathlib
import socket
import stat
from typing import Any, Final

_OPEN_FILES: Final = pathlib.Path("/proc/self/fd")


def acknowledge() -> int:
    """Acknowledge what came over TCP so far, on every connection; how many there are.

    Only Linux delays so long and can be told; elsewhere it is 0. It is a hint for this moment,
    the connections stay as they are.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN_FILES.is_dir():
        return 0
    return sum(_told(int(name), option) for name in os.listdir(_OPEN_FILES))


def _told(descriptor: int, option: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
    except OSError:  # closed meanwhile, or not TCP
        return False
    return True


class Prompt:
    """What Spark sends to its workers with the first write."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        acknowledge()
        self.__dict__.update(state)
