"""What is kept of groups between observations: end offsets, lags, rebalances. Pure, and bounded.

Coordinators of Apache Kafka do not report rebalances. For them a rebalance is what two successive
observations differ in: members, their assignment, or the state. One that begins and ends between
two observations with the same outcome is not seen. Odradek's coordinators report the last one.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.web.groups.lag import EndSamples, LagSample, LagTrend, trend
from odradek.web.groups.values import ObservedGroup, RebalanceSource

GROUPS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 5_000
_LAGS_MAX: Final = 60
_REBALANCES_MAX: Final = 50
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRebalance:
    """One rebalance: when it was seen or began, why, and how it became known."""

    at_ms: int
    text: str
    source: RebalanceSource
    generation: int | None = None


class _GroupPast:
    def __init__(self) -> None:
        self.last: ObservedGroup | None = None
        self.lags: deque[LagSample] = deque(maxlen=_LAGS_MAX)
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.rebalances: deque[SeenRebalance] = deque(maxlen=_REBALANCES_MAX)


class GroupHistory:
    """The past of all groups of one cluster that were observed."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, EndSamples] = {}
        self._groups: dict[str, _GroupPast] = {}

    def observe(self, group: ObservedGroup) -> None:
        """Take one observation; those of a group have to come in their order."""
        for each in group.partitions:
            if each.end is not None:
                self.observe_end(each.partition, group.wall_ms, each.end)
        past = self._groups.get(group.group_id)
        if past is None:
            if len(self._groups) >= GROUPS_MAX:
                self._groups.pop(next(iter(self._groups)))
            past = self._groups[group.group_id] = _GroupPast()
        self._observe_lag(past, group)
        self._observe_rebalance(past, group)
        past.last = group

    def observe_end(self, partition: TopicPartition, wall_ms: WallMs, end: int) -> None:
        """A sample of the end offset; a partition that is seen first may push out the oldest."""
        samples = self._ends.get(partition)
        if samples is None:
            if len(self._ends) >= PARTITIONS_MAX:
                self._ends.pop(next(iter(self._ends)))
            samples = self._ends[partition] = EndSamples()
        last = samples.last
        if last is None or last.wall_ms != wall_ms:
            samples.add(wall_ms, end)

    def keep_only(self, kept: Iterable[str]) -> None:
        """Drop the past of all groups but these: the others do not exist any more."""
        names = set(kept)
        self._groups = {name: past for name, past in self._groups.items() if name in names}

    def ends(self, partition: TopicPartition) -> EndSamples | None:
        """The samples of a partition."""
        return self._ends.get(partition)

    def trend(self, group_id: str) -> LagTrend:
        """How the lag of a group changes, over the samples that are kept."""
        past = self._groups.get(group_id)
        return trend(list(past.lags) if past is not None else [])

    def lags(self, group_id: str) -> list[LagSample]:
        """The lag of a group over time, the oldest first."""
        past = self._groups.get(group_id)
        return list(past.lags) if past is not None else []

    def rebalances(self, group_id: str) -> list[SeenRebalance]:
        """The rebalances that were seen, the latest first."""
        past = self._groups.get(group_id)
        return list(reversed(past.rebalances)) if past is not None else []

    @staticmethod
    def _observe_lag(past: _GroupPast, group: ObservedGroup) -> None:
        known = [each for each in group.partitions if each.lag is not None]
        partitions = frozenset(each.partition for each in known)
        if partitions != past.partitions:
            past.lags.clear()  # sums over other partitions cannot be compared
            past.partitions = partitions
        if past.lags and past.lags[-1].wall_ms >= group.wall_ms:
            past.lags.clear()  # the clock went back
        if known:
            past.lags.append(
                LagSample(
                    group.wall_ms,
                    sum(each.lag or 0 for each in known),
                    sum(each.committed or 0 for each in known),
                    sum(each.end or 0 for each in known),
                )
            )

    @staticmethod
    def _observe_rebalance(past: _GroupPast, group: ObservedGroup) -> None:
        reported = group.rebalance
        if reported is not None:
            seen = {each.at_ms for each in past.rebalances}
            if reported.began_ms > 0 and reported.began_ms not in seen:
                past.rebalances.append(
                    SeenRebalance(
                        at_ms=reported.began_ms,
                        text=reported.reason or "no reason is reported",
                        source=RebalanceSource.REPORT,
                        generation=reported.generation,
                    )
                )
            return
        text = difference(past.last, group) if past.last is not None else ""
        if text:
            past.rebalances.append(
                SeenRebalance(at_ms=group.wall_ms, text=text, source=RebalanceSource.POLLS)
            )


def difference(before: ObservedGroup, after: ObservedGroup) -> str:
    """What of a rebalance two observations show; "" if they show none."""
    then = {each.member_id: each for each in before.members}
    now = {each.member_id: each for each in after.members}
    parts = []
    if joined := [now[each].name for each in now if each not in then]:
        parts.append(f"joined: {_some(joined)}")
    if left := [then[each].name for each in then if each not in now]:
        parts.append(f"left: {_some(left)}")
    moved = sum(
        len(set(now[each].partitions) - set(then[each].partitions)) for each in now if each in then
    )
    if moved:
        parts.append(f"{moved} partition{'s' * (moved != 1)} moved between members that stayed")
    if not parts and after.state in _REBALANCING and before.state not in _REBALANCING:
        parts.append(f"the state became {after.state}")
    return "; ".join(parts)


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
