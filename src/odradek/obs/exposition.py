"""The metrics of `metrics.py` as text for Prometheus, or in the OpenMetrics format, in pieces.

With ten thousand partitions the text takes a good second to write; so it is made in pieces of a
millisecond or two, and the caller lets the event loop run in between.

Names and labels are those of the example rules for Kafka of Prometheus' JMX exporter: a timer is a
summary, with Kafka's percentiles of about the last minute. They are computed from a histogram, and
cannot be summed over brokers; `odradek_request_time_ms` can.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from prometheus_client import ProcessCollector

from odradek.model.errors import ErrorCode
from odradek.obs.metric_names import (
    COUNTERS,
    GAUGES,
    LABELLED_COUNTERS,
    LABELLED_GAUGES,
    SUMMARIES,
)
from odradek.obs.metrics import (
    BUCKETS_MS,
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    ApiMetrics,
    BrokerMetrics,
    ConversionMetrics,
    FollowerNumbers,
    Histogram,
    PartitionNumbers,
    RequestPhase,
    TopicMetrics,
)

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SLICE: Final = 500  # samples, at about 2 us each
_QUANTILES: Final = ((0.5, "0.50"), (0.75, "0.75"), (0.95, "0.95"), (0.98, "0.98"), (0.99, "0.99"),
                     (0.999, "0.999"))  # fmt: skip

# A suffix of the family's name, the labels as text, and the value.
Sample = tuple[str, str, float]


class Family(NamedTuple):
    """All samples of one metric; None among them lets the caller run the event loop."""

    name: str  # of a counter without `_total`
    kind: str
    text: str
    samples: Iterable[Sample | None]


def content_type(accept: str) -> str:
    """OPENMETRICS_TYPE if a client's Accept header names that format, else TEXT_TYPE."""
    named = [each.partition(";")[0].strip() for each in accept.split(",")]
    return OPENMETRICS_TYPE if "application/openmetrics-text" in named else TEXT_TYPE


def text_pieces(
    metrics: BrokerMetrics, format_: str = TEXT_TYPE, *, shows_names: bool = True
) -> Iterator[bytes]:
    """The text, piece by piece. An empty piece only lets the caller run the event loop.

    Without names it has no metric of a single topic, partition, group or client.
    """
    is_open = format_ == OPENMETRICS_TYPE
    for family in chain(
        _requests(metrics),
        _loop(metrics),
        _registered(metrics, shows_names=shows_names),
        _process(),
        _topics(metrics, shows_names=shows_names),
    ):
        yield from written(family, is_open=is_open)
    if shows_names:
        yield from _partitions(metrics, is_open=is_open)
    if is_open:
        yield b"# EOF\n"


def written(family: Family, *, is_open: bool) -> Iterator[bytes]:
    """One family: `# HELP` and `# TYPE` once, then samples, in pieces."""
    name = family.name
    shown = name if family.kind != "counter" or is_open else f"{name}_total"
    lines = [f"# HELP {shown} {family.text}\n# TYPE {shown} {family.kind}\n"]
    for sample in family.samples:
        if sample is not None:
            suffix, labels, value = sample
            lines.append(f"{name}{suffix}{labels} {_number(value)}\n")
        if sample is None or len(lines) >= _SLICE:
            yield "".join(lines).encode()
            lines = []
    yield "".join(lines).encode()


def _number(value: float) -> str:
    text = repr(+value)  # a bool is 0 or 1
    if text[-1] in "fn":  # inf, nan
        return {"inf": "+Inf", "-inf": "-Inf"}.get(text, "NaN")
    return text


def labelled(names: Sequence[str], values: Sequence[str]) -> str:
    """Labels as text, with what the format requires to be escaped."""
    pairs = ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# ------------------------------------------------------------------------------------- requests


