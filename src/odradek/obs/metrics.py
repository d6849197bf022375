"""What a broker counts and measures, under the names that Kafka's JMX exporter gives.

Counting is on the produce and fetch path, so it is a plain addition to an attribute, once for
each request and each batch, never for each record. This module knows nothing of Prometheus;
`odradek.obs.exposition` reads the numbers when they are scraped.

State that another object already has (number of partitions, controller id) is not counted a second
time: `gauge`, `gauges` and `watch_partitions` register a function that reads it.

Each broker has one `BrokerMetrics`; a process may run several brokers.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeVar

from odradek.model.clock import MonotonicMs
from odradek.obs.metric_names import (
    COUNTERS,
    GAUGES,
    LABELLED_COUNTERS,
    LABELLED_GAUGES,
    SUMMARIES,
)
from odradek.obs.recent import Recent

# Upper bounds, inclusive; larger values go into one more bucket.
BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


class Histogram:
    """The distribution of durations in milliseconds, and their sum."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms: float = 0

    def observe(self, took_ms: float) -> None:
        self.counts[bisect_left(BUCKETS_MS, took_ms)] += 1
        self.sum_ms += took_ms

    def add(self, other: "Histogram") -> None:
        """Add the observations of another histogram."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum_ms += other.sum_ms


class LoopMetrics:
    """How long each iteration of the event loop took; no other request is answered meanwhile."""

    __slots__ = ("busy_ms", "longest_ms")

    def __init__(self) -> None:
        self.busy_ms = Histogram()
        self.longest_ms = 0.0

    def turn(self, took_ms: float) -> None:
        busy = self.busy_ms
        busy.counts[0 if took_ms <= 1 else bisect_left(BUCKETS_MS, took_ms)] += 1
        busy.sum_ms += took_ms
        self.longest_ms = max(self.longest_ms, took_ms)


class RequestPhase(Enum):
    """A part of a request's time (Kafka's `RequestMetrics`)."""

    REQUEST_QUEUE = auto()
    LOCAL = auto()
    REMOTE = auto()
    RESPONSE_SEND = auto()
    THROTTLE = auto()


class ApiMetrics:
    """Counts requests of one API."""

    __slots__ = ("phases", "total_ms", "versions")

    def __init__(self) -> None:
        self.versions: defaultdict[int, int] = defaultdict(int)
        self.total_ms = Histogram()
        # Only times above 0: the others are the rest of all requests, and most requests take 0 ms.
        self.phases = {phase: Histogram() for phase in RequestPhase}

    def add(self, other: "ApiMetrics") -> None:
        """Add the counts of another API."""
        for version, count in other.versions.items():
            self.versions[version] += count
        self.total_ms.add(other.total_ms)
        for phase, times in self.phases.items():
            times.add(other.phases[phase])

    def phase(self, phase: RequestPhase) -> Histogram:
        """The times of a phase in all requests."""
        times, whole = self.phases[phase], Histogram()
        whole.add(times)
        whole.counts[0] += max(0, sum(self.total_ms.counts) - sum(times.counts))
        return whole


# Keys of Fetch requests by the kind of client, in place of the API key.
FETCH_CONSUMER: Final = 1_000
FETCH_FOLLOWER: Final = 1_001


class RequestMetrics:
    """Counts requests of all APIs, by API key."""

    __slots__ = ("apis", "errors", "failed", "malformed")

    def __init__(self) -> None:
        self.apis: defaultdict[int, ApiMetrics] = defaultdict(ApiMetrics)
        self.errors: Counter[tuple[int, int]] = Counter()  # by API key and error code
        self.malformed = 0  # connections closed because of an invalid request
        self.failed = 0  # requests that failed with an unexpected exception

    def answered(
        self,
        api_key: int,
        api_version: int,
        took_ms: int,
        *,
        queue_ms: int = 0,
        remote_ms: int = 0,
        throttle_ms: int = 0,
    ) -> None:
        """Count a response sent `took_ms` after the request was read.

        `queue_ms` passed before it was handled, and for `remote_ms` it waited for a condition.
        """
        api = self.apis[api_key]
        api.versions[api_version] += 1
        total = api.total_ms
        total.counts[bisect_left(BUCKETS_MS, took_ms) if took_ms > 1 else 0] += 1
        if took_ms or throttle_ms:
            total.sum_ms += took_ms
            for phase, spent_ms in (
                (RequestPhase.REQUEST_QUEUE, queue_ms),
                (RequestPhase.LOCAL, took_ms - queue_ms - remote_ms),
                (RequestPhase.REMOTE, remote_ms),
                (RequestPhase.THROTTLE, throttle_ms),
            ):
                if spent_ms > 0:
                    api.phases[phase].observe(spent_ms)

    def answered_at_once(self, api_key: int, api_version: int) -> None:
        """Count a response that was sent in the millisecond in which its request was read."""
        api = self.apis[api_key]
        api.versions[api_version] += 1
        api.total_ms.counts[0] += 1

    def sent(self, api_key: int, took_ms: int) -> None:
        """Count a response that its client took `took_ms` to read."""
        api = self.apis.get(api_key)
        if api is not None and took_ms > 0:
            api.phases[RequestPhase.RESPONSE_SEND].observe(took_ms)


class TopicMetrics:
    """What producers wrote to a topic and consumers read from it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetch_conversions",
        "fetches",
        "messages_in",
        "produce_conversions",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        # Records converted from or to formats older than v2.
        self.produce_conversions = 0
        self.fetch_conversions = 0

    def produced(self, records: int, size_bytes: int) -> None:
        self.messages_in += records
        self.bytes_in += size_bytes
        self.produces += 1

    def fetched(self, size_bytes: int) -> None:
        """Count one partition read for a consumer."""
        self.bytes_out += size_bytes
        self.fetches += 1

    def add(self, other: "TopicMetrics") -> None:
        """Add the counts of another topic, for the sums over all topics."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ConversionMetrics:
    """Conversions of records in requests of one API, from or to formats older than v2."""

    __slots__ = ("memory_bytes", "time_ms")

    def __init__(self) -> None:
        self.time_ms = Histogram()
        self.memory_bytes = 0  # of all conversions


class FollowerNumbers(NamedTuple):
    """A follower's progress, as its leader sees it."""

    broker: int
    lag: int  # records between its log end offset and the leader's
    caught_up_s_ago: float


