"""What the doctor knows of a cluster, and what it says of it. Values only.

Some of it any Kafka cluster answers; the rest is reported by brokers of ours alone
(`odradek.broker.reports`), and is empty where others run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture
from odradek.plan.commands import Caller, clock, some

PATIENCE_MS: Final = 60_000
DISK_PERCENT: Final = 90.0

Report = Mapping[str, Any]
Entry = Mapping[str, Any]


class Severity(IntEnum):
    """How bad it is."""

    CRITICAL = 0  # something does not work
    WARNING = 1  # something will not work when one thing more goes wrong
    NOTE = 2


class Finding(NamedTuple):
    """One thing that is wrong: what, to whom, why and since when, and what to do."""

    severity: Severity
    kind: str
    subject: str
    why: str
    fix: str  # a command, or what to do


class Address(NamedTuple):
    """Where a broker says that it can be reached."""

    host: str
    port: int
    problem: str | None = None  # why the name cannot be resolved


class Move(NamedTuple):
    """A reassignment under way."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Progress(NamedTuple):
    """How a replica that is being made grew between two looks."""

    before_bytes: int
    after_bytes: int
    leader_bytes: int
    seconds: float


class Group(NamedTuple):
    """A consumer group."""

    name: str
    state: str
    lag: int  # records behind, over all its partitions


class Producer(NamedTuple):
    """A producer that has a transaction open in a partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int
    coordinated: bool = False  # a coordinator knows of it, and will end it
    transactional_id: str = ""
    started_ms: int = -1
    timeout_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a cluster; what could not be asked for is in `unknown`, by kind."""

    picture: ClusterPicture
    caller: Caller = field(default_factory=Caller)
    addresses: Mapping[int, Address] = field(default_factory=dict)
    unreachable: Mapping[int, str] = field(default_factory=dict)  # brokers, and why
    answers_at: Mapping[int, str] = field(default_factory=dict)  # where it answers all the same
    # Options of brokers (by id) and topics (by name) that have to do with throttles.
    broker_throttles: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    topic_throttles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    moves: Mapping[TopicPartition, Move] = field(default_factory=dict)
    progress: Mapping[tuple[TopicPartition, int], Progress] = field(default_factory=dict)
    groups: Sequence[Group] = ()
    open_transactions: Mapping[TopicPartition, Sequence[Producer]] = field(default_factory=dict)
    transaction_max_timeout_ms: int = 900_000
    # The largest timestamp of each partition of topics that retention by time works on.
    newest_timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    now_ms: int = 0
    unknown: Mapping[str, str] = field(default_factory=dict)
    # Of brokers of ours.
    reports: Mapping[int, Report] = field(default_factory=dict)  # `broker`, by broker
    coordinated: Sequence[Report] = ()  # `groups`, of all brokers
    journal: Sequence[Entry] = ()  # of all brokers, the oldest first
    # From when on the caller takes something for long-lasting, and a disk for full.
    patience_ms: int = PATIENCE_MS
    disk_percent: float = DISK_PERCENT

    def clock(self, at_ms: int) -> str:
        return clock(at_ms, self.now_ms)

    def since(self, at_ms: int | None) -> str:
        """` since 10:01:00`, or nothing where it is not known."""
        return "" if at_ms is None or at_ms < 0 else f" since {self.clock(at_ms)}"

    def last_ms(self, true: Callable[[Entry], bool]) -> int | None:
        """When the last decision was made of which something is true."""
        found = (e["at_ms"] for e in reversed(self.journal) if e["verdict"] and true(e))
        return next(found, None)

    def first_of(self, verdict: str, partitions: Iterable[TopicPartition]) -> int | None:
        """When the last decision of a kind was made about the first of these partitions."""
        wanted = {(p.topic, p.partition) for p in partitions}
        latest: dict[tuple[str, int], int] = {}
        for e in self.journal:
            if e["verdict"] == verdict and (about := (e["topic"], e["partition"])) in wanted:
                latest[about] = e["at_ms"]
        return min(latest.values(), default=None)

    def went_ms(self, broker: int) -> int | None:
        """When a broker went away last."""
        return self.last_ms(lambda e: e["verdict"] == "BROKER_GONE" and e["broker"] == broker)

    def away(self, ids: Iterable[int]) -> str:
        """Which brokers are away, since when, and what is known of their processes."""
        said = []
        for broker in sorted(ids):
            process = self.caller.process(broker)
            since = self.since(self.went_ms(broker))
            said.append(f"broker {broker} is away{since}{f' ({process})' if process else ''}")
        return "; ".join(said)


def named(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in their order, the first few by name."""
    return some([str(partition) for partition in sorted(partitions)])
