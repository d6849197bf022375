"""The checks of a soak on the records in the topics at its end. Pure."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

COMMITTED, ABORTED, UNSURE = "committed", "aborted", "unsure"


def difference(wanted: Sequence[int], found: Sequence[int]) -> str | None:
    """The first place at which two sequences of numbers differ; None if they are the same."""
    for place, (here, there) in enumerate(zip_longest(wanted, found)):
        if here != there:
            return (
                f"{len(wanted)} records were expected and {len(found)} are there: "
                f"number {place} is {there}, not {here}"
            )
    return None


def broken_transactions(
    sizes: Sequence[int], outcomes: Sequence[str], seen: Mapping[tuple[int, int], int]
) -> list[str]:
    """The faults of transactions, each of `sizes[n]` records, that ended as `outcomes[n]`.

    `seen` counts how often a read_committed reader found part p of transaction n. A committed
    transaction must be complete and once, an aborted one absent; one whose outcome the producer
    does not know may be either.
    """
    complaints = []
    for number, (size, outcome) in enumerate(zip(sizes, outcomes, strict=True)):
        counts = [seen.get((number, part), 0) for part in range(size)]
        whole, gone = counts == [1] * size, counts == [0] * size
        right = {COMMITTED: whole, ABORTED: gone, UNSURE: whole or gone}[outcome]
        if not right:
            complaints.append(f"transaction {number} is {outcome}, and its parts are read {counts}")
    return complaints


def never_read(read: bytes | bytearray, offsets: Sequence[int]) -> list[int]:
    """Which of these offsets have no mark in `read`."""
    return [offset for offset in offsets if offset >= len(read) or not read[offset]]
