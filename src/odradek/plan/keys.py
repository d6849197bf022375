"""How real keys are distributed over partitions, and the effect of another number of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.client.producer.partitioner import partition_of_key


class Spread(NamedTuple):
    """The distribution of a sample's records over a number of partitions."""

    partitions: int
    largest_share: float  # the share of the records on the largest partition
    even_share: float  # the share of each in an even distribution
    empty: int  # partitions without a key of the sample
    moved: float  # the share of the keys that change partition against the present number

    @property
    def skew(self) -> float:
        """The largest share as a multiple of the even share."""
        return self.largest_share / self.even_share if self.even_share else 0.0


def count_keys(keys: Iterable[bytes | None]) -> Counter[bytes]:
    """The count of each key in a sample, without records that have no key."""
    return Counter(key for key in keys if key is not None)


def spreads(
    keys: Counter[bytes], candidates: Sequence[int], *, present: int | None = None
) -> list[Spread]:
    """The distribution of a sample over each candidate number of partitions.

    `present` is the present number: the order of a key's records is lost if it changes partition.
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
