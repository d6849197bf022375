"""What a broker counts, and the text that Prometheus reads."""

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from odradek.model.errors import ErrorCode
from odradek.obs.exposition import (
    NAMELESS,
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    content_type,
    quantile_of,
    text_pieces,
)
from odradek.obs.metric_names import GAUGES, LABELLED_COUNTERS, LABELLED_GAUGES
from odradek.obs.metrics import (
    BUCKETS_MS,
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    BrokerMetrics,
    FollowerNumbers,
    PartitionNumbers,
)
from odradek.obs.recent import Recent


def scraped(metrics):
    """Every sample, by name and labels; fails if Prometheus could not parse the text."""
    text = b"".join(text_pieces(metrics)).decode()
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)), "a family is given twice"
    families = list(text_string_to_metric_families(text))
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_are_counted_by_api_and_version():
    metrics = BrokerMetrics({0: "Produce"})
    metrics.requests.answered(0, 9, 0)
    metrics.requests.answered(0, 9, 3)
    metrics.requests.answered(0, 7, 40_000)
    metrics.requests.answered(99, 0, 1)
    metrics.requests.malformed += 1

    samples = scraped(metrics)

    name = "kafka_network_requestmetrics_requests_total"
    assert samples[name, ("request", "Produce"), ("version", "9")] == 2
    assert samples[name, ("request", "Produce"), ("version", "7")] == 1
    assert samples[name, ("request", "99"), ("version", "0")] == 1
    assert samples[("odradek_requests_malformed_total",)] == 1


def test_a_request_that_takes_no_time_is_counted_as_any_other():
    one, other = BrokerMetrics({0: "Produce"}), BrokerMetrics({0: "Produce"})
    for version in (9, 9, 7):
        one.requests.answered(0, version, 0)
        other.requests.answered_at_once(0, version)

    counts = [
        {key: value for key, value in scraped(each).items() if "request" in key[0]}
        for each in (one, other)
    ]
    assert sum(counts[0].values()) > 0
    assert counts[0] == counts[1]


def test_request_times_are_counted_in_buckets():
    metrics = BrokerMetrics({0: "Produce"})
    for took_ms in (0, 1, 2, 3, 40_000):
        metrics.requests.answered(0, 9, took_ms)

    samples = scraped(metrics)

    name = "odradek_request_time_ms"
    produce = ("request", "Produce")
    assert samples[f"{name}_bucket", ("le", "1.0"), produce] == 2
    assert samples[f"{name}_bucket", ("le", "2.0"), produce] == 3
    assert samples[f"{name}_bucket", ("le", "5.0"), produce] == 4
    assert samples[f"{name}_bucket", ("le", "30000.0"), produce] == 4
    assert samples[f"{name}_bucket", ("le", "+Inf"), produce] == 5
    assert samples[f"{name}_count", produce] == 5
    assert samples[f"{name}_sum", produce] == 40_006


def test_topics_are_counted_separately_and_in_sum():
    metrics = BrokerMetrics()
    metrics.topics["a"].produced(3, 300)
    metrics.topics['b"\\'].produced(1, 50)
    metrics.topics["a"].failed_produces += 1
    metrics.topics["a"].fetched(40)
    metrics.fetched(60, follower=False)  # the whole response
    metrics.fetched(70, follower=True)

    samples = scraped(metrics)

    name = "kafka_server_brokertopicmetrics_"
    assert samples[f"{name}messagesin_total", ("topic", "a")] == 3
    assert samples[f"{name}bytesin_total", ("topic", 'b"\\')] == 50
    assert samples[(f"{name}bytesin_total",)] == 350
    assert samples[(f"{name}failedproducerequests_total",)] == 1
    assert samples[f"{name}bytesout_total", ("topic", "a")] == 40
    assert samples[(f"{name}bytesout_total",)] == 60
    assert samples[(f"{name}replicationbytesout_total",)] == 70


def test_the_sum_over_topics_does_not_decrease_when_a_topic_is_deleted():
    metrics = BrokerMetrics()
    metrics.topics["a"].produced(3, 300)
    metrics.topic_deleted("a")
    metrics.topic_deleted("unknown")

    samples = scraped(metrics)

    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert samples[(name,)] == 3
    assert (name, ("topic", "a")) not in samples


def test_gauges_are_read_at_each_scrape():
    metrics = BrokerMetrics()
    led = [1]
    metrics.gauge("kafka_server_replicamanager_leadercount", lambda: len(led))
    metrics.gauges(
        "kafka_server_socket_server_metrics_connection_count", lambda: [(("PLAINTEXT", "0"), 7)]
    )
    led.append(2)

    samples = scraped(metrics)

    assert samples[("kafka_server_replicamanager_leadercount",)] == 2
    name = "kafka_server_socket_server_metrics_connection_count"
    assert samples[name, ("listener", "PLAINTEXT"), ("networkProcessor", "0")] == 7
    assert (
        "kafka_server_replicamanager_partitioncount",
    ) not in samples  # no function is registered


