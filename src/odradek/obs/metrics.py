"""What a broker counts and measures, under the names that Kafka's JMX exporter gives.

Counting is on the produce and fetch path, so it is a plain addition to an attribute, once for
each request and each batch, never for each record. This module knows nothing of Prometheus;
`odradek.obs.exposition` reads the numbers when they are scraped.

State that another object already has (number of partitions, controller id) is not counted a second
time: `gauge`, `gauges` and `watch_partitions` register a function that reads it.

Each broker has one `BrokerMetrics`; a process may run several brokers.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

# Upper bounds, inclusive; larger values go into one more bucket.
BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


class Histogram:
    """The distribution of durations in milliseconds, and their sum."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms: float = 0


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


class ApiMetrics:
    """Counts requests of one API."""

    __slots__ = ("total_ms", "versions")

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}
        self.total_ms = Histogram()


class RequestMetrics:
    """Counts requests of all APIs, by API key."""

    __slots__ = ("apis", "failed", "malformed")

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.malformed = 0  # connections closed because of an invalid request
        self.failed = 0  # requests that failed with an unexpected exception

    def answered(self, api_key: int, api_version: int, took_ms: int) -> None:
        """Count a response sent `took_ms` after the request was read."""
        api = self.apis.get(api_key)
        if api is None:
            api = self.apis[api_key] = ApiMetrics()
        versions = api.versions
        versions[api_version] = versions.get(api_version, 0) + 1
        total = api.total_ms
        total.counts[bisect_left(BUCKETS_MS, took_ms)] += 1
        total.sum_ms += took_ms


class TopicMetrics:
    """What producers wrote to a topic and consumers read from it."""

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


Labels = tuple[str, ...]
_T = TypeVar("_T")


