"""The assignment of a new topic, explained, and what the failure of a broker or rack leaves.

The assignment is the one a controller makes (`odradek.placement.assign`), from the same two
numbers: the start index, and the shift of the followers. A broker that creates a topic draws them;
to get exactly this assignment, pass it to `kafka-topics --replica-assignment`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.placement.assign import place
from odradek.placement.assign_rack_aware import alternate_racks
from odradek.placement.walk import RoundStart, follower_index
from odradek.plan.cluster import ClusterPicture, Replicas


class BrokerLoss(NamedTuple):
    """What is left of an assignment when some brokers fail."""

    name: str  # of the broker or rack
    brokers: tuple[int, ...]
    offline: int  # partitions without an available replica
    under_min_isr: int  # too few replicas for acks=all, including the offline ones
    leaders_moved: int  # partitions that get another leader


class ProposedAssignment(NamedTuple):
    """An assignment of a new topic, with an explanation for each partition."""

    assignment: Mapping[int, tuple[int, ...]]
    reasons: Mapping[int, tuple[str, ...]]


def propose(
    racks: Mapping[int, str | None], *, partitions: int, replication_factor: int, start: RoundStart
) -> ProposedAssignment:
    """The assignment that a broker would make for `kafka-topics --create`.

    Raises:
        ApiError: no partitions, too few brokers, or racks for some brokers only.
    """
    assignment = place(
        racks, partitions=partitions, replication_factor=replication_factor, start=start
    )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    walk = alternate_racks(known) if known else sorted(racks)
    reasons = {
        partition: tuple(_reasons(partition, replicas, walk, known, start))
        for partition, replicas in assignment.items()
    }
    return ProposedAssignment(assignment, reasons)


def _reasons(
    partition: int,
    replicas: Sequence[int],
    walk: Sequence[int],
    racks: Mapping[int, str],
    start: RoundStart,
) -> Iterator[str]:
    count = len(walk)
    first = (partition + start.index) % count
    order = ", ".join(map(str, walk))
    yield (
        f"{replicas[0]} leads: place {first} of [{order}], for ({partition} + start "
        f"{start.index}) % {count} = {first}"
    )
    rounds = sum(1 for p in range(start.first_partition, partition + 1) if p > 0 and p % count == 0)
    shift = start.shift + rounds
    groups = len(set(racks.values()))
    leap = shift * groups if racks else shift
    leap_text = f"{shift} x {groups} racks" if racks else str(shift)
    taken = {racks[replicas[0]]} if racks else set()
    held = [replicas[0]]
    step = 0
    for broker in replicas[1:]:
        passed: list[str] = []
        while (other := walk[follower_index(first, leap, step, count)]) != broker:
            why = "holds one already" if other in held else f"rack {racks.get(other)} has one"
            passed.append(f"{other} ({why})")
            step += 1
        index = follower_index(first, leap, step, count)
        place_text = (
            f"{broker} follows: place ({first} + 1 + ({leap_text} + {step}) % ({count} - 1)) % "
            f"{count} = {index}"
        )
        step += 1
        if racks:
            place_text += f"; rack {racks[broker]}" + ("" if racks[broker] in taken else " is new")
            taken.add(racks[broker])
        if passed:
            place_text += f"; skipped {', '.join(passed)}"
        held.append(broker)
        yield place_text


def losses(
    picture: ClusterPicture, assignment: Mapping[TopicPartition, Sequence[int]]
) -> list[BrokerLoss]:
    """What the failure of each broker, and of each rack, leaves of an assignment."""
    found = [_loss(f"broker {b}", (b,), picture, assignment) for b in sorted(picture.racks)]
    if picture.knows_racks:
        racks: dict[str, list[int]] = {}
        for broker in sorted(picture.racks):
            racks.setdefault(picture.rack_of(broker), []).append(broker)
        found += [
            _loss(f"rack {rack}", brokers, picture, assignment)
            for rack, brokers in sorted(racks.items())
        ]
    return found


def _loss(
    name: str,
    away: Iterable[int],
    picture: ClusterPicture,
    assignment: Mapping[TopicPartition, Sequence[int]],
) -> BrokerLoss:
    removed = frozenset(away)
    offline = under = moved = 0
    for partition, replicas in assignment.items():
        left = [broker for broker in replicas if broker not in removed]
        offline += not left
        under += len(left) < picture.isr_min.get(partition.topic, 1)
        moved += bool(left) and replicas[0] in removed
    return BrokerLoss(name, tuple(sorted(removed)), offline, under, moved)


def as_picture(
    racks: Mapping[int, str | None], topic: str, proposal: ProposedAssignment, *, isr_min: int
) -> ClusterPicture:
    """A snapshot of a cluster with only the proposed topic."""
    return ClusterPicture(
        racks,
        {
            TopicPartition(topic, number): Replicas(replicas, leader=NO_LEADER)
            for number, replicas in proposal.assignment.items()
        },
        {topic: isr_min},
    )
