"""The state of the cluster in the controller, and questions about it.

It holds what was read from the coordination store or accepted by it; what is only decided is in the
effects. A context exists for one controller epoch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.controller.isr_history import NO_LOG, IsrHistory, LogEnd
from odradek.controller.states import PARTITION_FROM, REPLICA_FROM, PartitionState, ReplicaState
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.invariants import InvariantError
from odradek.model.partition import NO_LEADER, Assignment, LeaderAndIsr, TopicPartition


@dataclass(slots=True)
class Partition:
    """One partition: its replicas, leader and ISR, and the states of the state machines."""

    name: TopicPartition
    assignment: Assignment
    state: PartitionState = PartitionState.NON_EXISTENT
    replicas: dict[int, ReplicaState] = field(default_factory=dict)
    leader_and_isr: LeaderAndIsr | None = None  # None until the store has accepted the first
    controller_epoch: int = -1  # of the controller that wrote it
    modified_id: int = 0  # the store's transaction that did, or one before it
    history: IsrHistory | None = None

    @property
    def stored(self) -> LeaderAndIsr:
        """The leader and ISR of a partition of which the store has accepted some.

        Raises:
            InvariantError: there are none yet.
        """
        if self.leader_and_isr is None:
            raise InvariantError(f"{self.name}: no leader and ISR are stored yet")
        return self.leader_and_isr

    @property
    def valid_history(self) -> IsrHistory | None:
        """The ISR history, if it was written with the state that stands."""
        history, state = self.history, self.leader_and_isr
        if history is None or state is None:
            return None
        written_with = (history.partition_epoch, history.controller_epoch)
        return history if written_with == (state.partition_epoch, self.controller_epoch) else None

    @property
    def leader(self) -> int | None:
        """The stored leader (may be offline, or NO_LEADER); None if there never was one."""
        return self.leader_and_isr.leader if self.leader_and_isr else None

    def check(self) -> None:
        """Check what holds of a partition after each event, step and outcome.

        Raises:
            InvariantError: something does not hold.
        """
        name, state, assignment, led = self.name, self.state, self.assignment, self.leader_and_isr
        is_moving = assignment.adding or assignment.removing
        if is_moving and not (
            assignment.target and set(assignment.adding).isdisjoint(assignment.removing)
        ):
            raise InvariantError(f"{name}: adding and removing contradict each other: {assignment}")
        if led is None:
            if state is PartitionState.ONLINE:
                raise InvariantError(f"{name}: is {state.value}, and has no stored state")
            return
        if led.leader_epoch < 0 or led.partition_epoch < 0 or self.controller_epoch < 0:
            raise InvariantError(f"{name}: has a negative epoch: {led}, {self.controller_epoch}")
        if state is PartitionState.NEW:
            raise InvariantError(f"{name}: is {state.value}, and has a stored state: {led}")
        if state is PartitionState.ONLINE and led.leader == NO_LEADER:
            raise InvariantError(f"{name}: is {state.value}, and has no leader: {led}")

    def enter(self, target: PartitionState) -> None:
        """Go to another state; only where the table allows it."""
        assert self.state in PARTITION_FROM[target], (self.name, self.state, target)
        self.state = target

    def enter_replica(self, broker: int, target: ReplicaState) -> None:
        """Let one replica go to another state; only where the table allows it."""
        present = self.replicas.get(broker, ReplicaState.NON_EXISTENT)
        assert present in REPLICA_FROM[target], (self.name, broker, present, target)
        self.replicas[broker] = target


@dataclass(slots=True)
class Topic:
    """One topic and its partitions, by number."""

    name: str
    id: UUID
    partitions: dict[int, Partition] = field(default_factory=dict)


@dataclass(slots=True)
class ControllerContext:
    """The state of the cluster in this controller: what the store has accepted or was read."""

    controller_epoch: int
    # The last controller epoch of a store that was put back to an earlier state; -1: there is none.
    restored_epoch: int = -1
    is_loaded: bool = False  # whether `LoadingFinished` has been handled
    brokers: dict[int, Broker] = field(default_factory=dict)  # those that are registered
    shutting_down: set[int] = field(default_factory=set)
    # Those that were restarted while they were in an ISR, and that no controller saw in between.
    bounced: set[int] = field(default_factory=set)
    topics: dict[str, Topic] = field(default_factory=dict)
    being_deleted: set[str] = field(default_factory=set)
    # What was entered for a partition or broker when the leaders' balance was last checked.
    entered: dict[TopicPartition | int, str] = field(default_factory=dict)
    # The last broker epoch that was refused, by broker.
    fenced: dict[int, int] = field(default_factory=dict)
    # Replicas whose log directory failed, by broker.
    offline_dirs: dict[int, set[TopicPartition]] = field(default_factory=dict)

    def registration_error(self, broker: int, broker_epoch: int) -> ErrorCode:
        """NONE for the present registration of a broker; the broker epoch -1 is not one."""
        registered = self.brokers.get(broker)
        if registered is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        is_present = registered.broker_epoch == broker_epoch
        return ErrorCode.NONE if is_present else ErrorCode.STALE_BROKER_EPOCH

    def partitions(self) -> Iterator[Partition]:
        """Every partition, in the order in which the topics came to be known."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partition(self, name: TopicPartition) -> Partition | None:
        """One partition, None if it is not known."""
        topic = self.topics.get(name.topic)
        return topic.partitions.get(name.partition) if topic else None

    def present(self, name: TopicPartition) -> Partition:
        """One partition.

        Raises:
            InvariantError: it is not known.
        """
        partition = self.partition(name)
        if partition is None:
            raise InvariantError(f"{name}: it is not known")
        return partition

    def known(self, names: Iterable[TopicPartition]) -> Iterator[Partition]:
        """Those of these partitions that are known."""
        for name in names:
            partition = self.partition(name)
            if partition is not None:
                yield partition

    def is_online(self, broker: int, name: TopicPartition) -> bool:
        """Whether this replica's broker is registered and its log dir works."""
        return broker in self.brokers and name not in self.offline_dirs.get(broker, ())

    def online_replicas(self, partition: Partition) -> tuple[int, ...]:
        """The replicas to which requests can be sent, in the order of the assignment."""
        name, replicas = partition.name, partition.assignment.replicas
        if not self.offline_dirs:
            return tuple(r for r in replicas if r in self.brokers)
        return tuple(r for r in replicas if self.is_online(r, name))

    def electable(self, partition: Partition) -> tuple[int, ...]:
        """The replicas that may become leader: online, and not about to leave."""
        online = self.online_replicas(partition)
        if not self.shutting_down:
            return online
        return tuple(r for r in online if r not in self.shutting_down)

    @property
    def is_going_down(self) -> bool:
        """Whether every registered broker has asked to leave: then none can take over."""
        return self.brokers.keys() <= self.shutting_down

    @property
    def keeps_history(self) -> bool:
        """Whether all brokers are Odradek brokers: of others it is not known how they stopped."""
        return all(broker.clean_since >= 0 for broker in self.brokers.values())

    def doubtful(self, partition: Partition) -> tuple[int, ...]:
        """The registered members of the ISR that may have lost records since they were in sync.

        Of an outdated ISR every registered replica: it may not be in sync.
        """
        stored = partition.leader_and_isr
        if stored is None or len(partition.assignment.replicas) < 2 or not self.keeps_history:
            return ()
        if self.is_outdated(partition):
            return tuple(r for r in partition.assignment.replicas if r in self.brokers)
        return tuple(r for r in stored.isr if r in self.brokers and not self.is_sound(partition, r))

    def is_outdated(self, partition: Partition) -> bool:
        """Whether its ISR is that of a backup: any replica may have more records, or fewer."""
        return -1 < partition.controller_epoch <= self.restored_epoch

    def is_sound(self, partition: Partition, replica: int) -> bool:
        """Whether a replica has lost nothing since it was last known to hold everything."""
        return self.brokers[replica].clean_since <= _known_until(partition, replica)

    def emptied(self, partition: Partition, ends: Mapping[int, LogEnd]) -> frozenset[int]:
        """The replicas that lost their log since they were last known to hold everything.

        `ends` are where the logs end of those that were asked. A broker may have lost one log
        directory of several: an in-sync replica that has a log did not lie there. One that left the
        ISR before may have begun to copy.
        """
        stored = partition.leader_and_isr
        if stored is None or not self.keeps_history:
            return frozenset()
        return frozenset(
            replica
            for replica in partition.assignment.replicas
            if replica in self.brokers
            and -1 < _known_until(partition, replica) < self.brokers[replica].empty_since
            and (replica not in stored.isr or ends.get(replica) == NO_LOG)
        )

    def put_back(self, partition: Partition) -> frozenset[int]:
        """The replicas on an older copy of log directories, since they last held everything."""
        if partition.leader_and_isr is None or not self.keeps_history:
            return frozenset()
        return frozenset(
            replica
            for replica in partition.assignment.replicas
            if replica in self.brokers
            and -1 < _known_until(partition, replica) < self.brokers[replica].put_back_since
        )

    def is_being_deleted(self, name: TopicPartition) -> bool:
        """Whether its topic is on its way out."""
        return name.topic in self.being_deleted


def _known_until(partition: Partition, replica: int) -> int:
    """The last transaction in which a replica was known to hold everything; -1 if it never was."""
    stored, history = partition.leader_and_isr, partition.valid_history
    known = partition.modified_id if stored is not None and replica in stored.isr else -1
    if history is not None:
        left = history.left.get(replica)
        known = history.isr.get(replica, left.transaction_id if left else known)
    return known
