"""The facts of a cluster that the doctor uses, and its findings. Values only.

Some facts are available from any Kafka cluster; the rest only Odradek brokers report
(`odradek.broker.reports`), and is empty for others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Any, Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, joined
from odradek.plan.cluster import ClusterPicture
from odradek.plan.commands import Caller, brokers, clock, some

PATIENCE_MS: Final = 60_000
DISK_PERCENT: Final = 90.0
RECENT_MS: Final = 3_600_000  # refusals, errors and decisions that are older are ignored
CERTIFICATE_MS: Final = 30 * 86_400_000  # certificates are reported so long before they expire

Report = Mapping[str, Any]
Entry = Mapping[str, Any]


class Reason(Enum):
    """Why facts could not be had."""

    NO_ANSWER = auto()  # this time: they may be had the next time
    NOT_OFFERED = auto()  # these brokers never offer them
    DENIED = auto()  # this client has no permission


class Gap(NamedTuple):
    """Facts that could not be had."""

    why: str
    reason: Reason = Reason.NO_ANSWER
    code: ErrorCode | None = None  # of DENIED: names the type of the resource

    def __str__(self) -> str:
        return self.why


def gap_of(error: Exception) -> Gap:
    """What a request that failed leaves unknown."""
    code = ErrorCode(error.code) if isinstance(error, ApiError) else None
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return Gap(str(error), Reason.NOT_OFFERED)
    if code is not None and code.name.endswith("_AUTHORIZATION_FAILED"):
        return Gap(str(error), Reason.DENIED, code)
    return Gap(str(error))


class Severity(IntEnum):
    """The severity of a finding."""

    CRITICAL = 0  # something does not work
    WARNING = 1  # one more failure makes something stop working
    NOTE = 2


class Finding(NamedTuple):
    """One problem: what, of which subject, why and since when, and what to do."""

    severity: Severity
    kind: str
    subject: str
    why: str
    fix: Sentence  # a command, or what to do
    broker: int | None = None  # the one whose report it is of; None: it is of no single broker

    def as_plain(self) -> dict[str, Any]:
        """For JSON: `fix` as text, and each of its commands as words and as text."""
        return {
            **self._asdict(),
            "severity": self.severity.name.lower(),
            "fix": str(self.fix),
            "commands": [{"words": each.words, "text": str(each)} for each in self.fix.commands],
        }


class Address(NamedTuple):
    """An advertised address of a broker."""

    host: str
    port: int
    problem: str | None = None  # why the name cannot be resolved


class RunningReassignment(NamedTuple):
    """A running reassignment of one partition."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


class CopyProgress(NamedTuple):
    """The growth of an adding replica between two observations."""

    before_bytes: int
    after_bytes: int
    leader_bytes: int
    seconds: float


