"""Metrics of consumer groups: each group is on its coordinator, so that sums count it once.

The names are those of kafka_exporter, and of Kafka's `GroupMetadataManager`.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.coordinators.leader_ends import LeaderEnds
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.group.group import Group
from odradek.model.partition import TopicPartition
from odradek.obs.metrics import BrokerMetrics, Labels

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager_"
_STATES: Final = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead",
)  # fmt: skip
_SLICE: Final = 500

Rows = Iterator[tuple[Labels, float] | None]


class GroupGauges:
    """Reads the groups that are coordinated here."""

    def __init__(
        self,
        shell: GroupShell,
        replicas: ReplicaManager,
        ends: LeaderEnds,
    ) -> None:
        self._shell = shell
        self._replicas = replicas
        self._ends = ends

    def publish(self, metrics: BrokerMetrics) -> None:
        """Register these gauges with the broker's metrics."""
        metrics.gauge(f"{_MANAGER}numgroups", lambda: len(self._groups()))
        metrics.gauge(
            f"{_MANAGER}numoffsets",
            lambda: sum(len(group.offsets.committed) for group in self._groups()),
        )
        for state in _STATES:
            metrics.gauge(f"{_MANAGER}numgroups{state.lower()}", partial(self._in, state))
        metrics.gauges("kafka_consumergroup_current_offset", self._offsets)
        metrics.gauges("kafka_consumergroup_lag", self._lags)
        metrics.gauges("kafka_consumergroup_current_offset_sum", lambda: _sums(self._offsets()))
        metrics.gauges("kafka_consumergroup_lag_sum", lambda: _sums(self._lags()))
        metrics.gauges("kafka_consumergroup_members", self._members)

    def _groups(self) -> list[Group]:
        return [
            group for each in self._shell.topic.serving for group in each.machine.groups.values()
        ]

    def _in(self, state: str) -> int:
        return sum(group.state.value == state for group in self._groups())

    def _members(self) -> Rows:
        for number, group in enumerate(self._groups(), 1):
            yield (group.group_id,), len(group.members)
            if number % _SLICE == 0:
                yield None

    def _offsets(self) -> Rows:
        for group, partition, offset in self._committed():
            yield (group, partition.topic, str(partition.partition)), offset

    def _lags(self) -> Rows:
        elsewhere: dict[TopicPartition, None] = {}
        for group, partition, offset in self._committed():
            end = self._end(partition)
            if end is None:
                elsewhere[partition] = None
                end = self._ends.of(partition)
            if end is not None:
                lag = max(0, end - offset)
                yield (group, partition.topic, str(partition.partition)), lag
        self._ends.want(elsewhere)

    def _committed(self) -> Iterator[tuple[str, TopicPartition, int]]:
        for group in self._groups():
            for partition, committed in list(group.offsets.committed.items()):
                yield group.group_id, partition, committed.offset

    def _end(self, partition: TopicPartition) -> int | None:
        """The high watermark in this broker's replica; None if it has none."""
        held = self._replicas.get(*partition)
        return held.log.high_watermark if held is not None and held.log is not None else None


def _sums(rows: Rows) -> Rows:
    """The sums over partitions of values by group, topic and partition."""
    sums: Counter[Labels] = Counter()
    for number, row in enumerate(rows, 1):
        if row is not None:
            sums[row[0][:2]] += int(row[1])
        if number % _SLICE == 0:
            yield None
    yield from sums.items()
