"""Reads the state of a simulated cluster, without changing anything.

The recorder takes a snapshot at every instant of simulated time at which code ran, so a snapshot
reads a few numbers of each replica and decodes a znode only if its version has changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from odradek.broker.replication.partition import Partition
from odradek.client.group.protocol import decode_assignment
from odradek.coord import layout
from odradek.coord.tree import TreeNode
from odradek.group.group import Group
from odradek.log.log import Log
from odradek.log.producer_state import NO_OFFSET
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.sim.scenes.replicas import held
from odradek.sim.world.cluster import ProcessState, SimulatedBroker, SimulatedCluster
from odradek.txn.transaction import STATE_NAMES
from odradek.web.lanes.values import (
    AxisMark,
    EpochStart,
    LaneMove,
    LaneRole,
    MarkKind,
    PartitionLanes,
    ReplicaLane,
)
from odradek.web.stories.values import ShownBroker, ShownGroup, ShownTransaction, StoredPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownReplica:
    """A replica as its broker has it."""

    broker: int
    leads: bool
    leader: int
    leader_epoch: int
    leo: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    size_bytes: int
    epochs: tuple[tuple[int, int], ...]
    isr: tuple[int, ...] = ()  # of a leader: the replicas for which its HW waits
    open_transactions: tuple[tuple[int, int], ...] = ()  # producer id and first offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole cluster at one instant, as far as stories show it."""

    controller: int | None
    controller_epoch: int
    brokers: tuple[ShownBroker, ...]
    stored: tuple[StoredPartition, ...]
    replicas: tuple[tuple[TopicPartition, tuple[ShownReplica, ...]], ...]
    groups: tuple[ShownGroup, ...] = ()
    transactions: tuple[ShownTransaction, ...] = ()

    def replica(self, partition: TopicPartition, broker: int) -> ShownReplica | None:
        """The replica of a broker; None if there is none, or the broker does not run."""
        for name, replicas in self.replicas:
            if name == partition:
                return next((found for found in replicas if found.broker == broker), None)
        return None

    def leader(self, partition: TopicPartition) -> ShownReplica | None:
        """The replica that leads in the highest leader epoch."""
        leaders = [
            found
            for name, replicas in self.replicas
            for found in replicas
            if name == partition and found.leads
        ]
        return max(leaders, key=lambda found: found.leader_epoch, default=None)

    def state(self, partition: TopicPartition) -> StoredPartition | None:
        """The stored state of a partition."""
        return next((found for found in self.stored if found.partition == partition), None)


def take(cluster: SimulatedCluster, partitions: Sequence[TopicPartition]) -> Snapshot:
    """Read the state of a cluster and of these partitions."""
    tree = cluster.tree
    stored = tuple(
        state for partition in partitions if (state := _stored(cluster, partition)) is not None
    )
    return Snapshot(
        controller=_controller(tree.find(layout.CONTROLLER)),
        controller_epoch=_controller_epoch(tree.find(layout.CONTROLLER_EPOCH)),
        brokers=tuple(_broker(cluster, broker) for broker in cluster.brokers),
        stored=stored,
        replicas=tuple((partition, _replicas(cluster, partition)) for partition in partitions),
        groups=tuple(_groups(cluster)),
        transactions=tuple(_transactions(cluster)),
    )


def _controller(node: TreeNode | None) -> int | None:
    return None if node is None else layout.decode_controller(node.data).broker


def _controller_epoch(node: TreeNode | None) -> int:
    return 0 if node is None else layout.decode_controller_epoch(node.data)


def _broker(cluster: SimulatedCluster, broker: SimulatedBroker) -> ShownBroker:
    network = cluster.network
    return ShownBroker(
        broker=broker.id,
        process=broker.state.value,
        is_registered=cluster.tree.find(layout.broker_path(broker.id)) is not None,
        rack=cluster.racks.get(broker.id),
        dropped_to=tuple(
            other.id for other in cluster.brokers if network.is_cut(broker.name, other.name)
        ),
    )


