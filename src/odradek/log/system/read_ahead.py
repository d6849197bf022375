"""Reading logs into the page cache before they are loaded.

A log is loaded by a dozen small reads, one after the other. After a power failure, or when the page
cache holds other files, each waits for the device and costs more processor time than what is then
done with the bytes. Threads that only make these system calls wait at the same time, and use the
other processors.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from odradek.log.segment import LOG

# Enough for the batches after the last index entry, if they are of usual sizes.
_TAIL_BYTES: Final = 20_480


def read_logs(directories: Sequence[str]) -> None:
    """Read the beginning of every file in these directories, and the end of `.log` files."""
    for directory in directories:
        with suppress(OSError):  # it is met again when the log is loaded
            for name in os.listdir(directory):
                _read_ends(f"{directory}/{name}")


def _read_ends(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.pread(fd, 1, 0)  # the kernel reads some pages more
        if path.endswith(LOG):
            os.pread(fd, _TAIL_BYTES, max(0, os.fstat(fd).st_size - _TAIL_BYTES))
    finally:
        os.close(fd)