def test_a_gauge_has_to_be_one_of_the_table():
    with pytest.raises(AssertionError):
        BrokerMetrics().gauge("kafka_server_leadercount", lambda: 0)
    assert all(name.startswith(("kafka_", "odradek_")) for name in GAUGES)


def test_many_partitions_are_written_in_pieces_each_family_once():
    metrics = BrokerMetrics()
    asked = []

    def numbers(partition):
        asked.append(partition)
        followers = (FollowerNumbers(2, 7, 1.5),)
        return PartitionNumbers(
            "t", partition, 10 * partition, 1, 0, partition, 3, 2, True, False, 90, followers
        )

    metrics.watch_partitions(lambda: range(1_000), numbers)
    writing = text_pieces(metrics)
    while not asked:
        next(writing)
    assert len(asked) < 1_000  # one piece, then the caller may run the event loop
    list(writing)

    samples = scraped(metrics)

    labels = (("partition", "999"), ("topic", "t"))
    assert samples["kafka_log_log_logendoffset", *labels] == 999
    assert samples["kafka_log_log_size", *labels] == 9990
    assert samples["kafka_cluster_partition_underreplicated", *labels] == 1
    assert samples["kafka_cluster_partition_insyncreplicascount", *labels] == 2
    assert samples["odradek_partition_highwatermark", *labels] == 90
    of_follower = (("follower", "2"), *labels)
    assert samples["odradek_partition_follower_lag", *of_follower] == 7
    assert samples["odradek_partition_follower_caughtup_age_seconds", *of_follower] == 1.5
    assert sum(name == "kafka_log_log_size" for name, *_ in samples) == 1_000


def test_partitions_may_be_added_and_removed_during_a_scrape():
    metrics = BrokerMetrics()
    there = dict.fromkeys(range(1_000))
    metrics.watch_partitions(lambda: there, lambda n: PartitionNumbers("t", n, 0, 1, 0, 0))
    for written, _ in enumerate(text_pieces(metrics)):
        there[1_000 + written] = None
    assert len(there) > 1_000


def test_the_metrics_of_the_process_are_included():
    samples = scraped(BrokerMetrics())

    assert samples[("process_resident_memory_bytes",)] > 0
    assert ("process_cpu_seconds_total",) in samples


def test_iterations_of_the_event_loop_are_a_histogram_with_a_maximum():
    metrics = BrokerMetrics()
    for took_ms in (0.2, 1, 1.5, 70):
        metrics.loop.turn(took_ms)

    samples = scraped(metrics)

    assert samples["odradek_loop_busy_ms_bucket", ("le", "1.0")] == 2
    assert samples["odradek_loop_busy_ms_bucket", ("le", "2.0")] == 3
    assert samples["odradek_loop_busy_ms_bucket", ("le", "50.0")] == 3
    assert samples["odradek_loop_busy_ms_bucket", ("le", "100.0")] == 4
    assert samples[("odradek_loop_busy_ms_count",)] == 4
    assert samples[("odradek_loop_busy_ms_sum",)] == 72.7
    assert samples[("odradek_loop_busy_ms_max",)] == 70


class Clock:
    def __init__(self):
        self.now_ms = 0

    def __call__(self):
        return self.now_ms


def test_a_request_s_time_is_divided_into_phases_as_summaries_with_kafka_s_percentiles():
    clock = Clock()
    metrics = BrokerMetrics({0: "Produce"}, monotonic_ms=clock)
    for _ in range(99):
        metrics.requests.answered(0, 9, 0)
    metrics.requests.answered(0, 9, 100, queue_ms=20, remote_ms=70, throttle_ms=400)
    metrics.requests.sent(0, 50)

    samples = scraped(metrics)

    def time(phase, suffix="", *labels):
        name = f"kafka_network_requestmetrics_{phase}timems{suffix}"
        return samples[name, *sorted((("request", "Produce"), *labels))]

    sums = {
        phase: time(phase, "_sum")
        for phase in ("total", "requestqueue", "local", "remote", "responsesend", "throttle")
    }
    assert sums == {"total": 100, "requestqueue": 20, "local": 10, "remote": 70,
                    "responsesend": 50, "throttle": 400}  # fmt: skip
    assert time("remote", "_count") == time("responsequeue", "_count") == 100
    assert time("remote", "", ("quantile", "0.95")) < 1
    assert 50 < time("remote", "", ("quantile", "0.999")) <= 100


def test_percentiles_are_of_the_last_minute():
    clock = Clock()
    metrics = BrokerMetrics({0: "Produce"}, monotonic_ms=clock)
    name = "kafka_network_requestmetrics_totaltimems"
    median = (name, ("quantile", "0.50"), ("request", "Produce"))
    metrics.requests.answered(0, 9, 5_000)
    medians = []
    for _ in range(10):
        clock.now_ms += 15_000
        medians.append(scraped(metrics)[median])
        metrics.requests.answered(0, 9, 0)

    assert medians[0] > 2_000
    assert medians[-1] < 1


def test_a_quantile_is_interpolated_in_its_bucket():
    counts = [0] * (len(BUCKETS_MS) + 1)
    assert quantile_of(counts, 0.5) == 0
    counts[BUCKETS_MS.index(10)] = 10
    assert quantile_of(counts, 0.5) == 7.5
    counts[-1] = 90
    assert quantile_of(counts, 0.5) == BUCKETS_MS[-1]


