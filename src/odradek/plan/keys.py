"""How real keys spread over partitions, and what another count would do to them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.client.producer.partitioner import partition_of_key


class Spread(NamedTuple):
    """How the records of a sample fall on so many partitions."""

    partitions: int
    largest_share: float  # of the records, on the partition that has most
    even_share: float  # what each would have
    empty: int  # partitions that no key of the sample goes to
    moved: float  # of the keys, those that are on another partition than with the count of now

    @property
    def skew(self) -> float:
        """How many times the even share the largest partition has."""
        return self.largest_share / self.even_share if self.even_share else 0.0


def count_keys(keys: Iterable[bytes | None]) -> Counter[bytes]:
    """How often each key is in a sample; records without a key go anywhere, and are left out."""
    return Counter(key for key in keys if key is not None)


def spreads(
    keys: Counter[bytes], candidates: Sequence[int], *, present: int | None = None
) -> list[Spread]:
    """The spread of a sample over each candidate count of partitions.

    `present` is the count of now: a key that changes partition leaves its order behind.
    """
    total = keys.total()
    now = {key: partition_of_key(key, present) for key in keys} if present else {}
    found = []
    for partitions in candidates:
        records = Counter[int]()
        moved = 0
        for key, count in keys.items():
            partition = partition_of_key(key, partitions)
            records[partition] += count
            moved += bool(now) and now[key] != partition
        found.append(
            Spread(
                partitions,
                max(records.values(), default=0) / max(1, total),
                1 / partitions,
                partitions - len(records),
                moved / max(1, len(keys)),
            )
        )
    return found
