"""Says in sentences what has changed between two snapshots of a simulated cluster.

Each sentence is made from the difference itself, so it cannot say what the code did not do. Why the
controller decided something is in its journal, from which the recorder takes sentences of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from odradek.model.partition import TopicPartition
from odradek.web.stories.snapshot import ShownReplica, Snapshot
from odradek.web.stories.values import ShownBroker, ShownGroup, ShownTransaction, StoredPartition

T = TypeVar("T")
# What the records from one offset to another are, in the log of a broker.
Appended = Callable[[int, TopicPartition, int, int], str]

# How a process ended is known to the recorder's witness alone.
_PROCESS: Final = {
    ("stopping", "down"): "Broker {} has stopped.",
    ("running", "stopping"): "Broker {} begins to stop.",
    ("running", "paused"): "The process of broker {} is paused (SIGSTOP).",
    ("paused", "running"): "The process of broker {} continues (SIGCONT).",
    ("down", "starting"): "Broker {} is started.",
    ("starting", "running"): "Broker {} has started: it serves requests.",
}


def brokers(ids: Iterable[int]) -> str:
    """`broker 1`, `brokers 1 and 2`, `brokers 1, 2 and 3`, or `no broker`."""
    names = [str(each) for each in ids]
    if not names:
        return "no broker"
    if len(names) == 1:
        return f"broker {names[0]}"
    return f"brokers {', '.join(names[:-1])} and {names[-1]}"


def changes(before: Snapshot, after: Snapshot, appended: Appended) -> list[str]:
    """All that has changed, in the order of its causes."""
    said = [
        *_processes(before, after),
        *_controller(before, after),
        *_stored(before, after),
    ]
    for partition, _ in after.replicas:
        said += _partition(before, after, partition, appended)
    return [
        *said,
        *_all(before.groups, after.groups, lambda g: g.group, _group),
        *_all(before.transactions, after.transactions, lambda t: t.transactional_id, _transaction),
    ]


# ------------------------------------------------------------------------------ the cluster


def _processes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    for old, new in zip(before.brokers, after.brokers, strict=True):
        if (old.process, new.process) in _PROCESS:
            yield _PROCESS[old.process, new.process].format(new.broker)
        if new.is_registered and not old.is_registered:
            yield f"Broker {new.broker} registers in the coordination store."
        if old.is_registered and not new.is_registered:
            yield f"The session of broker {new.broker} has ended: it is no longer registered."
        yield from _links(old, new)


def _links(old: ShownBroker, new: ShownBroker) -> Iterator[str]:
    lost = [each for each in new.dropped_to if each not in old.dropped_to]
    healed = [each for each in old.dropped_to if each not in new.dropped_to]
    if lost:
        yield f"The network loses what broker {new.broker} sends to {brokers(lost)}."
    if healed:
        yield f"{brokers(healed).capitalize()} can receive from broker {new.broker} again."


def _controller(before: Snapshot, after: Snapshot) -> Iterator[str]:
    if before.controller != after.controller:
        if after.controller is None:
            yield "There is no controller: its session has ended, or its node was deleted."
        else:
            yield (
                f"Broker {after.controller} is elected controller, with controller epoch "
                f"{after.controller_epoch}."
            )


def _stored(before: Snapshot, after: Snapshot) -> Iterator[str]:
    for partition, _ in after.replicas:
        old, new = before.state(partition), after.state(partition)
        if old == new:
            continue
        if new is None:
            yield f"{partition} is no longer in the coordination store."
        elif old is None:
            yield f"{partition} gets the replicas {_list(new.replicas)}."
        else:
            yield from _state(old, new)


def _state(old: StoredPartition, new: StoredPartition) -> Iterator[str]:
    name = new.partition
    if (old.replicas, old.adding, old.removing) != (new.replicas, new.adding, new.removing):
        moves = [
            f"{verb} {_list(ids)}"
            for verb, ids in (("adding", new.adding), ("removing", new.removing))
            if ids
        ]
        detail = f", {', '.join(moves)}" if moves else ""
        yield f"The replicas of {name} are now {_list(new.replicas)}{detail}."
    if (old.leader, old.leader_epoch, old.isr) != (new.leader, new.leader_epoch, new.isr):
        led = "no leader" if new.leader < 0 else f"leader {new.leader}"
        yield (
            f"Stored for {name}: {led}, leader epoch {new.leader_epoch}, ISR {_list(new.isr)}"
            f"{_was(old, new)}."
        )


def _was(old: StoredPartition, new: StoredPartition) -> str:
    parts = []
    if old.leader != new.leader:
        parts.append("no leader" if old.leader < 0 else f"leader {old.leader}")
    if old.isr != new.isr:
        parts.append(f"ISR {_list(old.isr)}")
    return f" (before: {', '.join(parts)})" if parts else ""


# ------------------------------------------------------------------------------ replicas


def _partition(
    before: Snapshot, after: Snapshot, partition: TopicPartition, appended: Appended
) -> Iterator[str]:
    for shown in after.brokers:
        old = before.replica(partition, shown.broker)
        new = after.replica(partition, shown.broker)
        if new is None:
            if old is not None and shown.process in ("running", "paused"):
                yield f"Broker {shown.broker} deletes its replica of {partition}."
            continue
        if old is None:
            yield (
                f"Broker {new.broker} has its replica of {partition}: log end offset {new.leo}, "
                f"high watermark {new.high_watermark}."
            )
            continue
        yield from _role(partition, old, new)
        yield from _end(partition, old, new, after, appended)
        yield from _watermarks(partition, old, new)


def _role(partition: TopicPartition, old: ShownReplica, new: ShownReplica) -> Iterator[str]:
    if (old.leads, old.leader, old.leader_epoch) == (new.leads, new.leader, new.leader_epoch):
        return
    if new.leads:
        verb = "continues to lead" if old.leads else "leads"
        yield (
            f"Broker {new.broker} {verb} {partition} in leader epoch {new.leader_epoch}, from its "
            f"log end offset {new.leo} on."
        )
    elif new.leader == new.broker:
        yield f"Broker {new.broker} no longer leads {partition}."
    elif new.leader >= 0:
        yield (
            f"Broker {new.broker} follows broker {new.leader} in leader epoch {new.leader_epoch} "
            f"of {partition}."
        )
    else:
        yield f"Broker {new.broker} has no leader of {partition} to follow any more."


def _end(
    partition: TopicPartition,
    old: ShownReplica,
    new: ShownReplica,
    after: Snapshot,
    appended: Appended,
) -> Iterator[str]:
    if new.leo > old.leo:
        what = appended(new.broker, partition, old.leo, new.leo)
        if new.leads:
            yield (
                f"Broker {new.broker}, the leader, appends {what} to {partition}: its log end "
                f"offset is {new.leo}."
            )
        else:
            yield (
                f"Broker {new.broker} fetches {what} of {partition} from broker {new.leader}: its "
                f"log end offset is {new.leo}."
            )
    elif new.leo < old.leo:
        yield _truncated(partition, old, new, after)
    if new.log_start_offset > old.log_start_offset:
        yield (
            f"The log of {partition} on broker {new.broker} starts at offset "
            f"{new.log_start_offset} now."
        )


def _truncated(
    partition: TopicPartition, old: ShownReplica, new: ShownReplica, after: Snapshot
) -> str:
    """A truncation, with the reason that the offsets show."""
    text = f"Broker {new.broker} truncates its log of {partition} from {old.leo} to {new.leo}"
    leader = after.replica(partition, new.leader)
    own_epoch = old.epochs[-1][0] if old.epochs else -1
    if leader is not None:
        for epoch in range(own_epoch, -1, -1):
            end = epoch_end(leader, epoch)
            if end == new.leo and end < old.leo:
                return (
                    f"{text}: in the log of its leader, broker {new.leader}, leader epoch {epoch} "
                    f"ends at {end}."
                )
    if new.leo == old.high_watermark:
        return f"{text}, its own high watermark."
    return f"{text}."


def epoch_end(replica: ShownReplica, epoch: int) -> int | None:
    """Where a leader epoch ends in a log; None if the log has no record of it."""
    if epoch not in (known for known, _ in replica.epochs):
        return None
    later = (start for known, start in replica.epochs if known > epoch)
    return min(later, default=replica.leo)


def _watermarks(partition: TopicPartition, old: ShownReplica, new: ShownReplica) -> Iterator[str]:
    if new.high_watermark > old.high_watermark:
        moved = (
            f"the high watermark of {partition} from {old.high_watermark} to {new.high_watermark}"
        )
        if new.leads:
            others = [each for each in new.isr if each != new.broker]
            why = f"{brokers(others)} {'has' if len(others) == 1 else 'have'} the records below it"
            yield (
                f"Broker {new.broker} moves {moved}: "
                f"{why if others else 'no other replica is in sync'}."
            )
        else:
            yield (
                f"Broker {new.broker} takes the high watermark {new.high_watermark} of {partition} "
                f"(before: {old.high_watermark}) from a fetch response of its leader."
            )
    elif new.high_watermark < old.high_watermark:
        yield (
            f"The high watermark of {partition} on broker {new.broker} goes back from "
            f"{old.high_watermark} to {new.high_watermark}."
        )
    if not new.leads or new.last_stable_offset == old.last_stable_offset:
        return
    if new.last_stable_offset < new.high_watermark:
        yield (
            f"The last stable offset of {partition} is {new.last_stable_offset}: read_committed "
            "consumers read up to it, because a transaction is open from there on."
        )
    elif old.last_stable_offset < old.high_watermark:
        yield (
            f"The last stable offset of {partition} reaches the high watermark, "
            f"{new.last_stable_offset}: no transaction is open below it."
        )


# ------------------------------------------------------------------------------ coordinators


def _all(
    before: Iterable[T],
    after: Iterable[T],
    name: Callable[[T], str],
    say: Callable[[T | None, T], Iterable[str]],
) -> Iterator[str]:
    old = {name(each): each for each in before}
    for each in after:
        if old.get(name(each)) != each:
            yield from say(old.get(name(each)), each)


def _group(old: ShownGroup | None, new: ShownGroup) -> Iterator[str]:
    if old is None:
        yield f"Broker {new.coordinator} is the coordinator of the group {new.group}."
    state = (new.state, new.generation)
    if old is None or (old.state, old.generation) != state:
        yield f"The group {new.group} is {new.state} in generation {new.generation}."
    members = dict(new.members)
    earlier = {} if old is None else dict(old.members)
    for member in sorted(members.keys() - earlier.keys()):
        yield f"{member} joins the group {new.group}."
    for member in sorted(earlier.keys() - members.keys()):
        yield f"{member} is no longer a member of the group {new.group}."
    for member, partitions in new.members:
        if partitions and partitions != earlier.get(member):
            yield f"{member} is assigned {', '.join(partitions)}."
    committed = {} if old is None else dict(old.committed)
    for partition, offset in new.committed:
        if committed.get(partition) != offset:
            yield f"The committed offset of {new.group} for {partition} is {offset}."


def _transaction(old: ShownTransaction | None, new: ShownTransaction) -> Iterator[str]:
    name = f"The transaction of {new.transactional_id}"
    if old is None or old.coordinator != new.coordinator:
        yield f"Broker {new.coordinator} is the coordinator of {new.transactional_id}."
    producer = (new.producer_id, new.producer_epoch)
    if old is None or (old.producer_id, old.producer_epoch) != producer:
        yield (
            f"{new.transactional_id} has producer id {new.producer_id} and producer epoch "
            f"{new.producer_epoch}."
        )
    if old is not None and old.state != new.state:
        yield f"{name} is {new.state}."
    if new.partitions and (old is None or old.partitions != new.partitions):
        yield f"{name} includes {', '.join(new.partitions)}."


def _list(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "empty"
