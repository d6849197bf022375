"""A store that was put back from a backup: what the logs prove goes before what the store says.

The store then has leader epochs, producer ids and a controller epoch that were given out already.
Given out again, they make two different things look like one: a follower takes another leader's
records for its own leader's, a partition takes a new producer's first batch for a duplicate.

    proof    the broker's counter on its disks is above the one in the store, or a log has a leader
             epoch above the stored one of the same topic
    raised   the leader epoch of every partition, the controller epoch and the next producer id, all
             by so much that nothing from the time after the backup is met again, also not what is
             on the disks of brokers that are down
    leaders  every partition is left without a leader. The stored ISRs are those of the backup, so
             the controller elects by the ends of the logs (`odradek.controller.isr_history`)
    last     `/controller` is removed: another term begins and loads what is stored now

A producer id in a log that was never given out raises the producer ids alone. It is no proof:
a client may write any producer id.

All values remain legal for brokers of Apache Kafka, which read the same nodes. A broker does this
before it registers, so that no leader is elected by what the backup says if the brokers that know
more start first.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from odradek.coord import layout, layout_odradek
from odradek.coord.layout_odradek import Restored, StoreCounter
from odradek.coord.store import (
    ANY_VERSION,
    BadVersionError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SetData,
    Stat,
    Store,
    StoreError,
)
from odradek.coord.znode import CorruptNodeError, decimals
from odradek.model.partition import NO_LEADER, TopicPartition

# More than are given out between two backups; of 2^31 and 2^63.
EPOCHS_SKIPPED: Final = 100_000
PRODUCER_IDS_SKIPPED: Final = 1_000_000_000
# A producer id further above the ones that were given out is not one of this cluster's.
PRODUCER_IDS_BELIEVED: Final = 1_000_000_000_000
_AT_ONCE: Final = 200
_NAMED_MAX: Final = 3  # partitions in a sentence


class LogProof(NamedTuple):
    """What one log proves: the topic that it is of, and the newest leader epoch of that topic."""

    topic_id: bytes | None
    leader_epoch: int


class Proofs(NamedTuple):
    """What the disks of one broker prove."""

    counter: int = -1  # the broker's counter that the store has acknowledged; -1: not known
    producer_id: int = -1  # the highest one in a log
    logs: Mapping[TopicPartition, LogProof] = {}


class StoredMarks(NamedTuple):
    """The broker's counter and the last restoration, as the store has them."""

    counter: StoreCounter
    restored: Restored | None

    @property
    def restored_epoch(self) -> int:
        return -1 if self.restored is None else self.restored.controller_epoch


async def read_marks(store: Store, broker: int) -> StoredMarks:
    """What the store says of this broker's counter and of restorations."""
    paths = [layout_odradek.counter_path(broker), layout_odradek.RESTORED]
    own, restored = await store.get_many(paths)
    counter, found = StoreCounter(), None
    with suppress(CorruptNodeError):
        if own is not None and own[0]:
            counter = layout_odradek.decode_counter(broker, own[0])
    with suppress(CorruptNodeError):
        if restored is not None and restored[0]:
            found = layout_odradek.decode_restored(restored[0])
    return StoredMarks(counter, found)


async def restored_epoch(store: Store) -> int:
    """The last controller epoch of a store that was put back to an earlier state; -1: none."""
    (node,) = await store.get_many([layout_odradek.RESTORED])
    with suppress(CorruptNodeError):
        if node is not None and node[0]:
            return layout_odradek.decode_restored(node[0]).controller_epoch
    return -1


# --------------------------------------------------------------------------------- comparing


async def find_proof(store: Store, marks: StoredMarks, proofs: Proofs) -> str:
    """Why the store is older than this broker's disks, as a sentence; empty if nothing says so."""
    counter = marks.counter
    if proofs.counter > counter.value and marks.restored_epoch <= counter.restored:
        return (
            f"the store had this broker's counter at {proofs.counter} already, and has it at "
            f"{counter.value} now"
        )
    behind = await _behind(store, proofs.logs)
    if behind:
        named = ", ".join(
            f"{name} ({has}, stored {stored})" for name, has, stored in behind[:_NAMED_MAX]
        )
        more = f" and {len(behind) - _NAMED_MAX} more" if len(behind) > _NAMED_MAX else ""
        return f"logs have leader epochs above the stored ones: {named}{more}"
    return ""


async def _behind(
    store: Store, logs: Mapping[TopicPartition, LogProof]
) -> list[tuple[TopicPartition, int, int]]:
    """The logs with a leader epoch above the stored one, and both epochs."""
    names = [name for name, log in logs.items() if log.leader_epoch > 0]
    behind = []
    for begin in range(0, len(names), _AT_ONCE):
        some = names[begin : begin + _AT_ONCE]
        states = await store.get_many([layout.partition_state_path(name) for name in some])
        for name, node in zip(some, states, strict=True):
            stored = _decoded(name, node)
            if stored is None:
                continue
            epoch = stored.leader_and_isr.leader_epoch
            if logs[name].leader_epoch > epoch:
                behind.append((name, logs[name].leader_epoch, epoch))
    if not behind:
        return []
    # A log of an earlier topic of the same name proves nothing.
    ids = await _topic_ids(store, sorted({name.topic for name, _, _ in behind}))
    return [each for each in behind if _is_of(logs[each[0]], ids.get(each[0].topic))]


