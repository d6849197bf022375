"""The metrics of `metrics.py` in Prometheus' text format, produced in pieces.

prometheus-client does the format: escaping, histograms, the metrics of the process. With ten
thousand partitions the text takes half a second to produce; so it is made in pieces of about a
millisecond, and the caller lets the event loop run in between.

Where Kafka's exporter gives a summary this gives a histogram: its `_count` has the same name, and
quantiles can be computed over several brokers, which summaries do not allow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from odradek.obs.metrics import (
    BUCKETS_MS,
    GAUGES,
    LABELLED_GAUGES,
    BrokerMetrics,
    FollowerNumbers,
    Histogram,
    PartitionNumbers,
    TopicMetrics,
)

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SLICE: Final = 200  # samples, at about 6 us each

_T = TypeVar("_T")


def text_pieces(metrics: BrokerMetrics) -> Iterator[bytes]:
    """The text, piece by piece. An empty piece only lets the caller run the event loop."""
    for families in (
        _requests(metrics),
        _loop(metrics),
        _gauges(metrics),
        ProcessCollector(registry=None).collect(),
    ):
        for family in families:
            yield _text(family)
    yield from _topics(metrics)
    yield from _partitions(metrics)


class _Only(Collector):
    """The part of a registry that `generate_latest` uses, for one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _text(family: Metric) -> bytes:
    return generate_latest(_Only(family))


def _sliced(
    empty: Callable[[], Metric], items: Iterable[_T], add: Callable[[Metric, _T], None]
) -> Iterator[bytes]:
    """One family with a sample for each item: `# HELP` and `# TYPE` once, samples in pieces."""
    waiting = iter(items)
    head = True
    while some := list(islice(waiting, _SLICE)):
        family = empty()
        for item in some:
            add(family, item)
        text = _text(family)
        if not head:
            _help, _type, text = text.split(b"\n", 2)
        head = False
        yield text


# ----------------------------------------------------------------------------------- families


def _requests(metrics: BrokerMetrics) -> Iterator[Metric]:
    requests = metrics.requests
    count = CounterMetricFamily(
        "kafka_network_requestmetrics_requests",
        "Requests answered.",
        labels=("request", "version"),
    )
    total = HistogramMetricFamily(
        "kafka_network_requestmetrics_totaltimems",
        "Milliseconds from reading a request to its response.",
        labels=("request",),
    )
    for key, api in sorted(requests.apis.items()):
        name = metrics.api_names.get(key, str(key))
        for version, answered in sorted(api.versions.items()):
            count.add_metric((name, str(version)), answered)
        total.add_metric((name,), _buckets(api.total_ms), api.total_ms.sum_ms)
    yield count
    yield total
    for name, value, text in (
        ("malformed", requests.malformed, "Connections closed because of an invalid request."),
        ("failed", requests.failed, "Requests that failed with an unexpected exception."),
    ):
        yield CounterMetricFamily(f"odradek_requests_{name}", text, value=value)


def _loop(metrics: BrokerMetrics) -> Iterator[Metric]:
    busy = metrics.loop.busy_ms
    yield HistogramMetricFamily(
        "odradek_loop_busy_ms",
        "Milliseconds for which the event loop was busy without a break: nothing is answered then.",
        buckets=_buckets(busy),
        sum_value=busy.sum_ms,
    )
    yield GaugeMetricFamily(
        "odradek_loop_busy_ms_max",
        "The longest busy period since the start.",
        value=metrics.loop.longest_ms,
    )