class BrokerMetrics:
    """All counters and gauges of one broker."""

    def __init__(self, api_names: Mapping[int, str] | None = None) -> None:
        self.api_names: Mapping[int, str] = api_names or {}
        self.requests = RequestMetrics()
        self.loop = LoopMetrics()  # of the whole process, where it is measured
        self.topics: dict[str, TopicMetrics] = {}
        self.deleted_topics = TopicMetrics()  # the sum over all topics must not go back
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
        """The topic's counters; they are made at first use."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicMetrics()
        return topic

    def isr_changed(self, grew: bool) -> None:
        """An ISR that this broker leads has become larger (`grew`) or smaller."""
        if grew:
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1

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

    def gauges(self, name: str, read: Callable[[], Iterable[tuple[Labels, float]]]) -> None:
        """Register `read`, which gives values by labels, for one of `LABELLED_GAUGES`."""
        assert name in LABELLED_GAUGES, name
        self.read_gauges[name] = read

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


GAUGES: Final[Mapping[str, str]] = {
    "kafka_server_kafkaserver_brokerstate": (
        "0 not running, 1 starting, 2 recovering, 3 running, 6 controlled shutdown, 7 shutting down"
    ),
    "kafka_server_replicamanager_partitioncount": "Partitions with a replica on this broker.",
    "kafka_server_replicamanager_leadercount": "Partitions that this broker leads.",
    "kafka_server_replicamanager_offlinereplicacount": "Replicas in log directories that failed.",
    "kafka_server_replicamanager_underreplicatedpartitions": (
        "Partitions that this broker leads with replicas out of sync."
    ),
    "kafka_server_replicamanager_underminisrpartitioncount": (
        "Partitions that this broker leads with fewer in-sync replicas than min.insync.replicas."
    ),
    "kafka_server_replicamanager_atminisrpartitioncount": (
        "Partitions that this broker leads with exactly min.insync.replicas in-sync replicas."
    ),
    "kafka_server_replicamanager_reassigningpartitions": (
        "Partitions that this broker leads and that are being reassigned."
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": ("Incremental fetch sessions."),
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": (
        "Partitions in all incremental fetch sessions."
    ),
    "kafka_log_logmanager_offlinelogdirectorycount": "Log directories that failed.",
    "odradek_connections_refused": (
        "Connections refused since the start: max.connections, max.connections.per.ip, open files."
    ),
    "odradek_connections_delayed": (
        "Connections above a rate since the start: served later, or closed after a throttle time."
    ),
    "odradek_connections_dropped": (
        "Connections closed since the start for odradek.connections.memory.max.bytes."
    ),
    "odradek_connections_memory_bytes": (
        "Memory that requests and responses take, of connections with more than 64 KiB each."
    ),
    "odradek_connections_unauthenticated": (
        "Connections not logged in yet, or whose TLS handshake is not complete."
    ),
    "odradek_connections_unauthenticated_bytes": (
        "What they count for odradek.unauthenticated.memory.max.bytes."
    ),
    "odradek_connections_unauthenticated_dropped": (
        "Connections closed since the start for odradek.unauthenticated.*."
    ),
    "odradek_housekeeping_failures": (
        "Failures of periodic work (retention, checkpoints ...) since the start; each is logged."
    ),
    "kafka_log_logcleaner_max_buffer_utilization_percent": (
        "How full the cleaner's offset map was in the last cleaning."
    ),
    "kafka_log_logcleaner_cleaner_recopy_percent": (
        "What the last cleaning wrote, in percent of what it read."
    ),
    "kafka_log_logcleaner_max_clean_time_secs": "The longest cleaning.",
    "kafka_log_logcleaner_max_compaction_delay_secs": (
        "The longest time by which a record has exceeded max.compaction.lag.ms."
    ),
    "kafka_log_logcleanermanager_max_dirty_percent": "Of the dirtiest log, the dirty part.",
    "kafka_log_logcleanermanager_time_since_last_run_ms": (
        "Milliseconds since the cleaner last looked for logs to clean."
    ),
    "kafka_controller_kafkacontroller_activecontrollercount": "1 on the controller, else 0.",
    "kafka_controller_kafkacontroller_activebrokercount": "Brokers that are registered.",
    "kafka_controller_kafkacontroller_globaltopiccount": "Topics of the cluster.",
    "kafka_controller_kafkacontroller_globalpartitioncount": "Partitions of the cluster.",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "Partitions without a leader.",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": (
        "Partitions whose leader is not the preferred replica."
    ),
    "kafka_controller_kafkacontroller_topicstodeletecount": "Topics whose deletion goes on.",
    "kafka_controller_kafkacontroller_topicsineligibletodeletecount": (
        "Topics whose deletion waits for a broker that does not run or for a reassignment."
    ),
    "kafka_controller_controllereventmanager_eventqueuesize": ("Events in the controller's queue."),
}

LABELLED_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "kafka_server_socket_server_metrics_connection_count": (
        "Connections, by listener.",
        ("listener",),
    ),
    **{
        f"kafka_server_socket_server_metrics_{what}": (text, ("listener",))
        for what, text in {
            "successful_authentication_total": "Clients that have logged in by SASL or TLS.",
            "successful_authentication_rate": "Clients a second that log in.",
            "successful_authentication_no_reauth_total": (
                "Clients that have logged in and cannot do it again: older than Kafka 2.2, or TLS."
            ),
            "failed_authentication_total": "Clients that failed to log in.",
            "failed_authentication_rate": "Clients a second that fail to log in.",
            "successful_reauthentication_rate": "Sessions a second that are prolonged.",
            "failed_reauthentication_rate": "Sessions a second that a failed log-in ends.",
            "reauthentication_latency_avg": "Milliseconds to log in again, in the last minute.",
            "reauthentication_latency_max": "The longest of these times, in milliseconds.",
            "successful_reauthentication_total": "Sessions that were prolonged (KIP-368).",
            "failed_reauthentication_total": "Sessions that a failed log-in has ended.",
            "expired_connections_killed_count": "Connections closed because their session expired.",
        }.items()
    },
    "odradek_tls_certificate_expiry_seconds": (
        "Until when the certificate of a listener is valid, in seconds since the epoch.",
        ("listener",),
    ),
    "odradek_tls_handshakes_failed": (
        "TLS handshakes that failed since the start, by listener.",
        ("listener",),
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": (
        "Requests in the purgatory.",
        ("delayedOperation",),
    ),
    "kafka_log_logmanager_logdirectoryoffline": (
        "1 for a log directory that failed, else 0.",
        ("logDirectory",),
    ),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": (
        "Logs that the cleaner skips because they are damaged.",
        ("logDirectory",),
    ),
    "kafka_log_logcleanermanager_uncleanable_bytes": (
        "Bytes of these logs that are not cleaned.",
        ("logDirectory",),
    ),
    **{
        f"kafka_server_{quota}": (text, ("user", "client_id"))
        for quota, text in {
            "produce_byte_rate": "Bytes a second produced, of clients with a quota.",
            "produce_throttle_time": "Their latest throttle time, ms.",
            "fetch_byte_rate": "Bytes a second consumed, of clients with a quota.",
            "fetch_throttle_time": "Their latest throttle time, ms.",
            "request_request_time": "Percent of the event loop's time, of clients with a quota.",
            "request_throttle_time": "Their latest throttle time, ms.",
            "controllermutation_tokens": (
                "Partitions that clients with a quota may create or delete at once; negative: none."
            ),
            "controllermutation_throttle_time": "Their latest throttle time, ms.",
        }.items()
    },
    "kafka_server_replicafetchermanager_maxlag": (
        "The largest lag of a follower on this broker, in records.",
        ("clientId",),
    ),
}
