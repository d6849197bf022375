"""Why: every decision of the controller, with what caused it.

A `Decision` is part of the controller's output, not of its logging: the shell adds the time, keeps
it in a ring and writes it to the state-change log, and `odradek why` answers from it. A decision
without a cause cannot be made: `Proposal` requires one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from odradek.model.partition import LeaderAndIsr, TopicPartition


class CauseKind(Enum):
    """What may move the controller, as a sentence; {brokers} are those of the cause."""

    CONTROLLER_ELECTED = "a controller was elected"
    BROKER_STARTED = "{brokers} started"
    BROKER_FAILED = "{brokers} went offline"
    BROKER_OUTLIVED = "{brokers} registered anew"
    BROKER_LEAVING = "{brokers} began to shut down"
    STORE_RESTORED = "the coordination store was put back to an earlier state"
    LOGS_LOST = "{brokers} registered with an empty log directory"
    LOGS_PUT_BACK = "{brokers} registered with an older copy of the log directories"
    LOG_DIR_FAILED = "a log directory of {brokers} failed"
    LOG_DIR_REPAIRED = "a log directory of {brokers} serves again"
    TOPIC_CREATED = "the topic was created"
    PARTITIONS_ADDED = "partitions were added"
    TOPIC_DELETED = "deletion was asked for"
    LEADER_ASKED = "its leader, {brokers}, asked for it"
    ELECTION_ASKED = "an election was asked for"
    REASSIGNMENT_ASKED = "a reassignment was asked for"
    REASSIGNMENT_BY_NODE = "a reassignment was asked for in /admin/reassign_partitions"
    REASSIGNMENT_CAUGHT_UP = "its new replicas have caught up"
    ELECTION_BY_NODE = "an election was asked for in /admin/preferred_replica_election"
    LEADERS_CHECKED = "the periodic check for preferred leaders ran"
    LEADERS_IMBALANCED = "{brokers} led too few of the partitions that prefer it"
    UNCLEAN_ALLOWED = "unclean election was allowed"


def named_brokers(ids: Sequence[int]) -> str:
    """`broker 1`, `brokers 1 and 2`, `brokers 1, 2 and 3`."""
    if len(ids) < 2:
        return f"broker {ids[0]}" if ids else "a broker"
    return f"brokers {', '.join(map(str, ids[:-1]))} and {ids[-1]}"


@dataclass(frozen=True, slots=True)
class Cause:
    """What moved the controller, and which brokers had their part in it."""

    kind: CauseKind
    brokers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.kind.value.format(brokers=named_brokers(self.brokers))


class Verdict(Enum):
    """The kinds of decisions, with their texts in the state-change log."""

    LEADER_ELECTED = "leader elected"
    LEADER_ELECTED_UNCLEAN = "leader elected from outside the ISR"
    LEFT_WITHOUT_LEADER = "left without a leader"
    ISR_CHANGED = "ISR changed"
    EPOCH_RAISED = "replicas announced in a new leader epoch"
    BROKER_JOINED = "broker joined"
    BROKER_GONE = "broker offline"
    BROKER_EMPTY = "its replicas are copied anew"
    BROKER_FENCED = "broker fenced"
    REASSIGNMENT_STARTED = "reassignment started"
    REASSIGNMENT_RESUMED = "reassignment resumed"
    REASSIGNMENT_CANCELLED = "reassignment cancelled"
    REASSIGNMENT_COMPLETED = "reassignment completed"
    REASSIGNMENT_REFUSED = "reassignment refused"
    ELECTION_REFUSED = "election refused"
    IMBALANCE_TOLERATED = "leaders stay where they are"
    PREFERRED_WAITS = "the preferred replica does not lead yet"
    DELETION_STARTED = "deletion started"
    DELETION_HALTED = "deletion halted"
    DELETION_REFUSED = "deletion refused"
    TOPIC_DELETED = "topic deleted"


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the journal: what, about which partition, topic or broker, and why."""

    verdict: Verdict
    subject: TopicPartition | str | int
    cause: Cause
    before: LeaderAndIsr | None = None
    after: LeaderAndIsr | None = None
    detail: str = ""

    def __str__(self) -> str:
        what = f"{self.subject}: {self.verdict.value}"
        if self.after is not None:
            isr = ",".join(map(str, self.after.isr))
            what += f" (leader {self.after.leader}, epoch {self.after.leader_epoch}, ISR {isr})"
        detail = f" [{self.detail}]" if self.detail else ""
        return f"{what} because {self.cause}{detail}"
