"""The rules by which Kafka once replicated, and lost records, each of them switched on again.

The rules that hold now are patched away here, not switched off by an option: nothing of this
ships. Each takes pytest's `monkeypatch`.
"""

import odradek.controller.handlers.isr as isr_changes
from odradek.broker import controller_requests
from odradek.broker.apis import fetch
from odradek.broker.controller.election import ControllerTerm
from odradek.broker.replication import fetching, isr_shell, replica_fetcher
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_fetcher import ReplicaFetcher
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


def _logs_are_compared_when_a_reign_begins_and_not_again(monkeypatch):
    """As up to 2.6, where OffsetsForLeaderEpoch came before the first Fetch of a leader epoch."""
    ask, take = ReplicaFetcher._fetch_partition, ReplicaFetcher._process
    agreed = set()

    def wanted(self, key, followed):
        asked = ask(self, key, followed)
        if followed in agreed:
            asked.last_fetched_epoch = -1
        return asked

    def taken(self, key, followed, data):
        take(self, key, followed, data)
        if not data.error_code and data.diverging_epoch is None:
            agreed.add(followed)

    monkeypatch.setattr(ReplicaFetcher, "_fetch_partition", wanted)
    monkeypatch.setattr(ReplicaFetcher, "_process", taken)


def truncation_to_the_high_watermark(monkeypatch):
    """Up to 0.10: a follower cuts to what it believes committed (KIP-101 tells why not)."""
    become_follower = Partition.become_follower

    def become(self, state, replicas):
        if self.log is not None:
            self.log.truncate_to(self.log.high_watermark)
        become_follower(self, state, replicas)

    monkeypatch.setattr(Partition, "become_follower", become)
    _leader_compares_by(monkeypatch, lambda log, wanted: None)


def one_step_of_truncation(monkeypatch):
    """0.11 to 1.1: the leader tells where an epoch ended, and not which (KIP-279 tells why not)."""

    def divergence(log, wanted):
        epoch, offset = wanted.last_fetched_epoch, wanted.fetch_offset
        later = [start for known, start in log.epochs.starts() if known > epoch]
        end = later[0] if later else log.leo
        return EpochEndOffset(epoch=epoch, end_offset=end) if epoch >= 0 and end < offset else None

    def truncation_offset(*, leader, own, leo):
        del own
        return min(leader.end_offset, leo)

    _leader_compares_by(monkeypatch, divergence)
    monkeypatch.setattr(replica_fetcher, "truncation_offset", truncation_offset)
    _logs_are_compared_when_a_reign_begins_and_not_again(monkeypatch)


def truncation_without_fencing(monkeypatch):
    """2.0: truncation by epoch, in steps, once a leader epoch, and no epoch checked (KIP-320)."""
    _logs_are_compared_when_a_reign_begins_and_not_again(monkeypatch)
    no_leader_epoch_in_fetches(monkeypatch)


def no_leader_epoch_in_fetches(monkeypatch):
    """Up to 2.0: a fetch does not carry the leader epoch (KAFKA-7128, KIP-320)."""
    monkeypatch.setattr(Partition, "check_epoch", lambda self, asked: ErrorCode.NONE)


def no_broker_epoch(monkeypatch):
    """Up to 2.1: an order meant for the life before is obeyed (KIP-380)."""
    refuse = controller_requests.refuse_request

    def obey(**epochs):
        return refuse(**{**epochs, "broker_epoch": -1, "own_broker_epoch": 0})

    monkeypatch.setattr(controller_requests, "refuse_request", obey)
    no_broker_epoch_of_isr_members(monkeypatch)


def no_broker_epoch_of_isr_members(monkeypatch):
    """Up to 3.9 with ZooKeeper: who joins the ISR has to be alive, in whichever life (KIP-903)."""
    judge = isr_changes._judge_isr

    def lenient(context, broker, partition, change):
        return judge(context, broker, partition, type(change)(change.partition, change.wanted, {}))

    monkeypatch.setattr(isr_changes, "_judge_isr", lenient)


def the_life_that_a_follower_is_in_by_now(monkeypatch):
    """Asked again, a leader tells of the epoch it knows now, not of the one it had judged by."""

    def epoch_of(self, change, member):
        if member == self._broker_id:
            return self._broker_epoch()
        return change.partition.leader.followers[member].broker_epoch

    monkeypatch.setattr(isr_shell.IsrShell, "_epoch_of", epoch_of)


def no_controller_fencing(monkeypatch):
    """Up to 2.1: a deposed controller still writes, and is obeyed (KAFKA-6082, KAFKA-3083)."""
    refuse = controller_requests.refuse_request

    def obey(**epochs):
        return refuse(**{**epochs, "newest_controller_epoch": -1})

    monkeypatch.setattr(controller_requests, "refuse_request", obey)
    anything = property(lambda self: Check(layout.CONTROLLER_EPOCH, ANY_VERSION))
    monkeypatch.setattr(ControllerTerm, "token", anything)


def high_watermark_by_the_stored_isr(monkeypatch):
    """2.7's first draft: a member that is on its way in does not count yet (KIP-497)."""
    monkeypatch.setattr(Isr, "maximal", property(lambda self: self.committed))


def high_watermark_below_min_isr(monkeypatch):
    """Up to 3.6: what is on too few replicas is shown all the same (KIP-966)."""
    advance = LeaderReplica._advance

    def move(self, now_ms):
        is_under, self.is_under_min_isr = self.is_under_min_isr, False
        try:
            return advance(self, now_ms)
        finally:
            self.is_under_min_isr = is_under

    monkeypatch.setattr(LeaderReplica, "_advance", move)


def last_stable_offset_off_by_one(monkeypatch):
    """The first offset that is not stable is taken for the last that is."""

    def last_stable_offset(self):
        first = self.producers.first_unstable_offset
        if first == NO_OFFSET:
            return self.high_watermark
        return min(first + 1, self.high_watermark)

    monkeypatch.setattr(Log, "last_stable_offset", property(last_stable_offset))