def _requests(metrics: BrokerMetrics) -> Iterator[Family]:
    requests = metrics.requests
    apis = _by_name(metrics)
    yield Family(
        "kafka_network_requestmetrics_requests",
        "counter",
        "Requests answered.",
        (
            ("_total", labelled(("request", "version"), (name, str(version))), count)
            for name, api in apis
            for version, count in sorted(api.versions.items())
        ),
    )
    yield Family(
        "kafka_network_requestmetrics_errors",
        "counter",
        "Errors answered: of whole requests, and of the partitions of Produce and Fetch.",
        (
            (
                "_total",
                labelled(
                    ("request", "error"),
                    (metrics.api_names.get(key, str(key)), ErrorCode(code).name),
                ),
                count,
            )
            for (key, code), count in sorted(requests.errors.items())
        ),
    )
    yield Family(
        "odradek_request_time_ms",
        "histogram",
        "Milliseconds from reading a request to its response.",
        (
            sample
            for name, api in apis
            for sample in _buckets(api.total_ms, labelled(("request",), (name,)))
        ),
    )
    yield from _request_times(metrics, apis)
    for name, value, text in (
        ("malformed", requests.malformed, "Connections closed because of an invalid request."),
        ("failed", requests.failed, "Requests that failed with an unexpected exception."),
    ):
        yield Family(f"odradek_requests_{name}", "counter", text, [("_total", "", value)])


def _by_name(metrics: BrokerMetrics) -> list[tuple[str, ApiMetrics]]:
    """The APIs by name. As in Kafka, Fetch is there a second time for each kind of client."""
    apis = [
        (metrics.api_names.get(key, str(key)), api)
        for key, api in sorted(metrics.requests.apis.items())
    ]
    kinds = [metrics.requests.apis.get(key) for key in (FETCH_CONSUMER, FETCH_FOLLOWER)]
    if any(kinds):
        fetch = ApiMetrics()
        for kind in kinds:
            if kind is not None:
                fetch.add(kind)
        apis.append(("Fetch", fetch))
    return apis


_TIMES: Final[tuple[tuple[RequestPhase | None, str, str], ...]] = (
    (None, "total", "Milliseconds from reading a request to its response."),
    (
        RequestPhase.REQUEST_QUEUE,
        "requestqueue",
        "Milliseconds that a request waits to be handled.",
    ),
    (RequestPhase.LOCAL, "local", "Milliseconds in which this broker works on a request."),
    (
        RequestPhase.REMOTE,
        "remote",
        "Milliseconds that a request waits for a condition or for others.",
    ),
    (
        RequestPhase.RESPONSE_SEND,
        "responsesend",
        "Milliseconds that a client does not read its response.",
    ),
    (RequestPhase.THROTTLE, "throttle", "Throttle time in milliseconds."),
)


def _request_times(
    metrics: BrokerMetrics, apis: Sequence[tuple[str, ApiMetrics]]
) -> Iterator[Family]:
    for phase, short, text in _TIMES:
        name = f"kafka_network_requestmetrics_{short}timems"
        yield Family(name, "summary", text, _times(metrics, name, phase, apis))
    name = "kafka_network_requestmetrics_responsequeuetimems"
    text = "Always 0: a response is sent in the callback that completes it."
    yield Family(name, "summary", text, _no_times(apis))
    yield from _conversions(metrics)


# By API key: these two convert records.
_CONVERTING: Final = ((0, "Produce"), (1, "Fetch"))


def _conversions(metrics: BrokerMetrics) -> Iterator[Family]:
    """Conversions from and to record formats older than v2; only requests that have some count."""
    found = [(name, metrics.conversions.get(key, ConversionMetrics())) for key, name in _CONVERTING]
    family = "kafka_network_requestmetrics_messageconversionstimems"
    yield Family(
        family,
        "summary",
        "Milliseconds in which records were converted from or to formats older than v2.",
        chain.from_iterable(
            _summary(metrics, family, conversions.time_ms, (("request",), (name,)))
            for name, conversions in found
        ),
    )
    yield Family(
        "kafka_network_requestmetrics_temporarymemorybytes",
        "summary",
        "Bytes of records, before and after, that conversions have held in memory.",
        [
            (suffix, labelled(("request",), (name,)), value)
            for name, conversions in found
            for suffix, value in (
                ("_sum", conversions.memory_bytes),
                ("_count", sum(conversions.time_ms.counts)),
            )
        ],
    )


