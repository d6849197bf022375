"""Announcements gathered while an event is settled: in the end one request for each broker.

    LeaderAndIsr     to the replicas of a partition, when its leader, ISR or replicas changed
    UpdateMetadata   to every broker: the same partitions, and who is alive
    StopReplica      to a replica that is to stop following, or to go

What is announced is what the context holds when the event is settled, so a partition that
changed twice is told once. Nothing comes in here before the store has accepted it.
"""

from collections.abc import Iterable

from odradek.controller.causes import Decision
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import Announce, BrokerNews, Effect, PartitionNews, Record, StopNews
from odradek.model.partition import EPOCH_DURING_DELETE, TopicPartition


class RequestBatch:
    """What the brokers, and the journal, have to be told about the present event."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._empty()

    def _empty(self) -> None:
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}  # True: it is new
        self._metadata: dict[TopicPartition, None] = {}
        self._stop: dict[int, dict[TopicPartition, bool]] = {}  # True: delete it, too
        self._know_nothing: set[int] = set()
        self._brokers_changed = False
        self._decisions: list[Decision] = []
        # What was described already, to be shared by all who are told of it.
        self._described: dict[tuple[TopicPartition, bool], PartitionNews | None] = {}

    def leader_and_isr(
        self, partition: Partition, brokers: Iterable[int], *, is_new: bool = False
    ) -> None:
        """Tell some of a partition's replicas, and everybody by UpdateMetadata."""
        for broker in brokers:
            told = self._leader_and_isr.setdefault(broker, {})
            told[partition.name] = is_new or told.get(partition.name, False)
        self.metadata(partition)

    def metadata(self, partition: Partition) -> None:
        """Tell every broker about a partition."""
        self._metadata[partition.name] = None

    def brokers_changed(self) -> None:
        """Tell every broker who is alive."""
        self._brokers_changed = True

    def tell_everything(self, brokers: Iterable[int]) -> None:
        """Tell these brokers about every partition: they have just come."""
        self._know_nothing.update(brokers)

    def stop(self, partition: Partition, broker: int, *, delete: bool) -> None:
        """Tell a replica to stop; deletion is not taken back."""
        told = self._stop.setdefault(broker, {})
        told[partition.name] = delete or told.get(partition.name, False)

    def decided(self, decision: Decision) -> None:
        """Enter a decision into the journal."""
        self._decisions.append(decision)

    def flush(self) -> list[Effect]:
        """Everything gathered, as effects; the batch is empty again."""
        effects: list[Effect] = []
        if self._decisions:
            effects.append(Record(tuple(self._decisions)))
        news = tuple(self._news())
        if news:
            effects.append(self._announce(news))
        self._empty()
        return effects

    def _announce(self, news: tuple[BrokerNews, ...]) -> Announce:
        topics = self._context.topics
        named = {
            item.partition.topic
            for told in news
            for part in (told.leader_and_isr, told.metadata, told.stop)
            for item in part or ()
        }
        ids = {name: topics[name].id for name in sorted(named) if name in topics}
        return Announce(news, dict(self._context.brokers), ids)

    def _news(self) -> Iterable[BrokerNews]:
        changed = self._describe(self._metadata) if self._metadata else ()
        tell_all = bool(changed) or self._brokers_changed
        everything: tuple[PartitionNews, ...] = ()
        if self._know_nothing:
            everything = self._describe(p.name for p in self._context.partitions())
        for broker, registered in self._context.brokers.items():
            leader_and_isr = stop = metadata = None
            if broker in self._leader_and_isr:
                leader_and_isr = self._describe_to(self._leader_and_isr[broker])
            if broker in self._stop:
                stop = tuple(self._stops(self._stop[broker]))
            if broker in self._know_nothing:
                metadata = everything
            elif tell_all:
                metadata = changed
            if leader_and_isr or stop or metadata is not None:
                epoch = registered.broker_epoch
                yield BrokerNews(broker, epoch, leader_and_isr or None, metadata, stop or None)

    def _describe(self, names: Iterable[TopicPartition]) -> tuple[PartitionNews, ...]:
        return self._describe_to(dict.fromkeys(names, False))

    def _describe_to(self, told: dict[TopicPartition, bool]) -> tuple[PartitionNews, ...]:
        described = []
        for key in told.items():
            if key not in self._described:
                self._described[key] = self._describe_one(*key)
            news = self._described[key]
            if news is not None:
                described.append(news)
        return tuple(described)

    def _describe_one(self, name: TopicPartition, is_new: bool) -> PartitionNews | None:
        partition = self._context.partition(name)
        if partition is None or partition.leader_and_isr is None:
            return None  # gone again, or never led: there is nothing to tell
        assigned, online = partition.assignment.replicas, self._context.online_replicas(partition)
        all_online = len(online) == len(assigned)
        return PartitionNews(
            name,
            partition.leader_and_isr,
            partition.controller_epoch,
            partition.assignment,
            is_new,
            () if all_online else tuple(r for r in assigned if r not in online),
            self._context.is_being_deleted(name),
        )

    def _stops(self, told: dict[TopicPartition, bool]) -> Iterable[StopNews]:
        for name, delete in told.items():
            partition = self._context.partition(name)
            leader_epoch = -1
            if self._context.is_being_deleted(name):
                leader_epoch = EPOCH_DURING_DELETE
            elif partition is not None and partition.leader_and_isr is not None:
                leader_epoch = partition.leader_and_isr.leader_epoch
            yield StopNews(name, leader_epoch, delete)
