"""Which offsets a query reads: ranges, their division into tasks, the limit of a trigger.

Pure rules: the cluster's offsets are arguments. `Offsets` are what a streaming query has in its
checkpoint, in the connector's JSON: {"topicA":{"0":23,"1":345}}; they are the next offsets to
read, so exclusive as the end of a range.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition

LOSS_ADVICE: Final = (
    "Some data may have been lost because they are not available in Kafka any more; either the "
    "data was aged out by Kafka or the topic may have been deleted before all the data in the "
    "topic was processed. If you don't want your streaming query to fail on such cases, set the "
    "source option 'failOnDataLoss' to 'false'."
)

Offsets = Mapping[TopicPartition, int]


class LostDataError(OdradekError):
    """Offsets of the query are no longer in the log, and failOnDataLoss is true."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {LOSS_ADVICE}")


class Piece(NamedTuple):
    """The range of one task: offsets of one partition from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets, of which some may have no record."""
        return self.end - self.start


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The form of a checkpoint."""
    out: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        out.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return out


def from_json(stored: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in stored.items()
        for partition, offset in partitions.items()
    }


def cut(
    ranges: Iterable[Piece], *, min_partitions: int | None, records_max: int | None
) -> list[Piece]:
    """Divide ranges into tasks: at least `partitions_min`, each of at most `records_max` offsets.

    As in the connector: `records_max` first, then every piece is divided in proportion to its
    share of all offsets. If rounding leaves too few tasks, those with most offsets are divided
    further, as long as they have two. Empty ranges give no task.
    """
    pieces = [piece for piece in ranges if piece.size > 0]
    if records_max is not None:
        pieces = [part for piece in pieces for part in _parts(piece, -(-piece.size // records_max))]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = [
            part
            for piece, count in zip(pieces, _counts(pieces, min_partitions), strict=True)
            for part in _parts(piece, count)
        ]
    return pieces


def _counts(pieces: list[Piece], least: int) -> list[int]:
    total = sum(piece.size for piece in pieces)
    counts = [min(piece.size, max(1, round(piece.size / total * least))) for piece in pieces]
    while sum(counts) < min(least, total):
        largest = max(range(len(pieces)), key=lambda n: pieces[n].size / counts[n])
        counts[largest] += 1
    return counts


def _parts(piece: Piece, count: int) -> Iterable[Piece]:
    count = min(count, piece.size)
    start = piece.start
    for index in range(count):
        end = piece.start + piece.size * (index + 1) // count
        yield Piece(piece.partition, start, end)
        start = end


def limited(start: Offsets, end: Offsets, records_max: int) -> dict[TopicPartition, int]:
    """The end of a trigger that reads at most about `records_max` offsets, divided over partitions.

    A partition with new offsets always gets at least one: so the limit may be exceeded by one
    offset for each partition, as in the connector.
    """
    sizes = {
        partition: upto - start[partition]
        for partition, upto in end.items()
        if upto > start.get(partition, upto)
    }
    total = sum(sizes.values())
    if total <= records_max:
        return dict(end)
    out = {}
    for partition, upto in end.items():
        begin = start.get(partition, upto)
        share = records_max * sizes.get(partition, 0) / total
        taken = int(share) if share >= 1 else int(share > 0)
        out[partition] = min(begin + taken, upto)
    return out


def behind(start: Offsets, end: Offsets) -> int:
    return sum(max(0, upto - start.get(partition, upto)) for partition, upto in end.items())


def losses(start: Offsets, end: Offsets, earliest: Offsets) -> list[str]:
    """What is missing between the start and the end of a trigger; empty if nothing is.

    `earliest` has every partition that exists now. Offsets of transaction markers and of compacted
    records have no record, which is not a loss: only offsets below the log start, deleted
    partitions and end offsets that have become smaller are.
    """
    found = []
    for partition, begin in sorted(start.items()):
        if partition not in earliest or partition not in end:
            found.append(f"{partition} was deleted")
            continue
        first = earliest[partition]
        if first > begin and end[partition] > begin:
            found.append(
                f"{partition}: offsets {begin} to {min(first, end[partition]) - 1} were "
                f"requested, the partition begins at {first}"
            )
        if end[partition] < begin:
            found.append(
                f"Partition {partition}'s offset was changed from {begin} to {end[partition]}, "
                "some data may have been missed"
            )
    return found