def _is_of(log: LogProof, topic_id: UUID | None) -> bool:
    return topic_id is not None and log.topic_id == topic_id.bytes


async def _topic_ids(store: Store, topics: Sequence[str]) -> dict[str, UUID | None]:
    nodes = await store.get_many([layout.topic_path(topic) for topic in topics])
    found: dict[str, UUID | None] = {}
    for topic, node in zip(topics, nodes, strict=True):
        with suppress(CorruptNodeError):
            if node is not None:
                found[topic] = layout.decode_topic(topic, node[0]).topic_id
    return found


def _decoded(
    name: TopicPartition, node: tuple[bytes | None, Stat] | None
) -> layout.LeaderIsrAndControllerEpoch | None:
    if node is None:
        return None
    try:
        return layout.decode_partition_state(name, node[0], partition_epoch=node[1].version)
    except CorruptNodeError:
        return None


# ----------------------------------------------------------------------------------- raising


async def raise_to(
    store: Store, proofs: Proofs, *, broker: int, at_ms: int, proof: str
) -> Restored:
    """Raise everything in the store above what may have been given out after the backup.

    Each step may be repeated: a broker that stops in between finds the same proof at its next
    start, for its counter is written last.
    """
    # First, so that a controller that is elected already can write nothing any more.
    controller_epoch = await _raise_controller_epoch(store)
    await _raise_producer_ids(store, proofs.producer_id, broker, always=True)
    for topic in await store.children(layout.TOPICS):
        await _raise_topic(store, topic, proofs.logs, controller_epoch)
    restored = Restored(controller_epoch, broker, at_ms, proof)
    with suppress(NodeExistsError):
        await store.create(layout_odradek.RESTORED, make_parents=True)
    await store.set_data(layout_odradek.RESTORED, layout_odradek.encode_restored(restored))
    with suppress(NoNodeError):
        await store.delete(layout.CONTROLLER, ANY_VERSION)
    return restored


async def _raise_controller_epoch(store: Store) -> int:
    with suppress(NodeExistsError):
        await store.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(0))
    while True:
        data, stat = await store.get(layout.CONTROLLER_EPOCH)
        raised = layout.decode_controller_epoch(data) + EPOCHS_SKIPPED
        written = layout.encode_controller_epoch(raised)
        with suppress(BadVersionError):
            await store.set_data(layout.CONTROLLER_EPOCH, written, stat.version)
            return raised


async def raise_producer_ids(store: Store, highest: int, broker: int) -> bool:
    """Raise the next producer id above the `highest` in a log. Returns whether it was below."""
    return await _raise_producer_ids(store, highest, broker, always=False)


async def _raise_producer_ids(store: Store, highest: int, broker: int, *, always: bool) -> bool:
    while True:
        data, stat = await store.get(layout.PRODUCER_ID_BLOCK)
        block = layout.decode_producer_id_block(data)
        given_out = block.end_producer_id if block else 0
        believed = highest if highest < given_out + PRODUCER_IDS_BELIEVED else -1
        if believed < given_out and not always:
            return False
        end = max(given_out, believed + 1) + PRODUCER_IDS_SKIPPED
        # The ids of this block are used by no broker: the next block begins where it ends.
        skipped = layout.ProducerIdBlock(broker, end - layout.PRODUCER_ID_BLOCK_SIZE, end)
        written = layout.encode_producer_id_block(skipped)
        with suppress(BadVersionError):
            await store.set_data(layout.PRODUCER_ID_BLOCK, written, stat.version)
            return True


async def _raise_topic(
    store: Store, topic: str, logs: Mapping[TopicPartition, LogProof], controller_epoch: int
) -> None:
    try:
        numbers = await store.children(layout.topic_partitions_path(topic))
    except NoNodeError:
        return  # no controller has decided anything about it
    left = [TopicPartition(topic, number) for number in decimals(numbers)]
    while left:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        states = await store.get_many([layout.partition_state_path(name) for name in some])
        raised = []
        for name, node in zip(some, states, strict=True):
            stored = _decoded(name, node)
            if stored is not None:
                proven = logs.get(name, LogProof(None, 0)).leader_epoch
                raised.append((name, _raised(name, stored, proven, controller_epoch)))
        results = await store.multi_many([[write] for _, write in raised])
        for (name, _), result in zip(raised, results, strict=True):
            if isinstance(result, MultiError):
                if not isinstance(result.cause, (BadVersionError, NoNodeError)):
                    raise StoreError(f"{name}: {result.cause}") from result
                if isinstance(result.cause, BadVersionError):
                    left.append(name)  # a controller wrote in between


def _raised(
    name: TopicPartition,
    stored: layout.LeaderIsrAndControllerEpoch,
    proven: int,
    controller_epoch: int,
) -> SetData:
    state = stored.leader_and_isr
    epoch = max(state.leader_epoch, proven) + EPOCHS_SKIPPED
    after = replace(state, leader=NO_LEADER, leader_epoch=epoch)
    data = layout.encode_partition_state(
        layout.LeaderIsrAndControllerEpoch(after, controller_epoch)
    )
    return SetData(layout.partition_state_path(name), data, state.partition_epoch)
