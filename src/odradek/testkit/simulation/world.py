"""What checks and actions of a test see of a run."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from odradek.group.group import Group, GroupState
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import CONTROL_BIT
from odradek.sim.scenes.replicas import held, records_of
from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster
from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.outside import Outside
from odradek.testkit.simulation.program import Instance

_SHOWN_MAX = 5
_AT_REST = (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD)


class StoredRecord(NamedTuple):
    """A record of a topic, below the high watermark."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class SimulatedWorld:
    """The cluster, the programs and their ledgers, between two events of a run."""

    def __init__(
        self, cluster: SimulatedCluster, instances: dict[str, Instance], outside: Outside
    ) -> None:
        self.outside = outside
        self._cluster = cluster
        self._instances = instances

    @property
    def now(self) -> float:
        """The simulated time in seconds since the programs were started."""
        return self._cluster.loop.time()

    # ------------------------------------------------------------------------------- Kafka

    def records(self, topic: str) -> list[StoredRecord]:
        """All records of a topic that consumers may read, by partition and offset.

        Aborted transactions are in it: `read_uncommitted`. A partition without a leader has none.
        """
        found = []
        for index in range(self._partitions(topic)):
            leader = self.leader(topic, index)
            replica = None if leader is None else held(leader, TopicPartition(topic, index))
            if replica is None or replica.log is None:
                continue
            end = replica.log.high_watermark
            found += [
                StoredRecord(index, record.offset, _bytes(record.key), _bytes(record.value))
                for header, record in records_of(replica.log)
                if record.offset < end and not header.attributes & CONTROL_BIT
            ]
        return found

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """A group's committed offset of each partition that has one."""
        known = self._group(group)
        return {
            partition.partition: commit.offset
            for partition, commit in (known.offsets.committed.items() if known else ())
            if partition.topic == topic
        }

    def members(self, group: str) -> int:
        """How many members a group has, by its coordinator."""
        known = self._group(group)
        return 0 if known is None else len(known.members)

    def groups_are_at_rest(self) -> bool:
        """Whether no group rebalances, and none has a member that it has not heard of for long."""
        for broker in self._cluster.brokers:
            if broker.broker is None:
                continue
            groups = broker.broker.groups
            now_ms = groups.now().monotonic_ms
            for coordinator in groups.topic.serving:
                for group in coordinator.machine.groups.values():
                    if group.state not in _AT_REST:
                        return False
                    # A living member sends a heartbeat in each third of its session.
                    if any(
                        each.deadline_ms - now_ms < each.session_timeout_ms / 2
                        for each in group.members.values()
                    ):
                        return False
        return True

    def leader(self, topic: str, partition: int = 0) -> SimulatedBroker | None:
        """The broker that leads a partition; None if none does."""
        for broker in self._cluster.brokers:
            replica = held(broker, TopicPartition(topic, partition))
            if replica is not None and replica.leader is not None:
                return broker
        return None

    def controller(self) -> SimulatedBroker | None:
        """The broker that is the controller; None if none is."""
        return self._cluster.controller()

    def coordinator(self, group: str) -> SimulatedBroker | None:
        """The broker that coordinates a group; None if none does."""
        for broker in self._cluster.brokers:
            if broker.broker is not None and not isinstance(
                broker.broker.groups.find(group), ErrorCode
            ):
                return broker
        return None

    def broker(self, number: int) -> SimulatedBroker:
        """A broker by its number."""
        return self._cluster.brokers[number]

    @property
    def network(self) -> Any:
        """The simulated network (`odradek.sim.world.network`)."""
        return self._cluster.network

    def named(self, name: str) -> SimulatedBroker | Instance:
        """A broker or an instance of a program by its name.

        Raises:
            SimulationError: there is none.
        """
        if name in self._instances:
            return self._instances[name]
        for broker in self._cluster.brokers:
            if broker.name == name:
                return broker
        known = ", ".join([*self._instances, *(broker.name for broker in self._cluster.brokers)])
        raise SimulationError(f"nothing is called {name!r} in this simulation: there are {known}")

    def _group(self, group: str) -> Group | None:
        """A group as its coordinator knows it."""
        broker = self.coordinator(group)
        found = None if broker is None else broker.running.groups.find(group)
        if found is None or isinstance(found, ErrorCode):
            return None
        return found.machine.groups.get(group)

    def _partitions(self, topic: str) -> int:
        for broker in self._cluster.brokers:
            if broker.broker is not None and topic in broker.broker.metadata.topics:
                return len(broker.broker.metadata.topics[topic].partitions)
        return 0

    # ------------------------------------------------------------------------------ checks

    def assert_none_lost(self, *, sent: Iterable[Hashable], got: Iterable[Hashable]) -> None:
        """Everything sent was got, at least once."""
        missing = _missing(sent, got)
        assert not missing, f"{len(missing)} of {len(list(sent))} lost: {_shown(missing)}"

    def assert_none_twice(self, *, got: Iterable[Hashable]) -> None:
        """Nothing was got more than once."""
        doubled = [value for value, count in Counter(got).items() if count > 1]
        assert not doubled, f"{len(doubled)} more than once: {_shown(doubled)}"

    def assert_each_once(self, *, sent: Iterable[Hashable], got: Iterable[Hashable]) -> None:
        """Everything sent was got exactly once, and nothing else."""
        sent, got = list(sent), list(got)
        self.assert_none_lost(sent=sent, got=got)
        self.assert_none_twice(got=got)
        invented = _missing(got, sent)
        assert not invented, f"{len(invented)} got that were not sent: {_shown(invented)}"

    def assert_order_kept(self, got: Sequence[Any]) -> None:
        """What was got does not decrease."""
        for before, after in pairwise(got):
            assert not after < before, f"{after!r} came after {before!r}"


def _missing(these: Iterable[Hashable], among: Iterable[Hashable]) -> list[Hashable]:
    there = set(among)
    return [value for value in dict.fromkeys(these) if value not in there]


def _shown(values: Sequence[object]) -> str:
    more = f", and {len(values) - _SHOWN_MAX} more" if len(values) > _SHOWN_MAX else ""
    return ", ".join(repr(value) for value in values[:_SHOWN_MAX]) + more


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
