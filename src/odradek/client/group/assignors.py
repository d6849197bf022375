"""The four partition assignors of consumer groups. Pure.

    range                each topic by itself, in contiguous ranges: 10 partitions, 3 members: 4,3,3
    roundrobin           all partitions of all topics, one by one to the members in turn
    sticky               balanced, and as few partitions moved as possible
    cooperative-sticky   the same; a moving partition is revoked first, then assigned (KIP-429)

Only the leader of a group runs an assignor; its input comes with the members' subscriptions.
Names, user data and the order of members are Java's (static members first, by instance id).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Final, NamedTuple

from odradek.client.group.protocol import (
    Members,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from odradek.client.settings import ConstructionError
from odradek.model.partition import TopicPartition

# The partitions of each member, in order.
Assignment = dict[str, list[TopicPartition]]
# The number of partitions of each topic; topics that do not exist are left out.
PartitionCounts = Mapping[str, int]


class Assignor(NamedTuple):
    """A partition assignment strategy with its name in the protocol."""

    name: str
    is_cooperative: bool
    assign: Callable[[PartitionCounts, Members], Assignment]
    # The user data of a member's subscription, from its owned partitions and their generation.
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None]


def _no_data(owned: Sequence[TopicPartition], generation: int) -> bytes | None:
    del owned, generation
    return None


def member_order(members: Members) -> list[str]:
    """MemberSubscription ids: static members by instance id, then the others by member id."""
    return sorted(
        members,
        key=lambda m: (members[m].instance_id is None, members[m].instance_id or m, m),
    )


# ----------------------------------------------------------------------------------- range


def assign_range(counts: PartitionCounts, members: Members) -> Assignment:
    """Each topic in contiguous ranges; the first members get one more if there is a rest."""
    result: Assignment = {member: [] for member in members}
    order = member_order(members)
    for topic in sorted(counts):
        readers = [member for member in order if topic in members[member].topics]
        if not readers:
            continue
        each, more = divmod(counts[topic], len(readers))
        start = 0
        for rank, member in enumerate(readers):
            end = start + each + (rank < more)
            result[member] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return result


# ----------------------------------------------------------------------------- round robin


def assign_round_robin(counts: PartitionCounts, members: Members) -> Assignment:
    """All partitions in turn to the members that subscribe to their topics."""
    result: Assignment = {member: [] for member in members}
    circle = cycle(member_order(members))
    read = {topic for member in members.values() for topic in member.topics}
    for topic in sorted(read & counts.keys()):
        for index in range(counts[topic]):
            member = next(m for m in circle if topic in members[m].topics)
            result[member].append(TopicPartition(topic, index))
    return result


# ---------------------------------------------------------------------------------- sticky


def assign_sticky(counts: PartitionCounts, members: Members) -> Assignment:
    """Balanced, keeping partitions with their owners, which are in the members' user data."""
    claims = {}
    for name, member in members.items():
        owned, generation = decode_sticky(member.user_data)
        claims[name] = member._replace(owned=owned, generation=generation)
    return _balance(counts, claims)


def assign_cooperative_sticky(counts: PartitionCounts, members: Members) -> Assignment:
    """As `assign_sticky`; a moving partition stays unassigned until its owner has revoked it."""
    claims = {}
    for name, member in members.items():
        generation = member.generation
        if generation < 0:
            generation = decode_generation(member.user_data)
        claims[name] = member._replace(generation=generation)
    result = _balance(counts, claims)
    # Claims of older generations count too: the member that makes one may still read the partition.
    claimed: dict[TopicPartition, set[str]] = {}
    for name, member in claims.items():
        for partition in member.owned:
            claimed.setdefault(partition, set()).add(name)
    for name, partitions in result.items():
        result[name] = [p for p in partitions if not claimed.get(p, set()) - {name}]
    return result


def _balance(counts: PartitionCounts, members: Members) -> Assignment:
    readers = {
        topic: [m for m in member_order(members) if topic in members[m].topics] for topic in counts
    }
    partitions = [
        TopicPartition(topic, index)
        for topic in sorted(counts)
        if readers[topic]
        for index in range(counts[topic])
    ]
    owners = _owners(partitions, members)
    result: Assignment = {member: [] for member in members}
    if len({frozenset(member.topics) for member in members.values()}) == 1:
        _fill_evenly(partitions, owners, member_order(members), result)
    else:
        _fill_greedily(partitions, owners, readers, result)
    for owned in result.values():
        owned.sort()
    return result