class GroupFacts(NamedTuple):
    """The state and lag of a consumer group."""

    name: str
    state: str
    lag: int  # records that it can still read, of all its partitions together
    # Records above its committed offsets that are not in the logs any more.
    deleted: Mapping[TopicPartition, int] = {}


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int
    coordinated: bool = False  # its coordinator has it, and will end it
    transactional_id: str = ""
    started_ms: int = -1
    timeout_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The facts of a cluster. Missing ones are named by area (`odradek.plan.examination`)."""

    picture: ClusterPicture
    caller: Caller = field(default_factory=Caller)
    addresses: Mapping[int, Address] = field(default_factory=dict)
    unreachable: Mapping[int, str] = field(default_factory=dict)  # brokers, and why
    answers_at: Mapping[int, str] = field(
        default_factory=dict
    )  # another address at which it answers
    certificates: Mapping[int, int] = field(default_factory=dict)  # of brokers: when they expire
    # Throttle options of brokers (by id) and topics (by name).
    broker_throttles: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    topic_throttles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    moves: Mapping[TopicPartition, RunningReassignment] = field(default_factory=dict)
    progress: Mapping[tuple[TopicPartition, int], CopyProgress] = field(default_factory=dict)
    groups: Sequence[GroupFacts] = ()
    open_transactions: Mapping[TopicPartition, Sequence[OpenProducer]] = field(default_factory=dict)
    transaction_max_timeout_ms: int = 900_000
    # The largest timestamp of each partition of topics with retention by time.
    newest_timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    wall_ms: WallMs = WallMs(0)
    gaps: Mapping[str, Gap] = field(default_factory=dict)  # areas that could not be examined
    unreported: Mapping[int, Gap] = field(default_factory=dict)  # brokers without reports
    # Reports of Odradek brokers only.
    # `broker` reports by broker id, and the `groups` reports of all brokers.
    reports: Mapping[int, Report] = field(default_factory=dict)
    coordinated: Sequence[Report] = ()
    journal: Sequence[Entry] = ()  # of all brokers, the oldest first
    # What is wrong with the znodes of topics that the controller cannot read, by name.
    unreadable_topics: Mapping[str, str] = field(default_factory=dict)
    # The caller's limits: how long a problem must last, and how full a disk may be.
    patience_ms: int = PATIENCE_MS
    disk_percent: float = DISK_PERCENT

    def lacking(self, reason: Reason) -> list[int]:
        """The brokers without reports for this reason."""
        return sorted(b for b, gap in self.unreported.items() if gap.reason is reason)

    def clock(self, at_ms: int) -> str:
        return clock(at_ms, self.wall_ms)

    def since(self, at_ms: int | None) -> str:
        """` since 10:01:00`, or "" where the time is not known."""
        return "" if at_ms is None or at_ms < 0 else f" since {self.clock(at_ms)}"

    def last_ms(self, true: Callable[[Entry], bool]) -> int | None:
        """The time of the last journal entry for which `true` holds."""
        found = (e["at_ms"] for e in reversed(self.journal) if e["verdict"] and true(e))
        return next(found, None)

    def first_of(self, verdict: str, partitions: Iterable[TopicPartition]) -> int | None:
        """The time of the last entry with this verdict about the first of these partitions."""
        wanted = {(p.topic, p.partition) for p in partitions}
        latest: dict[tuple[str, int], int] = {}
        for e in self.journal:
            if e["verdict"] == verdict and (about := (e["topic"], e["partition"])) in wanted:
                latest[about] = e["at_ms"]
        return min(latest.values(), default=None)

    def went_ms(self, broker: int) -> int | None:
        """When a broker's registration ended last."""
        return self.last_ms(lambda e: e["verdict"] == "BROKER_GONE" and e["broker"] == broker)

    def silent_ms(self, broker: int) -> int | None:
        """Since when a broker is silent: its last fetch, or the oldest request that it owes."""
        peers = [
            p for r in self.reports.values() for p in r.get("peers", ()) if p["broker"] == broker
        ]
        fetched = [p["fetched_ms"] for p in peers if p["fetched_ms"] is not None]
        unanswered = [p["unanswered_ms"] for p in peers if p["unanswered_ms"] is not None]
        return max(fetched or unanswered, default=None)

    def away(self, ids: Iterable[int]) -> str:
        """Which brokers are offline, since when, and the state of their processes."""
        parts = []
        for broker in sorted(ids):
            if broker in self.reports:  # it is not registered, and answers
                parts.append(f"broker {broker} runs, and is not registered with the store")
                continue
            process = self.caller.process(broker)
            since = self.since(self.went_ms(broker))
            parts.append(f"broker {broker} is offline{since}{f' ({process})' if process else ''}")
        return "; ".join(parts)

    def bring_all_back(self, ids: Iterable[int]) -> Sentence:
        """How to have several brokers serve again."""
        away = sorted(ids)
        running = [broker for broker in away if broker in self.reports]
        see = f"see what is said of {brokers(running)}" if running else ""
        rest = [broker for broker in away if broker not in running]
        return joined((see, self.caller.bring_all_back(rest)))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in their order; after the first few only their number."""
    return some([str(partition) for partition in sorted(partitions)])
