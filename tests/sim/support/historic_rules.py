"""Rules by which earlier versions of Kafka replicated and lost records, each switched on again.

Each function takes pytest's `monkeypatch` and replaces the rule that holds now; the shipped code
has no option for it.
"""

import odradek.controller.handlers.isr as isr_changes
from odradek.broker import controller_requests
from odradek.broker.apis import fetch
from odradek.broker.controller.election import ControllerTerm
from odradek.broker.replication import fetching, isr_shell, replica_fetcher
from odradek.broker.replication.partition import Partition
from odradek.coord import layout
from odradek.coord.store import ANY_VERSION, Check
from odradek.log.log import Log
from odradek.log.producer_state import NO_OFFSET
from odradek.model.errors import ErrorCode
from odradek.replica.isr import Isr
from odradek.replica.leader import LeaderReplica
from odradek.wire.messages.fetch import EpochEndOffset


def _leader_compares_by(monkeypatch, divergence):
    monkeypatch.setattr(fetching, "divergence", divergence)
    monkeypatch.setattr(fetch, "divergence", divergence)


def _logs_are_compared_once_a_leader_epoch(monkeypatch):
    """As up to 2.6, where OffsetsForLeaderEpoch came before the first Fetch of a leader epoch."""
    build, follow = replica_fetcher.fetch_partition, Partition.follow
    agreed = set()

    def fetch_partition(index, followed, **limits):
        fetched = build(index, followed, **limits)
        if (followed.partition, followed.leader_epoch) in agreed:
            fetched.last_fetched_epoch = -1
        return fetched

    def appended(self, *records, **offsets):
        agreed.add((self, self.leader_epoch))
        return follow(self, *records, **offsets)

    monkeypatch.setattr(replica_fetcher, "fetch_partition", fetch_partition)
    monkeypatch.setattr(Partition, "follow", appended)


def truncation_to_the_high_watermark(monkeypatch):
    """Up to 0.10: a follower truncates its log to its own high watermark (see KIP-101)."""
    become_follower = Partition.become_follower

    def become(self, state, replicas):
        if self.log is not None:
            self.log.truncate_to(self.log.high_watermark)
        become_follower(self, state, replicas)

    monkeypatch.setattr(Partition, "become_follower", become)
    _leader_compares_by(monkeypatch, lambda log, fetched: None)


def one_step_of_truncation(monkeypatch):
    """0.11 to 1.1: the leader answers the end of an epoch without the epoch (see KIP-279)."""

    def divergence(log, fetched):
        epoch, offset = fetched.last_fetched_epoch, fetched.fetch_offset
        later = [start for known, start in log.epochs.starts() if known > epoch]
        end = later[0] if later else log.leo
        return EpochEndOffset(epoch=epoch, end_offset=end) if epoch >= 0 and end < offset else None

    def truncation_offset(*, leader, own, leo):
        del own
        return min(leader.end_offset, leo)

    _leader_compares_by(monkeypatch, divergence)
    monkeypatch.setattr(replica_fetcher, "truncation_offset", truncation_offset)
    _logs_are_compared_once_a_leader_epoch(monkeypatch)


def truncation_without_fencing(monkeypatch):
    """2.0: truncation by epoch, once for each leader epoch, without fencing (KIP-320)."""
    _logs_are_compared_once_a_leader_epoch(monkeypatch)
    no_leader_epoch_in_fetches(monkeypatch)


def no_leader_epoch_in_fetches(monkeypatch):
    """Up to 2.0: a fetch does not carry the leader epoch (KAFKA-7128, KIP-320)."""
    monkeypatch.setattr(Partition, "check_epoch", lambda self, asked: ErrorCode.NONE)


def no_broker_epoch(monkeypatch):
    """Up to 2.1: a broker accepts a request meant for its earlier registration (KIP-380)."""
    refuse = controller_requests.refuse_request

    def accept(**epochs):
        return refuse(**{**epochs, "broker_epoch": -1, "own_broker_epoch": 0})

    monkeypatch.setattr(controller_requests, "refuse_request", accept)
    no_broker_epoch_of_isr_members(monkeypatch)


def no_broker_epoch_of_isr_members(monkeypatch):
    """Up to 3.9 with ZooKeeper: any registration of a broker may join the ISR (KIP-903)."""
    judge = isr_changes.judge_isr

    def lenient(context, broker, partition, change):
        return judge(context, broker, partition, type(change)(change.partition, change.wanted, {}))

    monkeypatch.setattr(isr_changes, "judge_isr", lenient)


def the_present_broker_epoch_of_a_follower(monkeypatch):
    """A repeated AlterPartition has a follower's present broker epoch, not that of its fetches."""

    def epoch_of(change, member, *, own_epoch):
        follower = change.partition.leader.followers.get(member)
        return own_epoch if follower is None else follower.broker_epoch

    monkeypatch.setattr(isr_shell, "epoch_of", epoch_of)


def no_controller_fencing(monkeypatch):
    """Up to 2.1: a former controller still writes and sends (KAFKA-6082, KAFKA-3083)."""
    refuse = controller_requests.refuse_request

    def accept(**epochs):
        return refuse(**{**epochs, "newest_controller_epoch": -1})

    monkeypatch.setattr(controller_requests, "refuse_request", accept)
    anything = property(lambda self: Check(layout.CONTROLLER_EPOCH, ANY_VERSION))
    monkeypatch.setattr(ControllerTerm, "token", anything)


def high_watermark_by_the_stored_isr(monkeypatch):
    """Without KIP-497's maximal ISR: the HW does not wait for a replica that is being added."""
    monkeypatch.setattr(Isr, "maximal", property(lambda self: self.committed))


def high_watermark_below_min_isr(monkeypatch):
    """Up to 3.6: the HW advances although the ISR is below min.insync.replicas (KIP-966)."""
    monkeypatch.setattr(LeaderReplica, "may_advance", True)


def last_stable_offset_off_by_one(monkeypatch):
    """The last stable offset is one too high: behind the first record of an open transaction."""

    def last_stable_offset(self):
        first = self.producers.first_unstable_offset
        if first == NO_OFFSET:
            return self.high_watermark
        return min(first + 1, self.high_watermark)

    monkeypatch.setattr(Log, "last_stable_offset", property(last_stable_offset))
