"""The partition state machine: which partitions have a leader, and which replica it is.

It decides by the rules of `election`, gathers proposals for the store (`propose`, `store`), and
enters another state only when the store has accepted it (`stored`): then, and never before, the
leader is sent to the brokers. A proposal that is refused because another client wrote first - a
leader that shrank its ISR just before it failed - is decided again on the state that is stored.

If only an unclean election can give a partition a leader, the topic's configuration is read first:
it is not part of the context.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never

from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import AskUnclean, Effect, ReadLogEnds, Resign, StoreStates
from odradek.controller.election import (
    elect_first,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_preferred,
    elect_when_offline,
)
from odradek.controller.events import LogEndsRead
from odradek.controller.isr_history import IsrHistory, LogEnd, choose, next_history
from odradek.controller.proposals import (
    NO_VERSION,
    Accepted,
    Conflicting,
    Outcome,
    Proposal,
    Purpose,
    StoredState,
)
from odradek.controller.request_batch import RequestBatch
from odradek.controller.states import PartitionState, ReplicaState
from odradek.model.partition import (
    NO_LEADER,
    RECOVERING,
    LeaderAndIsr,
    TopicPartition,
)

# Sent by UpdateMetadata only: the leader requested it, or the replicas get StopReplica.
_QUIET: Final = frozenset({Purpose.LEADER_REQUEST, Purpose.DELETION})


class PartitionMachine:
    """All partitions of the cluster: elections, and what becomes of them."""

    def __init__(self, context: ControllerContext, batch: RequestBatch) -> None:
        self._context = context
        self._batch = batch
        self._proposals: list[Proposal] = []
        self._may_need_unclean: dict[TopicPartition, Cause] = {}
        self._asked: set[str] = set()  # topics: whether they allow it
        # All registered in-sync replicas restarted, and not after a clean stop.
        self._may_have_lost: dict[TopicPartition, Cause] = {}
        self._asked_ends: dict[TopicPartition, dict[int, int]] = {}  # broker epoch of each replica
        self._moving: dict[TopicPartition, None] = {}  # changed while being reassigned
        self.unclean_elections = 0

    # --------------------------------------------------------------------- deciding

    def bring_online(self, partition: Partition, cause: Cause) -> None:
        """Elect a leader if there is none; by which rule depends on the partition's past."""
        if partition.state is PartitionState.NEW:
            self.propose(partition, Purpose.FIRST_LEADER, cause)
        elif partition.state is PartitionState.OFFLINE:
            self.propose(partition, Purpose.OFFLINE_ELECTION, cause)

    def propose(self, partition: Partition, purpose: Purpose, cause: Cause) -> bool:
        """Decide by the rule of this purpose; whether there is something to be stored."""
        proposed = self._decide(partition, purpose, cause)
        if proposed is None:
            return False
        self._add(partition, proposed, purpose, cause)
        return True

    def request(self, partition: Partition, wanted: LeaderAndIsr, cause: Cause) -> None:
        """Propose the state that a leader requested, after it was found valid."""
        self._add(partition, wanted, Purpose.LEADER_REQUEST, cause)

    def _add(
        self, partition: Partition, proposed: LeaderAndIsr, purpose: Purpose, cause: Cause
    ) -> None:
        history = self._next_history(partition, proposed)
        self._proposals.append(Proposal(partition.name, proposed, purpose, cause, history))

    def _next_history(self, partition: Partition, proposed: LeaderAndIsr) -> IsrHistory | None:
        """The ISR history to be written with this state; None if it needs none."""
        stored, leads = partition.leader_and_isr, proposed.leader != NO_LEADER
        is_critical = len(proposed.isr) == 1 or not leads
        if len(partition.assignment.replicas) < 2 or not (
            is_critical and self._context.keeps_history
        ):
            return None
        left, isr = next_history(
            before=partition.valid_history,
            isr_before=stored.isr if stored else (),
            isr=proposed.isr,
            transaction_id=partition.modified_id,
            leads=leads,
        )
        epoch = self._context.controller_epoch
        return IsrHistory(proposed.partition_epoch + 1, epoch, left=left, isr=isr)

    def store(self) -> list[Effect]:
        """Everything decided on since the last time, as one step."""
        effects: list[Effect] = []
        if self._proposals:
            effects.append(StoreStates(tuple(self._proposals)))
            self._proposals = []
        unasked = {name.topic for name in self._may_need_unclean} - self._asked
        if unasked:
            self._asked |= unasked
            effects.append(AskUnclean(tuple(sorted(unasked))))
        doubtful = sorted(self._may_have_lost.keys() - self._asked_ends.keys())
        if doubtful:
            brokers = self._context.brokers
            asked = {name: self._online(name) for name in doubtful}
            for name, replicas in asked.items():
                self._asked_ends[name] = {r: brokers[r].broker_epoch for r in replicas}
            effects.append(ReadLogEnds(asked))
        return effects

    def _online(self, name: TopicPartition) -> tuple[int, ...]:
        partition = self._context.partition(name)
        return self._context.online_replicas(partition) if partition is not None else ()

    def log_ends_read(self, event: LogEndsRead) -> list[Effect]:
        """The answer to `ReadLogEnds`: elect by it, wait for a broker, or give up for now."""
        for name, reported in event.ends.items():
            # A broker that restarted after it responded may have lost the end that it reported.
            asked, brokers = self._asked_ends.pop(name, {}), self._context.brokers
            ends = {
                replica: end
                for replica, end in reported.items()
                if replica in brokers and brokers[replica].broker_epoch == asked.get(replica)
            }
            cause = self._may_have_lost.pop(name, None)
            partition = self._context.partition(name)
            if (
                cause is not None
                and partition is not None
                and partition.state is PartitionState.OFFLINE
                and not self._context.is_being_deleted(name)
            ):
                isr_min = event.isr_min.get(name.topic, 1)
                self._elect_by_logs(partition, ends, isr_min=isr_min, cause=cause)
        return self.store()

    def _elect_by_logs(
        self,
        partition: Partition,
        ends: Mapping[int, LogEnd],
        *,
        isr_min: int,
        cause: Cause,
    ) -> None:
        stored, context = partition.stored, self._context
        live = context.electable(partition)
        if any(r in stored.isr and r not in context.doubtful(partition) for r in live):
            self.propose(partition, Purpose.OFFLINE_ELECTION, cause)
            return
        emptied, put_back = context.emptied(partition, ends), context.put_back(partition)
        if context.is_outdated(partition):
            self._elect_by_all_logs(partition, ends, isr_min=isr_min)
            return
        lost = tuple(replica for replica in stored.isr if replica in emptied)
        older = tuple(replica for replica in stored.isr if replica in put_back - emptied)
        if lost or older:
            kind = CauseKind.LOGS_LOST if lost else CauseKind.LOGS_PUT_BACK
            cause = Cause(kind, lost or older)
        chosen = choose(
            ends={replica: end for replica, end in ends.items() if replica in live},
            isr=stored.isr,
            history=partition.valid_history,
            sound=[replica for replica in live if context.is_sound(partition, replica)],
            isr_min=isr_min,
            assigned=partition.assignment.replicas,
            emptied=emptied,
            put_back=put_back,
        )
        self._elect_chosen(partition, ends, chosen, cause=cause)

    def _elect_by_all_logs(
        self, partition: Partition, ends: Mapping[int, LogEnd], *, isr_min: int
    ) -> None:
        """Elect where the stored ISR is that of a backup, and so is its history.

        Committed records are on `isr_min` of the replicas, whichever these are. So many replicas
        have to answer that one of these is among them.
        """
        assigned, live = partition.assignment.replicas, self._context.electable(partition)
        chosen = choose(
            ends={replica: end for replica, end in ends.items() if replica in live},
            isr=assigned,
            history=None,
            sound=(),
            isr_min=max(1, len(assigned) - isr_min + 1),
            assigned=assigned,
            emptied=self._context.emptied(partition, ends),
            put_back=self._context.put_back(partition),
        )
        cause = Cause(CauseKind.STORE_RESTORED)
        self._elect_chosen(partition, ends, chosen, cause=cause)

    def _elect_chosen(
        self,
        partition: Partition,
        ends: Mapping[int, LogEnd],
        chosen: int | None,
        *,
        cause: Cause,
    ) -> None:
        stored, live = partition.stored, self._context.electable(partition)
        if chosen is not None:
            elected = stored.led_by(chosen, (chosen,))
            lost = self._context.emptied(partition, ends) | self._context.put_back(partition)
            if lost.issuperset(stored.isr) and chosen not in stored.isr:
                elected = replace(elected, leader_recovery_state=RECOVERING)  # some is lost
            self._add(partition, elected, Purpose.LAST_REPLICA_ELECTION, cause)
        elif set(live) <= ends.keys():
            self._may_need_unclean[partition.name] = cause  # the others are not there
        else:
            self._may_have_lost[partition.name] = cause  # they have not answered: once more

    def unclean_allowed(self, topics: Mapping[str, bool]) -> list[Effect]:
        """The answer to `AskUnclean`: elect from outside the ISR, or give up for now."""
        self._asked -= topics.keys()
        answered = [name for name in self._may_need_unclean if name.topic in topics]
        for name in answered:
            cause = self._may_need_unclean.pop(name)
            partition = self._context.present(name)
            stored = partition.stored
            allowed = topics[name.topic]
            purpose = Purpose.UNCLEAN_ELECTION if allowed else Purpose.OFFLINE_ELECTION
            proposed = self._elect_unclean(partition, stored) if allowed else _leaderless(stored)
            if proposed is not None:
                self._add(partition, proposed, purpose, cause)
        return self.store()

    def _decide(self, partition: Partition, purpose: Purpose, cause: Cause) -> LeaderAndIsr | None:
        stored = partition.leader_and_isr
        if stored is None:
            return self._first(partition) if purpose is Purpose.FIRST_LEADER else None
        proposed: LeaderAndIsr | None = None
        match purpose:
            case Purpose.FIRST_LEADER | Purpose.OFFLINE_ELECTION | Purpose.LAST_REPLICA_ELECTION:
                proposed = self._elect_when_offline(partition, stored, cause)
            case Purpose.UNCLEAN_ELECTION:
                proposed = self._elect_unclean(partition, stored)
            case (
                Purpose.PREFERRED_ELECTION
                | Purpose.SHUTDOWN_ELECTION
                | Purpose.REASSIGNMENT_ELECTION
            ):
                proposed = self._move_leader(partition, stored, purpose)
            case Purpose.NEW_ASSIGNMENT:
                proposed = stored.led_by(stored.leader, stored.isr)
            case Purpose.SHRINK:
                proposed = self._shrink(partition, stored)
            case Purpose.DELETION:
                proposed = _leaderless(stored)
            case Purpose.LEADER_REQUEST:
                pass  # refused: its leader has to ask again, knowing what stands there
            case _:
                assert_never(purpose)
        return proposed

    def _first(self, partition: Partition) -> LeaderAndIsr | None:
        live = self._context.electable(partition)
        elected = elect_first(assigned=partition.assignment.replicas, live=live)
        if elected is None:
            return None
        leader, isr = elected
        return LeaderAndIsr(leader=leader, leader_epoch=0, isr=isr, partition_epoch=NO_VERSION)

    def _elect_when_offline(
        self, partition: Partition, stored: LeaderAndIsr, cause: Cause
    ) -> LeaderAndIsr | None:
        live = self._context.electable(partition)
        doubtful = self._context.doubtful(partition)
        elected = elect_when_offline(
            assigned=partition.assignment.replicas,
            isr=stored.isr,
            live=[replica for replica in live if replica not in doubtful],
            unclean_allowed=False,
        )
        if elected is not None:
            return stored.led_by(*elected)
        if doubtful:
            self._may_have_lost[partition.name] = cause
            return None
        if live:
            self._may_need_unclean[partition.name] = cause
            return None
        return _leaderless(stored)

    def _elect_unclean(self, partition: Partition, stored: LeaderAndIsr) -> LeaderAndIsr | None:
        assignment = partition.assignment
        elected = elect_when_offline(
            # A replica that is being added may have no records yet: it comes last.
            assigned=(*assignment.origin, *assignment.adding),
            isr=stored.isr,
            live=self._context.electable(partition),
            unclean_allowed=True,
        )
        if elected is None:
            return None
        begun = stored.led_by(*elected)
        if elected.leader in stored.isr:
            return begun
        return replace(begun, leader_recovery_state=RECOVERING)

    def _move_leader(
        self, partition: Partition, stored: LeaderAndIsr, purpose: Purpose
    ) -> LeaderAndIsr | None:
        assigned, doubtful = partition.assignment.replicas, self._context.doubtful(partition)
        live = tuple(r for r in self._context.electable(partition) if r not in doubtful)
        if purpose is Purpose.PREFERRED_ELECTION:
            elected = elect_preferred(assigned=assigned, isr=stored.isr, live=live)
        elif purpose is Purpose.REASSIGNMENT_ELECTION:
            target = partition.assignment.target
            elected = elect_for_reassignment(target=target, isr=stored.isr, live=live)
        else:
            leaving = self._context.shutting_down
            elected = elect_for_shutdown(
                assigned=assigned, isr=stored.isr, live=live, shutting_down=leaving
            )
        if elected is None or elected.leader == stored.leader:
            return None
        return stored.led_by(*elected)

    def _shrink(self, partition: Partition, stored: LeaderAndIsr) -> LeaderAndIsr | None:
        offline = (ReplicaState.OFFLINE, None)  # None: it is no replica any more
        isr = tuple(r for r in stored.isr if partition.replicas.get(r) not in offline)
        if isr == stored.isr or stored.leader not in isr:
            return None
        return stored.led_by(stored.leader, isr)

    def check_settled(self) -> None:
        """Assert that all proposals are stored, and all questions asked."""
        assert not self._proposals, self._proposals
        assert not self._may_need_unclean, self._may_need_unclean
        assert not self._asked, self._asked
        assert self._may_have_lost.keys() <= self._asked_ends.keys(), self._may_have_lost

    def take_moving(self) -> list[TopicPartition]:
        """The partitions under reassignment that have changed since this was asked last."""
        moving, self._moving = self._moving, {}
        return list(moving)

    # ----------------------------------------------------------------- what came of it

    def stored(self, outcomes: tuple[Outcome, ...]) -> list[Effect]:
        """Take in the outcomes of proposals; what was refused is decided again."""
        for outcome in outcomes:
            partition = self._context.present(outcome.proposal.partition)
            match outcome:
                case Accepted(proposal, partition_epoch):
                    accepted = replace(proposal.proposed, partition_epoch=partition_epoch)
                    self._accepted(partition, proposal, accepted)
                case Conflicting(_, None):
                    pass  # its topic was removed by hand: the watch on the topics fires
                case Conflicting(proposal, StoredState(current, controller_epoch, modified_id, _)):
                    if controller_epoch > self._context.controller_epoch:
                        return [Resign(f"{partition.name} was written in epoch {controller_epoch}")]
                    partition.modified_id = modified_id
                    self._conflicting(partition, proposal, current, controller_epoch)
        return self.store()

    def _accepted(self, partition: Partition, proposal: Proposal, accepted: LeaderAndIsr) -> None:
        before = partition.leader_and_isr
        in_epoch = proposal.purpose is Purpose.LEADER_REQUEST
        if before is not None:
            assert accepted.leader_epoch == before.leader_epoch + (not in_epoch), (before, accepted)
        partition.leader_and_isr = accepted
        partition.controller_epoch = self._context.controller_epoch
        partition.history = proposal.history
        registered = (broker.broker_epoch for broker in self._context.brokers.values())
        partition.modified_id = max(partition.modified_id, *registered, 0)
        if partition.assignment.is_being_reassigned:
            self._moving[partition.name] = None
        if proposal.purpose not in _QUIET:
            led = accepted.leader != NO_LEADER
            partition.enter(PartitionState.ONLINE if led else PartitionState.OFFLINE)
            online = self._context.online_replicas(partition)
            self._announce(partition, online, is_new=before is None)
            self._settle_replicas(partition, online)
        partition.check()
        self._batch.metadata(partition)
        self._journal(proposal, before, accepted)

    def _announce(self, partition: Partition, online: tuple[int, ...], *, is_new: bool) -> None:
        """Send LeaderAndIsr. A replica that is being added, and never was in sync, creates its log.

        One that was in sync has a log, maybe in a directory that failed. 1. ISR = {1}, replica 2
        left it, and its directory is offline. 2. Replica 2 creates an empty log in another one.
        3. Broker 1 loses its page cache: the empty log would count as all that replica 2 has.
        """
        led, history = partition.stored, partition.valid_history
        had_all = {*led.isr, *(history.left if history else ())}
        adding = [r for r in partition.assignment.adding if r in online and r not in had_all]
        if adding:
            self._batch.leader_and_isr(partition, adding, is_new=True)
        others = [replica for replica in online if replica not in adding]
        self._batch.leader_and_isr(partition, others, is_new=is_new)

    def _settle_replicas(self, partition: Partition, online: tuple[int, ...]) -> None:
        """New replicas become online, or offline until their broker registers."""
        for replica, state in partition.replicas.items():
            if state is ReplicaState.NEW:
                up = ReplicaState.ONLINE if replica in online else ReplicaState.OFFLINE
                partition.enter_replica(replica, up)

    def _conflicting(
        self, partition: Partition, proposal: Proposal, current: LeaderAndIsr, epoch: int
    ) -> None:
        assert current.partition_epoch != proposal.proposed.partition_epoch, (proposal, current)
        partition.leader_and_isr = current
        partition.controller_epoch = epoch
        if partition.state is PartitionState.NEW:
            # There was a state all the same: an earlier controller had begun this partition.
            partition.enter(PartitionState.OFFLINE)
        self.propose(partition, proposal.purpose, proposal.cause)

    def _journal(
        self, proposal: Proposal, before: LeaderAndIsr | None, accepted: LeaderAndIsr
    ) -> None:
        if proposal.purpose is Purpose.DELETION:
            return  # the topic has its own entry
        if accepted.leader == NO_LEADER:
            verdict = Verdict.LEFT_WITHOUT_LEADER
        elif (
            before is not None
            and accepted.leader not in before.isr
            and (
                proposal.purpose is not Purpose.LAST_REPLICA_ELECTION
                or accepted.leader_recovery_state == RECOVERING
            )
        ):
            verdict = Verdict.LEADER_ELECTED_UNCLEAN
            self.unclean_elections += 1
        elif before is not None and accepted.leader == before.leader:
            same = accepted.isr == before.isr
            verdict = Verdict.EPOCH_RAISED if same else Verdict.ISR_CHANGED
        else:
            verdict = Verdict.LEADER_ELECTED
        self._batch.decided(Decision(verdict, proposal.partition, proposal.cause, before, accepted))


def _leaderless(stored: LeaderAndIsr) -> LeaderAndIsr | None:
    """The state without a leader, in a new leader epoch, with the whole ISR; None if it stands."""
    return None if stored.leader == NO_LEADER else stored.led_by(NO_LEADER, stored.isr)