def _stored(cluster: SimulatedCluster, partition: TopicPartition) -> StoredPartition | None:
    topic = cluster.tree.find(layout.topic_path(partition.topic))
    if topic is None:
        return None
    assignment = _decode_topic(partition.topic, topic.data).assignments.get(partition.partition)
    if assignment is None:
        return None
    node = cluster.tree.find(layout.partition_state_path(partition))
    state = None if node is None else _decode_state(partition, node.data, node.version)
    return StoredPartition(
        partition=partition,
        replicas=tuple(assignment.replicas),
        adding=tuple(assignment.adding),
        removing=tuple(assignment.removing),
        leader=-1 if state is None else state.leader,
        leader_epoch=-1 if state is None else state.leader_epoch,
        isr=() if state is None else tuple(state.isr),
    )


@lru_cache(maxsize=64)
def _decode_topic(name: str, data: bytes) -> Any:
    return layout.decode_topic(name, data)


@lru_cache(maxsize=64)
def _decode_state(partition: TopicPartition, data: bytes, version: int) -> Any:
    return layout.decode_partition_state(partition, data, partition_epoch=version).leader_and_isr


def _replicas(cluster: SimulatedCluster, partition: TopicPartition) -> tuple[ShownReplica, ...]:
    found = []
    for broker in cluster.brokers:
        replica = held(broker, partition)
        if replica is not None and replica.log is not None and not replica.log.removed:
            found.append(_replica(broker, replica, replica.log))
    return tuple(found)


def _replica(broker: SimulatedBroker, replica: Partition, log: Log) -> ShownReplica:
    leader = replica.leader
    is_transactional = log.last_stable_offset != log.high_watermark
    return ShownReplica(
        broker=broker.id,
        leads=leader is not None,
        leader=replica.leader_id,
        leader_epoch=replica.leader_epoch,
        leo=log.leo,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        size_bytes=log.size_bytes,
        epochs=tuple(log.epochs.starts()),
        isr=() if leader is None else tuple(sorted(leader.isr.maximal)),
        open_transactions=tuple(_open_transactions(log)) if is_transactional else (),
    )


def _open_transactions(log: Log) -> Iterator[tuple[int, int]]:
    for producer in log.active_producers():
        if producer.transaction_first_offset != NO_OFFSET:
            yield producer.producer_id, producer.transaction_first_offset


def _running(cluster: SimulatedCluster) -> Iterator[SimulatedBroker]:
    for broker in cluster.brokers:
        if broker.state is ProcessState.RUNNING and broker.broker is not None:
            yield broker


def _groups(cluster: SimulatedCluster) -> Iterator[ShownGroup]:
    for broker in _running(cluster):
        for coordinator in broker.running.groups.topic.serving:
            for name, group in coordinator.machine.groups.items():
                offsets = coordinator.machine.committed_offsets(name)
                yield ShownGroup(
                    group=name,
                    coordinator=broker.id,
                    state=group.state.value,
                    generation=group.generation,
                    members=_members(group),
                    committed=tuple(
                        sorted(
                            (str(place), committed.offset) for place, committed in offsets.items()
                        )
                    ),
                )


def _members(group: Group) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        sorted(
            (member.client_id, _assigned(member.assignment)) for member in group.members.values()
        )
    )


@lru_cache(maxsize=64)
def _assigned(assignment: bytes) -> tuple[str, ...]:
    if not assignment:
        return ()
    try:
        return tuple(sorted(map(str, decode_assignment(assignment))))
    except OdradekError:
        return ()


def _transactions(cluster: SimulatedCluster) -> Iterator[ShownTransaction]:
    for broker in _running(cluster):
        for known in broker.running.transactions.transactions().transactions:
            yield ShownTransaction(
                transactional_id=known.transactional_id,
                coordinator=broker.id,
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                state=STATE_NAMES[known.state],
                partitions=tuple(sorted(map(str, known.partitions))),
            )


# ------------------------------------------------------------------------------ as lanes

_UP: Final = frozenset({"running", "paused"})


