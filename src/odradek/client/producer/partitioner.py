"""Which partition a record goes to, as Java's producer decides it (B23). Pure.

With a key: murmur2 of the key, so that equal keys meet in one partition, whichever language wrote
them. Without: one partition drawn by chance, and the same for all that follow until a batch's
worth has gone there (KIP-480, KIP-794); then another.
"""

from collections.abc import Sequence
from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of MurmurHash2, signed as in Java."""
    length = len(data)
    h = _SEED ^ length
    for k in unpack_from(f"<{length // 4}I", data):
        k = k * _M & _MASK  # noqa: PLW2901  the hash's own name for it
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if rest := length & 3:
        h ^= int.from_bytes(data[-rest:], "little")
        h = h * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartition:
    """Where one topic's records without a key go."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._partition: int | None = None
        self._sent_bytes = 0

    def choose(self, available: Sequence[int], record_bytes: int, drawn: float) -> int:
        """The partition for one more record.

        `available` are the partitions that have a leader, or all if none has; `drawn` from
        [0, 1) chooses among them when it is time for another.
        """
        full = self._sent_bytes + record_bytes > self._batch_bytes
        if self._partition is None or full or self._partition not in available:
            others = [p for p in available if p != self._partition] or list(available)
            self._partition = others[int(drawn * len(others))]
            self._sent_bytes = 0
        self._sent_bytes += record_bytes
        return self._partition