def test_what_was_read_earlier_is_about_a_minute_old():
    recent = Recent(0, 0)
    spans = [recent.earlier(now_s * 1000, now_s)[0] // 1000 for now_s in range(0, 300, 5)]
    assert spans[:13] == list(range(0, 65, 5))
    assert all(60 <= span < 80 for span in spans[13:])


def test_fetches_of_consumers_and_followers_are_counted_separately_and_together():
    metrics = BrokerMetrics({1: "Fetch"})
    metrics.requests.answered(FETCH_CONSUMER, 17, 3)
    metrics.requests.answered(FETCH_FOLLOWER, 17, 4)

    samples = scraped(metrics)

    name = "kafka_network_requestmetrics_requests_total"
    counts = {
        kind: samples[name, ("request", kind), ("version", "17")]
        for kind in ("Fetch", "FetchConsumer", "FetchFollower")
    }
    assert counts == {"Fetch": 2, "FetchConsumer": 1, "FetchFollower": 1}
    total = "kafka_network_requestmetrics_totaltimems_sum"
    assert samples[total, ("request", "Fetch")] == 7


def test_errors_are_counted_by_request_and_error():
    metrics = BrokerMetrics({0: "Produce"})
    metrics.requests.errors[0, ErrorCode.NOT_ENOUGH_REPLICAS] += 2

    name = "kafka_network_requestmetrics_errors_total"
    assert scraped(metrics)[name, ("error", "NOT_ENOUGH_REPLICAS"), ("request", "Produce")] == 2


def test_idle_percentages_are_the_event_loop_s_share_of_the_last_minute():
    clock = Clock()
    metrics = BrokerMetrics(monotonic_ms=clock)
    clock.now_ms = 10_000
    metrics.loop.turn(2_500)

    samples = scraped(metrics)

    assert samples["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",] == 0.75
    assert samples["kafka_network_socketserver_networkprocessoravgidle_percent",] == 0.75
    processor = ("networkProcessor", "0")
    assert samples["kafka_network_processor_idle_percent", processor] == 0.75


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", True),
    ],
)
def test_the_accept_header_chooses_the_format(accept, is_open):
    assert (content_type(accept) == OPENMETRICS_TYPE) is is_open


def test_openmetrics_has_the_same_samples():
    metrics = BrokerMetrics({0: "Produce"})
    metrics.requests.answered(0, 9, 3)
    metrics.topics['b"\\\n'].produced(1, 50)
    metrics.watch_partitions(
        lambda: range(3), lambda n: PartitionNumbers("t", n, 0, 1, 0, 0, leader=1)
    )
    text = b"".join(text_pieces(metrics, OPENMETRICS_TYPE)).decode()

    names = {
        (sample.name, *sorted(sample.labels.items()))
        for family in openmetrics_families(text)
        for sample in family.samples
    }

    assert names == scraped(metrics).keys()
    assert text.endswith("# EOF\n")
    bytes_in = "kafka_server_brokertopicmetrics_bytesin_total"
    assert (bytes_in, ("topic", 'b"\\\n')) in names


# Whose values are names of topics and groups, or are chosen by clients.
NAMING = {
    "clientId", "clientSoftwareName", "clientSoftwareVersion", "client_id", "consumergroup", "ip",
    "partition", "topic", "user",
}  # fmt: skip


def test_each_label_of_a_metric_names_somebody_or_nobody():
    used = {name for _, names in (LABELLED_GAUGES | LABELLED_COUNTERS).values() for name in names}

    assert used - NAMELESS <= NAMING
    assert not NAMELESS & NAMING


@pytest.mark.parametrize("format_", [TEXT_TYPE, OPENMETRICS_TYPE])
def test_without_names_no_single_topic_group_or_client_is_there(format_):
    metrics = BrokerMetrics({0: "Produce"})
    metrics.requests.answered(0, 9, 1)
    metrics.topics["payroll"].messages_in = 7
    metrics.partitions = lambda: iter([PartitionNumbers("payroll", 0, 90, 1, 0, 3)])
    for table, register in (
        (LABELLED_GAUGES, metrics.read_gauges),
        (LABELLED_COUNTERS, metrics.read_counters),
    ):
        for name, (_, labels) in table.items():
            values = tuple("payroll" if label in NAMING else "x" for label in labels)
            register[name] = lambda values=values: [(values, 3.0)]
    with_names = b"".join(text_pieces(metrics, format_)).decode()
    text = b"".join(text_pieces(metrics, format_, shows_names=False)).decode()

    assert with_names.count("payroll") > 20
    assert "payroll" not in text
    for shown in (
        "kafka_server_brokertopicmetrics_messagesin_total 7",
        'kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 1',
        'odradek_log_directory_free_bytes{logDirectory="x"} 3.0',
        "process_resident_memory_bytes",
    ):
        assert shown in text
    assert text.endswith("# EOF\n") is (format_ == OPENMETRICS_TYPE)
