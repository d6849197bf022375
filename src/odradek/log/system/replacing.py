"""Replacing a small file, atomically and durably."""

import os
import threading
from typing import Final

from odradek.log.disk import Done

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Replacement:
    """One file being replaced in a thread; of the replacements that wait only the last is made."""

    def __init__(self) -> None:
        self.next_data = b""
        self.next_done: list[Done] = []
        self._overtaken = False
        self._lock = threading.Lock()

    def run(self, path: str, data: bytes) -> None:
        with self._lock:
            if not self._overtaken:
                replace(path, data)

    def overtake(self, path: str, data: bytes) -> None:
        """Replace the file at once; replacements under way or waiting must not undo it."""
        with self._lock:
            replace(path, data)
            self._overtaken = True
        self.next_data = data


def replace(path: str, data: bytes) -> None:
    """Write the file beside the old one, flush it, and rename it."""
    temporary = f"{path}.tmp"
    directory = os.open(os.path.dirname(path), DIRECTORY)  # first: only opening may be repeated
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        os.fsync(directory)
    finally:
        os.close(directory)
