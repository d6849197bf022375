"""What a broker counts, and the text that Prometheus reads."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.obs.exposition import text_pieces
from odradek.obs.metrics import GAUGES, BrokerMetrics, FollowerNumbers, PartitionNumbers


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


def test_request_times_are_counted_in_buckets():
    metrics = BrokerMetrics({0: "Produce"})
    for took_ms in (0, 1, 2, 3, 40_000):
        metrics.requests.answered(0, 9, took_ms)

    samples = scraped(metrics)

    name = "kafka_network_requestmetrics_totaltimems"
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
    metrics.topic("a").produced(3, 300)
    metrics.topic('b"\\').produced(1, 50)
    metrics.topic("a").failed_produces += 1
    metrics.topic("a").fetched(40)
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
    metrics.topic("a").produced(3, 300)
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
        "kafka_server_socket_server_metrics_connection_count", lambda: [(("PLAINTEXT",), 7)]
    )
    led.append(2)

    samples = scraped(metrics)

    assert samples[("kafka_server_replicamanager_leadercount",)] == 2
    name = "kafka_server_socket_server_metrics_connection_count"
    assert samples[name, ("listener", "PLAINTEXT")] == 7
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