def _times(
    metrics: BrokerMetrics,
    name: str,
    phase: RequestPhase | None,
    apis: Sequence[tuple[str, ApiMetrics]],
) -> Iterator[Sample]:
    for api_name, api in apis:
        times = api.phase(phase) if phase is not None else api.total_ms
        yield from _summary(metrics, name, times, (("request",), (api_name,)))


def _no_times(apis: Sequence[tuple[str, ApiMetrics]]) -> Iterator[Sample]:
    for api_name, api in apis:
        for _, shown in _QUANTILES:
            yield "", labelled(("request", "quantile"), (api_name, shown)), 0
        own = labelled(("request",), (api_name,))
        yield "_sum", own, 0
        yield "_count", own, sum(api.total_ms.counts)


def _summary(
    metrics: BrokerMetrics,
    name: str,
    times: Histogram,
    labels: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Iterator[Sample]:
    names, values = labels
    counts = tuple(times.counts)
    _, earlier = metrics.earlier((name, *values), counts, (0,) * len(counts))
    recent = [now - then for now, then in zip(counts, earlier, strict=True)]
    for quantile, shown in _QUANTILES:
        yield "", labelled((*names, "quantile"), (*values, shown)), quantile_of(recent, quantile)
    own = labelled(names, values)
    yield "_sum", own, times.sum_ms
    yield "_count", own, sum(counts)


def quantile_of(counts: Sequence[int], quantile: float) -> float:
    """A quantile in ms, from counts by `BUCKETS_MS`: interpolated in its bucket; 0 of nothing."""
    rank = quantile * sum(counts)
    below, low = 0, 0
    for bound, count in zip(BUCKETS_MS, counts, strict=False):
        if count and below + count >= rank:
            return low + (bound - low) * (rank - below) / count
        below, low = below + count, bound
    return float(BUCKETS_MS[-1]) if sum(counts) else 0.0


def _buckets(histogram: Histogram, labels: str = "") -> Iterator[Sample]:
    below, inside = 0, labels[1:-1] + "," if labels else ""
    for bound, count in zip((*map(float, BUCKETS_MS), "+Inf"), histogram.counts, strict=True):
        below += count
        yield "_bucket", f'{{{inside}le="{bound}"}}', below
    yield "_sum", labels, histogram.sum_ms
    yield "_count", labels, below


# -------------------------------------------------------------------------- the loop, and gauges


def _loop(metrics: BrokerMetrics) -> Iterator[Family]:
    busy = metrics.loop.busy_ms
    yield Family(
        "odradek_loop_busy_ms",
        "histogram",
        "Milliseconds for which the event loop was busy without a break: nothing is answered then.",
        _buckets(busy),
    )
    yield Family(
        "odradek_loop_busy_ms_max",
        "gauge",
        "The longest busy period since the start.",
        [("", "", metrics.loop.longest_ms)],
    )
    span_ms, earlier_ms = metrics.earlier(("idle",), busy.sum_ms, 0.0)
    idle = 1.0
    if span_ms > 0:
        idle = min(1.0, max(0.0, 1 - (busy.sum_ms - earlier_ms) / span_ms))
    for name, labels in (
        ("server_kafkarequesthandlerpool_requesthandleravgidle_percent", ""),
        ("network_socketserver_networkprocessoravgidle_percent", ""),
        ("network_processor_idle_percent", '{networkProcessor="0"}'),
    ):
        yield Family(
            f"kafka_{name}",
            "gauge",
            "From 0 to 1: how idle the event loop was in the last minute, which does all work.",
            [("", labels, idle)],
        )


# Labels whose values no client, and nobody who creates topics, chooses.
NAMELESS: Final = frozenset(
    {
        "delayedOperation",
        "kind",
        "listener",
        "logDirectory",
        "networkProcessor",
        "version",
    }
)


def _registered(metrics: BrokerMetrics, *, shows_names: bool) -> Iterator[Family]:
    """What the parts of a broker have registered."""
    for name, read in metrics.read_gauge.items():
        yield Family(name, "gauge", GAUGES[name], [("", "", read())])
    for name, read_all in metrics.read_gauges.items():
        text, names = LABELLED_GAUGES[name]
        if not (shows_names or NAMELESS.issuperset(names)):
            continue
        yield Family(name, "gauge", text, _labelled_samples("", names, read_all()))
    for name, read in metrics.read_counter.items():
        yield Family(name, "counter", COUNTERS[name], [("_total", "", read())])
    for name, read_all in metrics.read_counters.items():
        text, names = LABELLED_COUNTERS[name]
        if not (shows_names or NAMELESS.issuperset(names)):
            continue
        yield Family(name, "counter", text, _labelled_samples("_total", names, read_all()))
    for name, times in metrics.summaries.items():
        yield Family(name, "summary", SUMMARIES[name], _summary(metrics, name, times()))


def _labelled_samples(
    suffix: str, names: Sequence[str], rows: Iterable[tuple[Sequence[str], float] | None]
) -> Iterator[Sample | None]:
    for row in rows:
        yield None if row is None else (suffix, labelled(names, row[0]), row[1])


def _process() -> Iterator[Family]:
    """Processor time, memory and open files of this process."""
    for metric in ProcessCollector(registry=None).collect():
        name = metric.name
        samples = [
            (each.name.removeprefix(name), labelled(*_pairs(each.labels)), each.value)
            for each in metric.samples
        ]
        yield Family(name, metric.type, metric.documentation, samples)


def _pairs(labels: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(labels), tuple(labels.values())


# --------------------------------------------------------------------------------------- topics

# One series for each topic and, without a label, one for all topics, as in Kafka's exporter.
_TOPIC_COUNTERS: Final[tuple[tuple[str, Callable[[TopicMetrics], int], str], ...]] = (
    ("messagesin", lambda t: t.messages_in, "Records that producers wrote."),
    ("bytesin", lambda t: t.bytes_in, "Bytes that producers wrote."),
    ("bytesout", lambda t: t.bytes_out, "Bytes that consumers read."),
    ("bytesrejected", lambda t: t.bytes_rejected, "Bytes of batches above max.message.bytes."),
    ("totalproducerequests", lambda t: t.produces, "Batches that producers wrote."),
    ("totalfetchrequests", lambda t: t.fetches, "Reads by consumers."),
    ("failedproducerequests", lambda t: t.failed_produces, "Batches that were refused."),
    ("failedfetchrequests", lambda t: t.failed_fetches, "Reads that failed."),
    (
        "producemessageconversions",
        lambda t: t.produce_conversions,
        "Records of producers that were converted from formats older than v2.",
    ),
    (
        "fetchmessageconversions",
        lambda t: t.fetch_conversions,
        "Records that were converted to formats older than v2 for consumers.",
    ),
)


def _topics(metrics: BrokerMetrics, *, shows_names: bool) -> Iterator[Family]:
    total = TopicMetrics()
    total.add(metrics.deleted_topics)
    named = sorted(metrics.topics.items())
    counted = [("", total)]
    if shows_names:
        counted += [(labelled(("topic",), (name,)), topic) for name, topic in named]

    def sums() -> Iterator[None]:
        for number, (_name, topic) in enumerate(named, 1):
            total.add(topic)
            if number % _SLICE == 0:
                yield None
        # Counted once for a whole response, which may hold many topics.
        total.bytes_out, total.fetches = metrics.bytes_out, metrics.fetches

    first: Iterable[None] = sums()
    for short, value, text in _TOPIC_COUNTERS:
        samples = (("_total", labels, value(topic)) for labels, topic in counted)
        name = f"kafka_server_brokertopicmetrics_{short}"
        yield Family(name, "counter", text, chain(first, samples))
        first = ()


# ----------------------------------------------------------------------------------- partitions

_Numbers = Callable[[PartitionNumbers], float]
_PARTITION_GAUGES: Final[tuple[tuple[str, str, _Numbers], ...]] = (
    ("kafka_log_log_size", "Bytes of the log.", lambda n: n.size_bytes),
    ("kafka_log_log_numlogsegments", "Segments of the log.", lambda n: n.segments),
    ("kafka_log_log_logstartoffset", "The log start offset.", lambda n: n.log_start_offset),
    (
        "kafka_log_log_logendoffset",
        "The offset the next record will get.",
        lambda n: n.log_end_offset,
    ),
    (
        "kafka_cluster_partition_replicascount",
        "Replicas; 0 on a follower.",
        lambda n: n.replicas,
    ),
    (
        "kafka_cluster_partition_insyncreplicascount",
        "In-sync replicas; 0 on a follower.",
        lambda n: n.in_sync,
    ),
    (
        "kafka_cluster_partition_underreplicated",
        "1 if this broker leads the partition and replicas are out of sync.",
        lambda n: n.is_under_replicated,
    ),
    (
        "kafka_cluster_partition_underminisr",
        "1 if this broker leads the partition and acks=all fails.",
        lambda n: n.is_under_min_isr,
    ),
    (
        "kafka_cluster_partition_atminisr",
        "1 if this broker leads the partition and acks=all fails when one more replica is lost.",
        lambda n: n.is_at_min_isr,
    ),
    (
        "kafka_cluster_partition_laststableoffsetlag",
        "Records between the last stable offset and the high watermark; 0 on a follower.",
        lambda n: n.last_stable_lag,
    ),
    (
        "odradek_partition_highwatermark",
        "Every record below it is on all in-sync replicas; consumers read up to it.",
        lambda n: n.high_watermark,
    ),
)
# What kafka_exporter shows of a partition, here on the partition's leader only.
_LED_GAUGES: Final[tuple[tuple[str, str, _Numbers], ...]] = (
    ("current_offset", "The high watermark.", lambda n: n.high_watermark),
    ("oldest_offset", "The log start offset.", lambda n: n.log_start_offset),
    ("leader", "The id of the leader.", lambda n: n.leader),
    ("leader_is_preferred", "1 if the leader is the preferred replica.", lambda n: n.is_preferred),
    ("replicas", "Replicas.", lambda n: n.replicas),
    ("in_sync_replica", "In-sync replicas.", lambda n: n.in_sync),
    (
        "under_replicated_partition",
        "1 if replicas are out of sync.",
        lambda n: n.is_under_replicated,
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


def _partitions(metrics: BrokerMetrics, *, is_open: bool) -> Iterator[bytes]:
    numbers: list[tuple[str, PartitionNumbers]] = []
    reading = metrics.partitions()
    while some := list(islice(reading, _SLICE)):
        numbers += [(_partition_labels(n), n) for n in some]
        yield b""
    led = [(labels, n) for labels, n in numbers if n.leader >= 0]
    yield b""
    families = [
        *((name, text, value, numbers) for name, text, value in _PARTITION_GAUGES),
        *((f"kafka_topic_partition_{s}", text, value, led) for s, text, value in _LED_GAUGES),
    ]
    for name, text, value, rows in families:
        samples = (("", labels, value(n)) for labels, n in rows)
        yield from written(Family(name, "gauge", text, samples), is_open=is_open)
    counted = (
        ("", labelled(("topic",), (n.topic,)), n.topic_partitions)
        for _, n in led
        if n.topic_partitions
    )
    text = "Partitions of the topic; only the leader of partition 0 has this metric."
    yield from written(Family("kafka_topic_partitions", "gauge", text, counted), is_open=is_open)
    for short, text, measure in _FOLLOWER_GAUGES:
        samples = (
            ("", f'{labels[:-1]},follower="{follower.broker}"}}', measure(follower))
            for labels, n in numbers
            for follower in n.followers
        )
        name = f"odradek_partition_follower_{short}"
        yield from written(Family(name, "gauge", text, samples), is_open=is_open)


def _partition_labels(n: PartitionNumbers) -> str:
    return f'{{topic="{_escaped(n.topic)}",partition="{n.partition}"}}'
