"""Prints plans as tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.model.partition import TopicPartition
from odradek.placement.sizing import Cost
from odradek.plan.cluster import ClusterPicture, loads
from odradek.plan.quantities import bytes_text


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: the first column left-aligned, the others right-aligned."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        first = line[0].ljust(widths[0])
        others = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([first, *others]).rstrip())


def loads_table(
    picture: ClusterPicture,
    before: Mapping[TopicPartition, Sequence[int]],
    after: Mapping[TopicPartition, Sequence[int]],
) -> None:
    sizes = {partition: held.size_bytes for partition, held in picture.partitions.items()}
    now, then = loads(picture.racks, before, sizes), loads(picture.racks, after, sizes)
    same = before is after

    def change(one: object, other: object) -> str:
        return str(other) if same or one == other else f"{one} -> {other}"

    head = ["broker", "rack", "replicas", "leaders", "size"]
    rows = []
    for broker in sorted({*now, *then}):
        one, other = now[broker], then.get(broker, now[broker])
        rows.append(
            (
                broker,
                picture.racks.get(broker) or "-",
                change(one.replicas, other.replicas),
                change(one.leaders, other.leaders),
                change(bytes_text(one.size_bytes), bytes_text(other.size_bytes)),
            )
        )
    print_table(head, rows)


_LISTED: Final = 12  # rows of partitions at most


def replicas_table(
    racks: Mapping[int, str | None], assignment: Mapping[int, Sequence[int]]
) -> None:
    """Print how many partitions of one topic each broker leads and follows."""
    rows = []
    for broker in sorted(racks):
        leads = [p for p, replicas in sorted(assignment.items()) if replicas[0] == broker]
        follows = [p for p, replicas in sorted(assignment.items()) if broker in replicas[1:]]
        rows.append((broker, racks[broker] or "-", len(leads), len(leads) + len(follows),
                     _some(leads), _some(follows)))  # fmt: skip
    print_table(["broker", "rack", "leaders", "replicas", "leads", "follows"], rows)


def _some(partitions: Sequence[int]) -> str:
    more = ",..." if len(partitions) > _LISTED else ""
    return ",".join(map(str, partitions[:_LISTED])) + more or "-"


def cost_rows(costs: Mapping[int, Cost]) -> tuple[list[str], list[tuple[object, ...]]]:
    """The head and the rows of the table of costs by number of partitions."""
    head = ["partitions", "a producer buffers", "a consumer of all buffers",
            "replicas a broker", "descriptors a broker",
            "memory a broker", "election when one fails"]  # fmt: skip
    return head, [
        (
            count,
            f"{cost.producer_buffer_bytes / (1 << 20):.2f} MiB",
            f"{cost.consumer_buffer_bytes / (1 << 20):.0f} MiB",
            cost.replicas_a_broker,
            cost.descriptors_a_broker,
            bytes_text(cost.memory_a_broker_bytes),
            f"{cost.election_ms:.0f} ms",
        )
        for count, cost in costs.items()
    ]