def lanes_of(
    snapshot: Snapshot,
    last: Mapping[tuple[TopicPartition, int], ShownReplica],
    positions: Mapping[str, tuple[TopicPartition, int]],
    rates: Mapping[tuple[TopicPartition, int], float],
) -> tuple[PartitionLanes, ...]:
    """The partitions as lanes.

    `last` has the last state of replicas whose broker is down, `positions` those of consumers, and
    `rates` the bytes per second of replicas that are being added.
    """
    return tuple(
        _partition(
            snapshot,
            partition,
            replicas,
            last,
            {name: offset for name, (of, offset) in positions.items() if of == partition},
            {broker: rate for (of, broker), rate in rates.items() if of == partition},
        )
        for partition, replicas in snapshot.replicas
    )


def _partition(
    snapshot: Snapshot,
    partition: TopicPartition,
    replicas: tuple[ShownReplica, ...],
    last: Mapping[tuple[TopicPartition, int], ShownReplica],
    positions: Mapping[str, int],
    rates: Mapping[int, float],
) -> PartitionLanes:
    state = snapshot.state(partition)
    assigned = () if state is None else state.replicas
    others = [found.broker for found in replicas if found.broker not in assigned]
    lanes = []
    for broker in (*assigned, *others):
        found = snapshot.replica(partition, broker)
        lane = _lane(snapshot, state, broker, found, last.get((partition, broker)))
        lanes.append(_with_rate(lane, rates.get(broker, 0.0)))
    leader = snapshot.leader(partition)
    marks = [
        AxisMark(kind=MarkKind.TRANSACTION, offset=offset, label=f"of producer {producer_id}")
        for producer_id, offset in (() if leader is None else leader.open_transactions)
    ]
    marks += [
        AxisMark(kind=MarkKind.COMMITTED, offset=offset, label=f"of {group.group}")
        for group in snapshot.groups
        for name, offset in group.committed
        if name == str(partition)
    ]
    marks += [
        AxisMark(kind=MarkKind.POSITION, offset=offset, label=f"of {name}")
        for name, offset in positions.items()
    ]
    return PartitionLanes(
        topic=partition.topic, partition=partition.partition, lanes=tuple(lanes), marks=tuple(marks)
    )


def _lane(
    snapshot: Snapshot,
    state: StoredPartition | None,
    broker: int,
    found: ShownReplica | None,
    last: ShownReplica | None,
) -> ReplicaLane:
    shown = snapshot.brokers[broker]
    move = None
    if state is not None and broker in state.adding:
        move = LaneMove.ADDING
    elif state is not None and broker in state.removing:
        move = LaneMove.REMOVING
    base: dict[str, Any] = {
        "broker": broker,
        "rack": shown.rack,
        "move": move,
        "in_sync": None if state is None else broker in state.isr,
        "reason": _reason(shown, found),
    }
    known = found or last
    if known is None:
        is_up = shown.process in _UP
        return ReplicaLane(role=LaneRole.FOLLOWER if is_up else LaneRole.OFFLINE, **base)
    role = LaneRole.LEADER if known.leads else LaneRole.FOLLOWER
    left = None
    leader = None if state is None else snapshot.replica(state.partition, state.leader)
    if move is LaneMove.ADDING and leader is not None:
        left = max(leader.size_bytes - known.size_bytes, 0)
    return ReplicaLane(
        role=role if found is not None else LaneRole.OFFLINE,
        leo=known.leo,
        high_watermark=known.high_watermark,
        last_stable_offset=known.last_stable_offset,
        log_start_offset=known.log_start_offset,
        leader_epoch=known.leader_epoch,
        epochs=tuple(EpochStart(leader_epoch=e, start_offset=at) for e, at in known.epochs),
        bytes_left=left,
        **base,
    )


def _with_rate(lane: ReplicaLane, rate: float) -> ReplicaLane:
    if lane.bytes_left is None or rate <= 0:
        return lane
    return replace(lane, bytes_per_s=rate, seconds_left=lane.bytes_left / rate)


def _reason(shown: ShownBroker, found: ShownReplica | None) -> str:
    if shown.process == "paused":
        return "Its process is paused."
    if shown.process not in _UP:
        return f"Its process is {shown.process}."
    if found is None:
        return "It has no replica."
    return ""
