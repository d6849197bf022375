"""How far a producer is ahead of its acknowledgements, and whether more is about to follow.

A follower is answered at most once for each of its fetches, and each answer costs its broker and
the leader's the same, whatever its size. A producer of large batches with several requests in
flight sends the next batch before this one is committed: the followers get both in one answer if
the leader waits for it. A producer that waits for each acknowledgement must not wait longer, so the
leader has to know which one it has.
"""

from typing import Final

# A smaller request is passed on at once: its producer counts on a short latency.
LARGE_BYTES: Final = 8 << 10
# So many bytes are worth an answer of their own, whatever follows.
GATHERED_BYTES: Final = 256 << 10
# What is expected is waited for while at least four of five such expectations come true.
_TRUST_MAX: Final = 16
_TRUSTED: Final = 8
_LOST_BY_A_MISTAKE: Final = 4


class Pipelining:
    """The large produce requests of one connection.

    The producer is expected to get as far ahead as it did between the latest two times at which
    it had nothing in flight.
    """

    __slots__ = ("_deepest", "_expected", "_expects_more", "_trust")

    def __init__(self) -> None:
        self._deepest = 0  # the most requests in flight since there were none
        self._expected = 0
        self._expects_more = False  # another request before the latest one is answered
        self._trust = 0

    def more_follow(self, size_bytes: int, in_flight: int) -> bool:
        """A request has arrived behind `in_flight` others; whether to wait for those behind it."""
        if size_bytes < LARGE_BYTES:
            return False
        if self._expects_more:
            if in_flight:
                self._trust = min(self._trust + 1, _TRUST_MAX)
            else:
                self._trust = max(self._trust - _LOST_BY_A_MISTAKE, 0)
        if not in_flight:
            self._expected, self._deepest = self._deepest, 0
        elif in_flight > self._deepest:
            self._deepest = in_flight
        self._expects_more = in_flight < self._expected
        return self._expects_more and self._trust >= _TRUSTED and size_bytes < GATHERED_BYTES