def _buckets(histogram: Histogram) -> Sequence[tuple[str, float]]:
    buckets, below = [], 0
    for bound, count in zip((*map(float, BUCKETS_MS), "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((str(bound), below))
    return buckets


def _gauges(metrics: BrokerMetrics) -> Iterator[Metric]:
    for name, read in metrics.read_gauge.items():
        yield GaugeMetricFamily(name, GAUGES[name], value=read())
    for name, read_all in metrics.read_gauges.items():
        text, labels = LABELLED_GAUGES[name]
        family = GaugeMetricFamily(name, text, labels=labels)
        for values, value in read_all():
            family.add_metric(values, value)
        yield family
    for name, value, text in (
        ("server_replicamanager_isrshrinks", metrics.isr_shrinks, "ISRs that became smaller."),
        ("server_replicamanager_isrexpands", metrics.isr_expands, "ISRs that became larger."),
        (
            "server_replicamanager_failedisrupdates",
            metrics.failed_isr_updates,
            "Changes of an ISR that the controller refused.",
        ),
        (
            "controller_controllerstats_uncleanleaderelections",
            metrics.unclean_elections,
            "Elections that may have lost committed records.",
        ),
        (
            "server_brokertopicmetrics_replicationbytesin",
            metrics.replication_bytes_in,
            "Bytes that followers here fetched.",
        ),
        (
            "server_brokertopicmetrics_replicationbytesout",
            metrics.replication_bytes_out,
            "Bytes that followers fetched from here.",
        ),
    ):
        yield CounterMetricFamily(f"kafka_{name}", text, value=value)


# One series for each topic and, without a label, one for all topics, as in Kafka's exporter.
_TOPIC_COUNTERS: Final = (
    ("messagesin", "messages_in", "Records that producers wrote."),
    ("bytesin", "bytes_in", "Bytes that producers wrote."),
    ("bytesout", "bytes_out", "Bytes that consumers read."),
    ("bytesrejected", "bytes_rejected", "Bytes of batches above max.message.bytes."),
    ("totalproducerequests", "produces", "Batches that producers wrote."),
    ("totalfetchrequests", "fetches", "Reads by consumers."),
    ("failedproducerequests", "failed_produces", "Batches that were refused."),
    ("failedfetchrequests", "failed_fetches", "Reads that failed."),
)


def _topics(metrics: BrokerMetrics) -> Iterator[bytes]:
    total = TopicMetrics()
    total.add(metrics.deleted_topics)
    counted = [("", total), *sorted(metrics.topics.items())]
    for number, (_name, topic) in enumerate(counted[1:], 1):
        total.add(topic)
        if number % _SLICE == 0:
            yield b""
    # Counted once for a whole response, which may hold many topics.
    total.bytes_out, total.fetches = metrics.bytes_out, metrics.fetches
    for short, attribute, text in _TOPIC_COUNTERS:
        name = f"kafka_server_brokertopicmetrics_{short}"

        def empty(name: str = name, text: str = text) -> Metric:
            return CounterMetricFamily(name, text, labels=("topic",))

        def add(family: Metric, item: tuple[str, TopicMetrics], attribute: str = attribute) -> None:
            topic, counters = item
            labels = {"topic": topic} if topic else {}
            family.add_sample(f"{family.name}_total", labels, getattr(counters, attribute))

        yield from _sliced(empty, counted, add)


_PARTITION_GAUGES: Final[tuple[tuple[str, str, Callable[[PartitionNumbers], float]], ...]] = (
    ("log_log_size", "Bytes of the log.", lambda n: n.size_bytes),
    ("log_log_numlogsegments", "Segments of the log.", lambda n: n.segments),
    (
        "log_log_logstartoffset",
        "The log start offset.",
        lambda n: n.log_start_offset,
    ),
    ("log_log_logendoffset", "The offset the next record will get.", lambda n: n.log_end_offset),
    ("cluster_partition_replicascount", "Replicas; 0 on a follower.", lambda n: n.replicas),
    (
        "cluster_partition_insyncreplicascount",
        "In-sync replicas; 0 on a follower.",
        lambda n: n.in_sync,
    ),
    (
        "cluster_partition_underreplicated",
        "1 if this broker leads the partition and replicas are out of sync.",
        lambda n: n.is_under_replicated,
    ),
    (
        "cluster_partition_underminisr",
        "1 if this broker leads the partition and acks=all fails.",
        lambda n: n.is_under_min_isr,
    ),
)
_OWN_PARTITION_GAUGES: Final[tuple[tuple[str, str, Callable[[PartitionNumbers], float]], ...]] = (
    (
        "highwatermark",
        "Every record below it is on all in-sync replicas; consumers read up to it.",
        lambda n: n.high_watermark,
    ),
)
_FOLLOWER_GAUGES: Final[tuple[tuple[str, str, Callable[[FollowerNumbers], float]], ...]] = (
    ("lag", "Records of the leader's log that the follower does not have.", lambda f: f.lag),
    (
        "caughtup_age_seconds",
        "Seconds since the follower had all of the leader's log.",
        lambda f: f.caught_up_s_ago,
    ),
)


def _partitions(metrics: BrokerMetrics) -> Iterator[bytes]:
    numbers: list[PartitionNumbers] = []
    reading = metrics.partitions()
    while some := list(islice(reading, _SLICE)):
        numbers += some
        yield b""
    named = [(f"kafka_{short}", text, value) for short, text, value in _PARTITION_GAUGES]
    named += [(f"odradek_partition_{s}", text, value) for s, text, value in _OWN_PARTITION_GAUGES]
    for name, text, value in named:

        def empty(name: str = name, text: str = text) -> Metric:
            return GaugeMetricFamily(name, text, labels=("topic", "partition"))

        def add(
            family: Metric,
            n: PartitionNumbers,
            value: Callable[[PartitionNumbers], float] = value,
        ) -> None:
            labels = {"topic": n.topic, "partition": str(n.partition)}
            family.add_sample(family.name, labels, value(n))

        yield from _sliced(empty, numbers, add)
    yield from _followers(numbers)


def _followers(numbers: Sequence[PartitionNumbers]) -> Iterator[bytes]:
    """The followers of the partitions that this broker leads."""
    for short, text, value in _FOLLOWER_GAUGES:
        name = f"odradek_partition_follower_{short}"

        def empty(name: str = name, text: str = text) -> Metric:
            return GaugeMetricFamily(name, text, labels=("topic", "partition", "follower"))

        def add(
            family: Metric,
            item: tuple[PartitionNumbers, FollowerNumbers],
            value: Callable[[FollowerNumbers], float] = value,
        ) -> None:
            n, follower = item
            labels = {"topic": n.topic, "partition": str(n.partition)}
            labels["follower"] = str(follower.broker)
            family.add_sample(family.name, labels, value(follower))

        yield from _sliced(empty, ((n, f) for n in numbers for f in n.followers), add)
