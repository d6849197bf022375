"""The default partitioner, as in Java's producer. Pure.

With a key: murmur2 of the key, so that all clients send a key to the same partition. Without one:
a random partition, kept until records of `batch.size` bytes were sent to it (KIP-480, KIP-794).
"""

from collections.abc import Sequence
from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 with 32 bits, signed as in Java (`Utils.murmur2`)."""
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
    """The partition of a key in a topic with this number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartition:
    """Chooses the partitions of one topic's records without a key."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._partition: int | None = None
        self._sent_bytes = 0

    def choose(self, available: Sequence[int], record_bytes: int, drawn: float) -> int:
        """The partition of the next record.

        `available` are the partitions that have a leader, or all partitions if none has one;
        `drawn` from [0, 1) chooses among them when a new partition is due.
        """
        full = self._sent_bytes + record_bytes > self._batch_bytes
        if self._partition is None or full or self._partition not in available:
            others = [p for p in available if p != self._partition] or list(available)
            self._partition = others[int(drawn * len(others))]
            self._sent_bytes = 0
        self._sent_bytes += record_bytes
        return self._partition
