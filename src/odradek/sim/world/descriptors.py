"""The descriptors of a broker's process: files and sockets share one limit, as in a system.

The broker divides the limit as the shipped one does (`broker/storage/open_files.py`), so that it
never runs out by itself. A fault lowers the limit for a while: then whatever needs one more fails
with EMFILE, and a connection that is not accepted waits, until something else is closed.
"""

from collections.abc import Callable
from typing import Final

OWN: Final = 14  # standard streams, the loop's, the listener, the session of the store
ENOUGH: Final = 1_024


class Descriptors:
    """Counts what one process has open."""

    def __init__(self, limit: int, counts: Callable[[], int], ran_out: Callable[[str], None]):
        """`counts` returns the number of open files and sockets.

        `ran_out` is called with what has failed if nobody had lowered the limit.
        """
        self.limit = limit
        self.failures = 0
        self._usual = limit
        self._others_take = False
        self._last_used = 0
        self._counts = counts
        self._ran_out = ran_out

    @property
    def used(self) -> int:
        """The number of open descriptors."""
        return OWN + self._counts()

    def is_free(self) -> bool:
        """Whether the process may open one more."""
        used = self.used
        if self._others_take:
            self.limit -= max(0, self._last_used - used)
            self._last_used = used
        return used < self.limit

    def fail(self, what: str) -> None:
        """Something was refused with EMFILE."""
        self.failures += 1
        if self.limit == self._usual:
            self._ran_out(f"{what}: {self.used} of {self.limit} descriptors are open")

    def lower(self, limit: int, *, others_take: bool) -> None:
        """Allow fewer from now on; what is open stays open.

        `others_take`: what is closed is not free again, because other parts of the process, threads
        for example, take it before the broker opens the next file.
        """
        self.limit = min(limit, self._usual - 1)
        self._others_take, self._last_used = others_take, self.used

    def restore(self) -> None:
        """Allow as many as before."""
        self.limit, self._others_take = self._usual, False
