"""What a broker counts and measures, under the names that Kafka's JMX exporter gives.

Counting is on the way of the data, so it is a plain addition to an attribute, for each
request and each batch, never for each record. Nothing is formatted here, and nothing knows
Prometheus: `odradek.obs.exposition` reads these numbers when it is asked for them.

What others already know (how many partitions, who is controller) is not counted a second time:
they hand in a function that reads it, `gauge`, `gauges` and `watch_partitions`.

One `BrokerMetrics` belongs to one broker; there may be many in a process.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

# Upper bounds, each included; what is above the last falls into one more bucket.
BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


class Histogram:
    """How often a number of milliseconds fell where, and what they came to."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms: float = 0

    def observe(self, took_ms: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS_MS, took_ms)] += 1
        self.sum_ms += took_ms


class LoopMetrics:
    """The turns of the event loop: how long each was busy, so that nothing else was answered."""

    __slots__ = ("busy_ms", "longest_ms")

    def __init__(self) -> None:
        self.busy_ms = Histogram()
        self.longest_ms = 0.0

    def turn(self, took_ms: float) -> None:
        """A turn is over."""
        busy = self.busy_ms
        busy.counts[0 if took_ms <= 1 else bisect_left(BUCKETS_MS, took_ms)] += 1
        busy.sum_ms += took_ms
        self.longest_ms = max(self.longest_ms, took_ms)


class ApiMetrics:
    """The requests of one API."""

    __slots__ = ("total_ms", "versions")

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}
        self.total_ms = Histogram()


class RequestMetrics:
    """The requests of all APIs, by their keys."""

    __slots__ = ("apis", "failed", "malformed")

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.malformed = 0  # connections closed because what they sent was no request
        self.failed = 0  # requests that no handler had foreseen to fail

    def answered(self, api_key: int, api_version: int, took_ms: int) -> None:
        """A request was answered, so long after it had been read."""
        api = self.apis.get(api_key)
        if api is None:
            api = self.apis[api_key] = ApiMetrics()
        versions = api.versions
        versions[api_version] = versions.get(api_version, 0) + 1
        total = api.total_ms
        total.counts[bisect_left(BUCKETS_MS, took_ms)] += 1
        total.sum_ms += took_ms


class TopicMetrics:
    """What producers wrote to a topic and consumers read of it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
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

    def produced(self, records: int, size_bytes: int) -> None:
        """A batch was appended."""
        self.messages_in += records
        self.bytes_in += size_bytes
        self.produces += 1

    def fetched(self, size_bytes: int) -> None:
        """A partition was read for a consumer."""
        self.bytes_out += size_bytes
        self.fetches += 1

    def add(self, other: "TopicMetrics") -> None:
        """Take over what another topic had counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class FollowerNumbers(NamedTuple):
    """How far a follower is, as its leader sees it."""

    broker: int
    lag: int  # records between its log end offset and the leader's
    caught_up_s_ago: float


class PartitionNumbers(NamedTuple):
    """What there is to know of one partition on this broker."""

    topic: str
    partition: int
    size_bytes: int
    segments: int
    log_start_offset: int
    log_end_offset: int
    # Known where it leads; 0 and False on a follower, as Kafka has it.
    replicas: int = 0
    in_sync: int = 0
    is_under_replicated: bool = False
    is_under_min_isr: bool = False
    high_watermark: int = -1
    followers: tuple[FollowerNumbers, ...] = ()


Labels = tuple[str, ...]
_T = TypeVar("_T")


class BrokerMetrics:
    """All that one broker counts, and all that it can be asked for."""

    def __init__(self, api_names: Mapping[int, str] | None = None) -> None:
        self.api_names: Mapping[int, str] = api_names or {}
        self.requests = RequestMetrics()
        self.loop = LoopMetrics()  # of the process, where it is measured
        self.topics: dict[str, TopicMetrics] = {}
        self.deleted_topics = TopicMetrics()  # a sum may not go back because a topic goes
        self.bytes_out = 0
        self.fetches = 0
        self.replication_bytes_out = 0
        self.replication_bytes_in = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self.unclean_elections = 0
        self.read_gauge: dict[str, Callable[[], float]] = {}
        self.read_gauges: dict[str, Callable[[], Iterable[tuple[Labels, float]]]] = {}
        self._partitions: Callable[[], Iterable[Any]] = tuple
        self._numbers: Callable[[Any], PartitionNumbers]

    def topic(self, name: str) -> TopicMetrics:
        """The counters of a topic, from its first use on."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicMetrics()
        return topic

    def topic_deleted(self, name: str) -> None:
        """A topic is gone, and shown no longer; what it had counted stays in the sums."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.deleted_topics.add(topic)

    def fetched(self, size_bytes: int, *, follower: bool) -> None:
        """A fetch was answered."""
        if follower:
            self.replication_bytes_out += size_bytes
        else:
            self.bytes_out += size_bytes
            self.fetches += 1

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """From now on `name`, one of `GAUGES`, is what `read` returns."""
        assert name in GAUGES, name
        self.read_gauge[name] = read

    def gauges(self, name: str, read: Callable[[], Iterable[tuple[Labels, float]]]) -> None:
        """From now on `name`, one of `LABELLED_GAUGES`, is what `read` returns, by labels."""
        assert name in LABELLED_GAUGES, name
        self.read_gauges[name] = read

    def watch_partitions(
        self, partitions: Callable[[], Iterable[_T]], numbers: Callable[[_T], PartitionNumbers]
    ) -> None:
        """From now on these are the partitions, and `numbers` is asked of them one by one.

        `partitions` is called at once, `numbers` in slices: there may be many thousands.
        """
        self._partitions, self._numbers = partitions, numbers

    def partitions(self) -> Iterator[PartitionNumbers]:
        """The partitions there are when this begins, each read when it comes to it."""
        for partition in list(self._partitions()):
            yield self._numbers(partition)