class PartitionNumbers(NamedTuple):
    """The metrics of one partition on this broker."""

    topic: str
    partition: int
    size_bytes: int
    segments: int
    log_start_offset: int
    log_end_offset: int
    # Known to the leader only; 0 and False on a follower, as in Kafka.
    replicas: int = 0
    in_sync: int = 0
    is_under_replicated: bool = False
    is_under_min_isr: bool = False
    high_watermark: int = -1
    followers: tuple[FollowerNumbers, ...] = ()
    leader: int = -1  # the id of this broker if it leads the partition
    is_preferred: bool = False
    is_at_min_isr: bool = False
    last_stable_lag: int = 0
    topic_partitions: int = 0  # of partition 0, if this broker leads it: those of the topic


Labels = tuple[str, ...]
ReadAll = Callable[[], Iterable[tuple[Labels, float] | None]]
_T = TypeVar("_T")


class BrokerMetrics:
    """All counters and gauges of one broker."""

    def __init__(
        self,
        api_names: Mapping[int, str] | None = None,
        *,
        monotonic_ms: Callable[[], MonotonicMs] = lambda: MonotonicMs(0),
    ) -> None:
        self.api_names: Mapping[int, str] = {
            **(api_names or {}),
            FETCH_CONSUMER: "FetchConsumer",
            FETCH_FOLLOWER: "FetchFollower",
        }
        self._monotonic_ms = monotonic_ms
        self._started_ms = monotonic_ms()
        self._recent: dict[tuple[str, ...], Recent[Any]] = {}
        self.requests = RequestMetrics()
        self.loop = LoopMetrics()  # of the whole process, where it is measured
        self.topics: defaultdict[str, TopicMetrics] = defaultdict(TopicMetrics)
        self.deleted_topics = TopicMetrics()  # the sum over all topics must not go back
        self.bytes_out = 0
        self.fetches = 0
        self.replication_bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.read_gauge: dict[str, Callable[[], float]] = {}
        self.read_gauges: dict[str, ReadAll] = {}
        self.read_counter: dict[str, Callable[[], float]] = {
            "kafka_server_replicamanager_isrshrinks": lambda: self.isr_shrinks,
            "kafka_server_replicamanager_isrexpands": lambda: self.isr_expands,
            "kafka_server_brokertopicmetrics_replicationbytesout": (
                lambda: self.replication_bytes_out
            ),
        }
        self.read_counters: dict[str, ReadAll] = {}
        self.flush_ms = Histogram()  # of a log's flush to disk
        self.conversions: dict[int, ConversionMetrics] = {}  # by API key
        self.summaries: dict[str, Callable[[], Histogram]] = {
            "kafka_log_logflushstats_logflushrateandtimems": lambda: self.flush_ms
        }
        self._partitions: Callable[[], Iterable[Any]] = tuple
        self._numbers: Callable[[Any], PartitionNumbers]

    def isr_changed(self, grew: bool) -> None:
        """An ISR that this broker leads has become larger (`grew`) or smaller."""
        if grew:
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1

    def converted(self, api_key: int, took_ms: float, memory_bytes: int) -> None:
        """Count a conversion from or to a record format older than v2."""
        conversions = self.conversions.setdefault(api_key, ConversionMetrics())
        conversions.time_ms.observe(took_ms)
        conversions.memory_bytes += memory_bytes

    def topic_deleted(self, name: str) -> None:
        """Drop a deleted topic's counters; its counts stay in the sums over all topics."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.deleted_topics.add(topic)

    def fetched(self, size_bytes: int, *, follower: bool) -> None:
        """Count a fetch response to a follower or to a consumer."""
        if follower:
            self.replication_bytes_out += size_bytes
        else:
            self.bytes_out += size_bytes
            self.fetches += 1

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register `read` for `name`, one of `GAUGES`."""
        assert name in GAUGES, name
        self.read_gauge[name] = read

    def gauges(self, name: str, read: "ReadAll") -> None:
        """Register `read`, which gives values by labels, for one of `LABELLED_GAUGES`.

        None among the values lets other work run.
        """
        assert name in LABELLED_GAUGES, name
        self.read_gauges[name] = read

    def counter(self, name: str, read: Callable[[], float]) -> None:
        """Register `read` for `name`, one of `COUNTERS`."""
        assert name in COUNTERS, name
        self.read_counter[name] = read

    def counters(self, name: str, read: "ReadAll") -> None:
        """Register `read`, which gives values by labels, for one of `LABELLED_COUNTERS`."""
        assert name in LABELLED_COUNTERS, name
        self.read_counters[name] = read

    def summary(self, name: str, times: Callable[[], Histogram]) -> None:
        """Register where the times of `name` are, one of `SUMMARIES`."""
        assert name in SUMMARIES, name
        self.summaries[name] = times

    def earlier(self, key: tuple[str, ...], value: _T, start: _T) -> tuple[int, _T]:
        """How many ms ago, about a minute, a growing value was read, and what it was.

        `start` is what it was at the start.
        """
        recent = self._recent.get(key)
        if recent is None:
            recent = self._recent[key] = Recent(self._started_ms, start)
        return recent.earlier(self._monotonic_ms(), value)

    def watch_partitions(
        self, partitions: Callable[[], Iterable[_T]], numbers: Callable[[_T], PartitionNumbers]
    ) -> None:
        """Register where the partitions are, and how to read the numbers of one.

        `partitions` is called once for each scrape, `numbers` for one partition after the other,
        with pauses: there may be many thousands.
        """
        self._partitions, self._numbers = partitions, numbers

    def partitions(self) -> Iterator[PartitionNumbers]:
        """The partitions at the time of the call; each one is read when it is reached."""
        for partition in list(self._partitions()):
            yield self._numbers(partition)
