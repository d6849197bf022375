"""Why: every decision of the controller, with what caused it.

A `Decision` is part of the controller's output, not of its logging: the shell stamps it with
the time, keeps it in a ring and writes the state-change log from it, and `odradek why`
answers from it. So a decision without a cause cannot be made: `Proposal` asks for one.
"""

from dataclasses import dataclass
from enum import Enum

from odradek.model.partition import LeaderAndIsr, TopicPartition


class CauseKind(Enum):
    """What may move the controller, as the beginning of a sentence."""

    CONTROLLER_ELECTED = "a controller was elected"
    BROKER_STARTED = "broker started"
    BROKER_FAILED = "broker went away"
    BROKER_OUTLIVED = "its registration is a newer one"
    BROKER_LEAVING = "controlled shutdown"
    LOG_DIR_FAILED = "a log dir failed"
    LOG_DIR_REPAIRED = "a log dir serves again"
    TOPIC_CREATED = "the topic was created"
    PARTITIONS_ADDED = "partitions were added"
    TOPIC_DELETED = "deletion was asked for"
    LEADER_ASKED = "its leader asked for it"
    ELECTION_ASKED = "an election was asked for"
    REASSIGNMENT_ASKED = "a reassignment was asked for"
    REASSIGNMENT_BY_NODE = "a reassignment was asked for in /admin/reassign_partitions"
    REASSIGNMENT_CAUGHT_UP = "its new replicas have caught up"
    ELECTION_BY_NODE = "an election was asked for in /admin/preferred_replica_election"
    LEADERS_CHECKED = "it was time to look who leads what"
    LEADERS_IMBALANCED = "others led too much of what this broker should lead"
    UNCLEAN_ALLOWED = "unclean election was allowed"


@dataclass(frozen=True, slots=True)
class Cause:
    """What moved the controller, and which brokers had their part in it."""

    kind: CauseKind
    brokers: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.brokers:
            return self.kind.value
        return f"{self.kind.value}: {', '.join(map(str, self.brokers))}"


class Verdict(Enum):
    """What was decided."""

    LEADER_ELECTED = "leader elected"
    LEADER_ELECTED_UNCLEAN = "leader elected from outside the ISR"
    LEFT_WITHOUT_LEADER = "left without a leader"
    ISR_CHANGED = "ISR changed"
    EPOCH_RAISED = "all are told its replicas"
    BROKER_JOINED = "broker joined"
    BROKER_GONE = "broker gone"
    BROKER_FENCED = "broker fenced"
    REASSIGNMENT_STARTED = "reassignment started"
    REASSIGNMENT_RESUMED = "reassignment goes on"
    REASSIGNMENT_CANCELLED = "reassignment cancelled"
    REASSIGNMENT_COMPLETED = "reassignment completed"
    REASSIGNMENT_REFUSED = "reassignment refused"
    ELECTION_REFUSED = "election refused"
    IMBALANCE_TOLERATED = "others go on leading what it should lead"
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
