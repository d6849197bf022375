"""Rules by which earlier versions of Kafka replicated and lost records, each switched on again.

Each function replaces the rule that holds now by `setattr`, of `switched` or of pytest's
`monkeypatch`; the shipped code has no option for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import odradek.controller.handlers.isr as isr_changes
from odradek.broker import controller_requests
from odradek.broker.cluster import early_requests
from odradek.broker.controller.election import ControllerTerm
from odradek.broker.replication import fetching, isr_shell, replica_fetcher, truncation
from odradek.broker.replication.partition import Partition
from odradek.coord import layout
from odradek.coord.store import ANY_VERSION, Check
from odradek.log.log import Log
from odradek.log.producer_state import NO_OFFSET
from odradek.model.errors import ErrorCode
from odradek.model.partition import LeaderAndIsr
from odradek.replica.follower import EpochEnd
from odradek.replica.isr import Isr
from odradek.replica.leader import LeaderReplica
from odradek.replica.transitions import refuse_request
from odradek.wire.follower_fetch import AskedPartition
from odradek.wire.messages.fetch import EpochEndOffset


class Patches(Protocol):
    """Replaces attributes of modules and classes until the end of a scenario."""

    def setattr(self, target: Any, name: str, value: Any) -> None: ...


class _Switches:
    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        self._replaced.append((target, name, vars(target)[name]))
        setattr(target, name, value)

    def undo(self) -> None:
        """Restore what was replaced, the latest first."""
        while self._replaced:
            setattr(*self._replaced.pop())


@contextmanager
def switched(*rules: Callable[[Patches], None]) -> Iterator[None]:
    """Historic rules for the whole process: no other cluster may run in it meanwhile."""
    switches = _Switches()
    try:
        for rule in rules:
            rule(switches)
        yield
    finally:
        switches.undo()


def _leader_compares_by(
    patches: Patches, divergence: Callable[[Log, Any], EpochEndOffset | None]
) -> None:
    patches.setattr(fetching, "divergence", divergence)


def _logs_are_compared_once_a_leader_epoch(patches: Patches) -> None:
    """As up to 2.6, where OffsetsForLeaderEpoch came before the first Fetch of a leader epoch."""
    build, follow = replica_fetcher.fetch_partition, Partition.follow
    agreed = set[tuple[Partition, int]]()

    def fetch_partition(index: int, followed: Any, bytes_max: int) -> AskedPartition:
        index, epoch, offset, last_epoch, start, limit = build(index, followed, bytes_max)
        if (followed.partition, followed.leader_epoch) in agreed:
            last_epoch = -1
        return index, epoch, offset, last_epoch, start, limit

    def appended(self: Partition, batches: memoryview, **offsets: Any) -> bool:
        agreed.add((self, self.leader_epoch))
        return follow(self, batches, **offsets)

    patches.setattr(replica_fetcher, "fetch_partition", fetch_partition)
    patches.setattr(Partition, "follow", appended)


def truncation_to_the_high_watermark(patches: Patches) -> None:
    """Up to 0.10: a follower truncates its log to its own high watermark (see KIP-101)."""
    become_follower = Partition.become_follower

    def become(self: Partition, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        if self.log is not None:
            self.log.truncate_to(self.log.high_watermark)
        become_follower(self, state, replicas)

    patches.setattr(Partition, "become_follower", become)
    _leader_compares_by(patches, lambda _log, _fetched: None)


def one_step_of_truncation(patches: Patches) -> None:
    """0.11 to 1.1: the leader answers the end of an epoch without the epoch (see KIP-279)."""

    def divergence(log: Log, fetched: Any) -> EpochEndOffset | None:
        epoch, offset = fetched.last_fetched_epoch, fetched.fetch_offset
        later = [start for known, start in log.epochs.starts() if known > epoch]
        end = later[0] if later else log.leo
        return EpochEndOffset(epoch=epoch, end_offset=end) if epoch >= 0 and end < offset else None

    def truncation_offset(*, leader: EpochEnd, own: EpochEnd, leo: int) -> int:
        del own
        return min(leader.end_offset, leo)

    _leader_compares_by(patches, divergence)
    patches.setattr(truncation, "truncation_offset", truncation_offset)
    _logs_are_compared_once_a_leader_epoch(patches)


def truncation_without_fencing(patches: Patches) -> None:
    """2.0: truncation by epoch, once for each leader epoch, without fencing (KIP-320)."""
    _logs_are_compared_once_a_leader_epoch(patches)
    no_leader_epoch_in_fetches(patches)


def no_leader_epoch_in_fetches(patches: Patches) -> None:
    """Up to 2.0: a fetch does not carry the leader epoch (KAFKA-7128, KIP-320)."""
    patches.setattr(Partition, "check_epoch", lambda _self, _asked: ErrorCode.NONE)


def no_broker_epoch(patches: Patches) -> None:
    """Up to 2.1: a broker accepts a request meant for its earlier registration (KIP-380)."""
    refuse = refuse_request

    def accept(**epochs: int) -> Any:
        return refuse(**{**epochs, "broker_epoch": -1, "own_broker_epoch": 0})

    patches.setattr(controller_requests, "refuse_request", accept)
    patches.setattr(early_requests, "HELD", frozenset())  # nothing waits for the registration
    no_broker_epoch_of_isr_members(patches)


def no_broker_epoch_of_isr_members(patches: Patches) -> None:
    """Up to 3.9 with ZooKeeper: any registration of a broker may join the ISR (KIP-903)."""
    judge = isr_changes.judge_isr

    def lenient(context: Any, broker: int, partition: Any, change: Any) -> ErrorCode:
        return judge(context, broker, partition, type(change)(change.partition, change.wanted, {}))

    patches.setattr(isr_changes, "judge_isr", lenient)


def the_present_broker_epoch_of_a_follower(patches: Patches) -> None:
    """A repeated AlterPartition has a follower's present broker epoch, not that of its fetches."""

    def epoch_of(change: Any, member: int, *, own_epoch: int) -> int:
        follower = change.partition.leader.followers.get(member)
        return own_epoch if follower is None else int(follower.broker_epoch)

    patches.setattr(isr_shell, "epoch_of", epoch_of)


def no_controller_fencing(patches: Patches) -> None:
    """Up to 2.1: a former controller still writes and sends (KAFKA-6082, KAFKA-3083)."""
    refuse = refuse_request

    def accept(**epochs: int) -> Any:
        return refuse(**{**epochs, "newest_controller_epoch": -1})

    patches.setattr(controller_requests, "refuse_request", accept)
    anything = property(lambda _: Check(layout.CONTROLLER_EPOCH, ANY_VERSION))
    patches.setattr(ControllerTerm, "token", anything)


def high_watermark_by_the_stored_isr(patches: Patches) -> None:
    """Without KIP-497's maximal ISR: the HW does not wait for a replica that is being added."""
    patches.setattr(Isr, "maximal", property(lambda isr: isr.committed))


def high_watermark_below_min_isr(patches: Patches) -> None:
    """Up to 3.6: the HW advances although the ISR is below min.insync.replicas (KIP-966)."""
    patches.setattr(LeaderReplica, "may_advance", True)


def last_stable_offset_off_by_one(patches: Patches) -> None:
    """The last stable offset is one too high: behind the first record of an open transaction."""

    def last_stable_offset(self: Log) -> int:
        first = self.producers.first_unstable_offset
        if first == NO_OFFSET:
            return self.high_watermark
        return min(first + 1, self.high_watermark)

    patches.setattr(Log, "last_stable_offset", property(last_stable_offset))