GAUGES: Final[Mapping[str, str]] = {
    "kafka_server_kafkaserver_brokerstate": (
        "0 not running, 1 starting, 2 recovering, 3 running, 6 shutting down in a controlled way, "
        "7 shutting down"
    ),
    "kafka_server_replicamanager_partitioncount": "Partitions with a replica on this broker.",
    "kafka_server_replicamanager_leadercount": "Partitions that this broker leads.",
    "kafka_server_replicamanager_offlinereplicacount": "Replicas in log directories that failed.",
    "kafka_server_replicamanager_underreplicatedpartitions": (
        "Partitions led here with replicas out of sync."
    ),
    "kafka_server_replicamanager_underminisrpartitioncount": (
        "Partitions led here with fewer in sync than min.insync.replicas: acks=all fails."
    ),
    "kafka_server_replicamanager_atminisrpartitioncount": (
        "Partitions led here with just min.insync.replicas in sync."
    ),
    "kafka_server_replicamanager_reassigningpartitions": (
        "Partitions led here whose replicas are being changed."
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": (
        "Fetchers of whom this broker remembers what they have."
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": (
        "Partitions in these sessions."
    ),
    "kafka_log_logmanager_offlinelogdirectorycount": "Log directories that failed.",
    "odradek_connections_refused": (
        "Connections refused since the start, for max.connections, max.connections.per.ip or files."
    ),
    "odradek_connections_dropped": (
        "Connections closed since the start for odradek.connections.memory.max.bytes."
    ),
    "odradek_connections_memory_bytes": (
        "Memory that requests and responses of all connections take, where it is above 64 KiB each."
    ),
    "odradek_housekeeping_failures": (
        "How often recurring work (retention, checkpoints ...) has failed; each is logged."
    ),
    "kafka_log_logcleaner_max_buffer_utilization_percent": (
        "How full the map of keys was in the last cleaning."
    ),
    "kafka_log_logcleaner_cleaner_recopy_percent": (
        "How much of what the last cleaning read it wrote again."
    ),
    "kafka_log_logcleaner_max_clean_time_secs": "The longest cleaning.",
    "kafka_log_logcleaner_max_compaction_delay_secs": (
        "For how long a record is beyond max.compaction.lag.ms, at most."
    ),
    "kafka_log_logcleanermanager_max_dirty_percent": "Of the dirtiest log, the dirty part.",
    "kafka_log_logcleanermanager_time_since_last_run_ms": (
        "Since it was last looked what there is to clean."
    ),
    "kafka_controller_kafkacontroller_activecontrollercount": "1 on the controller, else 0.",
    "kafka_controller_kafkacontroller_activebrokercount": "Brokers that are registered.",
    "kafka_controller_kafkacontroller_globaltopiccount": "Topics of the cluster.",
    "kafka_controller_kafkacontroller_globalpartitioncount": "Partitions of the cluster.",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "Partitions without a leader.",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": (
        "Partitions not led by their preferred replica."
    ),
    "kafka_controller_kafkacontroller_topicstodeletecount": "Topics whose deletion goes on.",
    "kafka_controller_kafkacontroller_topicsineligibletodeletecount": (
        "Topics whose deletion waits, for a broker that is away or for a move."
    ),
    "kafka_controller_controllereventmanager_eventqueuesize": (
        "Events that wait for the controller."
    ),
}

LABELLED_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "kafka_server_socket_server_metrics_connection_count": (
        "Connections, by listener.",
        ("listener",),
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": (
        "Requests that wait for something to become true.",
        ("delayedOperation",),
    ),
    "kafka_log_logmanager_logdirectoryoffline": (
        "1 for a log directory that failed, else 0.",
        ("logDirectory",),
    ),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": (
        "Logs that cannot be cleaned, for they are damaged.",
        ("logDirectory",),
    ),
    "kafka_log_logcleanermanager_uncleanable_bytes": (
        "What is not clean in these.",
        ("logDirectory",),
    ),
    "kafka_server_replicafetchermanager_maxlag": (
        "By how many records followers here are behind, at most.",
        ("clientId",),
    ),
}