def _owners(partitions: Sequence[TopicPartition], members: Members) -> dict[TopicPartition, str]:
    """The owner of each partition by the highest generation; none if two claim it in that one."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for name in sorted(members):
        member = members[name]
        for partition in dict.fromkeys(member.owned):
            best = claims.get(partition)
            if best is None or member.generation > best[0]:
                claims[partition] = (member.generation, name)
            elif member.generation == best[0]:
                claims[partition] = (member.generation, None)
    owners = {}
    for partition in partitions:
        owner = claims.get(partition, (0, None))[1]
        if owner is not None and partition.topic in members[owner].topics:
            owners[partition] = owner
    return owners


def _fill_evenly(
    partitions: Sequence[TopicPartition],
    owners: Mapping[TopicPartition, str],
    order: Sequence[str],
    result: Assignment,
) -> None:
    """All members subscribe to the same topics: all get the same number, some of them one more."""
    least, more = divmod(len(partitions), len(order))
    held: Assignment = {member: [] for member in order}
    for partition, owner in owners.items():
        held[owner].append(partition)
    for member in order:
        keep = least
        if len(held[member]) > least and more:
            keep, more = least + 1, more - 1
        result[member] = held[member][:keep]
    placed = {partition for owned in result.values() for partition in owned}
    free = iter([partition for partition in partitions if partition not in placed])
    for member in order:
        while len(result[member]) < least:
            result[member].append(next(free))
    poor = [member for member in order if len(result[member]) == least]
    for member, partition in zip(poor, free, strict=False):
        result[member].append(partition)


def _fill_greedily(
    partitions: Sequence[TopicPartition],
    owners: Mapping[TopicPartition, str],
    readers: Mapping[str, Sequence[str]],
    result: Assignment,
) -> None:
    """Subscriptions differ: keep, assign to the member with the fewest, then balance by moves."""
    for partition, owner in owners.items():
        result[owner].append(partition)
    # Partitions with few possible members go first: there is less choice for them.
    free = [partition for partition in partitions if partition not in owners]
    for partition in sorted(free, key=lambda p: (len(readers[p.topic]), p)):
        least = min(readers[partition.topic], key=lambda m: len(result[m]))
        result[least].append(partition)
    # Each move reduces the sum of squared counts, so the loop terminates.
    moved = True
    while moved:
        moved = False
        for giver in sorted(result, key=lambda m: (-len(result[m]), m)):
            for partition in list(result[giver]):
                taker = min(readers[partition.topic], key=lambda m: len(result[m]))
                if len(result[taker]) + 1 < len(result[giver]):
                    result[giver].remove(partition)
                    result[taker].append(partition)
                    moved = True


RANGE: Final = Assignor("range", False, assign_range, _no_data)
ROUND_ROBIN: Final = Assignor("roundrobin", False, assign_round_robin, _no_data)
STICKY: Final = Assignor("sticky", False, assign_sticky, encode_sticky)
COOPERATIVE_STICKY: Final = Assignor(
    "cooperative-sticky",
    True,
    assign_cooperative_sticky,
    lambda _, generation: encode_generation(generation),
)

ASSIGNORS: Final = {
    assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)
}
# Names in `partition.assignment.strategy`.
JAVA_CLASSES: Final = {
    f"org.apache.kafka.clients.consumer.{name}Assignor": assignor
    for name, assignor in (
        ("Range", RANGE),
        ("RoundRobin", ROUND_ROBIN),
        ("Sticky", STICKY),
        ("CooperativeSticky", COOPERATIVE_STICKY),
    )
}


def assignor_of(name: str) -> Assignor:
    """The assignor of this name, which is the protocol's or Java's class name.

    Raises:
        ConstructionError: there is no such assignor.
    """
    assignor = JAVA_CLASSES.get(name) or ASSIGNORS.get(name)
    if assignor is None:
        raise ConstructionError(
            f"partition.assignment.strategy={name}: this client has {', '.join(ASSIGNORS)}, "
            "also under their Java names"
        )
    return assignor
