"""What the stories are about: titles, introductions and the files whose code they show."""

from typing import Final

from odradek.web.stories.values import Story

_LOG: Final = "log/leader_epochs.py"
_FETCHER: Final = "broker/replication/replica_fetcher.py"


def _story(name: str, title: str, introduction: str, *files: str) -> Story:
    return Story(name=name, title=title, introduction=" ".join(introduction.split()), files=files)


STORIES: Final = (
    _story(
        "high-watermark",
        "How the high watermark moves",
        """A record is committed when every in-sync replica has it. The leader learns that from the
        offset at which a follower fetches next, and moves the high watermark. The followers get
        the new value with a later fetch response, so theirs is behind the leader's.""",
        "replica/leader.py",
        "broker/replication/partition.py",
        _FETCHER,
    ),
    _story(
        "truncation",
        "Why a follower truncates by leader epoch",
        """A leader that fails may have records that no other replica has. When it returns as a
        follower, it sends the leader epoch of its last record with its fetch. The leader
        answers where that epoch ends in its own log, and the follower truncates to that offset
        (KIP-101, KIP-595), not to its high watermark, which is often too low.""",
        "replica/follower.py",
        _LOG,
        _FETCHER,
    ),
    _story(
        "isr",
        "The ISR shrinks, and a replica returns",
        """A follower that has not caught up for replica.lag.time.max.ms holds back the high
        watermark, until the leader asks the controller for an ISR without it. When it has the
        leader's log again, the leader asks for an ISR with it.""",
        "replica/isr.py",
        "broker/replication/isr_shell.py",
        "controller/handlers/isr.py",
    ),
    _story(
        "min-isr",
        "Too few replicas in sync",
        """With min.insync.replicas=2 and one replica in sync, a produce request with acks=all is
        refused. With acks=1 it is accepted, but the high watermark does not move (KIP-966), so
        no consumer reads the record before a second replica has it.""",
        "replica/leader.py",
        "broker/apis/produce.py",
    ),
    _story(
        "leader-failover",
        "The leader is killed",
        """The session of the broker in the coordination store ends. The controller elects the
        first registered replica of the ISR in the order of the assignment, and the next leader
        epoch begins. The former leader returns as a follower.""",
        "controller/election.py",
        "controller/handlers/brokers.py",
        "replica/transitions.py",
    ),
    _story(
        "unclean-election",
        "Clean and unclean election",
        """Only one replica is in sync, and its broker fails. With
        unclean.leader.election.enable=false the partition stays without a leader until that
        broker is back. With true, a replica from outside the ISR leads, and records that were
        acknowledged are lost.""",
        "controller/election.py",
        "controller/partition_machine.py",
    ),
    _story(
        "preferred-leader",
        "Preferred leaders",
        """The first assigned replica is the preferred leader. After a restart of its broker
        another one leads. A preferred election gives the leadership back, if the preferred
        replica is in sync; the controller also does it by itself
        (auto.leader.rebalance.enable).""",
        "controller/election.py",
        "controller/handlers/preferred_leader.py",
    ),
    _story(
        "controlled-shutdown",
        "A controlled shutdown",
        """A broker that is stopped asks the controller to move its leaderships first. So another
        broker leads before this one closes its connections, and clients wait only for new
        metadata.""",
        "broker/controlled_shutdown.py",
        "controller/handlers/controlled_shutdown.py",
    ),
    _story(
        "controller-failover",
        "The controller's failover",
        """The controller is the broker that has created the node /controller. Partitions serve
        clients without it. When its session ends, another broker creates the node, with the
        next controller epoch, and handles what happened in between.""",
        "broker/controller/election.py",
        "controller/controller.py",
    ),
    _story(
        "reassignment",
        "A reassignment with a throttle",
        """The target and the former replicas are assigned together until the new ones are in sync;
        then the former ones are removed. A throttle limits the bytes per second that throttled
        replicas fetch, so that clients are not slowed down.""",
        "controller/handlers/reassignment.py",
        "replica/throttle.py",
    ),
    _story(
        "deletion",
        "A deletion that waits",
        """A topic is removed from the coordination store after all its replicas are deleted. If a
        broker with a replica is offline, the deletion is halted until that broker registers
        again.""",
        "controller/handlers/topic_deletion.py",
    ),
    _story(
        "placement",
        "Replica placement with and without racks",
        """With broker.rack, the replicas of a partition are placed in as many racks as possible.
        Without it, brokers that share a power supply may have all replicas of a partition. Here
        the power supply of brokers 0 and 2 fails.""",
        "placement/assign.py",
        "placement/assign_rack_aware.py",
    ),
    _story(
        "rebalance",
        "A rebalance, eager and cooperative",
        """When a member joins, an eager assignor makes every member give up all its partitions
        first. A cooperative one lets members keep reading, and takes away only what another
        member gets, which takes a second rebalance (KIP-429).""",
        "group/machine.py",
        "group/membership.py",
        "client/group/assignors.py",
        "client/consumer/coordinator.py",
    ),
    _story(
        "commits",
        "Commits, and what they lose or repeat",
        """A group's committed offset says where the next member goes on. If it is committed before
        the records are processed, a crash loses records (at most once). If it is committed
        afterwards, a crash repeats some (at least once).""",
        "group/commits.py",
        "client/consumer/consumer.py",
    ),
    _story(
        "positions",
        "Where a consumer begins",
        """A consumer without a committed offset begins where auto.offset.reset says: at the log
        start offset, at the high watermark, or not at all. The same decides again when a
        position is out of range, because its records were deleted.""",
        "client/consumer/subscription.py",
        "client/consumer/fetcher.py",
    ),
    _story(
        "idempotent-producer",
        "A retry of an idempotent producer",
        """A producer that gets no response does not know whether its batch is written, and sends
        it again. With idempotence the batch has a producer id and a sequence number, by which
        the leader recognises it. Without it, the records are in the log twice.""",
        "log/producer_state.py",
        "client/producer/sender.py",
    ),
    _story(
        "transaction",
        "A transaction and its markers",
        """Records of a transaction are in the log at once. The last stable offset stays at the
        first of them until the coordinator has written a commit or an abort marker, so
        read_committed consumers wait. After an abort they skip the records.""",
        "txn/machine.py",
        "broker/coordinators/txn_markers.py",
        "log/producer_state.py",
        "log/index/transactions.py",
    ),
    _story(
        "fenced-producer",
        "A producer that is fenced",
        """A transactional id outlives a process. When another process starts with the same id, the
        coordinator raises the producer epoch and aborts the open transaction. What the first
        process tries afterwards is refused.""",
        "txn/machine.py",
        "txn/transaction.py",
    ),
    _story(
        "historic-hw-truncation",
        "Historic: truncation to the high watermark",
        """Up to 0.10 a follower truncated its log to its own high watermark whenever it got a new
        leader epoch. A record that the leader had committed could be above it. If that follower
        was elected next, the record was lost (KIP-101).""",
        "replica/follower.py",
        _LOG,
        _FETCHER,
    ),
    _story(
        "historic-one-step-truncation",
        "Historic: truncation by leader epoch in one step",
        """From 0.11 to 1.1 the leader answered only where an epoch ends. If it did not have that
        epoch at all, leader and follower could keep different records at the same offsets
        (KIP-279).""",
        "replica/follower.py",
        "broker/replication/fetching.py",
    ),
    _story(
        "historic-unfenced-truncation",
        "Historic: logs compared once for each leader epoch",
        """In 2.0 a follower compared its log with the leader's once, when it began to follow. If
        it missed a leader in between, nothing compared the logs again (KIP-320). Since 2.7 each
        fetch names the epoch of the follower's last record.""",
        _FETCHER,
        "broker/replication/fetching.py",
    ),
    _story(
        "historic-unfenced-fetch",
        "Historic: fetches without a leader epoch",
        """Up to 2.0 a fetch did not say in which leader epoch the follower was. A leader that had
        missed its replacement took such a fetch as proof that the follower has its records, and
        acknowledged a record that was lost later (KAFKA-7128, KIP-320).""",
        "broker/replication/partition.py",
        "broker/replication/fetching.py",
    ),
    _story(
        "historic-broker-epoch",
        "Historic: a request for an earlier registration",
        """Up to 2.1 a restarted broker obeyed requests that the controller had sent to its former
        process. Here it becomes leader by one, although it has lost the end of its log
        (KIP-380).""",
        "replica/transitions.py",
        "broker/controller_requests.py",
    ),
    _story(
        "historic-controller-fencing",
        "Historic: a former controller is obeyed",
        """Up to 2.1 a controller that had been replaced could still write to the coordination
        store. Here it deletes a topic that was deleted and created again meanwhile
        (KAFKA-6082).""",
        "broker/controller/election.py",
        "replica/transitions.py",
    ),
    _story(
        "historic-stored-isr",
        "Historic: the high watermark by the stored ISR",
        """A follower that the controller has added to the ISR may be elected at once. If the
        leader's high watermark waits only for the ISR that it has an answer for, it commits
        records that this follower does not have. So it waits for the maximal ISR (KIP-497).""",
        "replica/isr.py",
        "replica/leader.py",
    ),
    _story(
        "historic-min-isr",
        "Historic: the high watermark below min.insync.replicas",
        """Up to 3.6 the high watermark moved although fewer than min.insync.replicas replicas were
        in sync. Consumers could read a record that a power loss of one broker removed
        (KIP-966).""",
        "replica/leader.py",
    ),
    _story(
        "historic-lso",
        "A mistake: the last stable offset is one too high",
        """If the last stable offset is behind the first record of an open transaction instead of
        at it, a read_committed consumer reads a record that may be aborted. Kafka never had
        this mistake; Jepsen found it in Redpanda in 2021.""",
        "log/log.py",
        "log/producer_state.py",
    ),
)


def find(name: str) -> Story | None:
    """The story of this name; None if there is none."""
    return next((story for story in STORIES if story.name == name), None)
