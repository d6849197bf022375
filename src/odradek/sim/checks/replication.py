"""Checks of all replicas of a partition together, and of the stored partition states.

    what is stored     the leader is in the ISR, the ISR among the assigned replicas, epochs only
                       grow; one leader for each leader epoch, elected from the former ISR
    while it runs      no two brokers, nor two processes of one, lead in the same epoch; the HW does
                       not decrease within a leader epoch; each in-sync replica has every record
                       below the HW; a new leader has every committed record
    at the end         all replicas are in sync, their logs are equal, and hold what was committed

`Tally` counts what happened, so that an uneventful run does not pass for a good one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from odradek.broker.replication.partition import Partition as HeldPartition
from odradek.coord import layout, layout_odradek
from odradek.coord.tree import Change, ChangeKind, TreeNode
from odradek.model.partition import NO_LEADER, Assignment, LeaderAndIsr, TopicPartition
from odradek.replica.leader import LeaderReplica
from odradek.sim.checks.checkers import LogOnDisk, fullest, read_disk
from odradek.sim.checks.history import Facts, History
from odradek.sim.world.cluster import ProcessState, SimulatedBroker, SimulatedCluster

_TOPICS: Final = layout.TOPICS + "/"
_BROKERS: Final = layout.BROKER_IDS + "/"


@dataclass(slots=True)
class Tally:
    """Counts of what happened in the cluster."""

    elections: int = 0
    truncations: int = 0
    isr_changes: int = 0
    controllers: int = 0
    reassignments: int = 0  # that are complete


class ReplicationChecker:
    """Compares the store with the state and the disks of all brokers."""

    def __init__(
        self, cluster: SimulatedCluster, history: History, violated: Callable[[str], None]
    ) -> None:
        self.tally = Tally()
        self._cluster = cluster
        self._history = history
        self._violated = violated
        self._stored: dict[TopicPartition, layout.LeaderIsrAndControllerEpoch] = {}
        self._leaders: dict[
            tuple[bytes, int, int], tuple[int, int]
        ] = {}  # broker id and process number
        self._high_watermarks: dict[tuple[bytes, int, int], int] = {}
        self._topics: dict[str, tuple[TreeNode, layout.TopicNode]] = {}  # the last seen version
        self._moving: dict[str, set[int]] = {}  # partitions of a topic
        # Former replicas, and whether the controller may not have sent them StopReplica.
        self._left: dict[tuple[int, TopicPartition, UUID | None], bool] = {}
        self._transaction_version = 0  # as it is stored
        # Brokers that have joined an ISR since they lost records: they have what is committed.
        self._regained: set[tuple[int, TopicPartition]] = set()
        cluster.tree.written = self._written

    # ------------------------------------------------------------------ what is stored

    def _written(self, changes: Sequence[Change]) -> None:
        for path, kind in changes:
            if path == layout.CONTROLLER_EPOCH and kind is ChangeKind.WRITTEN:
                self.tally.controllers += 1
                self._mark_unsent()
            elif path.startswith(_BROKERS) and kind is ChangeKind.DELETED:
                self._broker_removed(int(path.removeprefix(_BROKERS)))
            elif path == layout.ODRADEK_FEATURES:
                self._features_written()
            elif path.startswith(_TOPICS):
                topic, _, below = path.removeprefix(_TOPICS).partition("/")
                if not below:
                    self._topic_written(topic)
                elif below.endswith("/state"):
                    self._state_changed(TopicPartition(topic, int(below.split("/")[1])), path, kind)

    def _features_written(self) -> None:
        node = self._cluster.tree.node(layout.ODRADEK_FEATURES)
        level = layout.decode_features(node.data).transaction_version
        self.transaction_version_used("the cluster", level)
        self._transaction_version = level

    def transaction_version_used(self, user: str, level: int) -> None:
        """The stored level never decreases, and no broker uses a lower one than before: all brokers
        have one version of the software, and a client asks once a connection.
        """
        if level < self._transaction_version:
            self._violated(
                f"{user} uses transaction.version {level} after {self._transaction_version}"
            )

    def _topic_written(self, name: str) -> None:
        """Count completed reassignments, and note the removed replicas."""
        before = self._topics.get(name)
        topic = self._topic(name)
        assignments = topic.assignments if topic is not None else {}
        if before is not None:
            self._note_leavers(name, before[1], assignments)
        if topic is None:
            self._topics.pop(name, None)
        moving = {number for number, a in assignments.items() if a.is_being_reassigned}
        was_moving = self._moving.pop(name, set())
        self.tally.reassignments += len(was_moving & assignments.keys() - moving)
        if moving:
            self._moving[name] = moving

    def _note_leavers(
        self, name: str, before: layout.TopicNode, assignments: Mapping[int, Assignment]
    ) -> None:
        """No `assignments`: the topic was deleted, which waits for all replicas' brokers."""
        for number, former in before.assignments.items():
            now = assignments.get(number)
            for broker in set(former.replicas) - set(now.replicas if now else ()):
                running = self._cluster.brokers[broker].broker
                may_be_offline = running is not None and running.logs.has_offline_dir
                if assignments or may_be_offline:
                    key = broker, TopicPartition(name, number), before.topic_id
                    self._left[key] = may_be_offline or not self._can_be_notified(broker)

    def _can_be_notified(self, broker: int) -> bool:
        """Whether a broker is registered, and the controller has processed its registration."""
        node = self._cluster.tree.find(layout.broker_path(broker))
        if node is None:
            return False
        for running in (each.broker for each in self._cluster.brokers):
            machine = running.controller.machine if running is not None else None
            known = machine.context.brokers.get(broker) if machine is not None else None
            if known is not None and known.broker_epoch == node.created_id:
                return True
        return False

    def _broker_removed(self, broker: int) -> None:
        for key in self._left:
            if key[0] == broker:
                self._left[key] = True

    def _mark_unsent(self) -> None:
        """The controller has failed, and with it the requests that it had not sent yet."""
        for broker, name, topic_id in self._left:
            running = self._cluster.brokers[broker].broker
            held = running.logs.get(name) if running is not None else None
            if held is not None and topic_id is not None and held.topic_id == topic_id.bytes:
                self._left[broker, name, topic_id] = True

    def may_be_left(self, broker: int, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether a broker may still have a log that is not assigned to it.

        It was a replica, and the controller could not send StopReplica: the broker was not
        registered when the assignment ended or has not been since, or the next controller was
        elected before the request was sent. Or the log was in an offline directory, or is that of
        a backup. Apache Kafka leaves such logs, too.
        """
        known = UUID(bytes=topic_id) if topic_id else None
        return self._left.get((broker, partition, known), False)

    def _state_changed(self, partition: TopicPartition, path: str, kind: ChangeKind) -> None:
        if kind is ChangeKind.DELETED:
            self._stored.pop(partition, None)
        else:
            self._state_written(partition, path)

    def _state_written(self, partition: TopicPartition, path: str) -> None:
        node = self._cluster.tree.find(path)
        if node is None:
            return  # created and removed in one transaction
        state = layout.decode_partition_state(partition, node.data, partition_epoch=node.version)
        before, self._stored[partition] = self._stored.get(partition), state
        now = state.leader_and_isr
        assigned = self._assigned(partition)
        if now.leader not in (NO_LEADER, *now.isr):
            self._violated(f"{partition}: leader {now.leader} is stored with ISR {now.isr}")
        # A replaced replica leaves the ISR in one of the next writes; no other replica joins.
        known = {*(assigned or ()), *(before.leader_and_isr.isr if before else ())}
        if assigned is not None and not set(now.isr) <= known:
            self._violated(f"{partition}: ISR {now.isr} is stored; its replicas are {assigned}")
        if before is not None:
            self._compare_states(partition, before, state)

    def _compare_states(
        self,
        partition: TopicPartition,
        before_state: layout.LeaderIsrAndControllerEpoch,
        state: layout.LeaderIsrAndControllerEpoch,
    ) -> None:
        before, now = before_state.leader_and_isr, state.leader_and_isr
        if state.controller_epoch < before_state.controller_epoch:
            self._violated(
                f"{partition}: a controller of epoch {state.controller_epoch} wrote after one of "
                f"epoch {before_state.controller_epoch}"
            )
        if now.leader_epoch < before.leader_epoch:
            self._violated(f"{partition}: leader epoch {before.leader_epoch} became {now}")
        if now.leader_epoch == before.leader_epoch and now.leader != before.leader:
            self._violated(f"{partition}: two leaders in epoch {now.leader_epoch}: {before}, {now}")
        # After the store was put back, the ends of the logs decide instead of the stored ISR.
        is_restored = before.leader == NO_LEADER and self._cluster.tree.put_back_at >= 0
        if (
            now.leader not in (NO_LEADER, *before.isr)
            and not is_restored
            and not self._is_in_history(partition, now)
        ):
            self._violated(f"{partition}: {now.leader} was elected, the ISR was {before.isr}")
        if now.leader_epoch > before.leader_epoch and now.leader != NO_LEADER:
            self.tally.elections += 1
        if set(now.isr) != set(before.isr):
            self.tally.isr_changes += 1
            self._regained.update((member, partition) for member in set(now.isr) - set(before.isr))

    def _is_in_history(self, partition: TopicPartition, now: LeaderAndIsr) -> bool:
        """Whether a replica was in the last ISR of sufficient size, though not in the very last
        one.
        """
        node = self._cluster.tree.find(layout_odradek.isr_history_path(partition))
        if node is None:
            return False
        history = layout_odradek.decode_isr_history(partition, node.data)
        return history.partition_epoch == now.partition_epoch and now.leader not in history.isr

    def _topic(self, name: str) -> layout.TopicNode | None:
        node = self._cluster.tree.find(layout.topic_path(name))
        if node is None:
            return None
        known = self._topics.get(name)
        if known is None or known[0] is not node:  # nodes are immutable
            known = self._topics[name] = (node, layout.decode_topic(name, node.data))
        return known[1]

    def _assignment(self, partition: TopicPartition) -> Assignment | None:
        topic = self._topic(partition.topic)
        return topic.assignments.get(partition.partition) if topic is not None else None

    def _assigned(self, partition: TopicPartition) -> tuple[int, ...] | None:
        assignment = self._assignment(partition)
        return assignment.replicas if assignment is not None else None

    # ------------------------------------------------------------------- while it runs

    def probe(self) -> None:
        """Check the running brokers."""
        held = {
            broker.id: {p.topic_partition: p for p in broker.broker.replicas}
            for broker in self._cluster.brokers
            if broker.broker is not None
        }
        for broker in self._cluster.brokers:
            for partition in held.get(broker.id, {}).values():
                if (leader := partition.leader) is not None:
                    self._look_at_leader(broker, partition, leader)
        for name, state in self._stored.items():
            self._look_at_isr(name, state.leader_and_isr, held)
        self._forget_losses(held)

    def _look_at_leader(
        self, broker: SimulatedBroker, partition: HeldPartition, leader: LeaderReplica
    ) -> None:
        leader_epoch = (
            partition.topic_id,
            partition.topic_partition.partition,
            partition.leader_epoch,
        )
        process = broker.id, broker.starts
        if self._leaders.setdefault(leader_epoch, process) != process:
            self._violated(
                f"{partition.topic_partition}: epoch {partition.leader_epoch} is led by (broker, "
                f"process) {process}, and by {self._leaders[leader_epoch]}"
            )
        before = self._high_watermarks.get(leader_epoch)
        if before is not None and leader.high_watermark < before:
            self._violated(
                f"{partition.topic_partition}: HW {before} of epoch {partition.leader_epoch} "
                f"went back to {leader.high_watermark}"
            )
        self._high_watermarks[leader_epoch] = leader.high_watermark
        facts = self._history.facts.get(leader_epoch[:2])
        stored = self._stored.get(partition.topic_partition)
        is_present = (
            stored is not None and stored.leader_and_isr.leader_epoch == partition.leader_epoch
        )
        if before is None and is_present and facts is not None:
            committed = max(facts.at, default=-1)
            leo = partition.log.leo if partition.log is not None else 0
            if leo <= committed and not facts.topic.is_doomed:
                self._violated(
                    f"{partition.topic_partition}: {broker.name} leads epoch "
                    f"{partition.leader_epoch} and ends at {leo}; {committed} was committed"
                )

    def _look_at_isr(
        self,
        name: TopicPartition,
        stored: LeaderAndIsr,
        held: Mapping[int, Mapping[TopicPartition, HeldPartition]],
    ) -> None:
        leading = held.get(stored.leader, {}).get(name)
        if leading is None or leading.leader is None or leading.leader_epoch != stored.leader_epoch:
            return
        high_watermark = leading.leader.high_watermark
        for member in stored.isr:
            follower = held.get(member, {}).get(name)
            if follower is None or follower.log is None or self._may_lack(member, name):
                continue
            if follower.topic_id == leading.topic_id and follower.log.leo < high_watermark:
                self._violated(
                    f"{name}: broker {member} is in the ISR {stored.isr} and ends at "
                    f"{follower.log.leo}; the HW is {high_watermark}"
                )

    def _may_lack(self, broker: int, name: TopicPartition) -> bool:
        """Whether a broker may lack committed records after a loss, until it is in the ISR
        again.
        """
        return broker in self._cluster.lossy and (broker, name) not in self._regained

    def put_back(self, broker: int, logs: Iterable[LogOnDisk]) -> None:
        """These logs are those of a backup: also of topics and replicas that are deleted since."""
        self.lost_records(broker)
        for log in logs:
            known = UUID(bytes=log.topic_id) if log.topic_id else None
            self._left[broker, log.partition, known] = True

    def lost_records(self, broker: int) -> None:
        """Records of this broker are lost: those not flushed, or those since a backup."""
        self._regained = {regained for regained in self._regained if regained[0] != broker}

    @contextmanager
    def watching_fetches(self) -> Iterator[None]:
        """Within the block, check each follower fetch that advances a high watermark."""
        before = HeldPartition.follower_fetched

        def fetched(partition: HeldPartition, follower: int, *rest: Any) -> Any:
            leader = partition.leader
            high_watermark = leader.high_watermark if leader is not None else 0
            wanted = before(partition, follower, *rest)
            if leader is not None and leader.high_watermark > high_watermark:
                self._look_at_fetch(partition, follower, leader.high_watermark)
            return wanted

        HeldPartition.follower_fetched = fetched  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            HeldPartition.follower_fetched = before  # type: ignore[method-assign]

    def _look_at_fetch(self, leading: HeldPartition, follower: int, high_watermark: int) -> None:
        name = leading.topic_partition
        stored, running = self._stored.get(name), self._cluster.brokers[follower].broker
        held = running.replicas.get(*name) if running is not None else None
        if (
            stored is not None
            and stored.leader_and_isr.leader_epoch == leading.leader_epoch
            and follower in stored.leader_and_isr.isr
            and held is not None
            and held.log is not None
            and held.topic_id == leading.topic_id
            and held.log.leo < high_watermark
            and not self._may_lack(follower, name)
        ):
            self._violated(
                f"{name}: a fetch of broker {follower} moved the HW to {high_watermark}; "
                f"its log ends at {held.log.leo}"
            )

    def _forget_losses(self, held: Mapping[int, Mapping[TopicPartition, HeldPartition]]) -> None:
        """A broker that lost records has every record again once it is in sync everywhere."""
        for broker_id in sorted(self._cluster.lossy - self._cluster.losing):
            broker = self._cluster.brokers[broker_id]
            if broker.state is ProcessState.RUNNING and self._is_whole(broker_id, held):
                self._cluster.lossy.discard(broker_id)

    def _is_whole(
        self, broker_id: int, held: Mapping[int, Mapping[TopicPartition, HeldPartition]]
    ) -> bool:
        own = held.get(broker_id, {})
        for name, state in self._stored.items():
            stored = state.leader_and_isr
            if broker_id not in (self._assigned(name) or ()):
                continue
            leading, mine = held.get(stored.leader, {}).get(name), own.get(name)
            if (
                broker_id not in stored.isr
                or len(stored.isr) < 2
                or leading is None
                or leading.leader is None
                or leading.leader_epoch != stored.leader_epoch
                or mine is None
                or mine.leader_epoch != stored.leader_epoch
                or mine.log is None
                or mine.log.leo < leading.leader.high_watermark
            ):
                return False
        return True

    def leading(self) -> Iterator[HeldPartition]:
        """The partitions at their stored leaders, if these lead already."""
        for name, state in self._stored.items():
            stored = state.leader_and_isr
            running = self._cluster.brokers[stored.leader].broker if stored.leader >= 0 else None
            held = running.replicas.get(*name) if running is not None else None
            if held is None or held.leader is None or held.leader_epoch != stored.leader_epoch:
                continue
            facts = self._history.facts.get((held.topic_id, name.partition))
            if facts is None or not facts.topic.is_doomed:
                yield held

    # ------------------------------------------------------------------------ at the end

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._stored)

    def unsettled(self) -> list[str]:
        """Partitions whose ISR or reassignment is incomplete after all faults have healed."""
        found = []
        for name, state in self._stored.items():
            stored, assignment = state.leader_and_isr, self._assignment(name)
            if assignment is None:
                continue
            if set(stored.isr) != set(assignment.replicas):
                found.append(f"{name}: ISR {stored.isr} of {assignment.replicas}")
            elif assignment.is_being_reassigned:
                found.append(f"{name}: {assignment} does not complete")
        return sorted(found)

    def misplaced(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> list[str]:
        """Partitions whose replicas are not the requested ones."""
        return [
            f"{name}: {self._assignment(name)} instead of {target}"
            for name, target in sorted(targets.items())
            if self._assigned(name) != target
        ]

    def badly_led(self) -> list[str]:
        """Partitions whose leader is not the preferred replica."""
        return [
            f"{name}: {state.leader_and_isr.leader} of {assigned} leads"
            for name, state in sorted(self._stored.items())
            if (assigned := self._assigned(name)) and state.leader_and_isr.leader != assigned[0]
        ]

    def end(self) -> None:
        """After all faults have healed and clients are idle: the replicas are equal."""
        pictures = [(broker, fullest(read_disk(broker.disk))) for broker in self._cluster.brokers]
        for (topic_id, index), facts in self._history.facts.items():
            if facts.topic.is_doomed or facts.topic.replicas == 1:
                continue
            name = TopicPartition(facts.topic.name, index)
            found = [
                (broker, picture)
                for broker, of_broker in pictures
                if broker.id
                in (self._assigned(name) or ())  # others may not have received StopReplica
                and (picture := of_broker.get(name)) is not None
                and picture.topic_id == topic_id
            ]
            self._compare_replicas(facts, found)

    def _compare_replicas(
        self, facts: Facts, found: list[tuple[SimulatedBroker, LogOnDisk]]
    ) -> None:
        start = max((picture.start for _, picture in found), default=0)
        # Below the log start offsets, anything may be left.
        start = max(start, *(_log_start(broker, facts) for broker, _ in found), 0)
        contents: dict[object, list[str]] = {}
        ends = {}
        for broker, picture in found:
            kept = tuple(batch for batch in picture.batches if batch.base_offset >= start)
            contents.setdefault((picture.end, kept), []).append(broker.name)
            ends[broker.name] = picture.end
        if len(contents) > 1:
            self._violated(f"{facts}: the replicas differ at the end: they end at {ends}")
        for broker, picture in found:
            there = dict(_records(picture))
            for offset, key in facts.at.items():
                if offset >= start and there.get(offset) != key:
                    self._violated(
                        f"{facts} at {offset}: {broker.name} has {there.get(offset)!r} at the end; "
                        f"{key!r} was committed"
                    )
                    break


def _log_start(broker: SimulatedBroker, facts: Facts) -> int:
    running = broker.broker
    held = running.replicas.get(facts.topic.name, facts.index) if running is not None else None
    return held.log.log_start_offset if held is not None and held.log is not None else 0


def _records(picture: LogOnDisk) -> Iterator[tuple[int, bytes | None]]:
    for batch in picture.batches:
        yield from enumerate(batch.keys, batch.base_offset)
